"""The OpenAPI v3 description of the served resources: the operations on their paths, and the schemas of a version of a CRD.

The operations are the same for any kind, so :func:`operations` takes a plain record of the resource, built-in or not.
Shapes follow kube-apiserver's: parameters that all operations of a path share are listed once, at the path. Documents are put
together in :mod:`remuda.apiserver.discovery.openapi`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from ..crd.internal_version import Obj, dict_of, list_of
from ..scheme import builtin_types

REFERENCE = "#/components/schemas/"
META = "io.k8s.apimachinery.pkg.apis.meta.v1."
SCALE = "io.k8s.api.autoscaling.v1.Scale"
GVK = "x-kubernetes-group-version-kind"
ACTION = "x-kubernetes-action"

MEDIA = ("application/json", "application/yaml")
PATCHES = ("application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json")
# Properties of the router of built-in kinds: it reads any body, has protobuf, and writes watches as streams.
BUILTIN_MEDIA = (*MEDIA, "application/vnd.kubernetes.protobuf")
BUILTIN_PATCHES = (*PATCHES, "application/strategic-merge-patch+json")
_STREAMS = ("application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch")


@dataclass(frozen=True, slots=True)
class Part:
    """A subresource: its verbs, the schema of its body (empty: the parent's) and the kind of its operations."""

    name: str
    verbs: frozenset[str]
    schema_name: str = ""
    kind: Obj | None = None


@dataclass(frozen=True, slots=True)
class Served:
    """The input of :func:`operations` about a resource. Verbs are RBAC's: get, list, create, update, patch, …"""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    schema_name: str
    list_schema_name: str
    verbs: frozenset[str] = frozenset(("get", "list", "create", "update", "patch", "delete", "deletecollection"))
    parts: tuple[Part, ...] = ()
    builtin: bool = False
    # A delete answers with the object, not with a Status.
    shows_deleted: bool = False

    @property
    def media(self) -> tuple[str, ...]:
        return BUILTIN_MEDIA if self.builtin else MEDIA

    @property
    def bodies(self) -> tuple[str, ...]:
        return ("*/*",) if self.builtin else MEDIA

    @property
    def patches(self) -> tuple[str, ...]:
        return BUILTIN_PATCHES if self.builtin else PATCHES

    @property
    def gvk(self) -> Obj:
        return {"group": self.group, "version": self.version, "kind": self.kind}


# --- schemas ---------------------------------------------------------------------------------------------------------


def model_name(group: str, version: str, kind: str) -> str:
    """`example.com/v1 Foo` is `com.example.v1.Foo`."""
    return ".".join((*reversed(group.split(".")), version, kind))


def schemas(served: Served, list_kind: str, schema: Obj | None, selectable: Iterable[str] = ()) -> dict[str, Obj]:
    """The components of a version of a CRD: the kind and its list. Schemas that they refer to are not included."""
    found = {
        served.schema_name: _kind_schema(schema),
        served.list_schema_name: _list_schema(served.schema_name, served.kind, list_kind, served.plural),
    }
    fields = [{"fieldPath": each} for each in selectable]
    for made, shown in zip(found.values(), (served.kind, list_kind), strict=True):
        made[GVK] = [{"group": served.group, "kind": shown, "version": served.version}]
        if fields:
            made["x-kubernetes-selectable-fields"] = fields
    return found


def _kind_schema(schema: Obj | None) -> Obj:
    # Late, with the first definition: see :mod:`remuda.apiserver.crd`.
    from ..crd.structural import conversion_problem, structural_errors

    if schema is None or conversion_problem(schema) or structural_errors(schema, ""):
        return {"type": "object"}
    found: Obj = _unfolded(schema)
    properties = dict_of(found.get("properties"))
    found["properties"] = {**properties, **_identity(), "metadata": _meta("metadata", "ObjectMeta")}
    return found


def _identity() -> Obj:
    return {name: {"type": "string", "description": FIELDS[name]} for name in ("apiVersion", "kind")}


def _meta(words: str, name: str) -> Obj:
    return {"description": FIELDS[words], "allOf": [{"$ref": f"{REFERENCE}{META}{name}"}]}


_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]


def _unfolded(schema: Any) -> Any:
    """Spell out what extensions imply: the two types of int-or-string, the fields of an embedded resource."""
    if not isinstance(schema, dict):
        return schema
    found = dict(schema)
    if "properties" in found:
        found["properties"] = {name: _unfolded(child) for name, child in dict_of(found["properties"]).items()}
    for name in ("items", "additionalProperties"):
        if name in found:
            found[name] = _unfolded(found[name])
    if found.get("x-kubernetes-int-or-string"):
        _spell_int_or_string(found)
    if found.get("x-kubernetes-embedded-resource"):
        found["properties"] = {**dict_of(found.get("properties")), **_identity(), "metadata": _meta("metadata", "ObjectMeta")}
        required = list_of(found.get("required"))
        found["required"] = required + [name for name in ("kind", "apiVersion") if name not in required]
    return found


def _spell_int_or_string(schema: Obj) -> None:
    any_of, all_of = list_of(schema.get("anyOf")), list_of(schema.get("allOf"))
    if any_of == _INT_OR_STRING or (all_of and dict_of(all_of[0]).get("anyOf") == _INT_OR_STRING):
        return
    if any_of:
        schema["allOf"] = [{"anyOf": _INT_OR_STRING}, *all_of]
    else:
        schema["anyOf"] = _INT_OR_STRING


def _list_schema(name: str, kind: str, list_kind: str, plural: str) -> Obj:
    items = {"description": f"List of {plural}.", "type": "array", "items": {"$ref": REFERENCE + name}}
    return {
        "description": f"{list_kind} is a list of {kind}",
        "type": "object",
        "required": ["items"],
        "properties": {**_identity(), "items": items, "metadata": _meta("list metadata", "ListMeta")},
    }


# --- operations --------------------------------------------------------------------------------------------------------


def _query(name: str, kind: str = "string") -> Obj:
    return {"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": True}}


def _step(name: str, description: str) -> Obj:
    schema = {"type": "string", "uniqueItems": True}
    return {"name": name, "in": "path", "description": description, "required": True, "schema": schema}


_PRETTY = _query("pretty")
_LIST = (
    _query("allowWatchBookmarks", "boolean"),
    _query("continue"),
    _query("fieldSelector"),
    _query("labelSelector"),
    _query("limit", "integer"),
    _query("resourceVersion"),
    _query("resourceVersionMatch"),
    _query("sendInitialEvents", "boolean"),
    _query("shardSelector"),
    _query("timeoutSeconds", "integer"),
    _query("watch", "boolean"),
)
_WRITE = (_query("dryRun"), _query("fieldManager"), _query("fieldValidation"))
_DELETE = (
    _query("dryRun"),
    _query("gracePeriodSeconds", "integer"),
    _query("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"),
    _query("orphanDependents", "boolean"),
    _query("propagationPolicy"),
)


@dataclass(frozen=True, slots=True)
class _Verb:
    """The OpenAPI form of a verb: method, action, the words of its operation id and description, parameters, further answers."""

    method: str
    action: str
    operation: str
    words: str
    parameters: tuple[Obj, ...]
    answers: tuple[tuple[str, str], ...] = ()


_CREATED, _ACCEPTED = ("201", "Created"), ("202", "Accepted")
_VERBS = {
    "list": _Verb("get", "list", "list", "list{sub} objects of kind {kind}", _LIST),
    "create": _Verb("post", "post", "create", "create{sub}{article}{kind}", _WRITE, (_ACCEPTED, _CREATED)),
    "deletecollection": _Verb("delete", "deletecollection", "delete", "delete collection of{sub} {kind}", _LIST),
    "get": _Verb("get", "get", "read", "read{sub} the specified {kind}", (_query("resourceVersion"),)),
    "update": _Verb("put", "put", "replace", "replace{sub} the specified {kind}", _WRITE, (_CREATED,)),
    "delete": _Verb("delete", "delete", "delete", "delete{sub}{article}{kind}", _DELETE, (_ACCEPTED,)),
    "patch": _Verb(
        "patch", "patch", "patch", "partially update{sub} the specified {kind}", (*_WRITE, _query("force", "boolean"))
    ),
}


# Differences between the operations of built-in kinds and those of custom resources.
_LIST_TO_DELETE = tuple(each for each in _LIST if each["name"] not in ("allowWatchBookmarks", "watch"))
_DELETE_MANY = tuple(sorted((*_LIST_TO_DELETE, *_DELETE), key=lambda each: str(each["name"])))
_BUILTIN_VERBS = {
    **_VERBS,
    "deletecollection": replace(_VERBS["deletecollection"], parameters=_DELETE_MANY),
    "get": replace(_VERBS["get"], parameters=()),
    "patch": replace(_VERBS["patch"], answers=(_CREATED,)),
}


def operations(served: Served) -> dict[str, Obj]:
    """The paths of a resource, each with its operations."""
    root = f"/apis/{served.group}/{served.version}" if served.group else f"/api/{served.version}"
    place = f"{root}/namespaces/{{namespace}}" if served.namespaced else root
    paths: dict[str, Obj] = {}
    if served.namespaced and "list" in served.verbs:
        everywhere = _Path(served, False, False, "ForAllNamespaces")
        paths[f"{root}/{served.plural}"] = everywhere.item(("list",))
    collection = f"{place}/{served.plural}"
    _put(paths, collection, _Path(served, served.namespaced, False).item(("list", "create", "deletecollection")))
    single = _Path(served, served.namespaced, True)
    _put(paths, f"{collection}/{{name}}", single.item(("get", "update", "delete", "patch")))
    for part in served.parts:
        below = _Path(served, served.namespaced, True, part=part)
        _put(paths, f"{collection}/{{name}}/{part.name}", below.item(("get", "create", "update", "patch")))
    return dict(sorted(paths.items()))


def _put(paths: dict[str, Obj], path: str, item: Obj) -> None:
    if item:
        paths[path] = item


@dataclass(frozen=True, slots=True)
class _Path:
    served: Served
    namespaced: bool
    named: bool
    suffix: str = ""
    part: Part | None = None
    extra: tuple[Obj, ...] = field(default=(_PRETTY,))

    def item(self, wanted: tuple[str, ...]) -> Obj:
        """The path item for those of the wanted verbs that are served."""
        verbs = self.part.verbs if self.part is not None else self.served.verbs
        made = {_VERBS[verb].method: self._operation(verb) for verb in wanted if verb in verbs}
        return _share_parameters(made) if made else {}

    def _operation(self, verb: str) -> Obj:
        served = self.served
        how = (_BUILTIN_VERBS if served.builtin else _VERBS)[verb]
        sub = f" {self.part.name} of" if self.part is not None else ""
        operation: Obj = {
            "tags": [_tag(served)],
            "description": how.words.format(sub=sub, kind=served.kind, article=_article(served.kind)),
            "operationId": self._id(verb, how),
            "parameters": sorted((*how.parameters, *self._own_parameters()), key=lambda each: (each["in"], each["name"])),
        }
        body = self._body(verb)
        if body:
            operation["requestBody"] = body
        answer = self._answer(verb)
        media = (*served.media, *_STREAMS) if verb == "list" and served.builtin else served.media
        responses = {"200": _response("OK", answer, media)}
        responses.update({code: _response(words, answer, media) for code, words in how.answers})
        operation["responses"] = {**dict(sorted(responses.items())), "401": {"description": "Unauthorized"}}
        operation[ACTION] = how.action
        operation[GVK] = (self.part.kind if self.part is not None else None) or served.gvk
        return operation

    def _own_parameters(self) -> tuple[Obj, ...]:
        own: list[Obj] = list(self.extra)
        if self.namespaced:
            own.append(_step("namespace", "the namespace that the request is about"))
        if self.named:
            own.append(_step("name", f"name of the {self.served.kind}"))
        return tuple(own)

    def _id(self, verb: str, how: _Verb) -> str:
        served = self.served
        scope = "Namespaced" if self.namespaced else ""
        collection = "Collection" if verb == "deletecollection" else ""
        title = "".join(word.capitalize() for word in self.part.name.split("-")) if self.part is not None else ""
        where = _upper(_friendly(served.group)) + _upper(served.version)
        return f"{how.operation}{where}{collection}{scope}{served.kind}{title}{self.suffix}"

    def _schema(self) -> str:
        return (self.part.schema_name if self.part is not None else "") or self.served.schema_name

    def _answer(self, verb: str) -> str:
        if verb == "list":
            return self.served.list_schema_name
        if verb == "deletecollection" or (verb == "delete" and not self.served.shows_deleted):
            return f"{META}Status"
        return self._schema()

    def _body(self, verb: str) -> Obj | None:
        if verb == "patch":
            return {"content": _content(f"{META}Patch", self.served.patches), "required": True}
        if verb == "delete" or (verb == "deletecollection" and self.served.builtin):
            return {"content": _content(f"{META}DeleteOptions", self.served.bodies)}
        if verb in ("create", "update"):
            return {"content": _content(self._schema(), self.served.bodies), "required": True}
        return None


def _content(name: str, media: tuple[str, ...]) -> Obj:
    return {each: {"schema": {"$ref": REFERENCE + name}} for each in media}


def _response(description: str, name: str, media: tuple[str, ...]) -> Obj:
    return {"description": description, "content": _content(name, media)}


def _share_parameters(item: Obj) -> Obj:
    """Move the parameters that every operation of a path takes to the path."""
    every = [operation["parameters"] for operation in item.values()]
    shared = [parameter for parameter in every[0] if all(parameter in other for other in every)]
    for operation in item.values():
        left = [parameter for parameter in operation["parameters"] if parameter not in shared]
        if left:
            operation["parameters"] = left
        else:
            del operation["parameters"]
    return {**item, "parameters": shared} if shared else item


def _article(noun: str) -> str:
    if noun.endswith("s") and not noun.endswith("ss"):
        return " "
    return " an " if noun[:1].lower() in "aeiou" else " a "


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _friendly(group: str) -> str:
    """`rbac.authorization.k8s.io` is `rbacAuthorization`, nothing is `core`."""
    first, *rest = re.split(r"[.-]", group.removesuffix(".k8s.io")) if group else ["core"]
    return first + "".join(_upper(part) for part in rest)


def _tag(served: Served) -> str:
    return f"{_friendly(served.group)}_{served.version}"


# --- descriptions of built-in kinds ---------------------------------------------------------------------------------------
#
# The descriptions that `kubectl explain` shows for built-in kinds: our own, and few.
#
# Structure comes from the generated description; a field without text here shows none.


FIELDS = {
    "apiVersion": "The group and version whose schema this object follows.",
    "kind": "The kind of this object, in CamelCase; it never changes.",
    "metadata": "Name, namespace, labels and what else every object has.",
    "list metadata": "The revision of the list, and the token for its next page.",
    "spec": "The desired state.",
    "status": "The observed state; written by controllers.",
    "items": "The objects of the list.",
    "data": "Keys and values.",
    "labels": "Short keys and values to select objects by.",
    "annotations": "Keys and values for tools and people; not for selecting.",
    "name": "The name, unique for the kind within its namespace.",
    "namespace": "The namespace that the object lives in; empty for cluster-scoped kinds.",
    "uid": "The identity of this very object: a new one with the same name has another.",
    "resourceVersion": "Changes with every write; send it back to detect concurrent writes.",
    "generation": "Counts the changes of what is wanted.",
    "creationTimestamp": "When the object was created.",
    "deletionTimestamp": "When the object was asked to go; it goes once its finalizers are gone.",
    "finalizers": "The controllers that must clean up before the object is removed.",
    "ownerReferences": "The objects that this one belongs to; it goes when they are all gone.",
    "managedFields": "The fields of each manager; kept by the server.",
    "replicas": "The desired number.",
    "selector": "The selected objects, by their labels.",
    "template": "The template of new objects.",
    "conditions": "The latest observations, one for each type.",
    "containers": "The containers that run in the pod.",
    "image": "The image to run.",
    "type": "The variant.",
    "immutable": "When true the content can't be changed any more.",
    "stringData": "Values as plain text; the server moves them to data.",
    "rules": "The allowed actions.",
    "subjects": "The users, groups and accounts that get the role.",
    "roleRef": "The role that is given; it can't be changed later.",
}

KINDS = {
    "ConfigMap": "ConfigMap holds settings that programs read.",
    "Secret": "Secret holds values that only some may read; stored encrypted.",
    "Namespace": "Namespace is a room of its own for names, with its own permissions.",
    "Node": "Node is a machine of the cluster.",
    "Pod": "Pod is a group of containers that run together on one node.",
    "Service": "Service is a stable address for a changing set of pods.",
    "ServiceAccount": "ServiceAccount is an identity for programs.",
    "Event": "Event says what happened to an object; it goes away by itself after an hour.",
    "Deployment": "Deployment keeps so many pods of one template running, and replaces them step by step when it changes.",
    "ReplicaSet": "ReplicaSet keeps so many pods of one template running.",
    "StatefulSet": "StatefulSet keeps pods with fixed names and storage running.",
    "DaemonSet": "DaemonSet runs one pod on every node it selects.",
    "Job": "Job runs pods until so many have succeeded.",
    "CronJob": "CronJob makes Jobs on a schedule.",
    "Lease": "Lease says who holds something, and until when.",
    "Role": "Role is a set of permissions within one namespace.",
    "ClusterRole": "ClusterRole is a set of permissions that may hold everywhere.",
    "RoleBinding": "RoleBinding gives a role to subjects within one namespace.",
    "ClusterRoleBinding": "ClusterRoleBinding gives a cluster role to subjects everywhere.",
    "PodDisruptionBudget": "PodDisruptionBudget limits how many pods may be evicted at once.",
    "CustomResourceDefinition": "CustomResourceDefinition makes the API serve a kind of your own.",
}


@cache
def described(name: str, group: str, version: str) -> Obj:
    """The OpenAPI schema of a built-in definitionin the document of a group and version, with our descriptions."""
    schema = dict(builtin_types.definition_in(name, group, version))
    kind = name.rpartition(".")[2]
    if kind in KINDS:
        schema["description"] = KINDS[kind]
    properties = schema.get("properties")
    if properties:
        schema["properties"] = {field: _with_words(field, value) for field, value in properties.items()}
    return schema


def _with_words(field: str, value: Obj) -> Obj:
    words = FIELDS.get(field)
    return {"description": words, **value} if words and "description" not in value else value
