"""The contract of a provider's kind: which version to read, from the labels of its CRD, and where its fields are.

A reference names group, kind and name. The CRD of that kind carries `cluster.x-k8s.io/<contract>: <version>[_<version>…]`; the
newest contract that we know wins, then the newest version that it lists. CRDs are found by group and kind, so a provider that
spells its plural unusually is found, too. :mod:`.external_objects` reads the objects.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from remuda.kube.builtin_resources import CRDS
from remuda.kube.objects import GroupVersion, GroupVersionResource, dig, labels_of, version_order
from remuda.runtime import Informer, Informers

from .well_known import DOMAIN

Obj = dict[str, Any]


V1BETA2, V1BETA1 = "v1beta2", "v1beta1"
_KNOWN = (V1BETA2, V1BETA1)
_BY_KIND = "group and kind"


class ContractKind(NamedTuple):
    """A provider's kind, with the version and the contract to read it by."""

    resource: GroupVersionResource
    kind: str
    contract: str

    @property
    def api_version(self) -> str:
        return f"{self.resource.group}/{self.resource.version}"


class NoContract(Exception):
    """A reference names a kind that no CRD defines (yet), or whose CRD follows no contract that we know."""

    def __init__(self, group: str, kind: str, why: str, *, defined: bool = False) -> None:
        """`defined`: there is a CRD, so there may be objects."""
        super().__init__(f"{kind}.{group}: {why}")
        self.group = group
        self.kind = kind
        self.defined = defined


def without_schemas(crd: Obj) -> Obj:
    """The parts of a CRD that matter here; schemas are most of its size."""
    meta = {key: value for key, value in (crd.get("metadata") or {}).items() if key not in ("managedFields", "annotations")}
    spec = crd.get("spec") or {}
    versions = [{"name": version.get("name"), "served": version.get("served")} for version in spec.get("versions") or ()]
    slim = {"group": spec.get("group"), "names": spec.get("names"), "scope": spec.get("scope"), "versions": versions}
    return {"apiVersion": crd.get("apiVersion"), "kind": crd.get("kind"), "metadata": meta, "spec": slim}


def group_kind(crd: Obj) -> tuple[str, str]:
    return dig(crd, "spec", "group", default=""), dig(crd, "spec", "names", "kind", default="")


class Contracts:
    """Kinds by their CRDs, watched all the time: a provider that is installed later is known as soon as its CRD exists."""

    def __init__(self, informers: Informers) -> None:
        self.crds: Informer = informers.of(CRDS, transform=without_schemas)
        self.crds.add_index(_BY_KIND, lambda crd: (group_kind(crd),))

    def find(self, group: str, kind: str) -> ContractKind:
        """Raises NoContract."""
        found = self.crds.indexed(_BY_KIND, (group, kind))
        if not found:
            raise NoContract(group, kind, "no CustomResourceDefinition defines it")
        crd = found[0]
        labels = labels_of(crd)
        for contract in _KNOWN:
            listed = labels.get(f"{DOMAIN}/{contract}")
            if listed:
                version = min(listed.split("_"), key=version_order)
                return ContractKind(GroupVersionResource(group, version, crd["spec"]["names"]["plural"]), kind, contract)
        why = f"its CustomResourceDefinition has no label {DOMAIN}/{V1BETA2} or {DOMAIN}/{V1BETA1}"
        raise NoContract(group, kind, why, defined=True)

    def versioned(self, api_version: str, kind: str) -> GroupVersionResource:
        """The resource for a reference that names a version itself. Raises NoContract when no CRD defines the kind."""
        group, version = GroupVersion.parse(api_version)
        found = self.crds.indexed(_BY_KIND, (group, kind))
        if not found:
            raise NoContract(group, kind, "no CustomResourceDefinition defines it")
        return GroupVersionResource(group, version, found[0]["spec"]["names"]["plural"])

    def api_version(self, group: str, kind: str) -> str | None:
        """The apiVersion for the conversion to v1beta1, whose references name a version."""
        try:
            return self.find(group, kind).api_version
        except NoContract:
            return None


# --- fields ---------------------------------------------------------------------------------------------------------------
#
# Fields of providers' objects, by contract: the differences between v1beta1 and v1beta2 are handled only here.
#
# Every function takes the object and, where it matters, the contract. A value of the wrong type
# reads as absent: a provider's mistake must not stop the core.

_SPEC_VERSION = ("spec", "version")


def _text(obj: Obj, *path: str) -> str:
    found = dig(obj, *path)
    return found if isinstance(found, str) else ""


def _number(obj: Obj, *path: str) -> int | None:
    found = dig(obj, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _flag(obj: Obj, *path: str) -> bool | None:
    found = dig(obj, *path)
    return found if isinstance(found, bool) else None


# --- all of them -----------------------------------------------------------------------------------------------------------


def failure_reason(obj: Obj) -> str:
    return _text(obj, "status", "failureReason")


def failure_message(obj: Obj) -> str:
    return _text(obj, "status", "failureMessage")


# --- infrastructure --------------------------------------------------------------------------------------------------------


def provisioned(obj: Obj, contract: str) -> bool:
    """True if the infrastructure of an InfraCluster or InfraMachine is provisioned."""
    path = ("status", "ready") if contract == V1BETA1 else ("status", "initialization", "provisioned")
    return _flag(obj, *path) is True


class ControlPlaneEndpoint(NamedTuple):
    host: str
    port: int

    @property
    def valid(self) -> bool:
        return bool(self.host) and self.port != 0


def endpoint(obj: Obj) -> ControlPlaneEndpoint:
    """`spec.controlPlaneEndpoint` of a Cluster, an InfraCluster or a control plane."""
    return ControlPlaneEndpoint(
        _text(obj, "spec", "controlPlaneEndpoint", "host"), _number(obj, "spec", "controlPlaneEndpoint", "port") or 0
    )


def failure_domains(obj: Obj, contract: str) -> list[Obj]:
    """An InfraCluster's failure domains, in v1beta2's form: a list by name."""
    found = dig(obj, "status", "failureDomains")
    if contract == V1BETA1:
        named = found.items() if isinstance(found, dict) else ()
        found = [{**domain, "name": name} for name, domain in named if isinstance(domain, dict)]
    if not isinstance(found, list):
        return []
    domains = [domain for domain in found if isinstance(domain, dict) and isinstance(domain.get("name"), str) and domain["name"]]
    return sorted((_failure_domain(domain) for domain in domains), key=lambda domain: str(domain["name"]))


def _failure_domain(domain: Obj) -> Obj:
    made: Obj = {"name": domain["name"], "controlPlane": _flag(domain, "controlPlane") is True}
    attributes = domain.get("attributes")
    if isinstance(attributes, dict) and attributes:
        made["attributes"] = {key: str(value) for key, value in attributes.items()}
    return made


def provider_id(obj: Obj) -> str:
    return _text(obj, "spec", "providerID")


def addresses(obj: Obj) -> list[Obj]:
    found = dig(obj, "status", "addresses")
    return [address for address in found if isinstance(address, dict)] if isinstance(found, list) else []


def interruptible(obj: Obj) -> bool:
    return _flag(obj, "status", "interruptible") is True


# --- bootstrap -------------------------------------------------------------------------------------------------------------


def data_secret_created(obj: Obj, contract: str) -> bool:
    path = ("status", "ready") if contract == V1BETA1 else ("status", "initialization", "dataSecretCreated")
    return _flag(obj, *path) is True


def data_secret_name(obj: Obj) -> str:
    return _text(obj, "status", "dataSecretName")


# --- control plane ---------------------------------------------------------------------------------------------------------


def control_plane_initialized(obj: Obj, contract: str) -> bool:
    path = ("status", "initialized") if contract == V1BETA1 else ("status", "initialization", "controlPlaneInitialized")
    return _flag(obj, *path) is True


def spec_version(obj: Obj) -> str:
    return _text(obj, *_SPEC_VERSION)


def externally_managed(obj: Obj) -> bool:
    """True if no Machines represent this control plane."""
    return _flag(obj, "status", "externalManagedControlPlane") is True


def spec_replicas(obj: Obj) -> int | None:
    return _number(obj, "spec", "replicas")


def status_replicas(obj: Obj) -> int | None:
    return _number(obj, "status", "replicas")


def ready_replicas(obj: Obj) -> int | None:
    return _number(obj, "status", "readyReplicas")


def available_replicas(obj: Obj, contract: str) -> int | None:
    if contract != V1BETA1:
        return _number(obj, "status", "availableReplicas")
    desired, unavailable = spec_replicas(obj), _number(obj, "status", "unavailableReplicas")
    return None if desired is None or unavailable is None else max(desired - unavailable, 0)


def up_to_date_replicas(obj: Obj, contract: str) -> int | None:
    return _number(obj, "status", "updatedReplicas" if contract == V1BETA1 else "upToDateReplicas")


def status_versions(obj: Obj) -> list[Obj]:
    """`{version, replicas}`, oldest first; made from `status.version` when there is no list."""
    found = dig(obj, "status", "versions")
    if isinstance(found, list) and found:
        return [version for version in found if isinstance(version, dict) and version.get("version")]
    version = _text(obj, "status", "version")
    return [{"version": version}] if version else []
