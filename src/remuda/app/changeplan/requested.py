"""The change in a request to `/v1-remuda/plan` (docs/plan.md#over-http): what the options of `remuda plan` say, as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from remuda.client.interface import Client
from remuda.kube.authorization.actions import Action
from remuda.kube.authorization.users import User
from remuda.kube.errors import ApiError, bad_request
from remuda.kube.objects import GroupVersion, GroupVersionKind, GroupVersionResource, name_of

from .changes import Change, Delete, Patch, applied

Obj = dict[str, Any]

_API_VERSION = re.compile(r"(?:[a-z0-9.-]{1,253}/)?[a-z0-9]{1,63}")


class Named(msgspec.Struct, frozen=True, rename="camel"):
    """An object that is there, by its kind and name; the request's namespace counts if it names none."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""


class NamedPatch(Named, frozen=True, kw_only=True):
    """A merge patch of it."""

    patch: Obj


class Requested(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Objects to apply, patches and deletions. `plan` is the id of a plan that is to be applied."""

    objects: tuple[Obj, ...] = ()
    patches: tuple[NamedPatch, ...] = ()
    deletions: tuple[Named, ...] = ()
    namespace: str = "fleet-default"
    plan: str = ""


class _Served(NamedTuple):
    resource: GroupVersionResource
    namespaced: bool


def read(body: bytes) -> Requested:
    """Raises ApiError, without values of the body."""
    try:
        found = msgspec.json.decode(body, type=Requested)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(f"the change can't be read: {error}") from None
    if not (found.objects or found.patches or found.deletions):
        raise bad_request("there is no change: objects, patches or deletions must have an element")
    return found


async def changes_of(client: Client, wanted: Requested) -> tuple[Change, ...]:
    """The changes, with the kinds that the server has. Raises ApiError."""
    kinds = _Kinds(client)
    found: list[Change] = []
    for at, obj in enumerate(wanted.objects):
        if not name_of(obj):
            raise bad_request(f"objects[{at}]: metadata.name is required")
        resource, namespaced = await kinds.of(GroupVersionKind.of(obj), f"objects[{at}]")
        found.append(applied(obj, resource, wanted.namespace if namespaced else ""))
    for at, patch in enumerate(wanted.patches):
        resource, namespace = await _place(kinds, patch, f"patches[{at}]", wanted.namespace)
        found.append(Patch(resource, namespace, patch.name, patch.patch))
    for at, gone in enumerate(wanted.deletions):
        resource, namespace = await _place(kinds, gone, f"deletions[{at}]", wanted.namespace)
        found.append(Delete(resource, namespace, gone.name))
    return tuple(found)


async def _place(kinds: _Kinds, named: Named, path: str, namespace: str) -> tuple[GroupVersionResource, str]:
    group, version = GroupVersion.parse(named.api_version)
    resource, namespaced = await kinds.of(GroupVersionKind(group, version, named.kind), path)
    return resource, (named.namespace or namespace) if namespaced else ""


class _Kinds:
    """The kinds of a server, by group and version, each read once."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[str, list[Obj]] = {}

    async def of(self, wanted: GroupVersionKind, path: str) -> _Served:
        version = wanted.api_version
        if not wanted.kind or not _API_VERSION.fullmatch(version):
            raise bad_request(f"{path}: apiVersion and kind are required")
        if version not in self._known:
            self._known[version] = await self._read(wanted)
        for each in self._known[version]:
            if each.get("kind") == wanted.kind and "/" not in str(each.get("name")):
                plural = GroupVersionResource(wanted.group, wanted.version, str(each["name"]))
                return _Served(plural, bool(each.get("namespaced")))
        raise bad_request(f"{path}: the server has no {wanted.kind} of {version}")

    async def _read(self, wanted: GroupVersionKind) -> list[Obj]:
        where = "apis" if wanted.group else "api"
        try:
            found = await self._client.raw("GET", f"/{where}/{wanted.api_version}")
        except ApiError as error:
            if error.is_not_found:
                return []
            raise
        return list(found.get("resources") or ())


def actions(changes: Iterable[Change], caller: User) -> Iterator[Action]:
    """What the caller must be allowed to do."""
    for change in changes:
        verb = "delete" if isinstance(change, Delete) else "patch"
        yield Action(caller, verb, *change.resource, namespace=change.key.namespace, name=change.key.name)
