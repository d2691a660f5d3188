"""Discovery: the served groups, versions and resources, in the old form (one document per level) and the aggregated one."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from remuda.kube.encoding import jsonio
from remuda.kube.objects import version_order

from ..registry.resources import Registry, Version

Obj = dict[str, Any]

AGGREGATED = "APIGroupDiscoveryList"
# The order in which kube-apiserver lists its own groups; everything else follows by name.
_KNOWN_GROUPS = (
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
)


def _group_order(name: str) -> tuple[int, str]:
    return (_KNOWN_GROUPS.index(name), "") if name in _KNOWN_GROUPS else (len(_KNOWN_GROUPS), name)


class Discovery:
    """All documents, made on first request after a change."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._generation = -1
        self._versions: dict[str, dict[str, list[Version]]] = {}
        self._aggregated: dict[bool, tuple[bytes, str]] = {}

    def _refresh(self) -> None:
        if self._generation == self._registry.generation:
            return
        self._generation = self._registry.generation
        self._aggregated = {}
        found: dict[str, dict[str, list[Version]]] = {}
        for version in self._registry.versions():
            found.setdefault(version.group, {}).setdefault(version.name, []).append(version)
        for versions in found.values():
            for resources in versions.values():
                resources.sort(key=lambda version: version.resource.name)
        self._versions = found

    def groups(self) -> list[str]:
        self._refresh()
        return sorted((group for group in self._versions if group), key=_group_order)

    def versions(self, group: str) -> list[str]:
        self._refresh()
        return sorted(self._versions.get(group, ()), key=version_order)

    def resources(self, group: str, version: str) -> list[Version]:
        self._refresh()
        return self._versions.get(group, {}).get(version, [])

    def is_builtin(self, group: str) -> bool:
        """Kubernetes itself has the group."""
        self._refresh()
        return any(found.resource.builtin for versions in self._versions.get(group, {}).values() for found in versions)

    # --- the old documents ---------------------------------------------------------------------------------------------

    def api_versions(self, address: str) -> Obj:
        return {
            "kind": "APIVersions",
            "versions": self.versions(""),
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
        }

    def group_list(self) -> Obj:
        groups = [_without_type(self.group(name)) for name in self.groups()]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}

    def group(self, name: str) -> Obj:
        versions = [{"groupVersion": f"{name}/{version}", "version": version} for version in self.versions(name)]
        return {"kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": versions, "preferredVersion": versions[0]}

    def resource_list(self, group: str, version: str) -> Obj:
        resources: list[Obj] = []
        for found in self.resources(group, version):
            resources.append(self._entry(found))
            resources.extend(self._subentry(found, name) for name in _sorted_parts(found))
        group_version = f"{group}/{version}" if group else version
        document: Obj = {"kind": "APIResourceList", "groupVersion": group_version, "resources": resources}
        if group:
            document = {"kind": "APIResourceList", "apiVersion": "v1", **document}
        return document

    def _entry(self, version: Version) -> Obj:
        resource = version.resource
        entry: Obj = {
            "name": resource.name,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": version.kind,
            "verbs": _verbs_of(version),
        }
        if resource.short_names:
            entry["shortNames"] = list(resource.short_names)
        if resource.categories:
            entry["categories"] = list(resource.categories)
        # A custom kind whose storage version is not served shows no hash.
        if not resource.virtual and resource.storage.served:
            entry["storageVersionHash"] = storage_hash(resource.storage)
        return entry

    def _subentry(self, version: Version, name: str) -> Obj:
        sub = version.subresources[name]
        entry: Obj = {
            "name": f"{version.resource.name}/{name}",
            "singularName": "",
            "namespaced": version.resource.namespaced,
        }
        if (sub.group, sub.version) != (version.group, version.name):
            entry["group"], entry["version"] = sub.group, sub.version
        entry["kind"] = sub.kind
        entry["verbs"] = _sorted_verbs(sub.verbs)
        return entry

    # --- the aggregated document ---------------------------------------------------------------------------------------

    def aggregated(self, core: bool) -> tuple[bytes, str]:
        """The document for /api (core) or /apis, and its ETag."""
        self._refresh()
        if core not in self._aggregated:
            groups = [""] if core else self.groups()
            items = [self._aggregated_group(group) for group in groups]
            document = {"kind": AGGREGATED, "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}
            data = jsonio.dumps(document)
            self._aggregated[core] = data, hashlib.sha512(data).hexdigest().upper()
        return self._aggregated[core]

    def _aggregated_group(self, group: str) -> Obj:
        versions = []
        for name in self.versions(group):
            resources = [self._aggregated_resource(found) for found in self.resources(group, name)]
            versions.append({"version": name, "resources": resources, "freshness": "Current"})
        metadata = {"name": group} if group else {}
        return {"metadata": metadata, "versions": versions}

    def _aggregated_resource(self, version: Version) -> Obj:
        resource = version.resource
        entry: Obj = {
            "resource": resource.name,
            "responseKind": _response_kind(version, version.group, version.name, version.kind),
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "singularResource": resource.singular,
            "verbs": _verbs_of(version),
        }
        if resource.short_names:
            entry["shortNames"] = list(resource.short_names)
        if resource.categories:
            entry["categories"] = list(resource.categories)
        if version.subresources:
            entry["subresources"] = [
                {
                    "subresource": name,
                    "responseKind": _response_kind(version, sub.group, sub.version, sub.kind),
                    "verbs": _sorted_verbs(sub.verbs),
                }
                for name in _sorted_parts(version)
                for sub in (version.subresources[name],)
            ]
        return entry


def _without_type(group: Obj) -> Obj:
    return {key: value for key, value in group.items() if key not in ("kind", "apiVersion")}


def _response_kind(version: Version, group: str, name: str, kind: str) -> Obj:
    """Built-in kinds give the group and version of a kind only where they differ from their own."""
    if version.resource.builtin and (group, name) == (version.group, version.name):
        group = name = ""
    return {"group": group, "version": name, "kind": kind}


# The verbs of custom resources, in kube-apiserver's order.
_CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")


def _verbs_of(version: Version) -> list[str]:
    if version.resource.builtin:
        return _sorted_verbs(version.verbs)
    withheld = ("patch", "create", "update") if version.resource.terminating else ()
    return [verb for verb in _CUSTOM_VERBS if verb in version.verbs and verb not in withheld]


def _sorted_parts(version: Version) -> list[str]:
    """Subresources by name; but a custom resource has its status first."""
    return sorted(version.subresources, reverse=not version.resource.builtin)


def _sorted_verbs(verbs: frozenset[str]) -> list[str]:
    return sorted(verbs)


def storage_hash(version: Version) -> str:
    """Eight bytes of a hash over the stored kind, base64: changes when the storage version does."""
    text = f"{version.group}/{version.name}/{version.kind}" if version.group else f"/{version.name}/{version.kind}"
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()
