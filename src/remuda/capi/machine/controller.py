"""The Machine controller: each Machine from its references to its Node, and its deletion.

Phases in order: ownership, bootstrap (:mod:`.provider_phases`), infrastructure, node (:mod:`.noderef`), certificates; then,
when it is going, :mod:`.deletion`. The status (:mod:`.status`) is always written at the end, in one patch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from remuda.api.cluster_x_k8s_io import CLUSTERS, GROUP, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES
from remuda.kube.conditions import is_true
from remuda.kube.errors import ApiError
from remuda.kube.objects import (
    Key,
    dig,
    finalizers_of,
    is_being_deleted,
    labels_of,
    name_of,
    namespace_of,
    owner_references_of,
    uid_of,
)
from remuda.kube.owners import with_finalizer
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import DONE, Controller, Result, Retry, Watch, changed

from ..controller_context import BY_DEPLOYMENT, BY_NODE, BY_OWNER, BY_PROVIDER_ID, Core, cluster_key_of, owner_is
from ..phases import is_paused, pause_wait, with_paused
from ..well_known import DEPLOYMENT_NAME, MACHINE_FINALIZER, REVISION
from .deletion import reconcile_delete
from .noderef import Nodes, NotConnected
from .provider_contract import adopted
from .provider_phases import reconcile_bootstrap, reconcile_certificates, reconcile_infrastructure
from .scope import CONTROLLER, MachineScope
from .status import MachineSnapshot, computed

Obj = dict[str, Any]

# Only this controller writes these conditions of a Machine, of either set. UpToDate is ours only where a deployment made the
# Machine: a control plane sets it on its own machines.
OWNED = frozenset(
    {
        "Available",
        "Ready",
        "BootstrapConfigReady",
        "BootstrapReady",
        "InfrastructureReady",
        "NodeReady",
        "NodeHealthy",
        "Deleting",
        "Updating",
        "Paused",
        "DrainingSucceeded",
        "PreDrainDeleteHookSucceeded",
        "PreTerminateDeleteHookSucceeded",
        "VolumeDetachSucceeded",
    }
)


class Machines:
    controller = Controller(CONTROLLER, MACHINES)

    def __init__(self, core: Core) -> None:
        self._core = core
        self._nodes = Nodes(core)
        namespace = core.options.namespace
        self.controller = replace(
            type(self).controller,
            watches=(
                Watch(CLUSTERS, core.of_cluster(core.machines), _cluster_change, namespace),
                Watch(MACHINE_SETS, self._of_machine_set, _template_change, namespace),
                Watch(MACHINE_DEPLOYMENTS, self._of_machine_deployment, _template_change, namespace),
            ),
            lane=core.lane(core.machines),
            concurrency=core.options.concurrency,
            resync=core.options.sync_period,
            namespace=namespace,
        )
        core.externals.followed_by(CONTROLLER, core.machines, _references)
        core.workloads.follow_nodes(CONTROLLER, self._of_node)
        core.woken_by_connections(CONTROLLER, core.machines)

    # --- what concerns which Machines -------------------------------------------------------------------------------------

    def _of_machine_set(self, machine_set: Obj) -> Iterable[Key]:
        return [Key.of(machine) for machine in self._core.machines.indexed(BY_OWNER, uid_of(machine_set))]

    def _of_machine_deployment(self, machine_deployment: Obj) -> Iterable[Key]:
        return [Key.of(machine) for machine in self._core.machines.indexed(BY_DEPLOYMENT, Key.of(machine_deployment))]

    def _of_node(self, cluster: Key, node: Obj) -> Iterable[Key]:
        machines = self._core.machines
        found = machines.indexed(BY_NODE, (*cluster, name_of(node)))
        if provider_id := dig(node, "spec", "providerID"):
            found = [*found, *machines.indexed(BY_PROVIDER_ID, (*cluster, provider_id))]
        # In order, since a set's order differs in every process.
        return dict.fromkeys(Key.of(machine) for machine in found)

    # --- one Machine ------------------------------------------------------------------------------------------------------

    async def reconcile(self, key: Key) -> Result:
        core = self._core
        await core.fresh(CONTROLLER, key)
        machine = core.machines.get(*key)
        if machine is None:
            self._nodes.forget(key)
            core.manager.freshness.forget((CONTROLLER, key))
            return DONE
        if not core.wants(machine):
            return DONE
        cluster = core.cluster_of(machine)
        if cluster is None and not await self._goes_without_cluster(machine):
            cluster_ref = Ref(GROUP, "Cluster", *cluster_key_of(machine))
            return Result(waits=(Wait(Code.REFERENCE, _ref(machine), Actor.USER, cluster_ref, "it does not exist"),))
        now = core.now()
        machine_set = self._machine_set_of(machine)
        machine_deployment = self._machine_deployment_of(machine_set)
        owned = OWNED if machine_deployment is None else OWNED | {"UpToDate"}
        patch = core.patch(CONTROLLER, core.machines, machine, owned)
        paused = is_paused(cluster, machine)
        with_ours = with_finalizer(machine, MACHINE_FINALIZER)
        if with_ours is not machine:
            # Before any work that a deletion would have to undo.
            machine = await patch.write(with_ours if paused else adopted(with_ours, cluster))
        machine = with_paused(machine, cluster, now)
        if paused:
            await patch.write(machine)
            return Result(waits=(pause_wait(_ref(machine), machine, cluster),))
        scope = MachineScope(
            machine=adopted(machine, cluster),
            cluster=cluster,
            patch=patch,
            now=now,
            machine_set=machine_set,
            machine_deployment=machine_deployment,
            workload=core.workloads.get(cluster_key_of(machine)),
        )
        return await self._in_phases(scope)

    async def _in_phases(self, scope: MachineScope) -> Result:
        core, phases = self._core, scope.phases
        await phases.run(reconcile_bootstrap(core, scope))
        await phases.run(reconcile_infrastructure(core, scope))
        await phases.run(self._nodes.reconcile(scope))
        await phases.run(reconcile_certificates(scope))
        if scope.deleting:
            await phases.run(reconcile_delete(core, scope))
        await phases.run(self._write(scope))
        return phases.outcome()

    async def _write(self, scope: MachineScope) -> Result:
        machine, after = computed(self._snapshot(scope))
        last = is_being_deleted(machine) and not finalizers_of(machine)
        if last:
            # The Machine goes with its last finalizer: there will be no status to write afterwards.
            machine = {**machine, "status": scope.patch.before.get("status") or {}}
        try:
            await scope.patch.write(machine, observed=not scope.phases.failed and not last)
        except ApiError as error:
            # It is gone, and the cache has not seen that yet.
            if not error.is_not_found or not is_being_deleted(machine):
                raise
            return DONE
        return DONE if last else Result(after=after)

    def _snapshot(self, scope: MachineScope) -> MachineSnapshot:
        disconnected = isinstance(scope.node_error, NotConnected)
        return MachineSnapshot(
            machine=scope.machine,
            cluster=scope.cluster,
            now=scope.now,
            machine_set=scope.machine_set,
            machine_deployment=scope.machine_deployment,
            infra=scope.infra.obj if scope.infra is not None else None,
            infra_missing=scope.infra_missing,
            bootstrap=scope.bootstrap.obj if scope.bootstrap is not None else None,
            bootstrap_missing=scope.bootstrap_missing,
            node=scope.node,
            disconnected=disconnected,
            node_unreadable=scope.node_error is not None and not disconnected,
            health=self._core.workloads.health(scope.cluster_key),
            grace=self._core.options.remote_conditions_grace,
            deleting_reason=scope.deleting_reason,
            deleting_message=scope.deleting_message,
        )

    async def _goes_without_cluster(self, machine: Obj) -> bool:
        """A Machine whose Cluster is really gone can still be deleted, but not reconciled otherwise."""
        if not is_being_deleted(machine):
            return False
        key = cluster_key_of(machine)
        try:
            await self._core.client.get(CLUSTERS, key.name, key.namespace)
        except ApiError as error:
            if error.is_not_found:
                return True
            raise
        raise Retry(f"the cache has not seen Cluster {key} yet")

    def _machine_set_of(self, machine: Obj) -> Obj | None:
        for owner in owner_references_of(machine):
            if owner_is(owner, "MachineSet"):
                return self._core.machine_sets.get(namespace_of(machine), owner.get("name") or "")
        return None

    def _machine_deployment_of(self, machine_set: Obj | None) -> Obj | None:
        name = labels_of(machine_set).get(DEPLOYMENT_NAME) if machine_set is not None else None
        if machine_set is None or not name:
            return None
        return self._core.machine_deployments.get(namespace_of(machine_set), name)


def _ref(machine: Obj) -> Ref:
    return Ref(GROUP, "Machine", *Key.of(machine))


def _references(machine: Obj) -> Iterable[Obj]:
    refs = (dig(machine, "spec", "bootstrap", "configRef"), dig(machine, "spec", "infrastructureRef"))
    return [ref for ref in refs if isinstance(ref, dict) and ref]


# True if a change matters to Machines: they use few fields of their Cluster, and there are many of them.
_cluster_change = changed(
    lambda obj: is_true(obj, "ControlPlaneInitialized"),
    "status.initialization.infrastructureProvisioned",
    "spec.paused",
    "spec.controlPlaneRef",
    "metadata.deletionTimestamp",
    uid_of,
)


# For a set or a deployment: true if its machine template changed, not its number of machines.
_template_change = changed(
    "spec.template", "spec.rollout.after", ("metadata", "annotations", REVISION), ("metadata", "labels", DEPLOYMENT_NAME)
)
