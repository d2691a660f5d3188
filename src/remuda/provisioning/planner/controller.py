"""The planner's controller: reads the input of :mod:`.decide`, and writes its decision (docs/reference/planner.md).

A pass reads (plan Secrets live, since an init node must never be elected by old data), decides, and writes: the tokens, plan
Secrets in the order of the decision, Machines, the Cluster, and last the control plane's own status. Each write is bound to the
version read, and the first that fails ends the pass: the next one starts again from the current state. A plan Secret that
can't take a plan is the exception: its machine is named in a wait, and the pass goes on for the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from remuda.access.downstreams import while_working
from remuda.access.rancher_conditions import write_status
from remuda.api import cluster_x_k8s_io as capi
from remuda.api import plan_cattle_io as plans
from remuda.api import rke_cattle_io as rke
from remuda.capi.change_budget import namespace_budget
from remuda.capi.drain_count import DrainCount
from remuda.client.idempotent import find, make, remove
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.clock import Entropy
from remuda.kube.encoding.mergepatch import create_merge_patch
from remuda.kube.errors import ApiError
from remuda.kube.objects import (
    GroupVersionResource,
    Key,
    annotations_of,
    dig,
    is_being_deleted,
    labels_of,
    metadata,
    name_of,
    namespace_of,
    resource_version_of,
    with_path,
)
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import DONE, WARNING, Controller, Manager, Result, Watch, changed, logger, synced
from remuda.runtime.informer import without_managed_fields
from remuda.runtime.patching import Patch

from ..etcd.file_requests import request_of
from ..etcd.inventory import slim
from ..etcd.s3.copies import Open
from ..etcd.snapshot_inventory import CONDITION as SNAPSHOTS_LISTED
from ..etcd.snapshot_sets import cluster_of
from ..machine_caches import PLAN_FIELDS, MachineCaches
from ..plans.machine_plan_secret import is_locked
from ..references import Access
from ..releases.catalog import Release, ReleaseError, Releases
from ..releases.distributions import RKE2
from ..well_known import plan_name
from . import beacon as beacons
from . import change_budgets, snapshot_reader
from .certificate_expiry import CONDITION as CERTIFICATES_EXPIRING
from .decide import plan
from .decision import Decision, MachineChange, changed_cluster, changed_control_plane, changed_machine, changed_secret
from .inputs import GatewayPort, PlanInputReader
from .join_tokens import TokensError, state_name, state_secret, tokens_of
from .managesystemagent import CONDITION as AGENT_UPDATED
from .operations import recover, upgrade_snapshot
from .operations.etcd_snapshot_create import CONDITION as SNAPSHOT_TAKEN
from .operations.etcd_snapshot_restore import CONDITION as SNAPSHOT_RESTORED
from .render import ignored_arguments, renderer
from .snapshot import CannotRender, Cluster, ClusterSnapshot, Render, Tokens, unable
from .waits import AGENTS_RESPONDING, PLANS_HELD

log = logger(__name__)

Obj = dict[str, Any]

CONTROLLER = "planner"
_AGAIN = 5.0
# The pause of a cluster between two passes, per machine: in a large one, some machine has always just reported something.
_REST_EACH, _LONGEST_REST = 0.01, 3.0
_READS_AT_ONCE = 16
# Errors of a write that concern this one Secret and last until a user repairs it.
_REFUSALS = frozenset({403, 413, 422})
_BY_MANAGED = "planned for a management cluster"
_REQUESTED = "cluster of a snapshot with a request"
# Conditions that only report decisions; the others are input of decisions.
_TOLD = frozenset(
    {
        "Ready",
        "Reconciled",
        "Stable",
        "Provisioned",
        "ScalingUp",
        "ScalingDown",
        "RollingOut",
        "Removed",
        AGENT_UPDATED,
        PLANS_HELD,
        CERTIFICATES_EXPIRING,
        SNAPSHOT_TAKEN,
        SNAPSHOT_RESTORED,
        upgrade_snapshot.CONDITION,
        recover.CONDITION,
        SNAPSHOTS_LISTED,
        AGENTS_RESPONDING,
    }
)


class _NotReady(Exception):
    """The pass can't begin yet."""

    def __init__(self, wait: Wait) -> None:
        super().__init__(wait.evidence)
        self.wait = wait


@dataclass(frozen=True, slots=True)
class _PassInputs:
    """The input of a pass: the objects themselves, by the names of machines, and their snapshot."""

    plane: Obj
    cluster: Obj | None
    machines: Mapping[str, Obj]
    secrets: Mapping[str, Obj]
    snapshot: ClusterSnapshot
    release: Release | None


class Planner:
    controller = Controller(CONTROLLER, rke.RKE_CONTROL_PLANES)

    def __init__(
        self,
        manager: Manager,
        door: GatewayPort,
        access: Access,
        entropy: Entropy,
        buckets: Open,
        environment: Mapping[str, str] | None = None,
        drains: DrainCount | None = None,
    ) -> None:
        """`drains` is shared with the controllers of this process that delete machines."""
        self._drains = drains or DrainCount(manager.clock)
        self._drains.has_planner()
        self._manager = manager
        self._events = manager.recorder(CONTROLLER)
        self._client = manager.client
        self._clock = manager.clock
        self._door = door
        self._entropy = entropy
        self._views = MachineCaches(manager.informers)
        self._beacons = manager.informers.of(plans.BEACONS)
        self._snapshots = manager.informers.of(rke.ETCD_SNAPSHOTS, transform=slim)
        self._snapshots.add_index(_REQUESTED, lambda each: _of_snapshot(each) if request_of(each) else ())
        self._surroundings = PlanInputReader(manager, door, access, environment, buckets, self._queue)
        self._views.control_planes.add_index(_BY_MANAGED, lambda plane: filter(None, (_managed_name(plane),)))
        self.controller = replace(
            type(self).controller,
            watches=(
                Watch(capi.CLUSTERS, self._of_cluster, _cluster_change),
                Watch(capi.MACHINES, self._of_machine, _machine_change),
                Watch(rke.RKE_BOOTSTRAPS, self._of_machine, _bootstrap_change),
                Watch(SECRETS, self._of_plan, fields=PLAN_FIELDS, transform=without_managed_fields),
                Watch(plans.BEACONS, when=changed(beacons.holder_of)),
                Watch(rke.ETCD_SNAPSHOTS, _of_snapshot, _request_change, transform=slim),
                *self._surroundings.watches(),
            ),
            when=changed(_read_of_plane),
            concurrency=4,
            wait=60.0,
            lane=lambda key: key,
        )
        while_working(manager, lambda: door.on_change(self._look))

    # --- mapping to control planes ----------------------------------------------------------------------------------------

    def _look(self, managed: str) -> None:
        for plane in self._views.control_planes.indexed(_BY_MANAGED, managed):
            self._queue(Key.of(plane))

    def _queue(self, key: Key) -> None:
        working = self._manager.working(CONTROLLER)
        if working is not None:
            working.queue.add(key)

    def _of_cluster(self, cluster: Obj) -> Iterable[Key]:
        ref = dig(cluster, "spec", "controlPlaneRef") or {}
        if ref.get("kind") != "RKEControlPlane" or ref.get("apiGroup") != rke.GROUP:
            return ()
        return (Key(namespace_of(cluster), ref.get("name") or ""),)

    def _of_machine(self, found: Obj) -> Iterable[Key]:
        """The keys for a Machine or its bootstrap: both name their cluster."""
        cluster = self._views.cluster_of(found)
        return () if cluster is None else self._of_cluster(cluster)

    def _of_plan(self, secret: Obj) -> Iterable[Key]:
        bootstraps = [self._views.bootstraps.get(*key) for key in self._views.bootstrap_of_plan(secret)]
        return [key for each in bootstraps if each is not None for key in self._of_machine(each)]

    # --- a pass -----------------------------------------------------------------------------------------------------------

    async def reconcile(self, key: Key) -> Result:
        who = (CONTROLLER, key)
        await self._views.synced()
        await synced(self._beacons, self._snapshots, *self._surroundings.caches)
        await self._manager.freshness.caught_up(who)
        plane = self._views.control_planes.get(*key)
        if plane is None:
            self._manager.freshness.forget(who)
            self._drains.forget(key)
            return DONE
        if is_being_deleted(plane):
            self._drains.planned(_cluster_key(plane), ())
            return DONE
        try:
            beacon = self._beacon(plane)
            seen = await self._read_inputs(plane)
            decision = self._decided(seen, await self._render(seen))
        except _NotReady as waiting:
            return Result(_AGAIN, (waiting.wait,))
        refused = await self._apply_decision(seen, decision, beacon)
        result = self._result(seen, decision)
        if not refused:
            return result
        return replace(
            result, after=_AGAIN if result.after is None else min(result.after, _AGAIN), waits=(*refused, *result.waits)
        )

    def _decided(self, seen: _PassInputs, render: Render) -> Decision:
        """The decision, with its drains noted. Nothing is awaited, so that no deletion begins meanwhile."""
        cluster = _cluster_key(seen.plane)
        snapshot = replace(seen.snapshot, leaving=self._drains.deleted(cluster))
        decision = plan(snapshot, render)
        self._drains.planned(cluster, change_budgets.in_drain(snapshot.machines, decision.secrets))
        return decision

    def _result(self, seen: _PassInputs, decision: Decision) -> Result:
        rest = min(len(seen.machines) * _REST_EACH, _LONGEST_REST)
        if decision.create_tokens:
            return Result(0.0)
        if decision.revisit_at is None:
            return Result(waits=decision.waits, rest=rest)
        return Result(max(decision.revisit_at - self._clock.time(), 0.0), decision.waits, rest)

    def _beacon(self, plane: Obj) -> Obj:
        """Raises _Wait while another controller writes the plans of this cluster."""
        found = self._beacons.get(*Key.of(plane))
        on = Ref(plans.GROUP, "Beacon", *Key.of(plane))
        if found is None:
            raise _NotReady(Wait(Code.REFERENCE, _ref(plane), Actor.REMUDA, on, "the cluster's beacon is not there yet"))
        if not beacons.is_ours_to_take(found):
            evidence = f"{beacons.holder_of(found)} writes the plans of this cluster at the moment"
            raise _NotReady(Wait(Code.TURN, _ref(plane), Actor.OTHER_CONTROLLER, on, evidence))
        return found

    # --- reading ----------------------------------------------------------------------------------------------------------

    async def _read_inputs(self, plane: Obj) -> _PassInputs:
        key = _cluster_key(plane)
        cluster = self._views.clusters.get(*key)
        if cluster is not None and Key.of(plane) not in self._of_cluster(cluster):
            cluster = None
        ours = [] if cluster is None else self._views.machines_of_cluster(key)
        machines = {name_of(each): each for each in ours if self._views.bootstrap_of_machine(each)}
        bootstraps = {name: self._bootstrap(machine) for name, machine in machines.items()}
        secrets = await self._plans({name: found for name, found in bootstraps.items() if found is not None})
        releases = await self._surroundings.releases()
        release, problem = _release(releases, plane)
        tokens, unreadable = await self._tokens(plane)
        control_plane = snapshot_reader.control_plane(plane)
        planned = tuple(
            snapshot_reader.planned_machine(each, secrets.get(name), bootstraps[name]) for name, each in machines.items()
        )
        snapshot = ClusterSnapshot(
            now=self._clock.time(),
            control_plane=control_plane,
            cluster=None if cluster is None else snapshot_reader.cluster(cluster),
            machines=planned,
            tokens=tokens,
            tokens_error=unreadable,
            supervisor_port=(release.runtime if release else RKE2).supervisor_port,
            release_error=problem,
            known_versions=() if release is None or release.known else releases.versions(release.runtime),
            ignored_arguments=ignored_arguments(release, control_plane, planned) if release else (),
            features=release.features if release else {},
            agent=self._surroundings.agent(),
            stored=await self._surroundings.stored(plane, releases),
            surveyed=await self._surroundings.surveyed(plane, recover.snapshot_to_read(control_plane), releases),
            file_requests=snapshot_reader.file_requests(control_plane, planned, self._snapshots.indexed(_REQUESTED, key)),
            said_at=self._door.said_at(*key),
            namespace_budget=await namespace_budget(self._client, key.namespace),
        )
        return _PassInputs(plane, cluster, machines, secrets, snapshot, release)

    def _bootstrap(self, machine: Obj) -> Obj | None:
        found = [self._views.bootstraps.get(*key) for key in self._views.bootstrap_of_machine(machine)]
        # A bootstrap that this very Machine does not own may belong to another of the same name.
        return next((each for each in found if each is not None and self._views.machine_of(each) is machine), None)

    async def _plans(self, bootstraps: Mapping[str, Obj]) -> dict[str, Obj]:
        """Read live, a few at a time."""
        turns = asyncio.Semaphore(_READS_AT_ONCE)

        async def read(bootstrap: Obj) -> Obj | None:
            async with turns:
                return await find(self._client, SECRETS, plan_name(name_of(bootstrap)), namespace_of(bootstrap))

        if not self._client.remote:
            found = [await read(each) for each in bootstraps.values()]
        else:
            found = await asyncio.gather(*(read(each) for each in bootstraps.values()))
        return {name: each for name, each in zip(bootstraps, found, strict=True) if each is not None}

    async def _tokens(self, plane: Obj) -> tuple[Tokens | None, str]:
        secret = await find(self._client, SECRETS, state_name(name_of(plane)), namespace_of(plane))
        try:
            return None if secret is None else tokens_of(secret), ""
        except TokensError as error:
            return None, str(error)

    async def _render(self, seen: _PassInputs) -> Render:
        if seen.release is None:
            return unable(CannotRender("nothing is known about the version that is asked for", Actor.USER))
        managed = _managed_name(seen.plane)
        manifest = await self._door.agent_manifest(managed)
        if manifest is None:
            why = "the manifest of the cluster's agent can't be made: no server-url is set, or there is no registration token"
            return unable(CannotRender(why, Actor.USER, Ref("management.cattle.io", "Cluster", "", managed)))
        return renderer(await self._surroundings.facts(seen.plane, seen.release, manifest, seen.machines))

    # --- writing ----------------------------------------------------------------------------------------------------------

    async def _apply_decision(self, seen: _PassInputs, decision: Decision, beacon: Obj) -> list[Wait]:
        """Returns the waits for machines whose Secret can't take a plan."""
        refused: list[Wait] = []
        if decision.changes_plans or decision.create_tokens:
            beacon = await self._hold(seen, beacon, beacons.taken(beacon))
        if decision.create_tokens:
            # If another replica was faster, the next pass finds its tokens.
            await make(self._client, SECRETS, state_secret(seen.plane, self._entropy), CONTROLLER)
        now = seen.snapshot.now
        for name, change in decision.secrets.items():
            try:
                await self._write_secret(seen, name, changed_secret(seen.secrets[name], change, now))
            except ApiError as error:
                # Labels move from one machine to another in order: after one that can't be moved, nothing more may be written.
                if error.code not in _REFUSALS or change.labels:
                    raise
                refused.append(_no_plan(seen.machines[name], seen.secrets[name], error))
                continue
            if change.plan is not None or change.retry:
                log.info("%s the plan of machine %s", "wrote" if change.plan is not None else "retries", name)
        for event in decision.events:
            # Before the note that it was given: an event that is repeated is counted, one that is lost is not.
            self._events.event(seen.machines[event.machine], WARNING, event.reason, event.message)
        for name, of_machine in decision.machines.items():
            await self._write_machine(seen, name, of_machine)
        if seen.cluster is not None and (
            decision.unpause_cluster or decision.pause_for is not None or decision.cluster_condition is not None
        ):
            owned = {decision.cluster_condition.type} if decision.cluster_condition else set()
            await self._patch(seen, capi.CLUSTERS, seen.cluster, changed_cluster(seen.cluster, decision, now), owned)
        await self._record_event(seen, decision)
        if decision.applied:
            await self._hold(seen, beacon, beacons.released(beacon))
        return refused

    async def _hold(self, seen: _PassInputs, beacon: Obj, patch: Obj | None) -> Obj:
        if patch is None:
            return beacon
        key = Key.of(beacon)
        written = await self._client.patch(
            plans.BEACONS, key.name, patch, key.namespace, subresource="status", field_manager=CONTROLLER
        )
        self._manager.freshness.wrote((CONTROLLER, Key.of(seen.plane)), self._beacons, written)
        return written

    async def _write_secret(self, seen: _PassInputs, name: str, after: Obj) -> None:
        before = seen.secrets[name]
        patch: Obj = create_merge_patch(_writable(before), _writable(after))
        if not patch:
            return
        patch.setdefault("metadata", {})["resourceVersion"] = resource_version_of(before)
        written = await self._client.patch(SECRETS, name_of(before), patch, namespace_of(before), field_manager=CONTROLLER)
        self._manager.freshness.wrote((CONTROLLER, Key.of(seen.plane)), self._views.plans, written)

    async def _write_machine(self, seen: _PassInputs, name: str, change: MachineChange) -> None:
        machine = seen.machines[name]
        if change.bootstrap_annotations:
            for key in self._views.bootstrap_of_machine(machine):
                patch = {"metadata": {"annotations": dict(change.bootstrap_annotations)}}
                written = await self._client.patch(rke.RKE_BOOTSTRAPS, key.name, patch, key.namespace, field_manager=CONTROLLER)
                self._manager.freshness.wrote((CONTROLLER, Key.of(seen.plane)), self._views.bootstraps, written)
        await self._patch(seen, capi.MACHINES, machine, changed_machine(machine, change, seen.snapshot.now), {"Reconciled"})
        if change.delete:
            await remove(self._client, capi.MACHINES, machine)
            self._manager.freshness.deleted((CONTROLLER, Key.of(seen.plane)), self._views.machines, machine)
            log.info("deleted machine %s, which was lost with its data", name)

    async def _patch(self, seen: _PassInputs, resource: GroupVersionResource, before: Obj, after: Obj, owned: set[str]) -> None:
        informer = self._views.machines if resource == capi.MACHINES else self._views.clusters
        patch = Patch(self._client, resource, before, self._clock, owned=owned, field_manager=CONTROLLER)
        written = await patch.write(after)
        self._manager.freshness.wrote((CONTROLLER, Key.of(seen.plane)), informer, written)

    async def _record_event(self, seen: _PassInputs, decision: Decision) -> None:
        after = changed_control_plane(seen.plane, decision, seen.snapshot.now)
        if after is not seen.plane and dig(after, "status", "observedGeneration") is None:
            # The status must have it; from then on the other controller of control planes keeps it.
            after = with_path(after, ("status", "observedGeneration"), seen.snapshot.control_plane.generation)
        written = await write_status(
            self._client, rke.RKE_CONTROL_PLANES, seen.plane, after, subresource="status", field_manager=CONTROLLER
        )
        if written is not None:
            self._manager.freshness.wrote((CONTROLLER, Key.of(seen.plane)), self._views.control_planes, written)


def _cluster_key(plane: Obj) -> Key:
    """The key of its Cluster."""
    return Key(namespace_of(plane), dig(plane, "spec", "clusterName") or name_of(plane))


def _no_plan(machine: Obj, secret: Obj, error: ApiError) -> Wait:
    why = "the Secret with its plan is immutable" if is_locked(secret) else "the Secret with its plan can't be written"
    log.warning("the plan of machine %s can't be written: %s", name_of(machine), error.reason)
    ref = Ref(capi.GROUP, "Machine", *Key.of(machine))
    return Wait(Code.MALFORMED, ref, Actor.REMUDA, Ref("", "Secret", *Key.of(secret)), why)


def _writable(secret: Obj) -> Obj:
    marks = {"labels": labels_of(secret), "annotations": annotations_of(secret)}
    return {"data": secret.get("data") or {}, "metadata": marks}


def _ref(plane: Obj) -> Ref:
    return Ref(rke.GROUP, "RKEControlPlane", *Key.of(plane))


def _release(releases: Releases, plane: Obj) -> tuple[Release | None, str]:
    """The release of the requested version, or the reason why there is none."""
    try:
        return releases.release(dig(plane, "spec", "kubernetesVersion") or ""), ""
    except ReleaseError as error:
        return None, str(error)


def _of_snapshot(snapshot: Obj) -> Iterable[Key]:
    return (Key(namespace_of(snapshot), cluster_of(snapshot)),)


def _managed_name(plane: Obj) -> str:
    return str(dig(plane, "spec", "managementClusterName") or "")


# --- predicates -----------------------------------------------------------------------------------------------------------------


def _read_of_plane(plane: Obj) -> tuple[Any, ...]:
    """The fields whose changes matter: not the conditions that are written here, and often."""
    status = {
        field: value
        for field, value in (plane.get("status") or {}).items()
        if field not in ("conditions", "appliedSpec", "observedGeneration")
    }
    return (
        metadata(plane).get("generation"),
        labels_of(plane),
        annotations_of(plane),
        is_being_deleted(plane),
        status,
        frozenset(_decided_upon(plane)),
    )


def _decided_upon(plane: Obj) -> Iterable[Hashable]:
    for found in dig(plane, "status", "conditions") or ():
        if found.get("type") not in _TOLD:
            yield found.get("type"), found.get("status")


_cluster_change = changed("spec.controlPlaneRef", lambda obj: _timeless(snapshot_reader.cluster(obj)))


def _timeless(found: Cluster) -> Cluster:
    initialized = found.control_plane_initialized
    return replace(found, control_plane_initialized=initialized and replace(initialized, at=""))


# All fields in a snapshot, except the condition that is written here.
_machine_change = changed(lambda obj: replace(snapshot_reader.machine(obj, None, None), reconciled=None), "spec.clusterName")


def _request_change(new: Obj | None, old: Obj | None) -> bool:
    return (new and request_of(new)) != (old and request_of(old))


_bootstrap_change = changed("metadata.labels", "metadata.annotations", "metadata.ownerReferences")
