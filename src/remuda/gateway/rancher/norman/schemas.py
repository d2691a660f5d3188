"""The schemas of Norman for a caller: all types, and in each what the caller may do. Pure.

Clients know a type only by its schema, and refuse to list one whose schema does not allow it: so every type can be listed, and
shows those objects that the caller may see.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from remuda.kube.objects import dig, name_of
from remuda.machines.nodedrivers.driver_schemas import CREDENTIAL
from remuda.provisioning.references.cloud_credentials import GLOBAL

from ..kinds import Kinds
from ..schemas import Permissions
from .types import TYPES, NormanType

Obj = dict[str, Any]

VERSION: Final[Obj] = {"group": "management.cattle.io", "path": "/v3", "version": "v3"}
BASE_FIELDS: Final[Mapping[str, str]] = {
    "annotations": "map[string]",
    "created": "date",
    "creatorId": "reference[user]",
    "id": "string",
    "labels": "map[string]",
    "namespaceId": "string",
    "removed": "date",
    "state": "enum",
    "transitioning": "enum",
    "transitioningMessage": "string",
    "uuid": "string",
}
CREDENTIAL_FIELDS: Final[Mapping[str, str]] = {"name": "string", "description": "string"}
_MODIFIERS: Final = ["eq", "ne", "in", "notin", "null", "notnull", "prefix", "like", "notlike"]

# The types of other modules: plural, methods of the collection and of one of them, actions of the collection and of one.
_OTHERS: Final[Mapping[str, tuple[str, str, str, tuple[str, ...], tuple[str, ...]]]] = {
    "clusterRegistrationToken": ("clusterRegistrationTokens", "GET", "GET", (), ()),
    "principal": ("principals", "GET", "GET", ("search",), ()),
    "setting": ("settings", "GET", "GET PUT", (), ()),
    "token": ("tokens", "GET POST", "GET DELETE", ("logout", "logoutAll"), ()),
    "user": ("users", "GET POST", "GET PUT DELETE", ("changepassword",), ("setpassword",)),
}
# The kinds that decide about the writes of those, as Steve calls them; a token is the caller's own.
_GUARDED: Final[Mapping[str, str]] = {"setting": "management.cattle.io.setting", "user": "management.cattle.io.user"}
_VERBS: Final[Mapping[str, str]] = {"POST": "create", "PUT": "update", "DELETE": "delete"}


def schemas(base: str, kinds: Kinds, permissions: Permissions, dynamic: Iterable[Obj]) -> list[Obj]:
    """`dynamic` are the DynamicSchemas that the caller may see."""
    listed = list(dynamic)
    found = [_of_type(base, each, kinds, permissions) for each in TYPES]
    found += [_of_other(base, id_, kinds, permissions) for id_ in _OTHERS]
    found.append(_of_credentials(base, kinds, permissions, listed))
    found += [_of_driver(base, id_, listed) for id_ in credential_types(listed)]
    return sorted(found, key=lambda schema: str(schema["id"]))


def _allowed(methods: str, kinds: Kinds, permissions: Permissions, kind: str, namespace: str = "") -> list[str]:
    """Of these methods, those that the caller may use on the kind somewhere; reading always."""
    known = kinds.find(kind) if kind else None
    if not kind:
        return methods.split()
    return [
        method
        for method in methods.split()
        if method == "GET"
        or (
            known is not None
            and (permissions.may(known, _VERBS[method], namespace) if namespace else permissions.somewhere(known, _VERBS[method]))
        )
    ]


def _schema(base: str, id_: str, plural: str, collection: list[str], resource: list[str], fields: Mapping[str, Obj]) -> Obj:
    links = {"self": f"{base}/schemas/{id_}", "schemas": f"{base}/schemas"}
    if collection:
        links["collection"] = f"{base}/{plural.lower()}"
    return {
        "id": id_,
        "type": "schema",
        "baseType": "schema",
        "version": VERSION,
        "pluralName": plural,
        "links": links,
        "collectionMethods": collection,
        "resourceMethods": resource,
        "resourceFields": dict(fields),
        "collectionFilters": {name: {"modifiers": _MODIFIERS} for name, each in fields.items() if _is_scalar(each)},
        "resourceActions": {},
        "collectionActions": {},
        "actions": {},
    }


def _is_scalar(field: Obj) -> bool:
    return str(field["type"]).partition("[")[0] in ("string", "boolean", "int", "enum", "date", "reference")


def _field(type_: str, *, writable: bool) -> Obj:
    return {"type": type_, "create": writable, "update": writable, "nullable": True}


def fields_of(type_: NormanType) -> dict[str, Obj]:
    found = {name: _field(kind, writable=name in ("labels", "annotations")) for name, kind in BASE_FIELDS.items()}
    found |= {name: _field(kind, writable=False) for name, kind in type_.readable.items()}
    return found | {name: _field(kind, writable=True) for name, kind in type_.writable.items()}


def _of_type(base: str, type_: NormanType, kinds: Kinds, permissions: Permissions) -> Obj:
    collection = "GET POST" if type_.prefix else "GET"
    resource = "GET PUT DELETE" if type_.writable else "GET"
    made = _schema(
        base,
        type_.id,
        type_.plural,
        _allowed(collection, kinds, permissions, type_.kind),
        _allowed(resource, kinds, permissions, type_.kind),
        fields_of(type_),
    )
    actions = {name: {"output": type_.id} for name in type_.activation}
    if type_.id == "cluster":
        actions = {"generateKubeconfig": {"output": "generateKubeConfigOutput"}}
    return {**made, "resourceActions": actions}


def _of_other(base: str, id_: str, kinds: Kinds, permissions: Permissions) -> Obj:
    plural, collection, resource, on_all, on_one = _OTHERS[id_]
    kind = _GUARDED.get(id_, "")
    fields = {name: _field(type_, writable=False) for name, type_ in BASE_FIELDS.items()}
    made = _schema(
        base,
        id_,
        plural,
        _allowed(collection, kinds, permissions, kind),
        _allowed(resource, kinds, permissions, kind),
        {**fields, "name": _field("string", writable=False)},
    )
    return {**made, "collectionActions": {name: {} for name in on_all}, "resourceActions": {name: {} for name in on_one}}


# --- cloud credentials ------------------------------------------------------------------------------------------------------


def credential_types(dynamic: Iterable[Obj]) -> dict[str, str]:
    """The field of a cloud credential for each driver, such as `amazonec2credentialConfig`, and its DynamicSchema's name."""
    known = next((each for each in dynamic if name_of(each) == CREDENTIAL), {})
    fields = dig(known, "spec", "resourceFields") or {}
    return {name: str(said.get("type") or "") for name, said in fields.items() if isinstance(said, dict)}


def _of_credentials(base: str, kinds: Kinds, permissions: Permissions, dynamic: list[Obj]) -> Obj:
    collection = _allowed("GET POST", kinds, permissions, "secret", GLOBAL)
    resource = _allowed("GET PUT DELETE", kinds, permissions, "secret")
    fields = {name: _field(type_, writable=name in ("labels", "annotations")) for name, type_ in BASE_FIELDS.items()}
    fields |= {name: _field(type_, writable=True) for name, type_ in CREDENTIAL_FIELDS.items()}
    fields |= {name: _field(name, writable=True) for name in credential_types(dynamic)}
    return _schema(base, "cloudCredential", "cloudCredentials", collection, resource, fields)


def _of_driver(base: str, id_: str, dynamic: list[Obj]) -> Obj:
    """The form of a driver's credential: a type without a collection."""
    wanted = credential_types(dynamic)[id_]
    said = next((dig(each, "spec", "resourceFields") for each in dynamic if name_of(each) == wanted), None) or {}
    fields = {
        name: {**each, "default": _default(each)} for name, each in said.items() if isinstance(each, dict) and each.get("type")
    }
    return _schema(base, id_, f"{id_}s", [], [], fields)


def _default(field: Obj) -> Any:
    """The default as clients read it: DynamicSchemas have one for each type of value."""
    values = field.get("default") or {}
    match str(field.get("type")):
        case "boolean":
            return values.get("boolValue")
        case "int":
            return values.get("intValue")
        case "array[string]":
            return values.get("stringSliceValue")
    return values.get("stringValue") or None
