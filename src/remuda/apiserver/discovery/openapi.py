"""OpenAPI v3: one document per group and version, made on first request and kept until the served resources change.

Clients read three things in it: that PATCH takes `fieldValidation` (so that the server validates, not the client), the kind of
a path, and the schemas (`kubectl explain`). Built-in schemas come from the generated description, with our texts from
:mod:`.openapi_schemas`, which also makes operations; a CRD's come from the CRD.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from remuda.kube.encoding import jsonio

from ..registry.resources import Registry, Subresource, Version
from ..scheme import builtin_types
from .documents import Discovery
from .openapi_schemas import REFERENCE, Part, Served, described, model_name, operations, schemas

Obj = dict[str, Any]

_BUILTIN = {"title": "Kubernetes", "version": "v1.36.3"}
_CUSTOM = {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"}


class OpenApi:
    def __init__(self, registry: Registry, discovery: Discovery) -> None:
        self._registry = registry
        self._discovery = discovery
        self._generation = -1
        self._documents: dict[str, tuple[bytes, str]] = {}
        self._tags: dict[str, str] = {}

    def _refresh(self) -> None:
        if self._generation == self._registry.generation:
            return
        self._generation = self._registry.generation
        self._documents = {}
        self._tags = {}

    def _group_versions(self) -> Iterator[tuple[str, str, str]]:
        for version in self._discovery.versions(""):
            yield f"api/{version}", "", version
        for group in self._discovery.groups():
            for version in self._discovery.versions(group):
                yield f"apis/{group}/{version}", group, version

    def index(self) -> Obj:
        """Each document's address carries a hash of its content, so that clients may cache it forever."""
        self._refresh()
        paths = {}
        for name, group, version in self._group_versions():
            if name not in self._tags:
                self._tags[name] = self._fingerprint(group, version)
            paths[name] = {"serverRelativeURL": f"/openapi/v3/{name}?hash={self._tags[name]}"}
        return {"paths": paths}

    def _fingerprint(self, group: str, version: str) -> str:
        """A hash of what the document depends on, without making it: built-in kinds never change, CRDs by their schemas."""
        digest = hashlib.sha512()
        for found in self._discovery.resources(group, version):
            digest.update(f"{found.resource.name} {found.kind} {sorted(found.subresources)} {sorted(found.verbs)}".encode())
            if not found.resource.builtin and found.schema is not None:
                digest.update(jsonio.dumps(found.schema))
        return digest.hexdigest().upper()

    def document(self, name: str) -> tuple[bytes, str] | None:
        self._refresh()
        if name not in self._documents:
            for known, group, version in self._group_versions():
                if known == name:
                    self.index()
                    made = _document(group, version, self._discovery.resources(group, version))
                    self._documents[name] = jsonio.dumps(made), self._tags[name]
                    break
            else:
                return None
        return self._documents[name]


def _document(group: str, name: str, versions: list[Version]) -> Obj:
    components: dict[str, Obj] = {}
    paths: Obj = {}
    for version in versions:
        served = _served(version)
        components.update(_components(version, served))
        paths.update(operations(served))
    _follow_references(components, paths, group, name)
    builtin = any(version.resource.builtin for version in versions)
    made: Obj = {"schemas": dict(sorted(components.items()))}
    if builtin:
        made["securitySchemes"] = {"BearerToken": {"type": "apiKey", "name": "authorization", "in": "header"}}
    return {
        "openapi": "3.0.0",
        "info": _BUILTIN if builtin else _CUSTOM,
        "paths": dict(sorted(paths.items())),
        "components": made,
    }


def _served(version: Version) -> Served:
    resource = version.resource
    schema_name = version.schema_name or model_name(version.group, version.name, version.kind)
    return Served(
        group=version.group,
        version=version.name,
        kind=version.kind,
        plural=resource.name,
        namespaced=resource.namespaced,
        schema_name=schema_name,
        list_schema_name=schema_name[: -len(version.kind)] + resource.list_kind,
        verbs=version.verbs,
        parts=tuple(_part(version, sub) for sub in version.subresources.values()),
        builtin=resource.builtin,
        # A namespace answers with itself too, but kube-apiserver's documents don't say so.
        shows_deleted=resource.shows_deleted and resource.name != "namespaces",
    )


def _part(version: Version, sub: Subresource) -> Part:
    own = (sub.group, sub.version, sub.kind) == (version.group, version.name, version.kind)
    if own:
        return Part(sub.name, sub.verbs)
    kind = {"group": sub.group, "version": sub.version, "kind": sub.kind} if version.resource.builtin else None
    return Part(sub.name, sub.verbs, builtin_types.type_of(sub.group, sub.version, sub.kind) or "", kind)


def _components(version: Version, served: Served) -> dict[str, Obj]:
    """The schemas of the version itself; those of built-in kinds are found through its paths."""
    if version.resource.builtin:
        return {}
    return schemas(served, version.resource.list_kind, version.own_schema, version.strategy.fields({}))


def _follow_references(components: Obj, paths: Obj, group: str, version: str) -> None:
    """Add every built-in definition that a schema or a path refers to, recursively."""
    pending: list[Any] = [*components.values(), paths]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending.extend(node)
        elif isinstance(node, dict):
            reference = node.get("$ref")
            if isinstance(reference, str) and reference.startswith(REFERENCE):
                name = reference[len(REFERENCE) :]
                if name not in components:
                    components[name] = described(name, group, version)
                    pending.append(components[name])
            pending.extend(value for value in node.values() if isinstance(value, dict | list))
