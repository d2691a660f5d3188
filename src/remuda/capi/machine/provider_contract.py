"""Fields that a Machine takes over from its BootstrapConfig and its InfraMachine, and the adoption of these objects.

Pure. The contract gives the fields' paths (:mod:`..contracts`); a value of the wrong type counts as absent.
:mod:`.provider_phases` reads and writes the objects.
"""

from __future__ import annotations

from typing import Any

from remuda.api.cluster_x_k8s_io import GROUP
from remuda.kube.clock import parse_rfc3339, rfc3339
from remuda.kube.condition_summaries import LegacySum
from remuda.kube.conditions import FALSE, INFO, TRUE, with_legacy
from remuda.kube.objects import (
    GroupVersion,
    GroupVersionKind,
    annotations_of,
    dig,
    is_being_deleted,
    labels_of,
    name_of,
    owner_references_of,
    with_metadata,
    with_path,
    without_path,
)
from remuda.kube.owners import controller_of, reference, with_owner, without_owner

from .. import contracts
from ..contracts import V1BETA1
from ..controller_context import cluster_name_of, owner_is
from ..external_objects import External
from ..provider_conditions import legacy_mirrored
from ..well_known import CERTIFICATES_EXPIRY, CLUSTER_NAME, CONTROL_PLANE, CONTROL_PLANE_NAME, POOL_NAME, SET_NAME

Obj = dict[str, Any]

_ADDRESS_TYPES = frozenset({"Hostname", "ExternalIP", "InternalIP", "ExternalDNS", "InternalDNS"})
# The limits of a Machine's schema. A provider's longer value would make the whole Machine unwritable.
_MOST_ADDRESSES, _LONGEST_ADDRESS = 256, 256
_LONGEST_PROVIDER_ID, _LONGEST_SECRET_NAME, _LONGEST_DOMAIN = 512, 253, 256
_LONGEST_LEGACY = {"reason": 256, "message": 10240, "severity": 32}
DATA_SECRET_CREATED = ("status", "initialization", "bootstrapDataSecretCreated")
INFRASTRUCTURE_PROVISIONED = ("status", "initialization", "infrastructureProvisioned")
_FAILURE_REASON = ("status", "deprecated", "v1beta1", "failureReason")
_FAILURE_MESSAGE = ("status", "deprecated", "v1beta1", "failureMessage")


# --- whose is what ---------------------------------------------------------------------------------------------------------


def adopted(machine: Obj, cluster: Obj | None) -> Obj:
    """The Machine with its Cluster's label and, if it has no other owner, owned by the Cluster."""
    name = cluster_name_of(machine)
    if name and labels_of(machine).get(CLUSTER_NAME) != name:
        machine = with_metadata(machine, labels={**labels_of(machine), CLUSTER_NAME: name})
    return with_owner(machine, reference(cluster)) if cluster is not None and is_standalone(machine) else machine


def is_standalone(machine: Obj) -> bool:
    """Not controlled, not yet owned by its Cluster, and not one that its set or control plane is about to adopt again after a
    restore: those compete for it."""
    if controller_of(machine) is not None or any(owner_is(owner, "Cluster") for owner in owner_references_of(machine)):
        return False
    return not any(label in labels_of(machine) for label in (SET_NAME, POOL_NAME, CONTROL_PLANE_NAME))


def taken_over(obj: Obj, machine: Obj, cluster: Obj | None) -> Obj:
    """A provider's object as the Machine's own; the same object when it already is.

    The maker (a set, a control plane) owned it only until there was a Machine. Raises AlreadyControlled.
    """
    name = cluster_name_of(machine)
    makers = [owner for owner in owner_references_of(obj) if _is_creator(owner, machine, cluster)]
    wanted = reference(machine, controller=True)
    if not makers and labels_of(obj).get(CLUSTER_NAME) == name and _is_owned(obj, wanted):
        return obj
    for owner in makers:
        obj = without_owner(obj, owner)
    return with_metadata(with_owner(obj, wanted), labels={**labels_of(obj), CLUSTER_NAME: name})


def _is_owned(obj: Obj, wanted: Obj) -> bool:
    keys = ("apiVersion", "kind", "name", "uid", "controller")
    return any(all(owner.get(key) == wanted[key] for key in keys) for owner in owner_references_of(obj))


def _is_creator(owner: Obj, machine: Obj, cluster: Obj | None) -> bool:
    if owner_is(owner, "MachineSet", GROUP):
        return True
    if CONTROL_PLANE not in labels_of(machine):
        return False
    ref = dig(cluster, "spec", "controlPlaneRef") or {}
    group = GroupVersion.parse(owner.get("apiVersion") or "").group
    return bool(ref) and owner.get("kind") == ref.get("kind") and group == ref.get("apiGroup")


# --- what went wrong -------------------------------------------------------------------------------------------------------


def with_failures(machine: Obj, obj: Obj) -> Obj:
    """The Machine with the failure, if any, that a provider's object reports in the way that older providers do."""
    if reason := contracts.failure_reason(obj):
        machine = with_path(machine, _FAILURE_REASON, reason)
    if message := contracts.failure_message(obj):
        kind = GroupVersionKind.of(obj)
        source = f'{kind.api_version}, Kind={kind.kind} with name "{name_of(obj)}"'
        told = f"Failure detected from referenced resource {source}: {message}"
        machine = with_path(machine, _FAILURE_MESSAGE, told[: _LONGEST_LEGACY["message"]])
    return machine


def with_infrastructure_lost(machine: Obj, namespace: str) -> Obj:
    ref = dig(machine, "spec", "infrastructureRef") or {}
    lost = f"{ref.get('kind')} {namespace}/{ref.get('name')}"
    told = f"Machine infrastructure resource {lost} has been deleted after provisioning was completed"
    return with_path(with_path(machine, _FAILURE_REASON, "InvalidConfiguration"), _FAILURE_MESSAGE, told)


# --- bootstrap -------------------------------------------------------------------------------------------------------------


def bootstrapped(machine: Obj, config: External, now: float) -> Obj:
    """The Machine with the values that its BootstrapConfig provides by now."""
    if dig(machine, "spec", "bootstrap", "dataSecretName") is not None:
        return with_legacy(_with(machine, DATA_SECRET_CREATED, True), "BootstrapReady", TRUE, now=now)
    created = contracts.data_secret_created(config.obj, config.contract)
    machine = _with_mirrored(machine, "BootstrapReady", config.obj, created, "WaitingForDataSecret", now)
    if is_being_deleted(config.obj) or missing_bootstrap_field(machine, config):
        return machine
    secret = contracts.data_secret_name(config.obj)
    return _with(_with(machine, ("spec", "bootstrap", "dataSecretName"), secret), DATA_SECRET_CREATED, True)


def missing_bootstrap_field(machine: Obj, config: External) -> str:
    """The field that the provider has not set yet, or not to a usable value; empty when nothing is missing."""
    if dig(machine, "spec", "bootstrap", "dataSecretName") is not None:
        return ""
    if not contracts.data_secret_created(config.obj, config.contract):
        return "status.ready" if config.contract == V1BETA1 else "status.initialization.dataSecretCreated"
    return "" if 0 < len(contracts.data_secret_name(config.obj)) <= _LONGEST_SECRET_NAME else "status.dataSecretName"


# --- infrastructure --------------------------------------------------------------------------------------------------------


def provisioned(machine: Obj, infra: External, now: float) -> Obj:
    """The Machine with the values that its InfraMachine provides by now. A provisioned Machine never becomes unprovisioned."""
    done = contracts.provisioned(infra.obj, infra.contract)
    machine = _with_mirrored(machine, "InfrastructureReady", infra.obj, done, "WaitingForInfrastructure", now)
    if is_being_deleted(infra.obj) or missing_infrastructure_field(machine, infra):
        return machine
    found = dig(infra.obj, "status", "addresses")
    if isinstance(found, list):
        machine = _with(machine, ("status", "addresses"), usable_addresses(infra.obj) or None)
    for part in ("spec", "status"):  # older providers have it in the spec, and so has the Machine then
        domain = dig(infra.obj, part, "failureDomain")
        if isinstance(domain, str) and len(domain) <= _LONGEST_DOMAIN:
            machine = _with(machine, (part, "failureDomain"), domain or None)
    machine = _with(machine, ("spec", "providerID"), contracts.provider_id(infra.obj))
    return _with(machine, INFRASTRUCTURE_PROVISIONED, True)


def missing_infrastructure_field(machine: Obj, infra: External) -> str:
    """The field that the provider has not set yet, or not to a usable value; empty when nothing is missing."""
    once = dig(machine, *INFRASTRUCTURE_PROVISIONED) is True
    if not once and not contracts.provisioned(infra.obj, infra.contract):
        return "status.ready" if infra.contract == V1BETA1 else "status.initialization.provisioned"
    return "" if 0 < len(contracts.provider_id(infra.obj)) <= _LONGEST_PROVIDER_ID else "spec.providerID"


def usable_addresses(infra: Obj) -> list[Obj]:
    """Addresses that a Machine may have: an invalid one would make its whole status unwritable."""
    found = [
        {"type": address.get("type"), "address": address.get("address")}
        for address in contracts.addresses(infra)
        if address.get("type") in _ADDRESS_TYPES
        and isinstance(address.get("address"), str)
        and 0 < len(address["address"]) <= _LONGEST_ADDRESS
    ]
    return found[:_MOST_ADDRESSES]


# --- certificates ----------------------------------------------------------------------------------------------------------


class UnreadableExpiry(Exception):
    """The annotation for the expiry of certificates holds no time."""


def with_certificates_expiry(machine: Obj, config: Obj | None) -> Obj:
    """A control plane's Machine with the expiry of its certificates, from its own annotation or its BootstrapConfig's."""
    if CONTROL_PLANE not in labels_of(machine):
        return machine
    for obj in (machine, config):
        text = annotations_of(obj).get(CERTIFICATES_EXPIRY) if obj is not None else None
        if text is None or obj is None:
            continue
        try:
            return _with(machine, ("status", "certificatesExpiryDate"), rfc3339(parse_rfc3339(text)))
        except ValueError:
            where = f"{obj.get('kind')} {name_of(obj)}"
            raise UnreadableExpiry(f"the annotation {CERTIFICATES_EXPIRY} of {where} is no time: {text}") from None
    return _with(machine, ("status", "certificatesExpiryDate"), None)


def _with(machine: Obj, path: tuple[str, ...], value: Any) -> Obj:
    if dig(machine, *path) == value:
        return machine
    return without_path(machine, path) if value is None else with_path(machine, path, value)


def _with_mirrored(machine: Obj, kind: str, obj: Obj, done: bool, waiting: str, now: float) -> Obj:
    reason = "Deleting" if is_being_deleted(machine) else waiting
    fallback = LegacySum(TRUE) if done else LegacySum(FALSE, reason, "", INFO)
    said = legacy_mirrored(obj, fallback)
    clipped = {field: getattr(said, field)[:longest] for field, longest in _LONGEST_LEGACY.items()}
    return with_legacy(machine, kind, said.status, **clipped, now=now)
