"""Reads of `remuda plan` from a server: the kinds of the changed objects, its caller, and its surroundings."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..exit_codes import Code, Failure
from .resource_kinds import Kind, matching, served, split

if TYPE_CHECKING:
    from remuda.app.changeplan.changes import Change
    from remuda.app.changeplan.engine import Request
    from remuda.client.https import HttpsClient
    from remuda.kube.authorization.users import User
    from remuda.lab.sim.provisioning_world import Surroundings

Obj = dict[str, Any]


def objects_in(files: Iterable[Path]) -> list[Obj]:
    """The objects of YAML and JSON files; `-` is stdin. Raises Failure."""
    from remuda.kube.encoding import yamlio

    found: list[Obj] = []
    for file in files:
        text = sys.stdin.read() if str(file) == "-" else file.read_text()
        try:
            documents: list[Any] = [*yamlio.loads_all(text)]
        except ValueError as error:
            raise Failure(f"{file}: {error}") from None
        for document in documents:
            if document is None:
                continue
            if not isinstance(document, dict) or not document.get("kind") or not document.get("apiVersion"):
                raise Failure(f"{file}: an object needs apiVersion and kind")
            found += document.get("items") or [] if document["kind"] == "List" else [document]
    return found


async def request(
    client: HttpsClient, objects: Sequence[Obj], patches: Sequence[tuple[str, str]], deletions: Sequence[str], namespace: str
) -> Request:
    """The changes, with the caller's name and the server's surroundings. Raises Failure and ApiError."""
    from remuda.app.changeplan.engine import Request

    kinds = await served(client)
    changes = [_applied(kinds, each, namespace) for each in objects]
    changes += [_patched(kinds, text, patch, namespace) for text, patch in patches]
    changes += [_deleted(kinds, text, namespace) for text in deletions]
    return Request(tuple(changes), await caller(client), surroundings=await surroundings(client))


def _applied(kinds: Sequence[Kind], obj: Obj, namespace: str) -> Change:
    from remuda.app.changeplan.changes import applied
    from remuda.kube.objects import GroupVersionKind, GroupVersionResource, name_of

    wanted = GroupVersionKind.of(obj)
    kind = next((each for each in kinds if (each.group, each.version, each.kind) == wanted), None)
    if kind is None:
        raise Failure(f"the server has no {wanted.kind} of {wanted.api_version}", Code.NOT_FOUND)
    if not name_of(obj):
        raise Failure(f"a {wanted.kind} has no metadata.name")
    resource = GroupVersionResource(kind.group, kind.version, kind.plural)
    return applied(obj, resource, namespace if kind.namespaced else "")


def _patched(kinds: Sequence[Kind], text: str, patch: str, namespace: str) -> Change:
    from remuda.app.changeplan.changes import Patch
    from remuda.kube.objects import GroupVersionResource

    kind, name = _named(kinds, text)
    try:
        body = json.loads(patch)
    except json.JSONDecodeError as error:
        raise Failure(f"the patch of {text} is no JSON: {error}") from None
    if not isinstance(body, dict):
        raise Failure(f"the patch of {text} is no object")
    return Patch(GroupVersionResource(kind.group, kind.version, kind.plural), namespace if kind.namespaced else "", name, body)


def _deleted(kinds: Sequence[Kind], text: str, namespace: str) -> Change:
    from remuda.app.changeplan.changes import Delete
    from remuda.kube.objects import GroupVersionResource

    kind, name = _named(kinds, text)
    return Delete(GroupVersionResource(kind.group, kind.version, kind.plural), namespace if kind.namespaced else "", name)


def _named(kinds: Sequence[Kind], text: str) -> tuple[Kind, str]:
    kind, name = split(text, "")
    if not name:
        raise click.UsageError(f"{text!r} names no object: give KIND/NAME")
    found = matching(kinds, kind)
    if not found:
        raise Failure(f"the server has no kind {kind!r}", Code.NOT_FOUND)
    if others := sorted({each.qualified for each in found} - {found[0].qualified}):
        raise Failure(f"{kind!r} may be {found[0].qualified} or {', '.join(others)}: give it with its group")
    return found[0], name


async def caller(client: HttpsClient) -> User:
    """The user that the server takes us for."""
    from remuda.kube.authorization.users import User
    from remuda.kube.objects import GroupVersionResource

    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = await client.create(GroupVersionResource("authentication.k8s.io", "v1", "selfsubjectreviews"), review)
    info = answer["status"]["userInfo"]
    return User(info.get("username") or "", info.get("uid") or "", tuple(info.get("groups") or ()), info.get("extra") or {})


async def surroundings(client: HttpsClient) -> Surroundings:
    """The server's CA, and the settings that its environment sets. A server without a gateway has neither."""
    from remuda.access.settings.settings import ENVIRONMENT, SETTINGS
    from remuda.kube.errors import ApiError
    from remuda.lab.sim.provisioning_world import Surroundings

    try:
        listed = (await client.raw("GET", "/v3/settings"))["data"]
    except (ApiError, KeyError, TypeError):
        return Surroundings("", {})
    known = {each["name"]: each for each in listed}
    environment = {
        SETTINGS[name].variables[0]: str(each["value"])
        for name, each in known.items()
        if each.get("source") == ENVIRONMENT and name in SETTINGS and SETTINGS[name].variables
    }
    return Surroundings(str((known.get("cacerts") or {}).get("value") or ""), environment)
