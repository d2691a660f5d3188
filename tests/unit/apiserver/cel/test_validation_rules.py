"""Rules of a schema over whole objects: where they run, what they see of the old object, and what errors they leave."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.apiserver.cel import Budget, compile_message, compile_rule, compile_schema_rules, unchanged
from remuda.kube.errors import FieldError


def rule(text: str, **more: Any) -> dict[str, Any]:
    return {"rule": text, **more}


def schema(rules: list[dict[str, Any]] | None = None, **properties: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "object", "properties": properties}
    if rules:
        found["x-kubernetes-validations"] = rules
    return found


def errors(of: dict[str, Any], obj: Any, old: Any = None, **options: Any) -> list[str]:
    tree = compile_schema_rules(of)
    assert tree is not None
    return [str(error) for error in tree.validate(obj, old, **options)]


NUMBER = {"type": "integer"}
TEXT = {"type": "string"}


def test_schema_without_rules_needs_no_tree() -> None:
    assert compile_schema_rules(schema(a=NUMBER)) is None


def test_failed_rule_names_the_rule_or_its_message() -> None:
    of = schema([rule("self.n > 5"), rule("self.n > 6", message=" too small ")], n=NUMBER)
    assert errors(of, {"n": 3}) == ["<nil>: Invalid value: failed rule: self.n > 5", "<nil>: Invalid value: too small"]


def test_scalars_show_their_value_and_objects_do_not() -> None:
    of = schema(
        n={**NUMBER, "x-kubernetes-validations": [rule("self > 5")]},
        o={**schema(x=NUMBER), "x-kubernetes-validations": [rule("has(self.x)")]},
    )
    assert errors(of, {"n": 3, "o": {}}) == [
        "n: Invalid value: 3: failed rule: self > 5",
        "o: Invalid value: failed rule: has(self.x)",
    ]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"messageExpression": "'n is %d'.format([self.n])"}, "<nil>: Invalid value: n is 3"),
        ({"messageExpression": "'a' + string(self.n / 0)", "message": "sorry"}, "<nil>: Invalid value: sorry"),
        ({"messageExpression": "'a\\nb'"}, "<nil>: Invalid value: failed rule: self.n > 5"),
        ({"messageExpression": "'  '"}, "<nil>: Invalid value: failed rule: self.n > 5"),
        ({"reason": "FieldValueForbidden"}, "<nil>: Forbidden: failed rule: self.n > 5"),
        ({"reason": "FieldValueRequired", "fieldPath": ".n"}, "n: Required value: failed rule: self.n > 5"),
        ({"reason": "FieldValueDuplicate", "fieldPath": "['n']"}, "n: Duplicate value"),
        ({"reason": "FieldValueInvalid"}, "<nil>: Invalid value: failed rule: self.n > 5"),
    ],
)
def test_message_reason_and_path_shape_the_error(more: dict[str, Any], expected: str) -> None:
    assert errors(schema([rule("self.n > 5", **more)], n=NUMBER), {"n": 3}) == [expected]


def test_errors_while_evaluating_are_validation_errors() -> None:
    of = schema([rule("self.n > 5"), rule("self.any > 5"), rule("self.zz")], n=NUMBER, any={"x-kubernetes-int-or-string": True})
    assert errors(of, {"any": "x"}) == [
        '<nil>: Invalid value: "object": no such key: n evaluating rule: self.n > 5',
        "<nil>: Invalid value: \"object\": 'no such overload': call arguments did not match a supported operator, function or "
        "macro signature for rule: self.any > 5",
        '<nil>: Invalid value: "object": rule compile error: compilation failed: '
        "ERROR: <input>:1:5: undefined field 'zz'\n | self.zz\n | ....^",
    ]


TRANSITION = [rule("self == oldSelf")]


def test_transition_rules_run_only_where_an_old_value_is_known() -> None:
    frozen = {**TEXT, "x-kubernetes-validations": TRANSITION}
    of = schema(
        s=frozen,
        m={"type": "object", "additionalProperties": frozen},
        atomic={"type": "array", "items": frozen},
        listed={
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
            "items": schema(k=TEXT, v=frozen),
        },
    )
    new = {"s": "b", "m": {"x": "1", "y": "1"}, "atomic": ["q"], "listed": [{"k": "b", "v": "1"}, {"k": "c", "v": "1"}]}
    old = {"s": "a", "m": {"x": "0"}, "atomic": ["p"], "listed": [{"k": "a", "v": "9"}, {"k": "b", "v": "0"}]}
    assert errors(of, new) == []
    assert errors(of, new, old) == [
        's: Invalid value: "b": failed rule: self == oldSelf',
        'm[x]: Invalid value: "1": failed rule: self == oldSelf',
        'listed[0].v: Invalid value: "1": failed rule: self == oldSelf',
    ]


def test_optional_old_self_runs_without_an_old_value() -> None:
    of = schema(s={**TEXT, "x-kubernetes-validations": [rule("oldSelf.orValue('') == self", optionalOldSelf=True)]})
    assert errors(of, {"s": "a"}) == ["s: Invalid value: \"a\": failed rule: oldSelf.orValue('') == self"]
    assert errors(of, {"s": "a"}, {"s": "a"}) == []


def test_null_is_no_value() -> None:
    of = schema([rule("!has(self.s)")], s={**TEXT, "nullable": True, "x-kubernetes-validations": [rule("false")]})
    assert errors(of, {"s": None}) == []


def test_rules_inside_all_of_run_too() -> None:
    of = schema(n=NUMBER)
    of["allOf"] = [{"properties": {"n": {"x-kubernetes-validations": [rule("self > 5")]}}}]
    assert errors(of, {"n": 1}) == ["n: Invalid value: 1: failed rule: self > 5"]


def test_unchanged_values_only_warn() -> None:
    of = schema(a={**NUMBER, "x-kubernetes-validations": [rule("self > 5")]}, b=NUMBER)
    warnings: list[FieldError] = []
    old = {"a": 1, "b": 1}
    assert errors(of, {"a": 1, "b": 2}, old, ratchet=unchanged, warnings=warnings) == []
    assert [str(warning) for warning in warnings] == ["a: Invalid value: 1: failed rule: self > 5"]
    assert errors(of, {"a": 2, "b": 2}, old, ratchet=unchanged) == ["a: Invalid value: 2: failed rule: self > 5"]


def test_items_of_uncorrelatable_lists_ratchet_with_their_nearest_parent() -> None:
    of = schema(l={"type": "array", "items": {**NUMBER, "x-kubernetes-validations": [rule("self > 5")]}}, b=NUMBER)
    assert errors(of, {"l": [1], "b": 1}, {"l": [1], "b": 2}, ratchet=unchanged) == []
    assert len(errors(of, {"l": [1, 2], "b": 1}, {"l": [1], "b": 2}, ratchet=unchanged)) == 2


def test_budget_is_shared_and_ends_validation() -> None:
    costly = [rule("self.l.all(x, self.l.all(y, x == y))")]
    of = schema([*costly, rule("false")], l={"type": "array", "items": NUMBER})
    obj = {"l": [1] * 100}
    assert errors(of, obj, budget=Budget(1000)) == [
        '<nil>: Invalid value: "object": validation failed due to running out of cost budget, '
        "no further validation rules will be run"
    ]


def test_one_evaluation_has_a_limit_of_its_own() -> None:
    of = schema(
        [rule("self.l.all(x, self.l.all(y, self.l.all(z, x == y)))"), rule("false")], l={"type": "array", "items": NUMBER}
    )
    assert errors(of, {"l": [1] * 1000}) == [
        "<nil>: Invalid value: \"object\": 'operation cancelled: actual cost limit exceeded': no further validation rules will "
        "be run due to call cost exceeds limit for rule: self.l.all(x, self.l.all(y, self.l.all(z, x == y)))"
    ]


def test_names_of_a_resource_are_always_visible() -> None:
    of = schema([rule("self.metadata.name == 'a' && self.kind == 'K' && self.apiVersion == 'v1'")])
    assert errors(of, {"apiVersion": "v1", "kind": "K", "metadata": {"name": "a", "labels": {}}}) == []


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ("self.set == ['b', 'a']", True),
        ("self.set + ['a', 'c'] == ['c', 'b', 'a']", True),
        ("self.list == ['b', 'a']", False),
        ("self.keyed == oldSelf.keyed", True),
        ("(self.keyed + oldSelf.keyed).size() == 2", True),
        ("self.when > timestamp('2020-01-01T00:00:00Z') && self.day.getFullYear() == 2024", True),
        ("self.took == duration('90s') && self.data == b'hi'", True),
        ("self.number == 2.0 && type(self.number) == double", True),
        ("self.x__dash__y == 1 && self.__if__ == 2", True),
        ("self.deep.m['a'].n == 1 && self.deep.m.a.n == 1", True),
        ("self == oldSelf", True),
    ],
)
def test_schema_decides_what_data_means(expression: str, holds: bool) -> None:
    item = schema(k=TEXT, v=NUMBER)
    strings = {"type": "array", "items": TEXT}
    of = schema(
        set={**strings, "x-kubernetes-list-type": "set"},
        list=strings,
        keyed={"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]},
        when={"type": "string", "format": "date-time"},
        day={"type": "string", "format": "date"},
        took={"type": "string", "format": "duration"},
        data={"type": "string", "format": "byte"},
        number={"type": "number"},
        deep=schema(m={"type": "object", "additionalProperties": schema(n=NUMBER)}),
        **{"x-y": NUMBER, "if": NUMBER},
    )
    one, two = {"k": "1", "v": 1}, {"k": "2", "v": 2}
    new = {
        "set": ["a", "b"],
        "list": ["a", "b"],
        "keyed": [one, two],
        "when": "2024-01-01T00:00:00Z",
        "day": "2024-02-03",
        "took": "1m30s",
        "data": "aGk=",
        "number": 2,
        "deep": {"m": {"a": {"n": 1}}},
        "x-y": 1,
        "if": 2,
    }
    old = {**new, "set": ["b", "a"], "keyed": [two, one]}
    assert compile_rule(expression, of).evaluate(new, old, Budget()) is holds


def test_message_expression_gives_text() -> None:
    message = compile_message("'at most ' + string(self.n)", schema(n=NUMBER))
    assert message.evaluate({"n": 3}, None, Budget()) == "at most 3"


def test_rule_says_whether_it_needs_the_old_object() -> None:
    of = schema(l={"type": "array", "items": NUMBER})
    assert compile_rule("self == oldSelf", of).uses_old_self
    assert not compile_rule("self.l.all(oldSelf, oldSelf > 1)", of).uses_old_self
