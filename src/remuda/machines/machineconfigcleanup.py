"""The machineconfigcleanup controller: deletes machine configs that no cluster uses (docs/reference/objects.md#machine-configs).

A page that creates a cluster creates its configs first; a user who closes it leaves them behind. Every night, at five past twelve
(UTC) like Rancher's CronJob, the controller deletes those that are in a workspace, have no owner, are older than an hour, and
that no pool of a cluster names. The keys are the names of definitions: each kind has its own turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remuda.api import provisioning_cattle_io as provisioning
from remuda.api.management_cattle_io import FLEET_WORKSPACES
from remuda.capi.contracts import Contracts, without_schemas
from remuda.kube.builtin_resources import CRDS
from remuda.kube.clock import parse_rfc3339
from remuda.kube.errors import ApiError
from remuda.kube.objects import (
    GroupVersionResource,
    Key,
    dig,
    is_being_deleted,
    metadata,
    name_of,
    namespace_of,
    owner_references_of,
    resource_version_of,
    uid_of,
)
from remuda.provisioning.graph.machine_pools import has_config
from remuda.provisioning.well_known import CONFIG_GROUP
from remuda.runtime import DONE, Controller, Manager, Result, logger, synced

log = logger(__name__)

Obj = dict[str, Any]

CONTROLLER = "machineconfigcleanup"
YOUNG = 3600.0
_DAY, _MINUTES_PAST = 86400.0, 300.0


def next_night(now: float) -> float:
    """The next time after `now` that is five past twelve."""
    return ((now - _MINUTES_PAST) // _DAY + 1) * _DAY + _MINUTES_PAST


def is_left_behind(config: Obj, used: set[tuple[str, str]], now: float) -> bool:
    """`used` are the namespaces and names of configs of this kind that pools name."""
    if owner_references_of(config) or is_being_deleted(config):
        return False
    if (namespace_of(config), name_of(config)) in used:
        return False
    return now - parse_rfc3339(metadata(config)["creationTimestamp"]) > YOUNG


class MachineConfigCleanup:
    controller = Controller(CONTROLLER, CRDS, transform=without_schemas)

    def __init__(self, manager: Manager, turn: Callable[[float], float] = next_night) -> None:
        """`turn` says when the next one is."""
        self._turn = turn
        self._client = manager.client
        self._clock = manager.clock
        self._crds = Contracts(manager.informers).crds
        self._workspaces = manager.informers.of(FLEET_WORKSPACES)
        self._wanted = manager.informers.of(provisioning.CLUSTERS)
        # By the name of a definition: when it is its turn.
        self._turns: dict[str, float] = {}

    async def reconcile(self, key: Key) -> Result:
        await synced(self._crds, self._workspaces, self._wanted)
        found = self._crds.get(*key)
        if found is None or dig(found, "spec", "group") != CONFIG_GROUP:
            self._turns.pop(key.name, None)
            return DONE
        now = self._clock.time()
        turn = self._turns.setdefault(key.name, self._turn(now))
        if now >= turn:
            await self._clean(found, now)
            turn = self._turns[key.name] = self._turn(now)
        return Result(after=turn - now)

    async def _clean(self, definition: Obj, now: float) -> None:
        kind = dig(definition, "spec", "names", "kind") or ""
        resource = GroupVersionResource(CONFIG_GROUP, "v1", dig(definition, "spec", "names", "plural") or "")
        used = self._used(kind)
        for workspace in sorted(map(name_of, self._workspaces.objects())):
            for config in (await self._client.list(resource, workspace)).get("items") or ():
                if is_left_behind(config, used, now):
                    await self._remove(resource, config)

    def _used(self, kind: str) -> set[tuple[str, str]]:
        found = set()
        for cluster in self._wanted.objects():
            for pool in dig(cluster, "spec", "rkeConfig", "machinePools") or ():
                ref = pool.get("machineConfigRef") or {}
                if has_config(pool) and ref.get("kind") == kind:
                    found.add((namespace_of(cluster), str(ref.get("name") or "")))
        return found

    async def _remove(self, resource: GroupVersionResource, config: Obj) -> None:
        try:
            await self._client.delete(
                resource,
                name_of(config),
                namespace_of(config),
                uid=uid_of(config),
                resource_version=resource_version_of(config),
            )
        except ApiError as error:
            # Deleted already, or now in use after all.
            if not (error.is_not_found or error.is_conflict):
                raise
            return
        log.info("the machine config %s was not used", Key.of(config))
