"""Defaults and checks of each kind: `default_…` and `validate_…`.

Clusters have no defaults: upstream sets them only for managed topologies, which are refused here. MachineDrainRules have none
either. MachineSets and MachineDeployments share the checks of a template, a selector and the naming of machines. Rules of other
kinds, too, are in :mod:`.shared_rules`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Any

from remuda.kube.admission_attributes import UPDATE, Attributes
from remuda.kube.encoding.go_format import IntegerError, parse_int32
from remuda.kube.errors import ApiError, FieldError, forbidden_field, go_quote, invalid_value, required
from remuda.kube.names import (
    annotation_errors,
    dns_subdomain_problems,
    label_errors,
    label_value_problems,
    qualified_name_problems,
)
from remuda.kube.objects import dig, with_metadata, with_path

from .. import well_known
from ..naming import NameTemplateError, machine_name
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


_TEMPLATE = ("spec", "template")
_RANDOM = "{{ .random }}"


def with_cluster_label(obj: Obj) -> Obj:
    """The object labelled with its cluster."""
    cluster, labels = text(obj, "spec", "clusterName"), section(obj, "metadata", "labels")
    if labels.get(well_known.CLUSTER_NAME) == cluster:
        return obj
    return with_metadata(obj, labels={**labels, well_known.CLUSTER_NAME: cluster})


def with_replicas(kind: str, obj: Obj, old: Obj | None) -> Obj:
    if dig(obj, "spec", "replicas") is not None:
        return obj
    return with_path(obj, ("spec", "replicas"), default_replicas(kind, obj, old))


def with_selected_label(obj: Obj, key: str, value: str) -> Obj:
    """The object with a label in its selector and on every machine."""
    for path in (("spec", "selector", "matchLabels"), (*_TEMPLATE, "metadata", "labels")):
        labels = section(obj, *path)
        if labels.get(key) != value:
            obj = with_path(obj, path, {**labels, key: value})
    return obj


def selects_nothing_in_particular(obj: Obj) -> bool:
    selector = section(obj, "spec", "selector")
    return not selector.get("matchLabels") and not selector.get("matchExpressions")


def with_version_prefix(obj: Obj, *path: str) -> Obj:
    """Versions may be written without the `v`, and are stored with it."""
    version = text(obj, *path)
    return with_path(obj, path, f"v{version}") if version and not version.startswith("v") else obj


def cluster_agrees(obj: Obj) -> Errors:
    cluster = text(obj, "spec", "clusterName")
    if cluster == text(obj, *_TEMPLATE, "spec", "clusterName"):
        return []
    return [
        invalid_value(
            "spec.clusterName", cluster, "spec.clusterName and spec.template.spec.clusterName must be set to the same value"
        )
    ]


def version_errors(obj: Obj) -> Errors:
    return version_is_semantic(text(obj, *_TEMPLATE, "spec", "version"), "spec.template.spec.version")


def template_taint_errors(obj: Obj) -> Errors:
    return taint_errors(items(obj, *_TEMPLATE, "spec", "taints"), "spec.template.spec.taints", worker=True)


def metadata_errors(obj: Obj) -> Errors:
    metadata = section(obj, *_TEMPLATE, "metadata")
    errors = label_errors(metadata.get("labels"), "spec.template.metadata.labels")
    return errors + annotation_errors(metadata.get("annotations"), "spec.template.metadata.annotations")


def naming_errors(obj: Obj) -> Errors:
    """A template of names must give different names for different machines, and names that Kubernetes accepts."""
    template = text(obj, "spec", "machineNaming", "template")
    if not template:
        return []
    errors = [] if _RANDOM in template else [_bad_name(template, f"invalid template, {_RANDOM} is missing")]
    try:
        name = machine_name(template, "cluster", "machineset", lambda length: "x" * length)
    except NameTemplateError as error:
        return [*errors, _bad_name(template, f"invalid template: {error}")]
    why = "invalid template, generated names would not be valid Kubernetes object names"
    return errors + [_bad_name(template, f"{why}: {problem}") for problem in dns_subdomain_problems(name)]


def _bad_name(template: str, why: str) -> FieldError:
    return invalid_value("spec.machineNaming.template", template, why)


# --- replicas -------------------------------------------------------------------------------------------------------------
#
# The default number of machines.
#
# The autoscaler takes over only once the number is within its bounds, so an object that carries both of its annotations is
# brought there; unsetting the field hands a running group over without scaling it down. Everything else gets one machine.


def default_replicas(kind: str, obj: Obj, old: Obj | None) -> int:
    """The default for an object without `spec.replicas`; `old` is None when it is new."""
    annotations = section(obj, "metadata", "annotations")
    if well_known.AUTOSCALER_MIN not in annotations or well_known.AUTOSCALER_MAX not in annotations:
        return 1
    low = _bound(kind, annotations, well_known.AUTOSCALER_MIN)
    high = _bound(kind, annotations, well_known.AUTOSCALER_MAX)
    before = whole_number(old, "spec", "replicas")
    if before is None or before < low:
        return low
    return min(before, high)


def _bound(kind: str, annotations: Obj, name: str) -> int:
    try:
        return parse_int32(str(annotations[name]))
    except IntegerError as error:
        # The misspelt word is what clients of upstream see.
        what = f'failed to caculate {kind} replicas value: could not parse the value of the "{name}" annotation'
        raise ApiError(403, "Forbidden", f"{what}: {error}") from None


# --- taints ---------------------------------------------------------------------------------------------------------------
#
# Taints that a machine may ask for: not those that the system itself adds to nodes and removes.

_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
_CONTROL_PLANE_ROLE = "node-role.kubernetes.io/control-plane"


def taint_errors(taints: list[Any], path: str, *, worker: bool) -> list[FieldError]:
    """The errors in a machine's taints; a worker may not pose as a control plane."""
    errors: list[FieldError] = []
    for index, taint in enumerate(taints):
        key = text(taint, "key")
        reserved = _reserved(key)
        problems = ([reserved] if reserved else []) + qualified_name_problems(key)
        errors += [invalid_value(f"{path}[{index}].key", key, why) for why in problems]
    if worker:
        errors += [
            invalid_value(f"{path}[{index}].key", _CONTROL_PLANE_ROLE, "taint is not allowed for worker Machines")
            for index, taint in enumerate(taints)
            if text(taint, "key") == _CONTROL_PLANE_ROLE
        ]
    return errors


def _reserved(key: str) -> str:
    if key in (well_known.UNINITIALIZED_TAINT, well_known.OUTDATED_REVISION_TAINT):
        return "taint key is not allowed"
    if key.startswith("node.kubernetes.io/") and key != _OUT_OF_SERVICE:
        return f"taint key must not have the prefix node.kubernetes.io/, except for {_OUT_OF_SERVICE}"
    if key.startswith("node.cloudprovider.kubernetes.io/"):
        return "taint key must not have the prefix node.cloudprovider.kubernetes.io/"
    if key == "node-role.kubernetes.io/master":
        return "taint is deprecated since 1.24 and should not be used anymore"
    return ""
