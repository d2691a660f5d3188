"""Conditions over named variables: webhook match conditions, with requests and an authorizer."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.apiserver.cel import (
    DYN,
    MATCH_CONDITION_VARIABLES,
    MATCH_CONDITIONS_BUDGET,
    AuthorizerValue,
    Budget,
    CelError,
    Check,
    CompileError,
    CostExceeded,
    Decision,
    compile_condition,
)


class Remembering:
    def __init__(self, allowed: bool = True) -> None:
        self.allowed = allowed
        self.asked: list[Check] = []

    def authorize(self, check: Check) -> Decision:
        self.asked.append(check)
        return Decision(self.allowed, "because")


def evaluate(expression: str, authorizer: Remembering | None = None, **variables: Any) -> Any:
    given: dict[str, Any] = {
        "object": {"metadata": {"name": "a", "labels": {"x": "1"}}, "spec": {"n": 3, "f": 1.5, "l": [1, "a", None]}},
        "request": {"operation": "CREATE", "userInfo": {"username": "joe", "groups": ["g"]}, "kind": {"kind": "Pod"}},
        **variables,
    }
    if authorizer is not None:
        given["authorizer"] = AuthorizerValue(authorizer)
        given["authorizer.requestResource"] = AuthorizerValue(authorizer, Check(group="apps", resource="x"), "ResourceCheck")
    return compile_condition(expression, MATCH_CONDITION_VARIABLES).evaluate(given, Budget(MATCH_CONDITIONS_BUDGET))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("object.metadata.name == 'a'", True),
        ("object.spec.n > 2 && object.spec.f < 2", True),
        ("has(object.metadata.labels) && 'x' in object.metadata.labels", True),
        ("has(object.metadata.annotations)", False),
        ("oldObject == null", True),
        ("request.operation in ['CREATE', 'UPDATE']", True),
        ("'g' in request.userInfo.groups && request.userInfo.username.startsWith('j')", True),
        ("!(request.kind.kind == 'Pod')", False),
        ("object.spec.l.exists(x, x == 'a')", True),
        ("object.?spec.?missing.orValue(7) == 7", True),
        ("object.metadata.labels.all(k, v, k == 'x' && v == '1')", True),
    ],
)
def test_condition(expression: str, expected: bool) -> None:
    assert evaluate(expression) is expected


def test_missing_key_is_an_error() -> None:
    with pytest.raises(CelError, match="no such key: missing"):
        evaluate("object.spec.missing == 1")


def test_condition_must_be_a_bool() -> None:
    with pytest.raises(CompileError, match="must evaluate to bool but got int"):
        compile_condition("1", {})
    with pytest.raises(CompileError, match="must evaluate to bool but got dyn"):
        compile_condition("object.x", {"object": DYN})


def test_unknown_request_field_is_refused() -> None:
    with pytest.raises(CompileError, match="undefined field 'foo'"):
        compile_condition("request.foo == 1", MATCH_CONDITION_VARIABLES)


def test_authorizer_is_asked_what_the_expression_spells() -> None:
    authorizer = Remembering()
    text = (
        "authorizer.group('apps').resource('deployments').subresource('scale').namespace('ns').name('n').check('get').allowed()"
    )
    assert evaluate(text, authorizer) is True
    assert authorizer.asked == [Check("get", "", "apps", "deployments", "scale", "ns", "n")]
    assert evaluate("authorizer.path('/healthz').check('get').reason() == 'because'", authorizer) is True
    assert (
        evaluate("authorizer.serviceAccount('ns', 'sa').group('').resource('pods').check('list').allowed()", authorizer) is True
    )
    assert authorizer.asked[-1].service_account == ("ns", "sa")
    assert evaluate("authorizer.requestResource.check('update').allowed()", authorizer) is True
    assert authorizer.asked[-1] == Check("update", group="apps", resource="x")


def test_an_expression_may_ask_twice_but_not_three_times() -> None:
    ask = "authorizer.path('/x').check('get').allowed()"
    assert evaluate(f"{ask} && {ask}", Remembering()) is True
    with pytest.raises(CostExceeded, match="operation cancelled: actual cost limit exceeded"):
        evaluate(f"{ask} && {ask} && {ask}", Remembering())
