"""The Cluster controller.

Phases in order: infrastructure, control plane (:mod:`.provider_phases`), then the kubeconfig (:mod:`.kubeconfig`). The status
(:mod:`.status`) is always written at the end.

Deletion has an order, too: workers, then the control plane, then the infrastructure, then the Cluster itself. :func:`next_step`
decides, :func:`delete` does it. Each step waits until the objects that it deleted are gone; the Deleting condition names them.
Nothing is deleted that an earlier step may still need.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from remuda.api.cluster_x_k8s_io import CLUSTERS, GROUP, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.clock import Clock, Entropy, time_of
from remuda.kube.conditions import FALSE, INFO, get, with_legacy
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, dig, finalizers_of, is_being_deleted, labels_of, metadata, name_of, namespace_of, uid_of
from remuda.kube.owners import controller_of, with_finalizer, without_finalizer
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import DONE, NORMAL, Controller, Informer, Result, Watch, changed, created_or_deleted, logger

from ..controller_context import Core, cluster_key_of, cluster_name_of
from ..phases import Phases, is_paused, pause_wait, with_paused
from ..well_known import CLUSTER_FINALIZER, CLUSTER_NAME, ca_secret, kubeconfig_secret
from ..workload_clusters import cluster_secrets, only_kubeconfigs
from . import provider_phases
from .kubeconfig import kubeconfig
from .scope import COMPONENT, CONTROLLER, UNREADABLE, ClusterScope, Descendants, Referred, referred
from .status import OWNED, control_plane_of_machines, with_status

Obj = dict[str, Any]

_REFERENCES = ("infrastructureRef", "controlPlaneRef")
# For all Clusters together, as long as that keeps each one's pause short enough.
_LOOKS_PER_SECOND = 20.0
# The parts of Machines that a Cluster's sums use; other changes of a Machine don't show.
_MACHINE_CONDITIONS = ("Ready", "Available", "UpToDate", "HealthCheckSucceeded", "OwnerRemediated")


class Clusters:
    controller = Controller(CONTROLLER, CLUSTERS)

    def __init__(self, core: Core, entropy: Entropy | None = None) -> None:
        self._core = core
        self._entropy = entropy or Entropy()
        self._events = core.recorder(COMPONENT)
        self._pace = PollRate(core.clock, _LOOKS_PER_SECOND)
        namespace = core.options.namespace
        self._secrets = cluster_secrets(core.manager.informers, namespace)
        self.controller = replace(
            type(self).controller,
            watches=(
                Watch(MACHINES, _cluster, changed(_shown), namespace),
                Watch(MACHINE_DEPLOYMENTS, _cluster, namespace=namespace),
                Watch(MACHINE_SETS, _cluster, _set_change, namespace),
                Watch(SECRETS, _cluster_of_secret, created_or_deleted, namespace, CLUSTER_NAME, transform=only_kubeconfigs),
            ),
            namespace=namespace,
            lane=lambda key: key,
            concurrency=core.options.concurrency,
            resync=core.options.sync_period,
        )
        core.externals.followed_by(CONTROLLER, core.clusters, _references)
        core.workloads.on_change(self._wake)

    def _wake(self, key: Key) -> None:
        working = self._core.manager.working(CONTROLLER)
        if working is not None and self._core.clusters.get(*key) is not None:
            working.queue.add(key)

    async def reconcile(self, key: Key) -> Result:
        core = self._core
        await core.fresh(CONTROLLER, key)
        cluster = core.clusters.get(*key)
        if cluster is None:
            core.manager.freshness.forget((CONTROLLER, key))
            return DONE
        if not core.wants(cluster):
            return DONE
        patch = core.patch(CONTROLLER, core.clusters, cluster, OWNED)
        finalized = with_finalizer(cluster, CLUSTER_FINALIZER)
        if finalized is not cluster:
            # Before anything else: all that is done for the Cluster must be undone before it goes.
            cluster = await patch.write(finalized)
        now = core.now()
        cluster = with_paused(cluster, cluster, now)
        if is_paused(cluster, cluster):
            await patch.write(cluster)
            return Result(waits=(pause_wait(Ref(GROUP, "Cluster", *key), cluster, cluster),))
        if _topology_to_come(cluster):
            await patch.write(cluster)
            return DONE
        scope = self._scope(cluster, now)
        phases = await self._phases(scope)
        outcome = with_status(scope)
        written = await patch.write(outcome.cluster, observed=not phases.failed)
        self._tell(scope, written, phase_changed=outcome.phase_changed)
        if outcome.revisit is not None:
            phases.add(Result(outcome.revisit))
        phases.add(Result(rest=self._rest(scope)))
        return phases.outcome()

    def _rest(self, scope: ClusterScope) -> float:
        """Once all is handed over, only sums are left to write; they are not urgent, and many machines make them expensive."""
        least = 0.1 + 0.001 * len(scope.descendants.machines)
        planned = not scope.control_plane.ref or scope.initialized(provider_phases.INITIALIZED)
        if scope.deleting or not planned or not scope.initialized(provider_phases.PROVISIONED):
            return self._pace.rest(scope.key, min(1.0, least), 1.0)
        return self._pace.rest(scope.key, 1.0, 10.0)

    def _scope(self, cluster: Obj, now: float) -> ClusterScope:
        core, key = self._core, Key.of(cluster)
        return ClusterScope(
            cluster,
            now,
            referred(cluster, "infrastructureRef"),
            referred(cluster, "controlPlaneRef"),
            Descendants(
                cluster,
                core.in_cluster(core.machine_deployments, key),
                core.in_cluster(core.machine_sets, key),
                core.in_cluster(core.machines, key),
            ),
            core.workloads.health(key),
            core.options.remote_connection_grace,
        )

    async def _phases(self, scope: ClusterScope) -> Phases:
        core, phases = self._core, Phases()
        await phases.run(provider_phases.infrastructure(core, scope))
        await phases.run(provider_phases.control_plane(core, scope))
        if scope.deleting:
            await phases.run(delete(core, scope))
            return phases
        await phases.run(kubeconfig(core, scope, self._secrets, self._entropy))
        scope.cluster = control_plane_of_machines(scope)
        return phases

    def _tell(self, scope: ClusterScope, written: Obj, *, phase_changed: bool) -> None:
        name, phase = scope.key.name, dig(written, "status", "phase") or ""
        if phase_changed:
            scope.events.append((phase, f"Cluster {name} is {phase}"))
        for reason, message in scope.events:
            self._events.event(written, NORMAL, reason, message)


def _topology_to_come(cluster: Obj) -> bool:
    """True if the topology controller has still to fill in the references."""
    return bool(dig(cluster, "spec", "topology")) and not all(dig(cluster, "spec", field) for field in _REFERENCES)


def _references(cluster: Obj) -> list[Obj]:
    return [found for field in _REFERENCES if (found := dig(cluster, "spec", field))]


def _cluster(obj: Obj) -> Iterable[Key]:
    return (cluster_key_of(obj),) if cluster_name_of(obj) else ()


def _shown(machine: Obj) -> tuple[Any, ...]:
    meta = metadata(machine)
    conditions = [get(machine, kind) for kind in _MACHINE_CONDITIONS]
    said = [(each.get("status"), each.get("message")) if each else None for each in conditions]
    node = dig(machine, "status", "nodeRef", "name"), dig(machine, "status", "nodeInfo", "kubeletVersion")
    return said, node, dig(machine, "spec", "version"), labels_of(machine), meta.get("ownerReferences")


def _set_change(new: Obj | None, old: Obj | None) -> bool:
    """A MachineSet that a MachineDeployment controls matters only when it appears or goes."""
    if new is None or old is None:
        return True
    return controller_of(new) is None


def _cluster_of_secret(secret: Obj) -> Iterable[Key]:
    name = name_of(secret)
    for suffix in (kubeconfig_secret(""), ca_secret("")):
        if name.endswith(suffix):
            return (Key(namespace_of(secret), name.removesuffix(suffix)),)
    return ()


# --- status pacing --------------------------------------------------------------------------------------------------------
#
# Pacing of controllers that only add up what others did, so that all of them together take no more than their share.
#
# With a few at work each is looked at soon. With a thousand of them at once (after a start, or when many clusters are made)
# every change of every machine changes some sums, and writing all of these would cost more than the machines themselves.
# The more there are, the longer each rests, and the more changes it finds at its next look.


class PollRate:
    """`rate`: the looks per second that are acceptable, for all keys together."""

    def __init__(self, clock: Clock, rate: float, window: float = 10.0) -> None:
        self._clock = clock
        self._rate = rate
        self._window = window
        # The keys looked at within the window, the oldest look first.
        self._seen: OrderedDict[Hashable, float] = OrderedDict()

    def rest(self, key: Hashable, least: float, most: float) -> float:
        """The seconds to leave alone a key that has just been looked at."""
        now = self._clock.monotonic()
        self._seen[key] = now
        self._seen.move_to_end(key)
        while now - next(iter(self._seen.values())) > self._window:
            self._seen.popitem(last=False)
        return max(least, min(most, len(self._seen) / self._rate))


log = logger(__name__)


RECHECK_SECONDS = 5.0
# An object that has been going for longer than this is stuck, and users should see on what.
_STUCK_SECONDS = 900.0
_WAITS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class DeletionStep:
    """The objects to delete now, and the message meanwhile. `done`: nothing is left but the Cluster."""

    reason: str
    message: str
    children: tuple[Obj, ...] = ()
    external: Referred | None = None
    waits: tuple[Wait, ...] = ()
    after: float | None = None
    gone: tuple[str, ...] = ()  # the older conditions of what is known to be gone
    done: bool = False


def next_step(scope: ClusterScope) -> DeletionStep:
    pending = scope.descendants.pending
    if pending:
        children = tuple(child for child in scope.descendants.children if not is_being_deleted(child))
        waits = tuple(
            Wait(Code.DELETION, scope.ref, Actor.REMUDA, Ref(GROUP, each.get("kind") or "", *Key.of(each)))
            for each in pending[:_WAITS_SHOWN]
        )
        lines = "\n".join(scope.descendants.pending_lines)
        return DeletionStep("WaitingForWorkersDeletion", lines, children, waits=waits, after=RECHECK_SECONDS)
    gone: list[str] = []
    for one, reason, legacy in (
        (scope.control_plane, "WaitingForControlPlaneDeletion", "ControlPlaneReady"),
        (scope.infra, "WaitingForInfrastructureDeletion", "InfrastructureReady"),
    ):
        if not one.ref:
            continue
        if one.obj is not None:
            return _waiting_for(scope, one, reason, tuple(gone))
        if not one.missing:
            return _unreadable(scope, one, tuple(gone))
        gone.append(legacy)
    return DeletionStep("DeletionCompleted", "Deletion completed", gone=tuple(gone), done=True)


def _waiting_for(scope: ClusterScope, referred: Referred, reason: str, gone: tuple[str, ...]) -> DeletionStep:
    obj = referred.obj or {}
    message = f"Waiting for {referred.kind} to be deleted"
    evidence = ""
    if is_being_deleted(obj):
        evidence = f"finalizers {', '.join(finalizers_of(obj))}"
        since = metadata(obj)["deletionTimestamp"]
        if scope.now - (time_of(since) or scope.now) > _STUCK_SECONDS:
            message += f" ({name_of(obj)} has been deleting since {since}, held by {evidence})"
    wait = Wait(Code.DELETION, scope.ref, Actor.PROVIDER, referred.named(scope.key.namespace), evidence)
    external = None if is_being_deleted(obj) else referred
    return DeletionStep(reason, message, external=external, waits=(wait,), gone=gone)


def _unreadable(scope: ClusterScope, referred: Referred, gone: tuple[str, ...]) -> DeletionStep:
    wait = Wait(Code.REFERENCE, scope.ref, Actor.USER, referred.named(scope.key.namespace), referred.trouble)
    name = referred.ref.get("name") or ""
    message = f"{UNREADABLE}: can't tell whether {referred.kind} {name} still exists"
    if referred.trouble:
        message += f": {referred.trouble}"
    return DeletionStep("InternalError", message, waits=(wait,), gone=gone)


# --- doing it -----------------------------------------------------------------------------------------------------------------


async def delete(core: Core, scope: ClusterScope) -> Result:
    step = next_step(scope)
    scope.deleting_reason, scope.deleting_message = step.reason, step.message
    for condition in step.gone:
        scope.cluster = with_legacy(scope.cluster, condition, FALSE, "Deleted", "", INFO, now=scope.now)
    try:
        await _delete_children(core, scope, step.children)
        if step.external is not None and step.external.found is not None:
            found = step.external.found
            await _delete_one(core, scope, found.informer, found.obj)
    except ApiError as error:
        scope.deleting_reason, scope.deleting_message = "InternalError", f"{UNREADABLE}: {error.message}"
        raise
    if step.done:
        scope.cluster = without_finalizer(scope.cluster, CLUSTER_FINALIZER)
        scope.events.append(("Deleted", f"Cluster {scope.key.name} has been deleted"))
    return Result(step.after, step.waits)


async def _delete_children(core: Core, scope: ClusterScope, children: tuple[Obj, ...]) -> None:
    informers = {
        "MachineDeployment": core.machine_deployments,
        "MachineSet": core.machine_sets,
        "Machine": core.machines,
    }
    failures = []
    for child in children:
        log.info("deleting %s %s", child.get("kind"), name_of(child))
        try:
            await _delete_one(core, scope, informers[child["kind"]], child)
        except ApiError as error:
            failures.append(error)
    if failures:
        raise failures[0]


async def _delete_one(core: Core, scope: ClusterScope, informer: Informer, obj: Obj) -> None:
    try:
        await core.client.delete(informer.resource, name_of(obj), scope.key.namespace, uid=uid_of(obj))
    except ApiError as error:
        # It is gone, or another object has its name by now, which the next look finds.
        if not error.is_not_found and not error.is_conflict:
            raise
        return
    core.deleted(CONTROLLER, scope.key, informer, obj)
