"""OpenAPI v3: one document per group and version, made when somebody asks for it and kept until what is served changes.

Clients read three things in it: that PATCH takes `fieldValidation` (so that the server checks, not they), which kind a path is
about, and the schemas (`kubectl explain`). Built-in schemas come from the generated description, with words of our own from
:mod:`.explain`; a CRD's come from the CRD.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

from remuda.kube import jsonio

from .builtin import types
from .discovery import Discovery
from .explain import FIELDS, described
from .resources import Registry, Subresource, Version

Obj = dict[str, Any]

REFERENCE = "#/components/schemas/"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_GVK = "x-kubernetes-group-version-kind"
_JSON = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
_PATCHES = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)


def _query(name: str, kind: str = "string") -> Obj:
    return {"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": True}}


def _in_path(name: str) -> Obj:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "uniqueItems": True}}


_PRETTY = _query("pretty")
_LISTING = [
    _query("allowWatchBookmarks", "boolean"),
    _query("continue"),
    _query("fieldSelector"),
    _query("labelSelector"),
    _query("limit", "integer"),
    _query("resourceVersion"),
    _query("resourceVersionMatch"),
    _query("sendInitialEvents", "boolean"),
    _query("timeoutSeconds", "integer"),
    _query("watch", "boolean"),
]
_WRITING = [_query("dryRun"), _query("fieldManager"), _query("fieldValidation")]
_DELETING = [
    _query("dryRun"),
    _query("gracePeriodSeconds", "integer"),
    _query("orphanDependents", "boolean"),
    _query("propagationPolicy"),
]


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
        """Each document's address carries a hash of what it will say, so that clients may keep it for ever."""
        self._refresh()
        paths = {}
        for name, group, version in self._group_versions():
            if name not in self._tags:
                self._tags[name] = self._fingerprint(group, version)
            paths[name] = {"serverRelativeURL": f"/openapi/v3/{name}?hash={self._tags[name]}"}
        return {"paths": paths}

    def _fingerprint(self, group: str, version: str) -> str:
        """What the document depends on, without making it: built-ins never change, CRDs by their schemas."""
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
                    made = _document(self._discovery.resources(group, version))
                    self._documents[name] = jsonio.dumps(made), self._tags[name]
                    break
            else:
                return None
        return self._documents[name]


def _document(versions: list[Version]) -> Obj:
    schemas: Obj = {}
    paths: Obj = {}
    for version in versions:
        _add_schemas(version, schemas)
        paths.update(_paths(version))
    _follow_references(schemas, paths)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.3"},
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {"BearerToken": {"type": "apiKey", "name": "authorization", "in": "header"}},
        },
    }


# --- schemas -----------------------------------------------------------------------------------------------------------


def kind_name(version: Version) -> str:
    """The component name of a kind: the group's labels reversed, as Kubernetes names custom ones."""
    if version.schema_name:
        return version.schema_name
    reversed_group = ".".join(reversed(version.group.split(".")))
    return f"{reversed_group}.{version.name}.{version.kind}"


def list_name(version: Version) -> str:
    if version.schema_name:
        return version.schema_name + "List"
    return kind_name(version)[: -len(version.kind)] + version.resource.list_kind


def _add_schemas(version: Version, schemas: Obj) -> None:
    if version.resource.builtin:
        schemas[kind_name(version)] = described(kind_name(version))
        if "list" in version.verbs:
            schemas[list_name(version)] = described(list_name(version))
        return
    gvk = [{"group": version.group, "version": version.name, "kind": version.kind}]
    schemas[kind_name(version)] = {**_custom_schema(version), _GVK: gvk}
    schemas[list_name(version)] = _custom_list(version)


def _custom_schema(version: Version) -> Obj:
    schema: Obj = dict(version.schema or {"type": "object", "x-kubernetes-preserve-unknown-fields": True})
    if schema.get("x-kubernetes-preserve-unknown-fields") and not schema.get("properties"):
        schema.setdefault("type", "object")
    properties = dict(schema.get("properties") or {})
    properties["apiVersion"] = {"type": "string", "description": described_field("apiVersion")}
    properties["kind"] = {"type": "string", "description": described_field("kind")}
    properties["metadata"] = {
        "description": described_field("metadata"),
        "allOf": [{"$ref": REFERENCE + _META + "ObjectMeta"}],
    }
    schema["properties"] = dict(sorted(properties.items()))
    return _without_rules(schema)


def _without_rules(schema: Obj) -> Obj:
    """CEL rules and defaults are the server's business; clients that read schemas stumble over some of them."""
    return {key: value for key, value in schema.items() if key != "x-kubernetes-embedded-resource"}


def _custom_list(version: Version) -> Obj:
    return {
        "description": f"{version.resource.list_kind} is a list of {version.kind}",
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string", "description": described_field("apiVersion")},
            "items": {
                "description": f"List of {version.resource.name}.",
                "type": "array",
                "items": {"$ref": REFERENCE + kind_name(version)},
            },
            "kind": {"type": "string", "description": described_field("kind")},
            "metadata": {
                "description": described_field("list metadata"),
                "allOf": [{"$ref": REFERENCE + _META + "ListMeta"}],
            },
        },
        _GVK: [{"group": version.group, "version": version.name, "kind": version.resource.list_kind}],
    }


def described_field(name: str) -> str:
    return FIELDS[name]


def _follow_references(schemas: Obj, paths: Obj) -> None:
    """Add every built-in definition that a schema or a path refers to, until nothing is missing."""
    pending: list[Any] = [*schemas.values(), paths]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending.extend(node)
        elif isinstance(node, dict):
            reference = node.get("$ref")
            if isinstance(reference, str) and reference.startswith(REFERENCE):
                name = reference[len(REFERENCE) :]
                if name not in schemas:
                    schemas[name] = described(name)
                    pending.append(schemas[name])
            pending.extend(value for value in node.values() if isinstance(value, dict | list))


# --- paths -------------------------------------------------------------------------------------------------------------


def _paths(version: Version) -> Obj:
    resource = version.resource
    root = f"/apis/{version.group}/{version.name}" if version.group else f"/api/{version.name}"
    scoped = f"{root}/namespaces/{{namespace}}/{resource.name}" if resource.namespaced else f"{root}/{resource.name}"
    shared = [_in_path("namespace")] if resource.namespaced else []
    gvk = {"group": version.group, "version": version.name, "kind": version.kind}
    paths: Obj = {}
    collection = _collection(version, gvk)
    if collection:
        paths[scoped] = {**collection, "parameters": [*shared, _PRETTY]}
    if resource.namespaced and "list" in version.verbs:
        everywhere = _operation(version, "list", "ForAllNamespaces", gvk, list_name(version), _LISTING)
        paths[f"{root}/{resource.name}"] = {"get": everywhere, "parameters": [*_LISTING, _PRETTY]}
    item = _item(version, gvk)
    if item:
        paths[f"{scoped}/{{name}}"] = {**item, "parameters": [_in_path("name"), *shared, _PRETTY]}
    for sub in version.subresources.values():
        operations = _subresource(version, sub)
        paths[f"{scoped}/{{name}}/{sub.name}"] = {**operations, "parameters": [_in_path("name"), *shared, _PRETTY]}
    return paths


def _collection(version: Version, gvk: Obj) -> Obj:
    found: Obj = {}
    if "list" in version.verbs:
        found["get"] = _operation(version, "list", "", gvk, list_name(version), _LISTING)
    if "create" in version.verbs:
        found["post"] = _operation(version, "create", "", gvk, kind_name(version), _WRITING, kind_name(version))
    if "deletecollection" in version.verbs:
        found["delete"] = _operation(
            version, "deletecollection", "", gvk, _META + "Status", [*_DELETING, *_LISTING], _META + "DeleteOptions"
        )
    return found


def _item(version: Version, gvk: Obj) -> Obj:
    found: Obj = {}
    name = kind_name(version)
    if "get" in version.verbs:
        found["get"] = _operation(version, "get", "", gvk, name, [])
    if "update" in version.verbs:
        found["put"] = _operation(version, "update", "", gvk, name, _WRITING, name)
    if "patch" in version.verbs:
        found["patch"] = _operation(version, "patch", "", gvk, name, [*_WRITING, _query("force", "boolean")], _META + "Patch")
    if "delete" in version.verbs:
        found["delete"] = _operation(version, "delete", "", gvk, _META + "Status", _DELETING, _META + "DeleteOptions")
    return found


def _subresource(version: Version, sub: Subresource) -> Obj:
    gvk = {"group": sub.group, "version": sub.version, "kind": sub.kind}
    own = (sub.group, sub.version, sub.kind) == (version.group, version.name, version.kind)
    name = kind_name(version) if own else types.type_of(sub.group, sub.version, sub.kind) or _META + "Status"
    title = "".join(part.capitalize() for part in sub.name.split("-"))
    make: dict[str, Callable[[], tuple[str, Obj]]] = {
        "get": lambda: ("get", _operation(version, "get", title, gvk, name, [])),
        "update": lambda: ("put", _operation(version, "update", title, gvk, name, _WRITING, name)),
        "patch": lambda: (
            "patch",
            _operation(version, "patch", title, gvk, name, [*_WRITING, _query("force", "boolean")], _META + "Patch"),
        ),
        "create": lambda: ("post", _operation(version, "create", title, gvk, name, _WRITING, name)),
    }
    return dict(make[verb]() for verb in ("get", "update", "patch", "create") if verb in sub.verbs)


_ACTIONS = {
    "list": "list",
    "create": "post",
    "deletecollection": "deletecollection",
    "get": "get",
    "update": "put",
    "patch": "patch",
    "delete": "delete",
}
_ID_VERBS = {
    **_ACTIONS,
    "list": "list",
    "get": "read",
    "create": "create",
    "update": "replace",
    "deletecollection": "deleteCollection",
}


def _operation(version: Version, verb: str, suffix: str, gvk: Obj, answer: str, parameters: list[Obj], body: str = "") -> Obj:
    group = "".join(part.capitalize() for part in (version.group or "core").split(".")[:-2] or [version.group or "core"])
    scope = "Namespaced" if version.resource.namespaced and suffix != "ForAllNamespaces" else ""
    operation: Obj = {
        "operationId": f"{_ID_VERBS[verb]}{group}{version.name.capitalize()}{scope}{version.kind}{suffix}",
        "tags": [f"{(version.group or 'core').partition('.')[0]}_{version.name}"],
        "responses": {
            "200": {"description": "OK", "content": {media: {"schema": {"$ref": REFERENCE + answer}} for media in _JSON}},
            "401": {"description": "Unauthorized"},
        },
        "x-kubernetes-action": _ACTIONS[verb],
        _GVK: gvk,
    }
    if parameters:
        operation["parameters"] = parameters
    if body:
        media_types: tuple[str, ...] = _PATCHES if verb == "patch" else ("*/*",)
        if verb == "patch" and not version.resource.builtin:
            media_types = _PATCHES[:3]
        content = {media: {"schema": {"$ref": REFERENCE + body}} for media in media_types}
        operation["requestBody"] = {"content": content, "required": verb != "delete" and verb != "deletecollection"}
    return operation
