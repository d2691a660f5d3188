"""matchConditions: CEL expressions that decide whether a webhook is called at all.

Any false condition skips the webhook. An error counts only when no condition is false; then the failure policy decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from remuda.kube.admission_attributes import Attributes, Obj
from remuda.kube.authorization.actions import Action, Authorizer
from remuda.kube.authorization.users import AUTHENTICATED, User
from remuda.kube.errors import aggregate_text, forbidden

from ..cel.errors import CelError, CompileError
from ..cel.library.kubernetes import AuthorizerValue, Check, Decision
from ..cel.programs import (
    MATCH_CONDITION_VARIABLES,
    MATCH_CONDITIONS_BUDGET,
    Budget,
    BudgetExceeded,
    CompiledCondition,
    compile_condition,
)


class _Asked:
    """The server's authorizer for expressions: on behalf of the request's user or of a service account."""

    def __init__(self, authorizer: Authorizer | None, user: User) -> None:
        self._authorizer = authorizer
        self._user = user

    def authorize(self, check: Check) -> Decision:
        if self._authorizer is None:
            return Decision(False, error="no authorizer")
        user = self._user if check.service_account is None else _account_user(*check.service_account)
        if check.path:
            action = Action.on_path(user, check.verb, check.path)
        else:
            action = Action(
                user,
                check.verb,
                group=check.group,
                version="*",
                resource=check.resource,
                subresource=check.subresource,
                namespace=check.namespace,
                name=check.name,
                field_selector=check.field_selector,
                label_selector=check.label_selector,
            )
        decision = self._authorizer.authorize(action)
        return Decision(decision.allowed, decision.reason)


def _account_user(namespace: str, name: str) -> User:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
    return User(f"system:serviceaccount:{namespace}:{name}", groups=groups)


class MatchConditions:
    """The conditions of one webhook, compiled at first use."""

    def __init__(self, conditions: Sequence[Obj], fail_open: bool) -> None:
        self._expressions = [str(condition.get("expression", "")) for condition in conditions]
        self._fail_open = fail_open
        self._compiled: list[CompiledCondition | CompileError] | None = None

    def hold(self, attributes: Attributes, request: Obj, authorizer: Authorizer | None = None) -> bool:
        """True when the webhook is to be called; raises when a condition fails and the failure policy is Fail."""
        variables = _variables(attributes, request, authorizer)
        budget = Budget(MATCH_CONDITIONS_BUDGET)
        errors: list[str] = []
        for compiled in self._programs():
            if isinstance(compiled, CompileError):
                errors.append(f"compilation error: {compiled.detail}")
                continue
            try:
                if compiled.evaluate(variables, budget) is False:
                    return False
            except BudgetExceeded as error:
                errors = [str(error)]
                break
            except CelError as error:
                errors.append(f"expression '{compiled.expression}' resulted in error: {error}")
        if not errors:
            return True
        if self._fail_open:
            return False
        raise forbidden(attributes.group, attributes.resource, attributes.name, aggregate_text(errors))

    def _programs(self) -> list[CompiledCondition | CompileError]:
        if self._compiled is None:
            self._compiled = [_compile(expression) for expression in self._expressions]
        return self._compiled


def _compile(expression: str) -> CompiledCondition | CompileError:
    try:
        return compile_condition(expression, MATCH_CONDITION_VARIABLES)
    except CompileError as error:
        return error


def _variables(attributes: Attributes, request: Obj, authorizer: Authorizer | None) -> dict[str, Any]:
    asked = _Asked(authorizer, attributes.user)
    about = Check(
        group=attributes.group,
        resource=attributes.resource,
        subresource=attributes.subresource,
        namespace=attributes.namespace,
        name=attributes.name,
    )
    return {
        "object": request.get("object"),
        "oldObject": request.get("oldObject"),
        "request": {key: value for key, value in request.items() if key not in ("uid", "object", "oldObject")},
        "authorizer": AuthorizerValue(asked),
        "authorizer.requestResource": AuthorizerValue(asked, about, "ResourceCheck"),
    }
