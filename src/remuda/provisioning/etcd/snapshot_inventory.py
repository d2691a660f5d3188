"""The controller of ETCDSnapshots: the list of a cluster's snapshots, which does not depend on the cluster's API
(docs/reference/operations.md#inventory).

Hosts print their files (:mod:`remuda.provisioning.planner.render.snapshots`), the server lists buckets
(:mod:`.bucket_inventory`), and a cluster that answers adds what it knows (:mod:`.own_list`). :mod:`.inventory` decides what to
write. Each pass starts from the objects themselves, so it may end at any line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from remuda.access.rancher_conditions import FALSE, TRUE, condition_of, with_condition, write_status
from remuda.api import cluster_x_k8s_io as capi
from remuda.api import plan_cattle_io as plans
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.capi.workload_clusters import Workloads
from remuda.client.idempotent import make, remove
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.errors import ApiError
from remuda.kube.objects import (
    Key,
    dig,
    finalizers_of,
    is_being_deleted,
    labels_of,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
    with_path,
)
from remuda.runtime import DONE, Controller, Manager, Result, Watch, changed, logger, synced
from remuda.runtime.informer import without_managed_fields

from ..machine_caches import PLAN_FIELDS, MachineCaches
from ..references import Access, References
from ..releases.distributions import of_version
from ..well_known import ETCD_ROLE, NODE_NAME, SNAPSHOT_FILE
from . import host_output, own_list
from .background_lists import Listed, Lists
from .bucket_inventory import BucketInventory
from .bucket_looks import ClusterBuckets
from .inventory import Changes, Host, Known, Place, changes, deleted_at, slim
from .own_list import OwnList
from .s3.copies import Open
from .snapshot_reports import INSTRUCTION, PERIOD, Report, of_host
from .snapshot_sets import cluster_of

log = logger(__name__)

Obj = dict[str, Any]

CONTROLLER: Final = "etcd-snapshots"
CONDITION: Final = "SnapshotsListed"
_BY_CLUSTER: Final = "cluster of a snapshot"
# While another controller writes the plans of a cluster, its own list may be one of before a restore.
_BEACON: Final = 60.0


@dataclass(slots=True)
class _Heard:
    """The last report of a host: its own time, and the server's when it came."""

    at: float
    heard: float


class SnapshotInventory:
    controller = Controller(CONTROLLER, rke.RKE_CONTROL_PLANES)

    def __init__(self, manager: Manager, workloads: Workloads, access: Access, buckets: Open) -> None:
        self._manager = manager
        self._client = manager.client
        self._clock = manager.clock
        self._workloads = workloads
        self._views = MachineCaches(manager.informers)
        self._wanted = manager.informers.of(provisioning.CLUSTERS)
        self._beacons = manager.informers.of(plans.BEACONS)
        self._snapshots = manager.informers.of(rke.ETCD_SNAPSHOTS, transform=slim)
        self._snapshots.add_index(_BY_CLUSTER, lambda each: (Key(namespace_of(each), cluster_of(each)),))
        self._own: Lists[OwnList] = Lists(manager.clock, self._queue)
        clusters = ClusterBuckets(manager.client, References(manager.client, access))
        self._buckets = BucketInventory(manager.clock, clusters, buckets, self._queue)
        self._heard: dict[str, _Heard] = {}
        self.controller = replace(
            type(self).controller,
            watches=(
                Watch(SECRETS, self._of_plan, changed(host_output.changes), fields=PLAN_FIELDS, transform=without_managed_fields),
                Watch(capi.MACHINES, self._of_machine, changed("status.nodeRef.name", "metadata.deletionTimestamp")),
                Watch(rke.ETCD_SNAPSHOTS, self._of_snapshot, transform=slim),
                Watch(provisioning.CLUSTERS, when=changed("spec.rkeConfig.etcd.s3")),
                Watch(plans.BEACONS, when=changed(_holder)),
            ),
            when=changed("spec.kubernetesVersion", "status.etcdSnapshotCreatePhase", "status.clusterID"),
            concurrency=4,
            lane=lambda key: key,
        )
        manager.beside(self._own.run)
        manager.beside(self._buckets.run)
        workloads.on_change(self._queue)

    # --- mapping to control planes, which have the names of their clusters ---------------------------------------------------

    def _queue(self, key: Key) -> None:
        working = self._manager.working(CONTROLLER)
        if working is not None and self._views.control_planes.get(*key) is not None:
            working.queue.add(key)

    def _of_machine(self, found: Obj) -> Iterable[Key]:
        return (Key(namespace_of(found), str(dig(found, "spec", "clusterName") or "")),)

    def _of_plan(self, secret: Obj) -> Iterable[Key]:
        bootstraps = [self._views.bootstraps.get(*key) for key in self._views.bootstrap_of_plan(secret)]
        return [key for each in bootstraps if each is not None and _is_etcd(each) for key in self._of_machine(each)]

    def _of_snapshot(self, snapshot: Obj) -> Iterable[Key]:
        return (Key(namespace_of(snapshot), cluster_of(snapshot)),)

    # --- a pass -----------------------------------------------------------------------------------------------------------

    async def reconcile(self, key: Key) -> Result:
        who = (CONTROLLER, key)
        await self._views.synced()
        await synced(self._wanted, self._beacons, self._snapshots)
        await self._manager.freshness.caught_up(who)
        plane, wanted = self._views.control_planes.get(*key), self._wanted.get(*key)
        if plane is None or wanted is None or is_being_deleted(plane) or is_being_deleted(wanted):
            self._manager.freshness.forget(who)
            return DONE
        held = bool(_holder(self._beacons.get(*key) or {}))
        machines = self._machines(key)
        own = self._own_list(key, plane, machines, held)
        known_id = own.value.cluster_id if own is not None and own.value is not None else ""
        cluster_id = known_id or str(dig(plane, "status", "clusterID") or "")
        nodes = frozenset(filter(None, (_node(each) for each in machines.values())))
        snapshots = list(self._snapshots.indexed(_BY_CLUSTER, key))
        self._buckets.renew(key, max(map(deleted_at, snapshots), default=0.0))
        bucket, listed = await self._buckets.of(key, wanted, cluster_id, nodes)
        hosts = [self._host(name, machine) for name, machine in machines.items()]
        known = Known(key.namespace, key.name, uid_of(wanted), hosts, bucket, None if own is None else _own_place(own))
        found = changes(known, snapshots, self._clock.time())
        await self._write(who, found)
        await self._tell(who, plane, cluster_id, listed)
        if found.create:
            # What one of them shows first, the others have soon.
            self._own.renew(uid_of(plane))
            self._buckets.renew(key)
        if found.own_counts_at and not held:
            return self._ask_again(plane, found.own_counts_at, lambda: self._own_list(key, plane, machines, held))
        return Result(_BEACON if held else PERIOD)

    def _ask_again(self, plane: Obj, since: float, read: Callable[[], object]) -> Result:
        """Have the cluster's own list read that is from `since` or later."""
        wait = since - self._clock.time()
        if wait > 0:
            return Result(wait)
        self._own.renew(uid_of(plane), since)
        read()
        return Result(PERIOD)

    def _machines(self, key: Key) -> dict[str, Obj]:
        """The etcd machines, by name. Their bootstraps say what they are: a host's own claims don't count."""
        found = {}
        for machine in self._views.machines_of_cluster(key):
            bootstraps = [self._views.bootstraps.get(*each) for each in self._views.bootstrap_of_machine(machine)]
            if any(each is not None and _is_etcd(each) and self._views.machine_of(each) is machine for each in bootstraps):
                found[name_of(machine)] = machine
        return found

    def _own_list(self, key: Key, plane: Obj, machines: dict[str, Obj], held: bool) -> Listed[OwnList] | None:
        workload = self._workloads.get(key)
        by_node = {node: name for name, machine in machines.items() if (node := _node(machine))}
        runtime = of_version(str(dig(plane, "spec", "kubernetesVersion") or "")).name

        async def read(before: OwnList | None) -> OwnList:
            if workload is None:
                raise ConnectionError("the cluster can't be reached")
            return await own_list.read(workload.client, self._clock, runtime, by_node)

        # A cluster of the same name that was deleted is another one.
        return self._own.of(uid_of(plane), key, read, pause=held or workload is None)

    def _host(self, name: str, machine: Obj) -> Host:
        report = self._report(name, machine)
        uid, now = uid_of(machine), self._clock.time()
        heard = self._heard.get(uid)
        at = report.at if report is not None else 0.0
        if heard is None or (report is not None and heard.at != at):
            heard = self._heard[uid] = _Heard(at, now)
        return Host(name, uid, Place(heard.heard, report, f"machine {name} does not report its files"))

    def _report(self, name: str, machine: Obj) -> Report | None:
        text = host_output.printed(self._views, machine, INSTRUCTION)
        return of_host(name, _node(machine), text) if text else None

    # --- writing ----------------------------------------------------------------------------------------------------------

    async def _write(self, who: tuple[str, Key], found: Changes) -> None:
        for each in found.create:
            made = await make(self._client, rke.ETCD_SNAPSHOTS, each, CONTROLLER)
            if made is not None:
                await self._patch(
                    who, made, {"status": {name: value for name, value in each["status"].items() if value is not None}}
                )
        for update in found.update:
            if update.patch:
                await self._patch(who, update.before, update.patch)
            if update.status:
                await self._patch(who, update.before, {"status": update.status})
        for each in found.delete:
            await remove(self._client, rke.ETCD_SNAPSHOTS, each)
            self._manager.freshness.deleted(who, self._snapshots, each)
        for each in found.release:
            left = [name for name in finalizers_of(each) if name != SNAPSHOT_FILE]
            version = {"resourceVersion": resource_version_of(each)}
            await self._patch(who, each, {"metadata": {"finalizers": left or None, **version}})
        if found.create or found.delete:
            log.info("%d snapshots are new, %d are gone", len(found.create), len(found.delete))

    async def _patch(self, who: tuple[str, Key], snapshot: Obj, patch: Obj) -> None:
        """A patch of this object, not of another of the same name."""
        part = "status" if "status" in patch else ""
        bound = {**patch, "metadata": {**patch.get("metadata", {}), "uid": uid_of(snapshot)}}
        try:
            written = await self._client.patch(
                rke.ETCD_SNAPSHOTS, name_of(snapshot), bound, namespace_of(snapshot), subresource=part, field_manager=CONTROLLER
            )
        except ApiError as error:
            # It was deleted meanwhile; its event comes.
            if error.is_not_found or error.is_conflict:
                return
            raise
        self._manager.freshness.wrote(who, self._snapshots, written)

    async def _tell(self, who: tuple[str, Key], plane: Obj, cluster_id: str, listed: Listed[Any] | None) -> None:
        """The identity of the cluster, and whether its bucket can be listed, in the control plane's status."""
        after = plane
        if cluster_id and dig(plane, "status", "clusterID") != cluster_id:
            after = with_path(after, ("status", "clusterID"), cluster_id)
        if listed is not None and listed.tried:
            status = FALSE if listed.why else TRUE
            after = with_condition(after, CONDITION, status, "Error" if listed.why else "", listed.why, now=self._clock.time())
        elif listed is None and (condition_of(plane, CONDITION) or {}).get("status") == FALSE:
            after = with_condition(after, CONDITION, TRUE, now=self._clock.time())
        if after is plane:
            return
        written = await write_status(
            self._client, rke.RKE_CONTROL_PLANES, plane, after, subresource="status", field_manager=CONTROLLER
        )
        if written is not None:
            self._manager.freshness.wrote(who, self._views.control_planes, written)


def _own_place(own: Listed[OwnList]) -> Place:
    return Place(own.heard, own.value.report if own.value is not None else None, own.why)


def _node(machine: Obj) -> str:
    """The name of its node; before there is one, and for servers without a kubelet, the name that its host gave."""
    return str(dig(machine, "status", "nodeRef", "name") or labels_of(machine).get(NODE_NAME) or "")


def _is_etcd(bootstrap: Obj) -> bool:
    return labels_of(bootstrap).get(ETCD_ROLE) == "true"


def _holder(beacon: Obj) -> str:
    """Who writes the plans of the cluster now."""
    delegates = dig(beacon, "status", "delegates") or []
    return str(delegates[-1] if delegates else dig(beacon, "status", "owner") or "")
