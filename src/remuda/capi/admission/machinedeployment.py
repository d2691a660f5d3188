"""MachineDeployments: defaults and checks."""

from __future__ import annotations

from collections.abc import Iterable

from remuda.kube.admission_attributes import UPDATE, Attributes
from remuda.kube.errors import FieldError, forbidden_field, go_quote, invalid_value
from remuda.kube.names import label_value_problems
from remuda.kube.objects import dig, with_path

from .. import well_known
from .machine_templates import (
    cluster_agrees,
    metadata_errors,
    naming_errors,
    selects_nothing_in_particular,
    template_taint_errors,
    version_errors,
    with_cluster_label,
    with_replicas,
    with_selected_label,
    with_version_prefix,
)
from .shared_rules import (
    Errors,
    Obj,
    bootstrap_is_named,
    int_or_percent,
    same_cluster_as_before,
    section,
    selector_of,
    skipped_preflight_checks,
    text,
)

_STRATEGY = ("spec", "rollout", "strategy")


def default(attributes: Attributes) -> Obj | None:
    obj = attributes.obj or {}
    old = attributes.old if attributes.operation == UPDATE else None
    filled = with_replicas("MachineDeployment", with_cluster_label(obj), old)
    filled = _with_strategy(filled)
    if selects_nothing_in_particular(filled):
        filled = with_selected_label(filled, well_known.DEPLOYMENT_NAME, text(obj, "metadata", "name"))
    filled = with_selected_label(filled, well_known.CLUSTER_NAME, text(obj, "spec", "clusterName"))
    filled = with_version_prefix(filled, "spec", "template", "spec", "version")
    return None if filled is obj else filled


def _with_strategy(obj: Obj) -> Obj:
    if not dig(obj, *_STRATEGY, "type"):
        obj = with_path(obj, (*_STRATEGY, "type"), "RollingUpdate")
    if text(obj, *_STRATEGY, "type") != "RollingUpdate":
        return obj
    for field, number in (("maxSurge", 1), ("maxUnavailable", 0)):
        if dig(obj, *_STRATEGY, "rollingUpdate", field) is None:
            obj = with_path(obj, (*_STRATEGY, "rollingUpdate", field), number)
    return obj


def validate(attributes: Attributes) -> Iterable[FieldError]:
    obj = attributes.obj or {}
    errors = _name_errors(obj)
    errors += bootstrap_is_named(section(obj, "spec", "template", "spec"), "spec.template.spec")
    errors += _selector_errors(obj)
    errors += skipped_preflight_checks(obj)
    errors += same_cluster_as_before(obj, attributes.old)
    errors += cluster_agrees(obj)
    errors += _rollout_errors(section(obj, *_STRATEGY, "rollingUpdate"))
    errors += int_or_percent(dig(obj, "spec", "remediation", "maxInFlight"), "spec.remediation.maxInFlight")
    errors += version_errors(obj)
    errors += naming_errors(obj)
    errors += template_taint_errors(obj)
    return errors + metadata_errors(obj)


def _name_errors(obj: Obj) -> Errors:
    name = text(obj, "metadata", "name")
    return [invalid_value("metadata.name", name, f"must be a valid label value: {why}") for why in label_value_problems(name)]


def _selector_errors(obj: Obj) -> Errors:
    errors: Errors = []
    selector = selector_of(section(obj, "spec", "selector"), "spec.selector", errors)
    if selector is not None and not selector.matches(dig(obj, "spec", "template", "metadata", "labels")):
        why = f"must match spec.selector {go_quote(str(selector))}"
        errors.append(forbidden_field("spec.template.metadata.labels", why))
    return errors


def _rollout_errors(rolling: Obj) -> Errors:
    path = "spec.rollout.strategy.rollingUpdate"
    unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    errors = int_or_percent(unavailable, f"{path}.maxUnavailable") + int_or_percent(surge, f"{path}.maxSurge")
    # Only the numbers: percentages are of a count that changes.
    if unavailable == 0 and surge == 0:
        errors.append(invalid_value(path, "0", "maxUnavailable and maxSurge cannot both be 0"))
    return errors
