"""The version of a provider's kind to read, and its contract, from the labels of its CRD.

A reference names group, kind and name. The CRD of that kind carries `cluster.x-k8s.io/<contract>: <version>[_<version>…]`; the
newest contract that we know wins, then the newest version that it lists. CRDs are found by group and kind, so a provider that
spells its plural unusually is found, too. :mod:`.external_objects` reads the objects, :mod:`.contract_fields` their fields.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from remuda.apiserver.discovery.documents import version_order
from remuda.kube.objects import GroupVersion, GroupVersionResource, dig, labels_of
from remuda.runtime import Informer, Informers

from .well_known import DOMAIN

Obj = dict[str, Any]

CRDS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
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
        """For the conversion to v1beta1, whose references name a version."""
        try:
            return self.find(group, kind).api_version
        except NoContract:
            return None
