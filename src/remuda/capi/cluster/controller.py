"""The Cluster controller.

Phases in order: infrastructure, control plane (:mod:`.provider_phases`), then the kubeconfig (:mod:`.kubeconfig`) or, when the
Cluster is being deleted, :mod:`.deletion`. The status (:mod:`.status`) is always written at the end.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import Any

from remuda.api.cluster_x_k8s_io import CLUSTERS, GROUP, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.clock import Clock, Entropy
from remuda.kube.conditions import get
from remuda.kube.objects import Key, dig, labels_of, metadata, name_of, namespace_of
from remuda.kube.owners import controller_of, with_finalizer
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import DONE, NORMAL, Controller, Result, Watch, changed, created_or_deleted

from ..controller_context import Core, cluster_key_of, cluster_name_of
from ..phases import Phases, is_paused, with_paused
from ..well_known import CLUSTER_FINALIZER, CLUSTER_NAME, ca_secret, kubeconfig_secret
from ..workload_clusters import cluster_secrets, only_kubeconfigs
from . import deletion, provider_phases
from .kubeconfig import kubeconfig
from .scope import COMPONENT, CONTROLLER, Descendants, Scope, referred
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
        self._pace = Pace(core.clock, _LOOKS_PER_SECOND)
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
            return Result(waits=(Wait(Code.PAUSED, Ref(GROUP, "Cluster", *key), Actor.USER),))
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

    def _rest(self, scope: Scope) -> float:
        """Once all is handed over, only sums are left to write; they are not urgent, and many machines make them expensive."""
        least = 0.1 + 0.001 * len(scope.descendants.machines)
        planned = not scope.control_plane.ref or scope.initialized(provider_phases.INITIALIZED)
        if scope.deleting or not planned or not scope.initialized(provider_phases.PROVISIONED):
            return self._pace.rest(scope.key, min(1.0, least), 1.0)
        return self._pace.rest(scope.key, 1.0, 10.0)

    def _scope(self, cluster: Obj, now: float) -> Scope:
        core, key = self._core, Key.of(cluster)
        return Scope(
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

    async def _phases(self, scope: Scope) -> Phases:
        core, phases = self._core, Phases()
        await phases.run(provider_phases.infrastructure(core, scope))
        await phases.run(provider_phases.control_plane(core, scope))
        if scope.deleting:
            await phases.run(deletion.delete(core, scope))
            return phases
        await phases.run(kubeconfig(core, scope, self._secrets, self._entropy))
        scope.cluster = control_plane_of_machines(scope)
        return phases

    def _tell(self, scope: Scope, written: Obj, *, phase_changed: bool) -> None:
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


class Pace:
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
