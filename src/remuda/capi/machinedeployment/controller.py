"""The MachineDeployment controller: many machines of one kind, rolled out as their description changes.

It makes, scales and deletes MachineSets and sums up what they and their machines say. What should happen is decided elsewhere:
:mod:`.new_machineset` which set is the new one, :mod:`.rollout_plan`, :mod:`.ondelete` and :mod:`.scaling` how large each
should be, :mod:`.desired_machinesets` what is in it, :mod:`.status` what to say about it. :mod:`.rollout_execution` writes it
down.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from remuda.api.cluster_x_k8s_io import CLUSTERS, GROUP, MACHINE_DEPLOYMENTS, MACHINE_SETS
from remuda.kube.objects import Key, dig, is_being_deleted, labels_of, metadata, namespace_of, uid_of, with_metadata
from remuda.kube.owners import has_finalizer, reference, with_finalizer, with_owner, without_finalizer
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import DONE, Controller, Result, Watch, spec_change
from remuda.runtime.patching import Patch

from ..controller_context import Core, cluster_name_of
from ..paused import is_paused, with_paused
from ..phases import Phases
from ..well_known import CLUSTER_NAME, MACHINE_DEPLOYMENT_FINALIZER
from .machineset_view import spec_replicas
from .ownership import deployments_of, machines_of, own_machine_sets, selector_of
from .rollout_execution import Rollouts
from .scope import NAME, Scope
from .status import OWNED, heard_at, with_status
from .templates import own_templates, template_references
from .waiting import waits_of

Obj = dict[str, Any]


class MachineDeployments:
    # What it writes into its own status is no news to it.
    controller = Controller(NAME, MACHINE_DEPLOYMENTS, when=spec_change)

    def __init__(self, core: Core) -> None:
        self._core = core
        self._recorder = core.recorder("machinedeployment-controller")
        self._rollouts = Rollouts(core, self._recorder)
        namespace = core.options.namespace
        self.controller = replace(
            type(self).controller,
            lane=core.lane(core.machine_deployments),
            concurrency=core.options.concurrency,
            resync=core.options.sync_period,
            namespace=namespace,
            watches=(
                Watch(MACHINE_SETS, self._of_machine_set, namespace=namespace),
                Watch(CLUSTERS, core.of_cluster(core.machine_deployments), _cluster_matters, namespace=namespace),
            ),
        )
        core.externals.followed_by(NAME, core.machine_deployments, template_references, _template_matters)

    def _of_machine_set(self, machine_set: Obj) -> Iterable[Key]:
        return deployments_of(self._core, machine_set)

    async def reconcile(self, key: Key) -> Result:
        core = self._core
        await core.fresh(NAME, key)
        deployment = core.machine_deployments.get(*key)
        if deployment is None:
            core.manager.freshness.forget((NAME, key))
            return DONE
        if not core.wants(deployment):
            return DONE
        cluster = core.cluster_of(deployment)
        if cluster is None and not is_being_deleted(deployment):
            return Result(waits=(_waits_for_cluster(deployment),))
        patch = core.patch(NAME, core.machine_deployments, deployment, OWNED)
        deployment = await _finalized(patch, deployment, cluster)
        if is_paused(cluster, deployment):
            await patch.write(with_paused(deployment, cluster, core.now()))
            return Result(waits=(_waits_for(deployment, Code.PAUSED, "paused"),))
        return await self._reconcile(patch, Scope(with_paused(deployment, cluster, core.now()), cluster, core.now()))

    async def _reconcile(self, patch: Patch, scope: Scope) -> Result:
        scope.selector = selector_of(scope.deployment)
        self._read_machines(scope)
        phases = Phases()
        await phases.run(self._delete(scope) if is_being_deleted(scope.deployment) else self._roll_out(scope))
        await patch.write(with_status(scope.snapshot()), observed=not phases.failed)
        heard = heard_at(scope.machines, scope.now)
        after = None if heard is None else max(heard - scope.now, 0.0) + 1.0
        phases.add(Result(after=after, rest=_rest(scope)))
        return phases.outcome()

    def _read_machines(self, scope: Scope) -> None:
        if scope.selector is not None:
            scope.machines = machines_of(self._core, scope.deployment, scope.selector)

    async def _roll_out(self, scope: Scope) -> Result:
        scope.deployment = _in_cluster(scope.deployment, scope.cluster)
        await own_templates(self._core, scope)
        scope.machine_sets = await own_machine_sets(self._core, scope, self._recorder)
        # Again: of those that were coming, none may be missed between the two.
        self._read_machines(scope)
        scope.count_machines(self._core.coming)
        if self._knows_nodes(scope):
            scope.count_alive()
        found = await self._rollouts.roll(scope, paused=dig(scope.deployment, "spec", "paused") is True)
        after = None if found.revisit_at is None else max(found.revisit_at - scope.now, 0.0)
        return Result(after, waits_of(scope))

    def _knows_nodes(self, scope: Scope) -> bool:
        """Machines of a cluster that can't be reached may have become nodes all the same."""
        if dig(scope.cluster, "status", "initialization", "controlPlaneInitialized") is not True:
            return True
        return self._core.workloads.get(Key(namespace_of(scope.deployment), cluster_name_of(scope.deployment))) is not None

    async def _delete(self, scope: Scope) -> Result:
        scope.machine_sets = await own_machine_sets(self._core, scope, self._recorder)
        if not scope.machine_sets:
            scope.deployment = without_finalizer(scope.deployment, MACHINE_DEPLOYMENT_FINALIZER)
            return DONE
        for each in scope.machine_sets:
            if not is_being_deleted(each):
                await self._rollouts.delete(scope, each, tell=False)
        gone = (scope.waits_for(Code.DELETION, Actor.REMUDA, "must be gone first", scope.of(each)) for each in scope.machine_sets)
        return Result(waits=tuple(gone))


def _rest(scope: Scope) -> float:
    """Adding up a thousand machines takes its time, and each of them is news. When one set has them all, and as many as are
    wanted, there are only sums left to write, for which nobody waits."""
    wanted = spec_replicas(scope.deployment)
    sets = [each for each in scope.machine_sets or () if spec_replicas(each) or scope.there[uid_of(each)]]
    rolled = len(sets) == 1 and spec_replicas(sets[0]) == wanted == len(scope.machines)
    return min(1.0, (0.5 if rolled and not is_being_deleted(scope.deployment) else 0.05) + 0.001 * len(scope.machines))


async def _finalized(patch: Patch, deployment: Obj, cluster: Obj | None) -> Obj:
    """With its finalizer, before anything is made that must be taken down with it."""
    if has_finalizer(deployment, MACHINE_DEPLOYMENT_FINALIZER) or is_being_deleted(deployment):
        return deployment
    wanted = with_finalizer(deployment, MACHINE_DEPLOYMENT_FINALIZER)
    return await patch.write(wanted if is_paused(cluster, deployment) else _in_cluster(wanted, cluster))


def _in_cluster(deployment: Obj, cluster: Obj | None) -> Obj:
    """Labelled with its cluster, and owned by it."""
    labels = labels_of(deployment)
    name = cluster_name_of(deployment)
    if labels.get(CLUSTER_NAME) != name:
        deployment = with_metadata(deployment, labels={**labels, CLUSTER_NAME: name})
    return deployment if cluster is None else with_owner(deployment, reference(cluster))


def _waits_for(deployment: Obj, code: Code, evidence: str, on: Ref | None = None) -> Wait:
    return Wait(code, Ref(GROUP, "MachineDeployment", *Key.of(deployment)), Actor.USER, on, evidence)


def _waits_for_cluster(deployment: Obj) -> Wait:
    on = Ref(GROUP, "Cluster", namespace_of(deployment), cluster_name_of(deployment))
    return _waits_for(deployment, Code.REFERENCE, "the cluster is not there", on)


def _cluster_matters(new: Obj | None, old: Obj | None) -> bool:
    """It came, it went, or it was paused or unpaused."""
    return new is None or old is None or dig(new, "spec", "paused") != dig(old, "spec", "paused")


def _template_matters(new: Obj | None, old: Obj | None) -> bool:
    """It came, it went, or its owners changed. What is in it concerns only machines that are made later."""
    if new is None or old is None:
        return True
    return metadata(new).get("ownerReferences") != metadata(old).get("ownerReferences")
