"""matchConditions: CEL expressions that decide whether a webhook is asked at all.

Any condition that is false skips the webhook. An error counts only when none is false; then the failure policy decides.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from remuda.kube.errors import ApiError, aggregate_text, forbidden

from . import Attributes, Obj

Evaluate = Callable[[dict[str, Any]], Any]


def _compile(expression: str) -> Evaluate:
    compiled: Evaluate = importlib.import_module("remuda.apiserver.cel").compile_condition(expression)
    return compiled


class Conditions:
    def __init__(self, conditions: Sequence[Obj], fail_open: bool) -> None:
        self._expressions = [str(condition.get("expression", "")) for condition in conditions]
        self._fail_open = fail_open
        self._compiled: list[Evaluate] | None = None

    def hold(self, attributes: Attributes, request: Obj) -> bool:
        """Whether to ask the webhook; raises when a condition fails and the policy is to fail."""
        errors: list[str] = []
        activation = {"object": request.get("object"), "oldObject": request.get("oldObject"), "request": request}
        for evaluate in self._evaluators():
            try:
                if not evaluate(activation):
                    return False
            except ApiError:
                raise
            except Exception as error:  # what an expression trips over is its author's business, and is told to the caller
                errors.append(str(error))
        if not errors:
            return True
        if self._fail_open:
            return False
        raise forbidden(attributes.group, attributes.resource, attributes.name, aggregate_text(errors))

    def _evaluators(self) -> list[Evaluate]:
        if self._compiled is None:
            self._compiled = [_compile(expression) for expression in self._expressions]
        return self._compiled
