"""The machinesecrets controller: values that older versions left in objects are moved into Secrets, and Secrets that no object
refers to any more are removed.

The keys are the names of definitions. Each kind's objects are checked when the controller begins, and when the definition has
changed: a driver may declare another field secret. An object is moved by writing it as it is; admission does the rest
(:mod:`.admission`), so that a crash in between loses nothing, and no object is moved twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from remuda.api.management_cattle_io import DYNAMIC_SCHEMAS
from remuda.capi.contracts import Contracts, without_schemas
from remuda.client.idempotent import find
from remuda.client.interface import Client
from remuda.kube.builtin_resources import CRDS, SECRETS
from remuda.kube.errors import ApiError
from remuda.kube.objects import (
    GroupVersionResource,
    Key,
    dig,
    is_being_deleted,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
)
from remuda.provisioning.well_known import CONFIG_GROUP, MACHINE_GROUP
from remuda.runtime import DONE, Controller, Manager, Result, logger, synced

from ..nodedrivers.secrecy import is_secret
from .markers import DriverFields, last_applied, markers_in
from .vault import TYPE, used_at

log = logger(__name__)

Obj = dict[str, Any]

CONTROLLER: Final = "machinesecrets"
_GROUPS: Final = (CONFIG_GROUP, MACHINE_GROUP)
_VERSION: Final = "v1"
_PAGE: Final = 200
# A write that used a value has ended long before, one way or the other.
UNUSED_SECONDS: Final = 3600.0
_EVERY_SECONDS: Final = 3600.0
# The API's codes for an object that it does not accept.
_REFUSALS: Final = (400, 403, 413, 422)
# A definition that has just changed is not served everywhere yet.
_AGAIN_SECONDS: Final = 5.0


class MachineSecrets:
    controller = Controller(CONTROLLER, CRDS, transform=without_schemas)

    def __init__(self, manager: Manager) -> None:
        self._client = manager.client
        self._clock = manager.clock
        self._rng = manager.rng
        self._crds = Contracts(manager.informers).crds
        # By the name of a definition: the generation whose objects were checked.
        self._moved: dict[str, int] = {}
        manager.beside(self._sweep_for_ever)

    async def reconcile(self, key: Key) -> Result:
        await synced(self._crds)
        found = self._crds.get(*key)
        if found is None or dig(found, "spec", "group") not in _GROUPS:
            self._moved.pop(key.name, None)
            return DONE
        generation = int(dig(found, "metadata", "generation") or 0)
        if self._moved.get(key.name) == generation:
            return DONE
        try:
            await self._move(found)
        except ApiError as error:
            if error.code != 404:
                raise
            return Result(_AGAIN_SECONDS)
        self._moved[key.name] = generation
        return DONE

    async def _move(self, definition: Obj) -> None:
        if moved := await move(self._client, definition):
            log.info("moved secret values of %d %s into Secrets", moved, dig(definition, "spec", "names", "plural"))

    async def _sweep_for_ever(self) -> None:
        while True:
            await self._clock.sleep(_EVERY_SECONDS * self._rng.uniform(0.9, 1.1))
            try:
                await synced(self._crds)
                known = [each for each in self._crds.objects() if dig(each, "spec", "group") in _GROUPS]
                for each in known:
                    # A server of an older version, beside this one, may have stored some since.
                    await self._move(each)
                removed = await sweep(self._client, known, self._clock.time())
            except (ApiError, OSError) as error:
                log.warning("sealed values can't be looked after: %s", error)
                continue
            if removed:
                log.info("removed %d Secrets that no machine config, template or machine refers to", removed)


async def move(client: Client, definition: Obj) -> int:
    """Rewrite the objects of a kind that have values where markers belong, and count them. Raises ApiError (404 when the kind is
    not served)."""
    resource, place = _kind(definition)
    if place is None:
        return 0
    schema = await find(client, DYNAMIC_SCHEMAS, place.schema)
    types, moved = dig(schema, "spec", "resourceFields"), 0

    def secret(field: str, own: DriverFields = place) -> bool:
        return is_secret(own.driver, field, types)

    async for obj in _objects(client, resource):
        if not any(True for each in (obj, last_applied(obj) or {}) for _ in place.values(each, secret)):
            continue
        try:
            # Any version of it, as long as it is the same object.
            same = {"metadata": {"uid": uid_of(obj)}}
            written = await client.patch(resource, name_of(obj), same, namespace_of(obj), field_manager=CONTROLLER)
        except ApiError as error:
            if error.is_not_found or error.is_conflict:
                continue
            if error.code not in _REFUSALS:
                raise
            # One that can't be written must not keep the others from being moved.
            log.warning("the secret values of %s %s can't be moved: %s", resource.resource, Key.of(obj), error.message)
            continue
        if not any(True for _ in place.values(written, secret)):
            moved += 1
        elif not is_being_deleted(written):
            log.warning(
                "%s %s shows secret values: nothing that seals them is in front of its API", resource.resource, Key.of(obj)
            )
    return moved


async def sweep(client: Client, definitions: list[Obj], now: float) -> int:
    """Remove unused Secrets, and count them. Those that a write may still be about to refer to stay."""
    old = [each async for each in _objects(client, SECRETS, f"type={TYPE}") if now - used_at(each) > UNUSED_SECONDS]
    if not old:
        return 0
    used: set[tuple[str, str]] = set()
    for definition in definitions:
        if dig(definition, "spec", "group") in _GROUPS:
            used |= await _used(client, definition)
    removed = 0
    for secret in old:
        if (namespace_of(secret), name_of(secret)) in used:
            continue
        try:
            # As it was seen: a write that has used it since has marked it.
            await client.delete(
                SECRETS,
                name_of(secret),
                namespace_of(secret),
                uid=uid_of(secret),
                resource_version=resource_version_of(secret),
            )
        except ApiError as error:
            if not (error.is_not_found or error.is_conflict):
                raise
            continue
        removed += 1
    return removed


async def _used(client: Client, definition: Obj) -> set[tuple[str, str]]:
    resource, place = _kind(definition)
    if place is None:
        return set()
    return {(namespace_of(obj), name) async for obj in _objects(client, resource) for name in markers_in(obj, place)}


def _kind(definition: Obj) -> tuple[GroupVersionResource, DriverFields | None]:
    group, names = str(dig(definition, "spec", "group") or ""), dig(definition, "spec", "names") or {}
    resource = GroupVersionResource(group, _VERSION, str(names.get("plural") or ""))
    return resource, DriverFields.of(group, str(names.get("kind") or ""))


async def _objects(client: Client, resource: GroupVersionResource, fields: str = "") -> AsyncIterator[Obj]:
    """All of a kind, page by page. Raises ApiError."""
    after = ""
    while True:
        page = await client.list(resource, fields=fields, limit=_PAGE, continue_=after)
        for obj in page.get("items") or ():
            yield obj
        after = dig(page, "metadata", "continue") or ""
        if not after:
            return
