"""The language as Kubernetes 1.36 enables it: values, errors, refusals and costs, expression by expression."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.apiserver.cel import Budget, CelError, CompileError
from remuda.apiserver.cel.compiler.cost_estimate import estimate_cost
from remuda.apiserver.cel.compiler.syntax_tree import Expr
from remuda.apiserver.cel.programs import Program, _compile, _rule_nodes, _rule_types
from remuda.apiserver.cel.schema_types import SchemaNode, escape, node_for, unescape

from .recorded_results import ERRORS, REFUSED, SCHEMA, SELF, VALUES
from .value_text import shown


def node() -> SchemaNode:
    found = node_for(SCHEMA)
    assert found is not None
    return found


def program(expression: str) -> tuple[Expr, Program]:
    schema = node()
    return _compile(expression, _rule_types(schema, False), _rule_nodes(schema, False), "")


def run(expression: str) -> tuple[Any, int]:
    budget = Budget()
    before = budget.remaining
    value = program(expression)[1].evaluate([SELF, SELF], budget)
    return value, before - budget.remaining


@pytest.mark.parametrize(("expression", "value", "worst", "cost"), VALUES, ids=[row[0][:60] for row in VALUES])
def test_expression_has_the_value_and_costs_of_the_real_one(expression: str, value: str, worst: int, cost: int | None) -> None:
    result, spent = run(expression)
    assert shown(result) == value
    assert estimate_cost(program(expression)[0], node()).high == worst
    if cost is not None:
        assert spent == cost


@pytest.mark.parametrize(("expression", "message"), ERRORS, ids=[row[0][:60] for row in ERRORS])
def test_expression_fails_with_the_real_message(expression: str, message: str) -> None:
    with pytest.raises(CelError) as caught:
        run(expression)
    assert str(caught.value) == message


@pytest.mark.parametrize(("expression", "message"), REFUSED, ids=[row[0][:60] for row in REFUSED])
def test_expression_is_refused_with_the_real_message(expression: str, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        program(expression)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("plain", "plain"),
        ("a-b", "a__dash__b"),
        ("a.b/c", "a__dot__b__slash__c"),
        ("a__b", "a__underscores__b"),
        ("namespace", "__namespace__"),
        ("if", "__if__"),
        ("int", "int"),
        ("1a", None),
        ("a b", None),
        ("é", None),
        ("", None),
    ],
)
def test_property_names_become_identifiers_and_back(name: str, escaped: str | None) -> None:
    assert escape(name) == escaped
    if escaped is not None:
        assert unescape(escaped) == name
