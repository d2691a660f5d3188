"""The schemas of a caller: the kinds that they may use, and in them what they may do. Pure.

Clients show a page or a button only if the schema allows it. So methods and links are the caller's permissions: in all
namespaces, in one, or on some names. The API itself decides about each request.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from remuda.kube.authorization.actions import Action
from remuda.kube.authorization.rbac import Permitted, Rbac
from remuda.kube.authorization.users import User

from .kinds import Kind, Kinds

Obj = dict[str, Any]

VERBS: Final = ("get", "list", "watch", "create", "update", "patch", "delete")
_RESOURCE_METHODS: Final = (("get", "GET"), ("update", "PUT"), ("patch", "PATCH"), ("delete", "DELETE"))
_COLLECTION_METHODS: Final = (("list", "GET"), ("create", "POST"))
_REMEMBERED: Final = 256


@dataclass(frozen=True, slots=True)
class Permissions:
    """A user's permissions by the stored roles: what to offer to the user, and which requests to make."""

    rbac: Rbac
    user: User

    def _action(self, kind: Kind, verb: str, namespace: str = "", name: str = "") -> Action:
        return Action(self.user, verb, kind.group, kind.version, kind.resource, "", namespace, name)

    def may(self, kind: Kind, verb: str, namespace: str = "", name: str = "") -> bool:
        return verb in kind.verbs and self.rbac.authorize(self._action(kind, verb, namespace, name)).allowed

    def part(self, kind: Kind, verb: str, namespace: str = "") -> Permitted:
        """The objects on which a verb is allowed that is not allowed on all."""
        return self.rbac.permitted(self._action(kind, verb, namespace))

    def somewhere(self, kind: Kind, verb: str) -> bool:
        if verb not in kind.verbs:
            return False
        action = self._action(kind, verb)
        return self.rbac.authorize(action).allowed or self.rbac.permitted(action).anything

    def verbs(self, kind: Kind) -> frozenset[str]:
        return frozenset(verb for verb in VERBS if self.somewhere(kind, verb))


@dataclass(frozen=True, slots=True)
class Usable:
    """A kind, and the verbs that a caller may use on it somewhere."""

    kind: Kind
    verbs: frozenset[str]


class UsableKinds:
    """The usable kinds of each caller, remembered until roles or kinds change."""

    def __init__(self) -> None:
        self._rbac: Rbac | None = None
        self._kinds: Kinds | None = None
        self._known: OrderedDict[tuple[str, tuple[str, ...]], dict[str, Usable]] = OrderedDict()

    def of(self, permissions: Permissions, kinds: Kinds) -> dict[str, Usable]:
        """By id."""
        if self._rbac is not permissions.rbac:
            self._rbac = permissions.rbac
            permissions.rbac.listeners.append(self._known.clear)
        if self._kinds is not kinds:
            self._kinds = kinds
            self._known.clear()
        key = (permissions.user.name, permissions.user.groups)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = {
                kind.id: Usable(kind, verbs) for kind in kinds for verbs in (permissions.verbs(kind),) if verbs
            }
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return found


def shown(usable: Usable, base: str) -> Obj:
    """The schema as clients read it; `base` is the URL of this API."""
    kind, verbs = usable.kind, usable.verbs
    links = {"self": f"{base}/schemas/{kind.id}"}
    if verbs & {"get", "list"}:
        links["collection"] = f"{base}/{kind.plural}"
    return {
        "id": kind.id,
        "type": "schema",
        "links": links,
        "pluralName": kind.plural,
        "resourceMethods": _methods(verbs, _RESOURCE_METHODS),
        "collectionMethods": _methods(verbs, _COLLECTION_METHODS),
        # An object, also an empty one, says that there is nothing to ask for elsewhere.
        "resourceFields": {},
        "attributes": {
            "group": kind.group,
            "version": kind.version,
            "kind": kind.kind,
            "resource": kind.resource,
            "namespaced": kind.namespaced,
            "verbs": [verb for verb in VERBS if verb in verbs],
            "columns": _columns(kind),
            "preferredVersion": kind.version,
        },
    }


def _methods(verbs: frozenset[str], table: Iterable[tuple[str, str]]) -> list[str]:
    return [method for verb, method in table if verb in verbs]


def _columns(kind: Kind) -> list[Obj]:
    return [
        {
            "name": column.name,
            "field": f"$.metadata.fields[{at}]",
            "type": column.type,
            "format": column.format if column.format != "age" else "",
            "description": column.description,
            "priority": column.priority,
        }
        for at, column in enumerate(kind.columns)
    ]


# Types that are no kinds: their methods on the collection, and on one of them.
VIRTUAL: Final[dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]]] = {
    "count": ("counts", ("GET",), ("GET",)),
    "schema": ("schemas", ("GET",), ("GET",)),
    "userpreference": ("userpreferences", ("GET",), ("GET", "PUT")),
    "ext.cattle.io.kubeconfig": ("ext.cattle.io.kubeconfigs", ("POST",), ()),
    "ext.cattle.io.selfuser": ("ext.cattle.io.selfusers", ("POST",), ()),
}


def virtual(id_: str, base: str) -> Obj:
    plural, collection, resource = VIRTUAL[id_]
    return {
        "id": id_,
        "type": "schema",
        "links": {"self": f"{base}/schemas/{id_}", "collection": f"{base}/{plural}"},
        "pluralName": plural,
        "resourceMethods": list(resource),
        "collectionMethods": list(collection),
        "resourceFields": {},
        "attributes": {"kind": id_, "resource": plural, "namespaced": False, "verbs": ["get", "list"], "columns": []},
    }
