"""Validation of changes to the deployments that this server makes in a cluster: its agent, fleet's agent, the webhook.

A deployment that its cluster rejects cuts the cluster off, so the cluster's own checks are made here first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from remuda.kube.errors import FieldError, forbidden_field, invalid_value, not_supported
from remuda.kube.names import qualified_name_problems
from remuda.kube.objects import dig
from remuda.kube.selectors import structure_errors

Obj = dict[str, Any]

CUSTOMIZATIONS = ("clusterAgentDeploymentCustomization", "fleetAgentDeploymentCustomization", "webhookDeploymentCustomization")
_POLICIES = ("Never", "PreemptLowerPriority")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def customization_errors(customization: Obj, path: str) -> list[FieldError]:
    errors = [
        invalid_value(f"{path}.appendTolerations[{index}].key", key, why)
        for index, toleration in enumerate(_items(customization, "appendTolerations"))
        if (key := toleration.get("key") or "")
        for why in qualified_name_problems(key)
    ]
    errors += _affinity_errors(customization, f"{path}.overrideAffinity")
    errors += _budget_errors(dig(customization, "podDisruptionBudget"), f"{path}.podDisruptionBudget")
    scheduling = dig(customization, "schedulingCustomization")
    if not isinstance(scheduling, dict):
        return errors
    at = f"{path}.schedulingCustomization"
    errors += _budget_errors(scheduling.get("podDisruptionBudget"), f"{at}.podDisruptionBudget")
    policy = dig(scheduling, "priorityClass", "preemptionPolicy")
    if policy and policy not in _POLICIES:
        errors.append(not_supported(f"{at}.priorityClass.preemptionPolicy", policy, _POLICIES))
    return errors


def _items(obj: Obj | None, *path: str) -> list[Obj]:
    found = dig(obj, *path)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _budget_errors(budget: object, path: str) -> list[FieldError]:
    if not isinstance(budget, dict):
        return []
    # The schema refuses "0%" already.
    said = [name for name in ("minAvailable", "maxUnavailable") if budget.get(name) not in (None, "", "0")]
    return [forbidden_field(path, "only one of minAvailable and maxUnavailable can be set")] if len(said) > 1 else []


def _affinity_errors(customization: Obj, path: str) -> list[FieldError]:
    affinity = dig(customization, "overrideAffinity")
    if not isinstance(affinity, dict):
        return []
    errors: list[FieldError] = []
    for at, term in _node_terms(affinity, path):
        for index, expression in enumerate(_items(term, "matchExpressions")):
            key = expression.get("key") or ""
            errors += [invalid_value(f"{at}.matchExpressions[{index}].key", key, why) for why in qualified_name_problems(key)]
    for at, term in _pod_terms(affinity, path):
        for selector in ("labelSelector", "namespaceSelector"):
            errors += structure_errors(dig(term, selector), f"{at}.{selector}")
    return errors


def _node_terms(affinity: Obj, path: str) -> Iterator[tuple[str, Obj]]:
    at = f"{path}.nodeAffinity"
    for index, term in enumerate(_items(affinity, "nodeAffinity", _REQUIRED, "nodeSelectorTerms")):
        yield f"{at}.{_REQUIRED}.nodeSelectorTerms[{index}]", term
    for index, term in enumerate(_items(affinity, "nodeAffinity", _PREFERRED)):
        yield f"{at}.{_PREFERRED}[{index}].preference", dig(term, "preference") or {}


def _pod_terms(affinity: Obj, path: str) -> Iterator[tuple[str, Obj]]:
    for kind in ("podAffinity", "podAntiAffinity"):
        for index, term in enumerate(_items(affinity, kind, _REQUIRED)):
            yield f"{path}.{kind}.{_REQUIRED}[{index}]", term
        for index, term in enumerate(_items(affinity, kind, _PREFERRED)):
            yield f"{path}.{kind}.{_PREFERRED}[{index}].podAffinityTerm", dig(term, "podAffinityTerm") or {}
