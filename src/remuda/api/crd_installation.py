"""Definitions on a server: installed, updated, and stored objects of an older version rewritten in the present one.

:func:`install` applies definitions and skips those that are newer than ours; `spec.conversion` is never changed, since it belongs
to the program that serves the conversion. :func:`migrate` runs once that is served: it writes every object once, which stores it
in the present version, and only then removes the old version from `status.storedVersions`. Both may be repeated, or be killed
half way, at any time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

from remuda import __version__
from remuda.client.interface import Client
from remuda.client.server_side_apply import apply_owned
from remuda.kube.builtin_resources import CRDS
from remuda.kube.clock import Clock, deadline
from remuda.kube.conditions import TRUE, get
from remuda.kube.errors import ApiError
from remuda.kube.objects import (
    GroupVersionResource,
    annotations_of,
    dig,
    metadata,
    name_of,
    namespace_of,
    resource_version_of,
    version_order,
    with_path,
)

log = logging.getLogger(__name__)

Obj = dict[str, Any]


FIELD_MANAGER = "remuda-crds"
# Which Remuda wrote a definition, so that an older one does not undo it.
INSTALLED_BY = "remuda.dev/installed-by"
_PAGE = 500
_POLL = 0.1
# Several API servers may stand behind one address; each has to have seen a new definition before objects are rewritten.
_SETTLE_SECONDS = 2.0


class Outcome(StrEnum):
    CREATED = "created"
    CONFIGURED = "configured"
    UNCHANGED = "unchanged"
    NEWER = "left alone, since it is newer"


class InstallError(Exception):
    """A definition that can't be brought up to date; the sentence says what to do."""


async def install(client: Client, clock: Clock, definitions: Iterable[Obj], *, in_process: bool = False) -> dict[str, Outcome]:
    """Apply the definitions; by name what became of each. `in_process` as in :func:`migrate`. Raises InstallError, ApiError."""
    found = {}
    for definition in definitions:
        found[name_of(definition)] = await _install_one(client, clock, definition, in_process)
    return found


async def install_missing(client: Client, definitions: Iterable[Obj]) -> list[str]:
    """Create those that are not there in any form; their names. Raises ApiError."""
    made = []
    for definition in definitions:
        if await _get(client, name_of(definition)) is not None:
            continue
        marked = with_path(definition, ("metadata", "annotations", INSTALLED_BY), __version__)
        try:
            await client.create(CRDS, marked, field_manager=FIELD_MANAGER)
        except ApiError as error:
            if not error.is_already_exists:
                raise
        else:
            made.append(name_of(definition))
    return made


async def _install_one(client: Client, clock: Clock, definition: Obj, in_process: bool) -> Outcome:
    name = name_of(definition)
    before = await _get(client, name)
    if before is not None and _is_newer(before, definition):
        log.warning("the definition of %s is newer than that of this program (%s); it is left as it is", name, __version__)
        return Outcome.NEWER
    if before is not None:
        await _check_converted(client, before, storage_version(definition), in_process)
        if set(dig(before, "status", "storedVersions") or ()) - _versions(definition):
            # A version that ours lacks may only go when nothing is stored in it: rewrite under the definition that has it.
            await migrate(client, clock, name, in_process=in_process)
    marked = with_path(definition, ("metadata", "annotations", INSTALLED_BY), __version__)
    after = await apply_owned(client, CRDS, marked, FIELD_MANAGER)
    if before is None:
        return Outcome.CREATED
    return Outcome.UNCHANGED if resource_version_of(before) == resource_version_of(after) else Outcome.CONFIGURED


async def _get(client: Client, name: str) -> Obj | None:
    try:
        return await client.get(CRDS, name)
    except ApiError as error:
        if error.is_not_found:
            return None
        raise


def _is_newer(found: Obj, ours: Obj) -> bool:
    """Whether it is newer: by the program that wrote it, or by the version that it stores if another program did."""
    by = annotations_of(found).get(INSTALLED_BY)
    if by and _release(by) > _release(__version__):
        return True
    stored, known = storage_version(found), _versions(ours)
    if stored in known:
        return False
    if version_order(stored) < version_order(storage_version(ours)):
        return True
    raise InstallError(
        f"{name_of(found)} stores its objects in {stored}, which this program does not know: "
        f"bring them to one of {', '.join(sorted(known))} first, with the program that wrote them"
    )


def _release(version: str) -> tuple[int, ...]:
    numbers = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def _versions(crd: Obj) -> set[str]:
    return {version["name"] for version in dig(crd, "spec", "versions") or ()}


def storage_version(crd: Obj) -> str:
    return next((version["name"] for version in dig(crd, "spec", "versions") or () if version.get("storage")), "")


async def established(client: Client, clock: Clock, names: Iterable[str], seconds: float = 60.0) -> None:
    """Wait until all of them are served. Raises TimeoutError, which says which is not."""
    waiting = list(names)
    try:
        async with deadline(clock, seconds):
            while waiting:
                crd = await _get(client, waiting[0])
                if crd is not None and dig(get(crd, "Established") or {}, "status") == TRUE:
                    waiting.pop(0)
                else:
                    await clock.sleep(_POLL)
    except TimeoutError:
        raise TimeoutError(f"the definition of {waiting[0]} was not established within {seconds:.0f} s") from None


# --- stored versions -------------------------------------------------------------------------------------------------------


class NotConverted(InstallError):
    """Objects of several versions, without a converter: rewriting them would lose fields that only one version has."""

    def __init__(self, name: str, stored: Sequence[str]) -> None:
        which = ", ".join(stored)
        super().__init__(f"{name} has objects stored in {which}, and no program converts them: run remuda controllers")


async def migrate(client: Client, clock: Clock, name: str, *, in_process: bool = False) -> int:
    """Rewrite objects that may be stored in an older version, then say that they are not; how many objects there were.

    `in_process`: the server converts by itself, whatever the definition says. Raises NotConverted, InstallError, ApiError.
    """
    crd = await client.get(CRDS, name)
    present = storage_version(crd)
    stored = dig(crd, "status", "storedVersions") or []
    if stored in ([], [present]):
        return 0
    await _check_converted(client, crd, present, in_process)
    if client.remote:
        await clock.sleep(_SETTLE_SECONDS)
    count = await _rewrite(client, crd, present)
    await _forget_others(client, crd, present)
    log.info("%s: %d objects are stored in %s now, and none in %s", name, count, present, ", ".join(set(stored) - {present}))
    return count


async def _check_converted(client: Client, crd: Obj, version: str, in_process: bool) -> None:
    """Raises NotConverted unless stored objects are in `version` or can be converted."""
    others = [each for each in dig(crd, "status", "storedVersions") or () if each != version]
    if not others or in_process or dig(crd, "spec", "conversion", "strategy") == "Webhook":
        return
    resource = GroupVersionResource(crd["spec"]["group"], storage_version(crd), crd["spec"]["names"]["plural"])
    if (await client.list(resource, limit=1, metadata_only=True))["items"]:
        raise NotConverted(name_of(crd), others)


async def _forget_others(client: Client, crd: Obj, version: str) -> None:
    """Bound to the definition that the objects were written under: by another one, some may be stored in yet another version."""
    generation = metadata(crd).get("generation")
    while True:
        patch = {"metadata": {"resourceVersion": resource_version_of(crd)}, "status": {"storedVersions": [version]}}
        try:
            await client.patch(CRDS, name_of(crd), patch, subresource="status", field_manager=FIELD_MANAGER)
            return
        except ApiError as error:
            if not error.is_conflict:
                raise
        crd = await client.get(CRDS, name_of(crd))
        if metadata(crd).get("generation") != generation:
            raise InstallError(f"the definition of {name_of(crd)} was changed meanwhile: try again")


async def _rewrite(client: Client, crd: Obj, version: str) -> int:
    """Write every object once, as it is. An object that is written concurrently is rewritten by that write."""
    resource = GroupVersionResource(crd["spec"]["group"], version, crd["spec"]["names"]["plural"])
    failures, count = [], 0
    for obj in await _all(client, resource):
        count += 1
        try:
            await _touch(client, crd, resource, obj)
        except ApiError as error:
            if not error.is_not_found and not error.is_conflict:
                failures.append(f"{namespace_of(obj)}/{name_of(obj)}: {error.message}")
    if failures:
        raise InstallError(f"{len(failures)} of {count} {crd['spec']['names']['plural']} can't be rewritten: {failures[0]}")
    return count


async def _all(client: Client, resource: GroupVersionResource) -> list[Obj]:
    """Only their metadata, in pages; a list that took too long begins anew."""
    found: list[Obj] = []
    token = ""
    while True:
        try:
            page = await client.list(resource, limit=_PAGE, continue_=token, metadata_only=True)
        except ApiError as error:
            if not error.is_gone or not token:
                raise
            found, token = [], ""
            continue
        found += page["items"]
        token = dig(page, "metadata", "continue") or ""
        if not token:
            return found


async def _touch(client: Client, crd: Obj, resource: GroupVersionResource, obj: Obj) -> None:
    """Through the status where there is one, which admission does not look at: old objects need not pass today's rules."""
    version = next(each for each in crd["spec"]["versions"] if each["name"] == resource.version)
    named = {"name": name_of(obj), "namespace": namespace_of(obj), "resourceVersion": resource_version_of(obj)}
    body = {
        "apiVersion": f"{resource.group}/{resource.version}",
        "kind": crd["spec"]["names"]["kind"],
        "metadata": {key: value for key, value in named.items() if value},
    }
    subresource = "status" if "status" in (version.get("subresources") or {}) else ""
    await client.patch(resource, name_of(obj), body, namespace_of(obj), subresource=subresource, field_manager=FIELD_MANAGER)
