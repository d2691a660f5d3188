"""Definitions and objects that mean harm: what they may take is counted, and who wants more is told so.

No wall time is asserted: the work is counted in steps (:mod:`remuda.apiserver.limits.cost_budget`), and those are looked at.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from remuda.apiserver.cel import Budget
from remuda.apiserver.cel.re2 import Pattern, RegexError
from remuda.apiserver.cel.validation_rules import compile_schema_rules
from remuda.apiserver.limits import cost_budget
from remuda.apiserver.schema.compiler import compile_schema
from remuda.kube import errors
from remuda.kube.encoding import jsonio, jsonpatch, yamlio
from remuda.kube.errors import ApiError, FieldError

Obj = dict[str, Any]


def schema_of(**properties: Obj) -> Obj:
    return {"type": "object", "properties": properties}


def listed(items: Obj) -> Obj:
    return schema_of(l={"type": "array", "items": items})


# --- patterns -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*$", "(a*)*b", "(x+x+)+y", r"^(\w+\s?)*$", "(.*)*(.*)*[^a]$"])
def test_a_pattern_that_would_explode_takes_few_steps(pattern: str) -> None:
    with cost_budget.BOUNDED:
        Pattern(pattern).matches("a" * 50_000 + "!")
        assert cost_budget._left.steps > cost_budget.MAX_STEPS * 0.99


def test_a_pattern_that_knows_too_many_states_is_given_up() -> None:
    chance = random.Random(7)
    text = "".join(chance.choice("ab") for _ in range(200_000))
    checked = compile_schema(schema_of(s={"type": "string", "pattern": "(a|b)*a(a|b){900}x"}))
    with pytest.raises(ApiError, match="takes more than 4000000 steps") as caught:
        checked.validate({"s": text})
    assert caught.value.code == 413
    # The allowance is that of one object: the next has its own.
    assert checked.validate({"s": "short"})[0].type == errors.INVALID


def test_many_values_share_one_allowance() -> None:
    checked = compile_schema(listed({"type": "string", "pattern": "(a|b)*a(a|b){900}x"}))
    chance = random.Random(7)
    values = ["".join(chance.choice("ab") for _ in range(2_000)) for _ in range(100)]
    with pytest.raises(ApiError, match="takes more than 4000000 steps"):
        checked.validate({"l": values})


def test_a_pattern_too_large_to_run_is_refused_when_it_is_defined() -> None:
    with pytest.raises(RegexError, match="expression too large"):
        Pattern("(" + "abcdefghij" * 20 + "){900}")


def test_long_digits_are_no_duration() -> None:
    checked = compile_schema(schema_of(s={"type": "string", "format": "duration"}))
    assert checked.validate({"s": "1" * 200_000})
    assert checked.validate({"s": "9" * 5_000 + "h"})
    assert not checked.validate({"s": "0" * 5_000 + "1 h"})


# --- enums, alternatives, errors ----------------------------------------------------------------------------------------


def test_a_refusal_does_not_grow_with_enum_and_object() -> None:
    checked = compile_schema(listed({"type": "string", "enum": [f"value-{number}" for number in range(60_000)]}))
    found = checked.validate({"l": [f"x{number}" for number in range(100_000)]})
    assert len(found) == errors.MAX_ERRORS
    # One text, said of all of them.
    assert len({id(error.detail) for error in found}) == 1
    told = errors.invalid("example.com", "Widget", "a", found)
    assert len(told.message) < 4 * errors.MAX_ERROR_TEXT
    assert told.message.endswith(f", and {len(found) - len(told.details['causes'])} more]")


def test_few_errors_are_all_told() -> None:
    wrong = [FieldError(errors.INVALID, f"spec.f{number}", number, "is wrong") for number in range(errors.MAX_ERRORS)]
    told = errors.invalid("", "Widget", "a", wrong)
    assert len(told.details["causes"]) == errors.MAX_ERRORS
    assert "more]" not in told.message


@pytest.mark.parametrize("how", ["anyOf", "oneOf"])
def test_very_many_alternatives_for_very_many_values(how: str) -> None:
    alternatives = [{"minimum": number} for number in range(100, 4_000)]
    checked = compile_schema(listed({"type": "integer", how: alternatives}))
    with pytest.raises(ApiError, match="takes more than"):
        checked.validate({"l": [number % 2 for number in range(100_000)]})


def test_an_enum_of_objects_is_counted() -> None:
    checked = compile_schema(listed({"type": "object", "enum": [{"a": number} for number in range(20_000)]}))
    assert checked.validate({"l": [{"a": 3}]}) == []
    with pytest.raises(ApiError, match="takes more than"):
        checked.validate({"l": [{"a": 19_999}] * 1_000})


# --- defaults -----------------------------------------------------------------------------------------------------------


def test_defaults_can_not_make_an_object_explode() -> None:
    checked = compile_schema(listed(schema_of(x={"type": "string", "default": "y" * 100_000})))
    small: Obj = {"l": [{}, {}]}
    checked.default(small)
    assert small["l"][1]["x"] == "y" * 100_000
    with pytest.raises(ApiError, match="defaults add more than 8388608 bytes") as caught:
        checked.default({"l": [{} for _ in range(500_000)]})
    assert caught.value.code == 413


def test_defaults_of_very_many_properties_cost_nothing_where_there_are_none() -> None:
    deep = {f"p{number}": schema_of(a={"type": "string", "default": "x"}) for number in range(2_000)}
    checked = compile_schema(listed(schema_of(**deep)))
    obj: Obj = {"l": [{"p7": {}}, {}]}
    checked.default(obj)
    assert obj == {"l": [{"p7": {"a": "x"}}, {}]}


# --- rules --------------------------------------------------------------------------------------------------------------


def test_sums_of_lists_do_not_grow_without_end() -> None:
    rule = "[self]" + ".map(x, x + x + x + x + x + x + x + x)" * 9 + ".all(x, x.size() > 0)"
    tree = compile_schema_rules({"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": [{"rule": rule}]})
    assert tree is not None
    with pytest.raises(ApiError, match="takes more than"):
        tree.validate([1, 2, 3, 4, 5, 6, 7, 8], budget=Budget())


def test_a_rule_for_each_of_very_many_values() -> None:
    items = {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= 0"}]}
    tree = compile_schema_rules({"type": "array", "items": items})
    assert tree is not None
    assert tree.validate([1] * 1_000) == []
    with pytest.raises(ApiError, match="takes more than"):
        tree.validate([1] * 500_000)


# --- documents ----------------------------------------------------------------------------------------------------------

MERGES = "a0: &a0 {x: 1, y: 2}\n" + "".join(
    f"a{n}: &a{n}\n  <<: [*a{n - 1}, *a{n - 1}, *a{n - 1}]\n  b{n}: 1\n" for n in range(1, 40)
)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (MERGES, "document contains excessive aliasing"),
        ('a: &a "' + "x" * 100_000 + '"\nl:\n' + "- *a\n" * 1_000, "document contains excessive aliasing"),
        ("l:\n" + "- 1\n" * 301_000, "document has more than 300000 values: send it as JSON"),
        ("a: &a\n  <<: *a\n", "exceeded max depth"),
        ("a: &a [1]\nb:\n  <<: *a\n", "map merge requires map or sequence of maps as the value"),
    ],
    ids=["merges of merges", "one text very often", "too many values", "a merge of itself", "a merge of a list"],
)
def test_yaml_that_grows_is_refused(text: str, why: str) -> None:
    with pytest.raises(yamlio.YamlError, match=why):
        yamlio.loads(text)


def test_merges_are_read() -> None:
    text = "a: &a {x: 1, y: 2}\nb:\n  <<: *a\n  y: 3\nc: {<<: [{x: 5}, {x: 6, z: 1}], q: 1}\n"
    assert yamlio.loads(text) == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}, "c": {"x": 5, "z": 1, "q": 1}}


@pytest.mark.parametrize("text", ["9" * 5_000, "0x" + "f" * 5_000, "1e999", "-1e999"])
def test_numbers_beyond_all_measure_are_text(text: str) -> None:
    assert yamlio.loads(f"n: {text}") == {"n": text}


def test_a_json_number_of_very_many_digits_is_refused_in_a_sentence() -> None:
    with pytest.raises(jsonio.JsonError, match=r"json: cannot unmarshal number 9+ into Go value of type float64"):
        jsonio.loads_as_go(b'{"n":' + b"9" * 5_000 + b"}")


def test_copies_in_a_patch_are_copies() -> None:
    document = {"a": {"l": [1]}, "b": {}}
    operations = [
        {"op": "copy", "from": "/a", "path": "/b/c"},
        {"op": "add", "path": "/b/c/l/-", "value": 2},
        {"op": "add", "path": "/a/l/-", "value": 3},
    ]
    assert jsonpatch.apply(document, operations) == {"a": {"l": [1, 3]}, "b": {"c": {"l": [1, 2]}}}
    assert document == {"a": {"l": [1]}, "b": {}}


def test_copies_of_copies_are_bounded() -> None:
    doubling = [{"op": "copy", "from": "/l", "path": "/l/-"} for _ in range(40)]
    with pytest.raises(jsonpatch.JsonPatchError, match="exceeding the limit"):
        jsonpatch.apply({"l": ["x" * 1000]}, doubling)
