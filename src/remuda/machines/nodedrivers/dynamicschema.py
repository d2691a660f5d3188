"""The controller of DynamicSchemas: the three definitions of each driver that pools may use
(docs/reference/machines.md#kinds-of-a-driver).

They change only as far as existing objects allow (:func:`.machine_crds.compatible`), and are deleted when their driver is deleted
or inactive and no object of their kinds is left.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from remuda.api.management_cattle_io import DYNAMIC_SCHEMAS, GROUP
from remuda.client.idempotent import find, remove
from remuda.client.server_side_apply import apply_owned
from remuda.kube.builtin_resources import CRDS
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, Key, annotations_of, dig, is_being_deleted, name_of
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import DONE, Controller, Manager, Result, Watch, changed, logger, synced

from .driver_schemas import EMBEDDED, NODE_TEMPLATE, active_driver
from .machine_crds import SCHEMA, VERSION, UnusableField, compatible, definitions, is_current

log = logger(__name__)

Obj = dict[str, Any]

CONTROLLER: Final = "dynamicschema"
_LABELS: Final = "auth.cattle.io/cluster-indexed=true"
_BY_SCHEMA: Final = "dynamic schema"
_AGAIN: Final = 30.0


def _schema_of(definition: Obj) -> Iterable[Key]:
    named = annotations_of(definition).get(SCHEMA)
    return (Key("", named),) if named else ()


_change = changed("spec")


class DynamicSchemas:
    def __init__(self, manager: Manager) -> None:
        self._client = manager.client
        self._fresh = manager.freshness
        self._schemas = manager.informers.of(DYNAMIC_SCHEMAS)
        self._definitions = manager.informers.of(CRDS, labels=_LABELS)
        self._definitions.add_index(_BY_SCHEMA, lambda obj: [key.name for key in _schema_of(obj)])
        self.controller = Controller(
            CONTROLLER,
            DYNAMIC_SCHEMAS,
            watches=(
                Watch(DYNAMIC_SCHEMAS, self._all, when=_change),
                Watch(CRDS, _schema_of, when=_change, labels=_LABELS),
            ),
            when=_change,
            concurrency=4,
            wait=_AGAIN,
        )

    def _all(self, changed: Obj) -> Iterable[Key]:
        """All schemas when the list of drivers changes, also those that are gone but still have definitions."""
        if name_of(changed) != NODE_TEMPLATE:
            return ()
        made = {key for each in self._definitions.objects() for key in _schema_of(each)}
        return sorted(made | set(self._schemas.keys()))

    async def reconcile(self, key: Key) -> Result:
        who = (CONTROLLER, key)
        await synced(self._schemas, self._definitions)
        await self._fresh.caught_up(who)
        if key.name in EMBEDDED:
            return DONE
        schema = self._schemas.get(*key)
        driver = active_driver(self._schemas.get("", NODE_TEMPLATE), key.name)
        if not driver or schema is None or is_being_deleted(schema):
            return await self._withdraw(key, who)
        try:
            wanted = definitions(driver, schema.get("spec") or {})
        except UnusableField as error:
            evidence = f"no kinds can be made of it: {error}"
            return Result(waits=(Wait(Code.MALFORMED, Ref(GROUP, "DynamicSchema", "", key.name), Actor.USER, None, evidence),))
        for each in wanted:
            if not await self._keep(each, who):
                on = Ref(CRDS.group, "CustomResourceDefinition", "", name_of(each))
                evidence = f"{name_of(each)} is still being deleted"
                return Result(waits=(Wait(Code.DELETION, Ref(GROUP, "DynamicSchema", "", key.name), Actor.REMUDA, on, evidence),))
        return DONE

    async def _keep(self, wanted: Obj, who: tuple[str, Key]) -> bool:
        """True if the definition is there as it should be."""
        existing = self._definitions.get("", name_of(wanted)) or await find(self._client, CRDS, name_of(wanted))
        if existing is not None:
            if is_being_deleted(existing):
                return False
            kept = compatible(wanted, existing)
            # Whether it is used matters only if there is a difference.
            if kept != wanted and await self._is_used(existing):
                wanted = kept
            if is_current(wanted, existing):
                return True
        written = await apply_owned(self._client, CRDS, wanted, CONTROLLER)
        self._fresh.wrote(who, self._definitions, written)
        # A server that starts for the first time has nothing to say.
        if existing is None:
            log.debug("%s is served", name_of(wanted))
        else:
            log.info("%s is brought up to date", name_of(wanted))
        return True

    async def _withdraw(self, key: Key, who: tuple[str, Key]) -> Result:
        """All three or none: a machine without its config could not be understood."""
        made = [each for each in self._definitions.indexed(_BY_SCHEMA, key.name) if not is_being_deleted(each)]
        for each in made:
            if await self._is_used(each):
                on = Ref(CRDS.group, "CustomResourceDefinition", "", name_of(each))
                evidence = f"its driver is not active, but there are {dig(each, 'spec', 'names', 'plural')}"
                return Result(waits=(Wait(Code.CONTENT, Ref(GROUP, "DynamicSchema", "", key.name), Actor.USER, on, evidence),))
        for each in made:
            await remove(self._client, CRDS, each)
            self._fresh.deleted(who, self._definitions, each)
            log.info("%s is not served any more: its driver is not active, and there was none", name_of(each))
        if not made:
            self._fresh.forget(who)
        return DONE

    async def _is_used(self, definition: Obj) -> bool:
        spec = definition["spec"]
        resource = GroupVersionResource(spec["group"], VERSION, spec["names"]["plural"])
        try:
            return bool((await self._client.list(resource, limit=1, metadata_only=True))["items"])
        except ApiError as error:
            if error.code == 404:
                return False
            raise
