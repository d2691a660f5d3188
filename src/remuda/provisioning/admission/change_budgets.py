"""Refusal of change budgets that can't be read, when they are written: on a cluster, its pools, a MachineDeployment, a Namespace
(docs/change-budget.md). The controllers that act judge them again, for admission can be bypassed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import provisioning_cattle_io as provisioning
from remuda.capi.change_budget import CHANGE_BUDGET, BudgetError, parse
from remuda.kube.admission_attributes import Attributes
from remuda.kube.errors import FieldError, invalid_value
from remuda.kube.objects import annotations_of
from remuda.runtime.admitted_types import AdmittedType

from ..graph.machine_pools import budget_of_pool, pools_written

Obj = dict[str, Any]

# A webhook is not called for other namespaces.
_WITH_BUDGET = f"has(object.metadata.annotations) && '{CHANGE_BUDGET}' in object.metadata.annotations"


def admitted() -> tuple[AdmittedType, ...]:
    return (
        AdmittedType(provisioning.GROUP, provisioning.VERSION, "clusters", "Cluster", validate=cluster_budget_errors),
        AdmittedType(capi.GROUP, capi.VERSION, "clusters", "Cluster", validate=budget_errors),
        AdmittedType(capi.GROUP, capi.VERSION, "machinedeployments", "MachineDeployment", validate=budget_errors),
        AdmittedType("", "v1", "namespaces", "Namespace", validate=budget_errors, only_if=_WITH_BUDGET),
    )


def budget_errors(attributes: Attributes) -> Iterable[FieldError]:
    """Of the object's own annotation, if it is new or changed."""
    text, before = (annotations_of(each or {}).get(CHANGE_BUDGET) for each in (attributes.obj, attributes.old))
    return _errors(f"metadata.annotations[{CHANGE_BUDGET}]", text, before)


def cluster_budget_errors(attributes: Attributes) -> Iterable[FieldError]:
    """Also of its pools."""
    before = {pool.get("name"): budget_of_pool(pool) for pool in pools_written(attributes.old)}
    errors = [*budget_errors(attributes)]
    for index, pool in enumerate(pools_written(attributes.obj)):
        path = f"spec.rkeConfig.machinePools[{index}].machineDeploymentAnnotations[{CHANGE_BUDGET}]"
        errors += _errors(path, budget_of_pool(pool), before.get(pool.get("name")))
    return errors


def _errors(path: str, text: str | None, before: str | None) -> list[FieldError]:
    if not text or text == before:
        return []
    try:
        parse(text)
    except BudgetError as error:
        return [invalid_value(path, text[:200], str(error))]
    return []
