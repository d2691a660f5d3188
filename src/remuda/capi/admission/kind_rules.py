"""Defaults and checks of each kind: `default_…` and `validate_…`.

Clusters have no defaults: upstream sets them only for managed topologies, which are refused here. MachineDrainRules have none
either. Rules for templates of machines are in :mod:`.machine_templates`, rules of several kinds in :mod:`.shared_rules`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Any

from remuda.kube.admission_attributes import UPDATE, Attributes
from remuda.kube.errors import FieldError, forbidden_field, go_quote, invalid_value, required
from remuda.kube.names import label_value_problems
from remuda.kube.objects import dig, with_path

from .. import well_known
from .machine_templates import (
    cluster_agrees,
    metadata_errors,
    naming_errors,
    selects_nothing_in_particular,
    taint_errors,
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
    is_reference,
    items,
    same_cluster_as_before,
    section,
    selector_of,
    shown_selector,
    skipped_preflight_checks,
    text,
    version_is_semantic,
    whole_number,
)

NO_TOPOLOGY = "managed topologies (ClusterClass) are not supported: set spec.controlPlaneRef and spec.infrastructureRef instead"


def validate_cluster(attributes: Attributes) -> Iterable[FieldError]:
    if attributes.obj is None:
        return []
    obj, old = attributes.obj, attributes.old
    name = text(obj, "metadata", "name")
    errors = [invalid_value("metadata.name", name, f"must be a valid label value {why}") for why in label_value_problems(name)]
    errors += _stays(obj, old, "infrastructureRef")
    topology = _is_set(dig(obj, "spec", "topology"))
    if not topology and not any(is_reference(dig(obj, "spec", field)) for field in ("controlPlaneRef", "infrastructureRef")):
        why = "one of spec.controlPlaneRef, spec.infrastructureRef or spec.topology must be set"
        errors.append(forbidden_field("spec", why))
    errors += _stays(obj, old, "controlPlaneRef")
    for network in ("pods", "services"):
        errors += _cidr_errors(obj, network)
    if topology:
        errors.append(forbidden_field("spec.topology", NO_TOPOLOGY))
    elif _is_set(dig(old, "spec", "topology")):
        errors.append(forbidden_field("spec.topology", "cannot be removed from an existing Cluster"))
    return errors


def _stays(obj: Obj, old: Obj | None, field: str) -> Errors:
    """A reference may change, but not be removed."""
    if is_reference(dig(obj, "spec", field)) or not is_reference(dig(old, "spec", field)):
        return []
    return [forbidden_field(f"spec.{field}", "cannot be removed")]


def _is_set(value: Any) -> bool:
    """True if a value has anything in it but empty structures."""
    if isinstance(value, dict):
        return any(_is_set(part) for part in value.values())
    return value is not None and value != ""


def _cidr_errors(obj: Obj, network: str) -> Errors:
    blocks = items(obj, "spec", "clusterNetwork", network, "cidrBlocks")
    return [
        invalid_value(f"spec.clusterNetwork.{network}.cidrBlocks[{index}]", block, f"invalid CIDR address: {block}")
        for index, block in enumerate(blocks)
        if not _is_cidr(block)
    ]


def _is_cidr(block: Any) -> bool:
    address, slash, bits = str(block).partition("/")
    if not slash or "%" in address or not (bits.isascii() and bits.isdigit()):
        return False
    try:
        return int(bits[-20:]) <= ipaddress.ip_address(address).max_prefixlen and len(bits.lstrip("0")) <= 3
    except ValueError:
        return False


# --- machine --------------------------------------------------------------------------------------------------------------

_DELETION_TIMEOUT = ("spec", "deletion", "nodeDeletionTimeoutSeconds")
NODE_DELETION_TIMEOUT_SECONDS = 10


def default_machine(attributes: Attributes) -> Obj | None:
    obj = attributes.obj or {}
    filled = with_version_prefix(with_cluster_label(obj), "spec", "version")
    if dig(filled, *_DELETION_TIMEOUT) is None:
        filled = with_path(filled, _DELETION_TIMEOUT, NODE_DELETION_TIMEOUT_SECONDS)
    return None if filled is obj else filled


def validate_machine(attributes: Attributes) -> Iterable[FieldError]:
    obj = attributes.obj or {}
    spec = section(obj, "spec")
    # The config of a machine in a pool belongs to the pool.
    errors: Errors = [] if _is_of_a_pool(obj) else bootstrap_is_named(spec, "spec")
    errors += same_cluster_as_before(obj, attributes.old)
    errors += version_is_semantic(text(spec, "version"), "spec.version")
    is_control_plane = well_known.CONTROL_PLANE in section(obj, "metadata", "labels")
    return errors + taint_errors(items(spec, "taints"), "spec.taints", worker=not is_control_plane)


def _is_of_a_pool(obj: Obj) -> bool:
    owners = items(obj, "metadata", "ownerReferences")
    return well_known.POOL_NAME in section(obj, "metadata", "labels") or any(
        text(owner, "kind") == "MachinePool" for owner in owners
    )


# --- machineset -----------------------------------------------------------------------------------------------------------


def default_machineset(attributes: Attributes) -> Obj | None:
    obj = attributes.obj or {}
    old = attributes.old if attributes.operation == UPDATE else None
    filled = with_replicas("MachineSet", with_cluster_label(obj), old)
    if selects_nothing_in_particular(filled):
        filled = with_selected_label(filled, well_known.SET_NAME, well_known.label_value(text(obj, "metadata", "name")))
    filled = with_version_prefix(filled, "spec", "template", "spec", "version")
    return None if filled is obj else filled


def validate_machineset(attributes: Attributes) -> Iterable[FieldError]:
    obj = attributes.obj or {}
    errors = bootstrap_is_named(section(obj, "spec", "template", "spec"), "spec.template.spec")
    errors += _machineset_selector_errors(obj)
    errors += skipped_preflight_checks(obj)
    errors += same_cluster_as_before(obj, attributes.old)
    errors += cluster_agrees(obj)
    errors += version_errors(obj)
    errors += template_taint_errors(obj)
    errors += naming_errors(obj)
    return errors + metadata_errors(obj)


def _machineset_selector_errors(obj: Obj) -> Errors:
    errors: Errors = []
    selector = selector_of(section(obj, "spec", "selector"), "spec.selector", errors)
    labels = dig(obj, "spec", "template", "metadata", "labels")
    if selector is not None and not selector.matches(labels):
        why = f"must match spec.selector {go_quote(str(selector))}"
        errors.append(invalid_value("spec.template.metadata.labels", labels, why))
    return errors


# --- machinedeployment ----------------------------------------------------------------------------------------------------

_STRATEGY = ("spec", "rollout", "strategy")


def default_machinedeployment(attributes: Attributes) -> Obj | None:
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


def validate_machinedeployment(attributes: Attributes) -> Iterable[FieldError]:
    obj = attributes.obj or {}
    errors = _name_errors(obj)
    errors += bootstrap_is_named(section(obj, "spec", "template", "spec"), "spec.template.spec")
    errors += _machinedeployment_selector_errors(obj)
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


def _machinedeployment_selector_errors(obj: Obj) -> Errors:
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


# --- machinehealthcheck ---------------------------------------------------------------------------------------------------

_STARTUP_TIMEOUT = ("spec", "checks", "nodeStartupTimeoutSeconds")
NODE_STARTUP_TIMEOUT_SECONDS = 600
# Zero switches the check off; a shorter timeout would hit machines that are merely starting.
_SHORTEST_STARTUP_SECONDS = 30


def default_machinehealthcheck(attributes: Attributes) -> Obj | None:
    obj = attributes.obj or {}
    filled = with_cluster_label(obj)
    if dig(filled, *_STARTUP_TIMEOUT) is None:
        filled = with_path(filled, _STARTUP_TIMEOUT, NODE_STARTUP_TIMEOUT_SECONDS)
    return None if filled is obj else filled


def validate_machinehealthcheck(attributes: Attributes) -> Iterable[FieldError]:
    obj = attributes.obj or {}
    errors = _machinehealthcheck_selector_errors(obj)
    errors += same_cluster_as_before(obj, attributes.old)
    seconds = whole_number(obj, *_STARTUP_TIMEOUT)
    if seconds and seconds < _SHORTEST_STARTUP_SECONDS:
        errors.append(invalid_value(".".join(_STARTUP_TIMEOUT), seconds, "must be at least 30s"))
    most = ("spec", "remediation", "triggerIf", "unhealthyLessThanOrEqualTo")
    return errors + int_or_percent(dig(obj, *most), ".".join(most))


def _machinehealthcheck_selector_errors(obj: Obj) -> Errors:
    errors: Errors = []
    structure = section(obj, "spec", "selector")
    selector = selector_of(structure, "spec.selector", errors)
    if selector is not None and selector.empty:
        errors.append(required("spec.selector", "selector must not be empty"))
    wanted = section(structure, "matchLabels")
    if well_known.CLUSTER_NAME in wanted and wanted[well_known.CLUSTER_NAME] != text(obj, "spec", "clusterName"):
        why = "cannot specify a cluster selector other than the one specified by ClusterName"
        errors.append(invalid_value("spec.selector", shown_selector(structure), why))
    return errors


# --- machinedrainrule -----------------------------------------------------------------------------------------------------

_WITHOUT_ORDER = ("Skip", "WaitCompleted")
_SELECTORS = (("machines", "selector", "clusterSelector"), ("pods", "selector", "namespaceSelector"))


def validate_machinedrainrule(attributes: Attributes) -> Iterable[FieldError]:
    obj = attributes.obj or {}
    errors: Errors = []
    order = whole_number(obj, "spec", "drain", "order")
    if order is not None and text(obj, "spec", "drain", "behavior") in _WITHOUT_ORDER:
        why = 'order must not be set if drain behavior is "Skip" or "WaitCompleted"'
        errors.append(invalid_value("spec.drain.order", order, why))
    return errors + drain_rule_selector_errors(obj)


def drain_rule_selector_errors(obj: Obj) -> list[FieldError]:
    """The errors in the rule's selectors; draining asks too, since a rule may be older than this check."""
    errors: Errors = []
    for group, *fields in _SELECTORS:
        for index, item in enumerate(items(obj, "spec", group)):
            for field in fields:
                if isinstance(item, dict) and item.get(field) is not None:
                    selector_of(section(item, field), f"spec.{group}[{index}].{field}", errors)
    return errors
