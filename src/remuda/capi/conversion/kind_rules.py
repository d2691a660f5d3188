"""Conversion of one object from v1beta1 to v1beta2 or back, and the table of their fields, kind by kind.

On the way down the v1beta2 object is put into an annotation; on the way up it provides what v1beta1 can't express: whether
a zero was intended, and the fields that v1beta1 lacks. Everything else is taken from v1beta1's own fields, so that an old
client's changes win.

The v1beta1 side is named first. This table has all differences; the form of each field is in :mod:`.v1beta1` and
:mod:`.v1beta2`, the meaning of a rule in :mod:`.field_rules`. Four fields of v1beta1 have no place in v1beta2 and are dropped,
as upstream does: a MachineDeployment's `progressDeadlineSeconds` and `revisionHistoryLimit`, a topology's `rolloutAfter`
and a variable's `definitionFrom`. None of them has an effect in this version of Cluster API.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from remuda.api.cluster_x_k8s_io import API_VERSION, OLD_API_VERSION
from remuda.kube.encoding.jsonio import JsonError, dumps_sorted, loads
from remuda.kube.errors import ConversionError

from . import v1beta1, v1beta2
from .field_rules import (
    ContractVersions,
    ConversionContext,
    FieldRule,
    Pair,
    always,
    contract_reference,
    each,
    intended,
    kept,
    moved,
    nested,
    nothing,
    same,
    seconds,
    seconds_always,
    template_reference,
    unless_zero,
)
from .go_structs import Obj, StructFields

V1BETA1, V1BETA2 = OLD_API_VERSION, API_VERSION
DATA_ANNOTATION = "cluster.x-k8s.io/conversion-data"


def convert(obj: Obj, api_version: str, versions: ContractVersions) -> Obj:
    """The object in `api_version`; the one it is given stays as it is, and parts of it are shared with the result.

    A reference to a kind that `versions` does not know does not fail the conversion, as it does upstream: it gets an
    apiVersion made up from its group, and converts back to the same.
    """
    current = obj.get("apiVersion")
    if current == api_version:
        return obj
    kind = KINDS.get(str(obj.get("kind")))
    if kind is None or {current, api_version} != {V1BETA1, V1BETA2}:
        raise ConversionError(f"{obj.get('kind')} can't be converted from {current} to {api_version}")
    if obj.keys() <= {"apiVersion", "kind"}:
        return {**obj, "apiVersion": api_version}
    return _up(obj, kind, versions) if api_version == V1BETA2 else _down(obj, kind, versions)


def converter(versions: ContractVersions) -> Callable[[Obj, str], Obj]:
    """:func:`convert` in the form that an :class:`~remuda.runtime.admitted_types.AdmittedType` takes."""

    def with_versions(obj: Obj, api_version: str) -> Obj:
        return convert(obj, api_version, versions)

    return with_versions


def _up(obj: Obj, kind: KindRules, versions: ContractVersions) -> Obj:
    metadata, restored = _taken(obj.get("metadata") or {}) if kind.keeps_data else (obj.get("metadata") or {}, None)
    scope = ConversionContext(_namespace(obj), versions, restored)
    plain = kind.v1beta1.read(obj)
    found = {section: pair.up(plain.get(section) or {}, scope.within((section,))) for section, pair in kind.sections.items()}
    written = kind.v1beta2.write({section: value for section, value in found.items() if value})
    return {"apiVersion": V1BETA2, "kind": obj["kind"], "metadata": metadata, **written}


def _down(obj: Obj, kind: KindRules, versions: ContractVersions) -> Obj:
    plain = kind.v1beta2.read(obj)
    metadata = obj.get("metadata") or {}
    if kind.keeps_data:
        metadata = _given(metadata, obj["kind"], kind.v1beta2.write(plain))
    scope = ConversionContext(_namespace(obj), versions)
    found = {section: pair.down(plain.get(section) or {}, scope) for section, pair in kind.sections.items()}
    return {"apiVersion": V1BETA1, "kind": obj["kind"], "metadata": metadata, **kind.v1beta1.write(found)}


def _namespace(obj: Obj) -> str:
    return (obj.get("metadata") or {}).get("namespace") or ""


def _given(metadata: Obj, kind: str, sections: Obj) -> Obj:
    """The metadata with the v1beta2 object in the annotation. Its keys are sorted, so that one object always looks the same."""
    data = {"apiVersion": V1BETA2, "kind": kind, **(sections or {"metadata": {}})}
    return {**metadata, "annotations": {**(metadata.get("annotations") or {}), DATA_ANNOTATION: dumps_sorted(data).decode()}}


def _taken(metadata: Obj) -> tuple[Obj, Obj | None]:
    """The metadata without the annotation, and the annotation's data. Unreadable data (a client wrote it) counts as none."""
    annotations: dict[str, Any] = metadata.get("annotations") or {}
    if DATA_ANNOTATION not in annotations:
        return metadata, None
    rest = {key: value for key, value in annotations.items() if key != DATA_ANNOTATION}
    without = {key: value for key, value in metadata.items() if key != "annotations"}
    return {**without, "annotations": rest} if rest else without, _parsed(annotations[DATA_ANNOTATION])


def _parsed(text: str) -> Obj | None:
    try:
        data = loads(text)
    except JsonError:
        return None
    return {} if data is None else data if isinstance(data, dict) else None


@dataclass(frozen=True, slots=True)
class KindRules:
    """`keeps_data`: v1beta1 carries the v1beta2 object in an annotation, for the fields that it can't express itself."""

    v1beta1: StructFields
    v1beta2: StructFields
    sections: dict[str, Pair]
    keeps_data: bool = False


_TIMEOUTS = (
    seconds("nodeDrainTimeout", "deletion.nodeDrainTimeoutSeconds"),
    seconds("nodeVolumeDetachTimeout", "deletion.nodeVolumeDetachTimeoutSeconds"),
    seconds("nodeDeletionTimeout", "deletion.nodeDeletionTimeoutSeconds"),
)
_LEGACY_CONDITIONS = (
    moved("conditions", "deprecated.v1beta1.conditions"),
    moved("v1beta2.conditions", "conditions"),
)
_FAILURES = (
    moved("failureReason", "deprecated.v1beta1.failureReason"),
    moved("failureMessage", "deprecated.v1beta1.failureMessage"),
)
# v1beta1's counters have another meaning, so both sets travel side by side.
_NEW_COUNTERS = tuple(moved(f"v1beta2.{name}Replicas", f"{name}Replicas") for name in ("ready", "available", "upToDate"))


def _old_counters(*names: str) -> tuple[FieldRule, ...]:
    return tuple(always(name, f"deprecated.v1beta1.{name}") for name in names)


# --- what a MachineHealthCheck and a topology check -----------------------------------------------------------------------------

_UNHEALTHY = Pair(same("type", "status"), seconds_always("timeout", "timeoutSeconds"))
_HEALTH_CHECK = (
    each("unhealthyConditions", "checks.unhealthyNodeConditions", _UNHEALTHY, keep_empty=False),
    each("unhealthyMachineConditions", "checks.unhealthyMachineConditions", _UNHEALTHY, keep_empty=False),
    seconds("nodeStartupTimeout", "checks.nodeStartupTimeoutSeconds"),
    moved("maxUnhealthy", "remediation.triggerIf.unhealthyLessThanOrEqualTo"),
    unless_zero("unhealthyRange", "remediation.triggerIf.unhealthyInRange"),
    template_reference("remediationTemplate", "remediation.templateRef"),
)

# --- rollout --------------------------------------------------------------------------------------------------------------------


def _strategy(max_in_flight: str) -> tuple[FieldRule, ...]:
    return (
        moved("strategy.type", "rollout.strategy.type"),
        moved("strategy.rollingUpdate.maxUnavailable", "rollout.strategy.rollingUpdate.maxUnavailable"),
        moved("strategy.rollingUpdate.maxSurge", "rollout.strategy.rollingUpdate.maxSurge"),
        unless_zero("strategy.rollingUpdate.deletePolicy", "deletion.order"),
        moved("strategy.remediation.maxInFlight", max_in_flight),
    )


# --- Cluster --------------------------------------------------------------------------------------------------------------------

_VARIABLE = Pair(same("name", "value"))
_OVERRIDES = each("variables.overrides", "variables.overrides", _VARIABLE)
_TOPOLOGY_HEALTH_CHECK = Pair(moved("enable", "enabled"), *_HEALTH_CHECK)


def _without_max_in_flight() -> FieldRule:
    """A MachineDeployment's health check also holds `maxInFlight`, which alone is no health check in v1beta1."""
    inner = nested("machineHealthCheck", "healthCheck", _TOPOLOGY_HEALTH_CHECK)

    def down(struct: Obj, out: Obj, scope: ConversionContext) -> None:
        check = struct.get("healthCheck") or {}
        remediation = {key: value for key, value in (check.get("remediation") or {}).items() if key != "maxInFlight"}
        rest = {key: value for key, value in check.items() if key != "remediation"}
        inner.down({"healthCheck": {**rest, "remediation": remediation} if remediation else rest}, out, scope)

    return FieldRule(inner.up, down)


_CONTROL_PLANE_TOPOLOGY = Pair(
    same("metadata", "replicas", "rollout", "taints", "readinessGates"),
    nested("machineHealthCheck", "healthCheck", _TOPOLOGY_HEALTH_CHECK),
    *_TIMEOUTS,
    _OVERRIDES,
)
_DEPLOYMENT_TOPOLOGY = Pair(
    same("metadata", "class", "name", "replicas", "taints", "minReadySeconds", "readinessGates"),
    unless_zero("failureDomain", "failureDomain"),
    _without_max_in_flight(),
    moved("rollout.after", "rollout.after"),
    *_strategy("healthCheck.remediation.maxInFlight"),
    *_TIMEOUTS,
    _OVERRIDES,
)
_POOL_TOPOLOGY = Pair(
    same("metadata", "class", "name", "failureDomains", "taints", "minReadySeconds", "replicas"),
    *_TIMEOUTS,
    _OVERRIDES,
)
_TOPOLOGY = Pair(
    moved("class", "classRef.name"),
    moved("classNamespace", "classRef.namespace"),
    same("version"),
    nested("controlPlane", "controlPlane", _CONTROL_PLANE_TOPOLOGY),
    each("workers.machineDeployments", "workers.machineDeployments", _DEPLOYMENT_TOPOLOGY),
    each("workers.machinePools", "workers.machinePools", _POOL_TOPOLOGY),
    each("variables", "variables", _VARIABLE),
)
_CLUSTER_SPEC = Pair(
    intended("paused", "paused"),
    nested(
        "clusterNetwork",
        "clusterNetwork",
        Pair(
            unless_zero("apiServerPort", "apiServerPort"),
            moved("services.cidrBlocks", "services.cidrBlocks"),
            moved("pods.cidrBlocks", "pods.cidrBlocks"),
            same("serviceDomain"),
        ),
    ),
    same("controlPlaneEndpoint", "availabilityGates"),
    contract_reference("controlPlaneRef", "controlPlaneRef"),
    contract_reference("infrastructureRef", "infrastructureRef"),
    nested("topology", "topology", _TOPOLOGY),
)


def _failure_domains() -> FieldRule:
    """A map by name in v1beta1, a list sorted by name in v1beta2."""

    def up(struct: Obj, out: Obj, scope: ConversionContext) -> None:
        domains = struct.get("failureDomains")
        if domains is not None:
            out["failureDomains"] = [
                {"controlPlane": False, **domain, **({"name": name} if name else {})} for name, domain in sorted(domains.items())
            ]

    def down(struct: Obj, out: Obj, scope: ConversionContext) -> None:
        domains = struct.get("failureDomains")
        if domains is not None:
            out["failureDomains"] = {
                domain.get("name", ""): {key: value for key, value in domain.items() if key != "name" and value is not False}
                for domain in domains
            }

    return FieldRule(up, down)


_CLUSTER_STATUS = Pair(
    same("phase", "observedGeneration"),
    intended("infrastructureReady", "initialization.infrastructureProvisioned"),
    intended("controlPlaneReady", "initialization.controlPlaneInitialized"),
    _failure_domains(),
    *_LEGACY_CONDITIONS,
    *_FAILURES,
    moved("v1beta2.controlPlane", "controlPlane"),
    moved("v1beta2.workers", "workers"),
)

# --- Machine --------------------------------------------------------------------------------------------------------------------

_MACHINE_SPEC = (
    same("clusterName", "readinessGates", "taints"),
    unless_zero("version", "version"),
    unless_zero("providerID", "providerID"),
    unless_zero("failureDomain", "failureDomain"),
    moved("bootstrap.dataSecretName", "bootstrap.dataSecretName"),
    contract_reference("bootstrap.configRef", "bootstrap.configRef"),
    contract_reference("infrastructureRef", "infrastructureRef"),
    *_TIMEOUTS,
)
_MACHINE_TEMPLATE = nested("template", "template", Pair(same("metadata"), nested("spec", "spec", Pair(*_MACHINE_SPEC))))


def _node_reference() -> FieldRule:
    def up(struct: Obj, out: Obj, scope: ConversionContext) -> None:
        if name := (struct.get("nodeRef") or {}).get("name"):
            out["nodeRef"] = {"name": name}

    def down(struct: Obj, out: Obj, scope: ConversionContext) -> None:
        if reference := struct.get("nodeRef"):
            out["nodeRef"] = {"apiVersion": "v1", "kind": "Node", "name": reference["name"]}

    return FieldRule(up, down)


def _no_updating_phase() -> FieldRule:
    """A Machine that is updated in place is shown as running to clients of v1beta1, which has no such phase."""

    def down(struct: Obj, out: Obj, scope: ConversionContext) -> None:
        if struct.get("phase") == "Updating":
            out["phase"] = "Running"

    return FieldRule(nothing, down)


_MACHINE_STATUS = Pair(
    same("nodeInfo", "lastUpdated", "addresses", "phase", "certificatesExpiryDate", "observedGeneration", "deletion"),
    _no_updating_phase(),
    _node_reference(),
    intended("bootstrapReady", "initialization.bootstrapDataSecretCreated"),
    intended("infrastructureReady", "initialization.infrastructureProvisioned"),
    *_LEGACY_CONDITIONS,
    *_FAILURES,
    kept("phase", "failureDomain"),
)

# --- MachineSet and MachineDeployment -------------------------------------------------------------------------------------------

_NAMING = unless_zero("machineNamingStrategy.template", "machineNaming.template")
_MACHINE_SET_SPEC = Pair(
    same("clusterName", "replicas", "selector"),
    _MACHINE_TEMPLATE,
    unless_zero("minReadySeconds", "template.spec.minReadySeconds"),
    unless_zero("deletePolicy", "deletion.order"),
    _NAMING,
)
_MACHINE_SET_STATUS = Pair(
    same("selector", "observedGeneration", "versions"),
    always("replicas", "replicas"),
    *_LEGACY_CONDITIONS,
    *_FAILURES,
    *_NEW_COUNTERS,
    *_old_counters("fullyLabeledReplicas", "readyReplicas", "availableReplicas"),
)
_DEPLOYMENT_SPEC = Pair(
    same("clusterName", "replicas", "selector"),
    _MACHINE_TEMPLATE,
    moved("minReadySeconds", "template.spec.minReadySeconds"),
    moved("rolloutAfter", "rollout.after"),
    *_strategy("remediation.maxInFlight"),
    _NAMING,
    intended("paused", "paused"),
)
_DEPLOYMENT_STATUS = Pair(
    same("selector", "phase", "observedGeneration", "versions"),
    always("replicas", "replicas"),
    *_LEGACY_CONDITIONS,
    *_NEW_COUNTERS,
    *_old_counters("updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas"),
)

# --- MachineHealthCheck and MachineDrainRule ------------------------------------------------------------------------------------

_HEALTH_CHECK_SPEC = Pair(same("clusterName", "selector"), *_HEALTH_CHECK)
_HEALTH_CHECK_STATUS = Pair(
    same("observedGeneration", "targets"),
    intended("expectedMachines", "expectedMachines"),
    intended("currentHealthy", "currentHealthy"),
    intended("remediationsAllowed", "remediationsAllowed"),
    *_LEGACY_CONDITIONS,
)

KINDS = {
    "Cluster": KindRules(v1beta1.CLUSTER, v1beta2.CLUSTER, {"spec": _CLUSTER_SPEC, "status": _CLUSTER_STATUS}, keeps_data=True),
    "Machine": KindRules(
        v1beta1.MACHINE,
        v1beta2.MACHINE,
        {"spec": Pair(*_MACHINE_SPEC, kept("minReadySeconds")), "status": _MACHINE_STATUS},
        keeps_data=True,
    ),
    "MachineSet": KindRules(v1beta1.MACHINE_SET, v1beta2.MACHINE_SET, {"spec": _MACHINE_SET_SPEC, "status": _MACHINE_SET_STATUS}),
    "MachineDeployment": KindRules(
        v1beta1.MACHINE_DEPLOYMENT,
        v1beta2.MACHINE_DEPLOYMENT,
        {"spec": _DEPLOYMENT_SPEC, "status": _DEPLOYMENT_STATUS},
        keeps_data=True,
    ),
    "MachineHealthCheck": KindRules(
        v1beta1.MACHINE_HEALTH_CHECK,
        v1beta2.MACHINE_HEALTH_CHECK,
        {"spec": _HEALTH_CHECK_SPEC, "status": _HEALTH_CHECK_STATUS},
        keeps_data=True,
    ),
    "MachineDrainRule": KindRules(
        v1beta1.MACHINE_DRAIN_RULE, v1beta2.MACHINE_DRAIN_RULE, {"spec": Pair(same("drain", "machines", "pods"))}
    ),
}
