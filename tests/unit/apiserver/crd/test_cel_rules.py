"""Which rules a CRD may bring, with the words Kubernetes uses to refuse them."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.apiserver.cel import compile_rule
from remuda.apiserver.crd import cel_rules
from remuda.apiserver.crd.schema_rules import SchemaChecks, schema_errors
from remuda.kube.errors import FieldError

PATH = "spec.validation.openAPIV3Schema"
HINT = "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"


def rule_errors(schema: dict[str, Any], path: str) -> list[FieldError]:
    context = cel_rules.Context.root(schema)
    return schema_errors(schema, path, SchemaChecks(), context) + cel_rules.total_errors(context, path)


def refused(of: dict[str, Any], *rules: dict[str, Any]) -> list[str]:
    schema = {"type": "object", "properties": {"a": {**of, "x-kubernetes-validations": list(rules)}}}
    found = [str(error) for error in rule_errors(schema, PATH)]
    return [text.removeprefix(f"{PATH}.properties[a].x-kubernetes-validations") for text in found]


TEXT = {"type": "string"}
NOTHING_ELSE = '"Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}'


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"rule": "self == 'a'"}, []),
        ({"rule": " "}, ["[0].rule: Required value: rule is not specified"]),
        ({"rule": "true", "message": " "}, ['[0].message: Invalid value: " ": must be non-empty if specified']),
        ({"rule": "true", "message": "a\nb"}, ['[0].message: Invalid value: "a\\nb": must not contain line breaks']),
        ({"rule": "true\n||\ntrue"}, ["[0].message: Required value: message must be specified if rule contains line breaks"]),
        ({"rule": "true", "fieldPath": ".x"}, ['[0].fieldPath: Invalid value: ".x": must be a valid path']),
        (
            {"rule": "true", "reason": "X"},
            [
                '[0].reason: Unsupported value: "X": supported values: "FieldValueDuplicate", "FieldValueForbidden", '
                '"FieldValueInvalid", "FieldValueRequired"'
            ],
        ),
        (
            {"rule": "size(self)"},
            [f'[0].rule: Invalid value: {{"Rule":"size(self)",{NOTHING_ELSE}: cel expression must evaluate to a bool'],
        ),
        (
            {"rule": "self > 1"},
            [
                f'[0].rule: Invalid value: {{"Rule":"self \\u003e 1",{NOTHING_ELSE}: compilation failed: ERROR: <input>:1:6: '
                "found no matching overload for '_>_' applied to '(string, int)'\n | self > 1\n | .....^"
            ],
        ),
        (
            {"rule": "true", "optionalOldSelf": True},
            ["[0].optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule"],
        ),
    ],
)
def test_rules_are_refused_in_kubernetes_words(rule: dict[str, Any], expected: list[str]) -> None:
    assert refused(TEXT, rule) == expected


def test_costs_count_the_worst_data_the_schema_allows() -> None:
    unbounded = {"type": "array", "items": TEXT}
    assert refused(unbounded, {"rule": "self.all(x, self.all(y, x == y))"})[0] == (
        f"[0].rule: Forbidden: estimated rule cost exceeds budget by factor of more than 100x {HINT}"
    )
    bounded = {"type": "array", "maxItems": 10, "items": {**TEXT, "maxLength": 10}}
    assert refused(bounded, {"rule": "self.all(x, self.all(y, x == y))"}) == []


def test_rules_under_lists_are_multiplied_by_their_length() -> None:
    item = {**TEXT, "x-kubernetes-validations": [{"rule": "self.contains('a')"}]}
    found = rule_errors({"type": "object", "properties": {"a": {"type": "array", "items": item}}}, PATH)
    assert "estimated rule cost exceeds budget by factor of more than 100x" in str(found[0])
    short = {**item, "maxLength": 10}
    assert rule_errors({"type": "object", "properties": {"a": {"type": "array", "maxItems": 5, "items": short}}}, PATH) == []


def test_all_rules_together_have_a_limit() -> None:
    item = {**TEXT, "maxLength": 10000, "x-kubernetes-validations": [{"rule": "self.contains('abcdefghijkl')"}]}
    properties = {f"f{n}": {"type": "array", "maxItems": 1000, "items": item} for n in range(30)}
    found = [str(error) for error in rule_errors({"type": "object", "properties": properties}, PATH)]
    assert found[-1] == (
        f"{PATH}: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by "
        f"factor of 2.4x {HINT}"
    )
    assert sum("contributed to estimated rule cost total" in text for text in found) == 4


def test_old_self_needs_a_place_that_can_be_matched() -> None:
    item = {**TEXT, "maxLength": 5, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}
    found = rule_errors({"type": "object", "properties": {"a": {"type": "array", "maxItems": 5, "items": item}}}, PATH)
    assert [str(error) for error in found] == [
        f'{PATH}.properties[a].items.x-kubernetes-validations[0].rule: Invalid value: "self == oldSelf": oldSelf cannot be '
        f"used on the uncorrelatable portion of the schema within {PATH}.properties[a]"
    ]


def test_estimate_follows_max_length() -> None:
    assert compile_rule("self.startsWith('a')", TEXT).estimated_cost == 2
    assert compile_rule("self + 'b' == 'a'", {**TEXT, "maxLength": 100}).estimated_cost == 43
