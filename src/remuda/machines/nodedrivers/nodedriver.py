"""The controller of NodeDrivers: creates the built-in ones, and describes each driver in DynamicSchemas
(docs/reference/machines.md).

A driver that is active, or that credentials can be made for, gets the schemas of its machine configs and of its credentials;
three more schemas list the drivers. They are made anew from all drivers each time, so deleted drivers need no record.
:mod:`.dynamicschema` makes definitions of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from remuda.access.rancher_conditions import FALSE, TRUE, with_condition, write_status
from remuda.api.management_cattle_io import DYNAMIC_SCHEMAS, GROUP, NODE_DRIVERS
from remuda.client.server_side_apply import apply_owned
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, annotations_of, dig, is_being_deleted, labels_of, name_of, owner_references_of, with_path
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import DONE, Controller, Manager, Result, Watch, changed, logger, owner, synced

from ..errors import DriverError, Reason
from . import driver_schemas
from .builtin_drivers import BuiltIn, builtin, node_driver, restored
from .driver_downloads import name_problem
from .driver_schemas import HINTS, SchemaFields, UnusableFlag, credential_fields, hints, resource_fields
from .flag_sources import Flags, Sources

log = logger(__name__)

Obj = dict[str, Any]

CONTROLLER: Final = "nodedriver"
# A program that was missing may have been installed, a host that was away may be back.
_AGAIN: Final = 60.0
_EMBEDDING: Final = (CONTROLLER, "embedding")


# Ignores changes that this controller writes.
_users_fields = changed("spec", annotations_of)


def _change(new: Obj | None, old: Obj | None) -> bool:
    return is_being_deleted(new or {}) or _users_fields(new, old)


class NodeDrivers:
    controller = Controller(
        CONTROLLER,
        NODE_DRIVERS,
        watches=(Watch(DYNAMIC_SCHEMAS, owner("NodeDriver", GROUP), when=changed("spec")),),
        when=_change,
        concurrency=4,
        timeout=600.0,
        # A new version of rancher-machine causes no event.
        resync=3600.0,
        wait=_AGAIN,
    )

    def __init__(self, manager: Manager, sources: Sources, ours: Callable[[], Mapping[str, BuiltIn]] = builtin) -> None:
        """`ours` are the drivers that a server has."""
        self._manager = manager
        self._client = manager.client
        self._fresh = manager.freshness
        self._clock = manager.clock
        self._sources = sources
        self._drivers = manager.informers.of(NODE_DRIVERS)
        self._schemas = manager.informers.of(DYNAMIC_SCHEMAS)
        self._ours = ours
        self._builtin: dict[str, BuiltIn] = {}
        # Flags are read once for each version of their source.
        self._read: dict[str, tuple[tuple[str, ...], Flags]] = {}
        self._embedding = asyncio.Lock()
        manager.beside(self._begin)

    async def _begin(self) -> None:
        """Queue the built-in drivers, since there is no event for one that does not exist."""
        self._builtin = dict(self._ours())
        working = self._manager.working(CONTROLLER)
        for name in self._builtin if working is not None else ():
            assert working is not None
            working.queue.add(Key("", name))
        await asyncio.get_running_loop().create_future()

    async def reconcile(self, key: Key) -> Result:
        who = (CONTROLLER, key)
        await synced(self._drivers, self._schemas)
        await self._fresh.caught_up(who)
        await self._furnish(key, who)
        driver = self._drivers.get(*key)
        result = DONE
        if driver is not None and not is_being_deleted(driver):
            result = await self._offer(driver, who)
        elif driver is None:
            self._fresh.forget(who)
            self._read.pop(key.name, None)
        await self._embed()
        return result

    async def _furnish(self, key: Key, who: tuple[str, Key]) -> None:
        """Create or update a built-in driver for this version of Remuda, once in the life of this process."""
        ours = self._builtin.pop(key.name, None)
        if ours is None:
            return
        found = self._drivers.get(*key)
        try:
            if found is None:
                written = await self._client.create(NODE_DRIVERS, node_driver(ours), field_manager=CONTROLLER)
            else:
                wanted = restored(found, ours)
                if wanted is None or is_being_deleted(found):
                    return
                written = await self._client.update(NODE_DRIVERS, wanted, field_manager=CONTROLLER)
        except ApiError as error:
            self._builtin[key.name] = ours
            # Another server of the same store was faster.
            if not error.is_already_exists:
                raise
            return
        except BaseException:
            self._builtin[key.name] = ours
            raise
        self._fresh.wrote(who, self._drivers, written)
        await self._fresh.caught_up(who)

    # --- one driver -------------------------------------------------------------------------------------------------------

    async def _offer(self, driver: Obj, who: tuple[str, Key]) -> Result:
        if not driver_schemas.has_credentials(driver):
            await self._say(driver, who, _inactive(driver, self._clock.time()))
            return DONE
        try:
            flags = await self._flags(driver)
            await self._write_schemas(driver, flags, who)
        except (DriverError, UnusableFlag) as error:
            log.warning("the driver %s can't be used: %s", driver_schemas.driver_of(driver), error)
            await self._say(driver, who, _failed(driver, error, self._clock.time()))
            evidence = f"the driver {driver_schemas.driver_of(driver)} can't be used: {error}"
            return Result(waits=(Wait(Code.CONTENT, Ref(GROUP, "NodeDriver", "", name_of(driver)), Actor.USER, None, evidence),))
        await self._say(driver, who, _offered(driver, flags, self._clock.time()))
        return DONE if flags.usable else Result(after=_AGAIN)

    async def _flags(self, driver: Obj) -> Flags:
        name = driver_schemas.driver_of(driver)
        if problem := name_problem(name):
            raise DriverError(Reason.INVALID, f"spec.displayName {problem}")
        of = (
            name,
            *(str(dig(driver, "spec", field) or "") for field in ("url", "checksum")),
            await self._sources.version(driver),
        )
        known = self._read.get(name_of(driver))
        # One that stood in for a program is looked for again.
        if known is None or known[0] != of or not known[1].usable:
            known = self._read[name_of(driver)] = (of, await self._sources.flags(driver))
        return known[1]

    async def _write_schemas(self, driver: Obj, flags: Flags, who: tuple[str, Key]) -> None:
        name, shape = driver_schemas.driver_of(driver), SchemaFields.of(driver)
        fields = resource_fields(flags.flags, shape)
        wanted = [driver_schemas.driver_schema(driver, driver_schemas.config_name(name), fields)]
        if shape.public or shape.private:
            credential = credential_fields(name, fields, shape)
            wanted.append(driver_schemas.driver_schema(driver, driver_schemas.credential_name(name), credential))
        for each in wanted:
            await self._keep(each, who)

    async def _keep(self, wanted: Obj, who: Any) -> None:
        existing = self._schemas.get("", name_of(wanted))
        if existing is not None and _says(existing, wanted):
            return
        written = await apply_owned(self._client, DYNAMIC_SCHEMAS, wanted, CONTROLLER)
        self._fresh.wrote(who, self._schemas, written)

    async def _say(self, driver: Obj, who: tuple[str, Key], told: Obj) -> None:
        """Write the status, and the hints about the driver's fields for pages."""
        hinted = jsonio.dumps(hints(SchemaFields.of(driver))).decode()
        if hinted != "{}" and annotations_of(driver).get(HINTS) != hinted:
            patch = {"metadata": {"annotations": {HINTS: hinted}}}
            written = await self._client.patch(NODE_DRIVERS, name_of(driver), patch, field_manager=CONTROLLER)
            self._fresh.wrote(who, self._drivers, written)
            driver, told = written, with_path(written, ("status",), told.get("status") or {})
        changed = await write_status(self._client, NODE_DRIVERS, driver, told, field_manager=CONTROLLER)
        if changed is not None:
            self._fresh.wrote(who, self._drivers, changed)

    # --- all of them ------------------------------------------------------------------------------------------------------

    async def _embed(self) -> None:
        async with self._embedding:
            for key in list(self._drivers.keys()):
                await self._fresh.caught_up((CONTROLLER, key))
            await self._fresh.caught_up(_EMBEDDING)
            there = [each for each in self._drivers.objects() if not is_being_deleted(each)]
            known = [name_of(each) for each in self._schemas.objects() if not is_being_deleted(each)]
            for wanted in driver_schemas.embedding_schemas(there, known):
                await self._keep(wanted, _EMBEDDING)


def _says(existing: Obj, wanted: Obj) -> bool:
    return (
        existing.get("spec") == wanted["spec"]
        and labels_of(wanted).items() <= labels_of(existing).items()
        and {each.get("uid") for each in owner_references_of(wanted)}
        <= {each.get("uid") for each in owner_references_of(existing)}
    )


# --- status of a driver -------------------------------------------------------------------------------------------------------


def _inactive(driver: Obj, now: float) -> Obj:
    told = with_condition(driver, "Active", FALSE, now=now)
    return with_condition(told, "Inactive", TRUE, now=now)


def _failed(driver: Obj, error: Exception, now: float) -> Obj:
    reason = error.reason.value if isinstance(error, DriverError) else Reason.INVALID.value
    text = error.message if isinstance(error, DriverError) else str(error)
    told = with_condition(driver, "Installed", FALSE, reason, text, now=now)
    told = with_condition(told, "Active", FALSE, reason, text, now=now)
    return with_condition(told, "Inactive", FALSE, now=now)


def _offered(driver: Obj, flags: Flags, now: float) -> Obj:
    """It can be used; whether machines can be made here is another thing."""
    told = with_condition(driver, "Downloaded", TRUE, now=now)
    if flags.usable:
        told = with_condition(told, "Installed", TRUE, now=now)
    else:
        text = f"machines can't be made with it yet: {flags.missing}"
        told = with_condition(told, "Installed", FALSE, Reason.MISSING_PROGRAM.value, text, now=now)
    active = driver_schemas.is_active(driver)
    told = with_condition(told, "Active", TRUE if active else FALSE, now=now)
    told = with_condition(told, "Inactive", FALSE if active else TRUE, now=now)
    applied = {
        "appliedURL": dig(driver, "spec", "url") or "",
        "appliedChecksum": dig(driver, "spec", "checksum") or "",
        "appliedDockerMachineVersion": flags.version,
    }
    return with_path(told, ("status",), {**told["status"], **applied})
