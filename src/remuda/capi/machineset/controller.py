"""The MachineSet controller: keeps the wanted number of machines, each made from the templates, and updates them in place as far
as the set's template allows without a new machine.

One reconcile: adopt machines, replace unhealthy ones, carry the template's labels and the like to the others, create or delete
machines, write the status. Deployments make the sets; the machine controller takes over once a Machine exists.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import replace
from typing import Any

from remuda.api.cluster_x_k8s_io import CLUSTERS, GROUP, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES
from remuda.client.server_side_apply import was_lost
from remuda.kube.conditions import LEGACY, get
from remuda.kube.errors import ApiError, go_quote
from remuda.kube.objects import (
    Key,
    annotations_of,
    dig,
    is_being_deleted,
    labels_of,
    name_of,
    namespace_of,
    owner_references_of,
    resource_version_of,
    uid_of,
)
from remuda.kube.owners import controller_of, with_finalizer, with_owner, without_finalizer
from remuda.kube.selectors import LabelSelector, SelectorError, checked_structure
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import DONE, NORMAL, WARNING, Controller, Recorder, Result, Retry, Watch, changed, logger, owner, spec_change

from ..change_budget import Act
from ..controller_context import BY_CLUSTER, BY_CONTROLLER, BY_DEPLOYMENT, Core, cluster_key_of
from ..machine_budgets import MachineBudgets
from ..phases import Phases, Stuck, is_paused, pause_wait, with_paused
from ..well_known import DEPLOYMENT_NAME, DESIRED_REPLICAS, DISABLE_MACHINE_CREATE, MACHINE_SET_FINALIZER
from .clones import Clones, Templates
from .creation import Creation
from .desired_machines import machine_labels, owner_reference, settled
from .in_place_propagation import Propagation
from .machine_deletion import REFUSED_AGAIN, DeletionRefused, UnknownOrder, check_budget, first_to_go, remove_machine
from .preflight import PreflightChecks
from .remediation import Remediation, is_current
from .scope import NAME, CreationFailure, MachineSetScope, for_each, is_deployment_child
from .status import OWNED, MachineSetSnapshot, seconds_until_change, with_legacy_status, with_status

Obj = dict[str, Any]
log = logger(__name__)

# The conditions of a machine that a set uses; other parts of its status may change without it.
_CONDITIONS = ("Ready", "Available", "UpToDate", "NodeHealthy", "HealthCheckSucceeded", "OwnerRemediated", "Deleting")
_LEGACY_CONDITIONS = ("Ready", "HealthCheckSucceeded", "OwnerRemediated")
# Summing up a thousand machines takes so long that it is not done for every one of their changes.
_REST_PER_MACHINE, _REST_WHEN_WHOLE, _LONGEST_REST = 0.001, 0.3, 1.0


class MachineSets:
    # Its status is this controller's own, and no reason to reconcile a set again.
    controller = Controller(NAME, MACHINE_SETS, when=spec_change)

    def __init__(self, core: Core) -> None:
        self._core = core
        self._events = core.recorder("machineset-controller")
        self._claiming = Claiming(core, self._events)
        self._templates = Templates(core)
        self._gate = PreflightChecks(core)
        self._budgets = MachineBudgets.of(core)
        self._remediation = Remediation(core, self._gate, self._budgets)
        self._propagation = Propagation(core)
        self._clones = Clones(core)
        self._creation = Creation(core, self._clones, self._propagation, self._events)
        namespace = core.options.namespace
        self.controller = replace(
            type(self).controller,
            watches=(
                Watch(MACHINES, owner("MachineSet", GROUP, controller=True), _machine_change, namespace),
                Watch(MACHINES, self._claiming.sets_for, spec_change, namespace),
                Watch(MACHINE_DEPLOYMENTS, self._of_deployment, spec_change, namespace),
                Watch(CLUSTERS, core.of_cluster(core.machine_sets), changed("spec.paused", "spec.controlPlaneRef"), namespace),
            ),
            namespace=namespace,
            lane=core.lane(core.machine_sets),
            concurrency=core.options.concurrency,
            resync=core.options.sync_period,
        )
        core.externals.followed_by(NAME, core.machine_sets, _references, _template_change)
        core.woken_by_connections(NAME, core.machine_sets)

    # --- who is concerned -----------------------------------------------------------------------------------------------

    def _of_deployment(self, deployment: Obj) -> Iterable[Key]:
        return [Key.of(each) for each in self._core.machine_sets.indexed(BY_DEPLOYMENT, Key.of(deployment))]

    # --- one reconcile --------------------------------------------------------------------------------------------------

    async def reconcile(self, key: Key) -> Result:
        await self._core.fresh(NAME, key)
        machine_set = self._core.machine_sets.get(*key)
        if machine_set is None:
            self._core.manager.freshness.forget((NAME, key))
            return DONE
        if not self._core.wants(machine_set):
            return DONE
        cluster = self._core.cluster_of(machine_set)
        if cluster is None and not is_being_deleted(machine_set):
            return Result(waits=(_no_cluster(machine_set),))
        return await self._reconcile(machine_set, cluster)

    async def _reconcile(self, machine_set: Obj, cluster: Obj | None) -> Result:
        patch = self._core.patch(NAME, self._core.machine_sets, machine_set, OWNED)
        paused, now = is_paused(cluster, machine_set), self._core.now()
        wanted = with_finalizer(machine_set, MACHINE_SET_FINALIZER)
        if not paused:
            wanted = settled(wanted, cluster)
        if wanted is not machine_set:
            machine_set = await patch.write(wanted)
        machine_set = with_paused(machine_set, cluster, now)
        scope = MachineSetScope(machine_set, cluster, now)
        if paused:
            await patch.write(machine_set)
            return Result(waits=(pause_wait(scope.ref(), machine_set, cluster),))
        phases = Phases()
        selector = await self._run(scope, phases)
        if scope.deleting and scope.machines is not None and not scope.machines:
            # All is done: the last write removes the set, and with it its status.
            await patch.write(without_finalizer(patch.before, MACHINE_SET_FINALIZER))
            return phases.outcome()
        snapshot = self._snapshot(scope, selector)
        status = with_status(snapshot)
        await patch.write(with_legacy_status(status, snapshot), observed=not phases.failed)
        phases.add(Result(after=seconds_until_change(status, snapshot), rest=_rest(scope)))
        return phases.outcome()

    async def _run(self, scope: MachineSetScope, phases: Phases) -> LabelSelector | None:
        """Runs all phases, as far as the results of earlier ones allow."""
        try:
            selector = selector_of(scope.machine_set)
        except SelectorError as error:
            scope.why = f"failed to convert MachineSet {go_quote(name_of(scope.machine_set))} label selector: {error}"
            await phases.run(_stuck(Wait(Code.MALFORMED, scope.ref(), Actor.USER, evidence=scope.why)))
            return None
        if not await phases.run(self._find_deployment(scope)):
            return selector
        await phases.run(self._templates.own_infrastructure(scope))
        await phases.run(self._templates.own_bootstrap(scope))
        if not await phases.run(self._claiming.run(scope, selector)):
            return selector
        if scope.deleting:
            await phases.run(self._delete(scope))
            return selector
        await phases.run(self._remediation.run(scope))
        await phases.run(self._propagation.run(scope))
        await phases.run(self._scale(scope, selector))
        return selector

    def _snapshot(self, scope: MachineSetScope, selector: LabelSelector | None) -> MachineSetSnapshot:
        workload = self._core.workloads.get(cluster_key_of(scope.machine_set))

        def node(name: str) -> Obj | None:
            return None if workload is None else workload.nodes.get("", name)

        return MachineSetSnapshot(
            scope.machine_set,
            None if scope.machines is None else scope.listed,
            scope.now,
            "" if selector is None else str(selector),
            scope.why,
            scope.bootstrap_missing,
            scope.infrastructure_missing,
            scope.preflight,
            scope.failure,
            node,
        )

    # --- phases ---------------------------------------------------------------------------------------------------------

    async def _find_deployment(self, scope: MachineSetScope) -> None:
        if not is_deployment_child(scope.machine_set):
            return
        name = labels_of(scope.machine_set)[DEPLOYMENT_NAME]
        scope.deployment = self._core.machine_deployments.get(scope.namespace, name)
        if scope.deployment is None and not scope.deleting:
            scope.why = f"MachineDeployment {Key(scope.namespace, name)} does not exist"
            on = Ref(GROUP, "MachineDeployment", scope.namespace, name)
            raise Stuck(Wait(Code.REFERENCE, scope.ref(), Actor.USER, on, scope.why))

    async def _scale(self, scope: MachineSetScope, selector: LabelSelector) -> Result | None:
        await self._clones.collect_leftovers(scope, selector)
        wanted = scope.replicas
        if wanted is None:
            raise Stuck(Wait(Code.CONTENT, scope.ref(), Actor.USER, evidence="spec.replicas is not set"))
        surplus = len(scope.listed) - wanted
        if surplus > 0:
            return await self._shrink(scope, surplus)
        if surplus < 0:
            if not selector.matches(machine_labels(scope.machine_set)):
                # It would never count the machines that it makes, and go on making them for ever.
                why = "spec.selector does not match the labels of spec.template"
                scope.failure = CreationFailure("MachineCreationFailed", why)
                raise Stuck(Wait(Code.MALFORMED, scope.ref(), Actor.USER, evidence=why))
            return await self._grow(scope, -surplus)
        return None

    async def _grow(self, scope: MachineSetScope, count: int) -> Result | None:
        if annotations_of(scope.machine_set).get(DISABLE_MACHINE_CREATE) == "true":
            evidence = f"the annotation {DISABLE_MACHINE_CREATE} is set"
            return Result(waits=(Wait(Code.HOOK, scope.ref(), Actor.USER, evidence=evidence),))
        verdict = await self._gate.verdict(scope, "Scale up")
        if verdict.messages:
            scope.preflight = list(verdict.messages)
            scope.failure = CreationFailure("PreflightCheckFailed", verdict.joined)
            return verdict.holds_up(scope)
        await self._creation.run(scope, count)
        return None

    async def _shrink(self, scope: MachineSetScope, count: int) -> Result | None:
        order = dig(scope.machine_set, "spec", "deletion", "order") or ""
        try:
            chosen = first_to_go(scope.listed, count, order, scope.now)
        except UnknownOrder as error:
            raise Stuck(Wait(Code.MALFORMED, scope.ref(), Actor.USER, evidence=str(error))) from None

        # Machines of an outdated set are replaced by those of the current one.
        outdated = scope.deployment is not None and not is_current(scope.machine_set, scope.deployment)

        async def remove(machine: Obj) -> None:
            await self._remove(scope, machine, Act.REPLACE if outdated else Act.DELETE)
            name = name_of(machine)
            log.info("deleting machine %s", name)
            self._events.event(scope.machine_set, NORMAL, "SuccessfulDelete", f"Deleted Machine {go_quote(name)}")

        return await self._remove_all(scope, [machine for machine in chosen if not is_being_deleted(machine)], remove)

    async def _delete(self, scope: MachineSetScope) -> Result | None:
        async def remove(machine: Obj) -> None:
            await self._remove(scope, machine, Act.DELETE)
            log.info("deleting machine %s, since its set is deleted", name_of(machine))

        refused = await self._remove_all(scope, [each for each in scope.listed if not is_being_deleted(each)], remove)
        if refused is not None or not scope.machines:
            return refused
        first = Ref(GROUP, "Machine", scope.namespace, name_of(scope.listed[0]))
        evidence = f"{len(scope.machines)} machines are still there"
        return Result(waits=(Wait(Code.DELETION, scope.ref(), Actor.REMUDA, first, evidence),))

    async def _remove(self, scope: MachineSetScope, machine: Obj, act: Act) -> None:
        """Raises DeletionRefused."""
        try:
            await check_budget(self._budgets, scope, machine, act)
        except DeletionRefused as held:
            self._events.event(scope.machine_set, WARNING, "ChangeBudget", f"Machine {name_of(machine)} is kept: {held}")
            raise
        try:
            await remove_machine(self._core, scope, machine)
        except DeletionRefused:
            self._budgets.release(machine)
            raise

    async def _remove_all(
        self, scope: MachineSetScope, machines: list[Obj], remove: Callable[[Obj], Awaitable[None]]
    ) -> Result | None:
        """The remaining waits: machines that admission keeps. They don't keep the others."""
        kept: list[Wait] = []

        async def attempt(machine: Obj) -> None:
            try:
                await remove(machine)
            except DeletionRefused as refused:
                kept.append(refused.wait(scope))

        errors = await for_each(machines, attempt)
        if errors:
            raise errors[0]
        return Result(REFUSED_AGAIN, tuple(kept)) if kept else None


async def _stuck(wait: Wait) -> None:
    raise Stuck(wait)


def _rest(scope: MachineSetScope) -> float:
    """Summing up many machines takes its time, and each change is an event. A set that has just grown goes on at once. One
    that is complete, and so is its deployment, has only sums left to write, and they are not urgent."""
    if scope.created:
        return 0.0
    desired = annotations_of(scope.machine_set).get(DESIRED_REPLICAS, str(scope.replicas))
    whole = not scope.deleting and len(scope.listed) == scope.replicas and desired == str(scope.replicas)
    return min(_LONGEST_REST, (_REST_WHEN_WHOLE if whole else 0.0) + len(scope.listed) * _REST_PER_MACHINE)


def _no_cluster(machine_set: Obj) -> Wait:
    key = cluster_key_of(machine_set)
    subject = Ref(GROUP, "MachineSet", namespace_of(machine_set), name_of(machine_set))
    return Wait(Code.REFERENCE, subject, Actor.USER, Ref(GROUP, "Cluster", *key), f"Cluster {key} does not exist")


# --- what is followed ------------------------------------------------------------------------------------------------------


def _references(machine_set: Obj) -> Iterable[Obj]:
    spec = dig(machine_set, "spec", "template", "spec") or {}
    found = (spec.get("infrastructureRef"), dig(spec, "bootstrap", "configRef"))
    return [ref for ref in found if ref]


_machine_status = changed(
    "status.nodeRef",
    "status.nodeInfo.kubeletVersion",
    "status.deletion.nodeDrainStartTime",
    lambda machine: [get(machine, kind) for kind in _CONDITIONS],
    lambda machine: [get(machine, kind, LEGACY) for kind in _LEGACY_CONDITIONS],
)


def _machine_change(new: Obj | None, old: Obj | None) -> bool:
    return new is None or old is None or spec_change(new, old) or was_lost(new, old) or _machine_status(new, old)


# True if the template appeared, went, or lost its owner or annotations: its content matters to the next clone only.
_template_change = changed(owner_references_of, annotations_of)


# --- adoption -------------------------------------------------------------------------------------------------------------
#
# The machines of a set: those it controls, and those without a controller that its selector finds, which it adopts.
#
# Found through indexes: what the set controls, and what has no controller in its cluster. A set that is being deleted adopts
# nothing: it would only delete a machine that its owner has just released.

_UNCONTROLLED = "without a controller"


def selector_of(machine_set: Obj) -> LabelSelector:
    """Raises SelectorError."""
    return checked_structure(dig(machine_set, "spec", "selector") or {})


class Claiming:
    def __init__(self, core: Core, events: Recorder) -> None:
        self._core = core
        self._events = events
        core.machines.add_index(_UNCONTROLLED, _uncontrolled)

    async def run(self, scope: MachineSetScope, selector: LabelSelector) -> None:
        """Fill in the scope's machines."""
        machines = self._core.machines
        claimed = machines.indexed(BY_CONTROLLER, uid_of(scope.machine_set))
        free = [] if scope.deleting else machines.indexed(_UNCONTROLLED, cluster_key_of(scope.machine_set))
        found = [machine for machine in claimed if selector.matches(labels_of(machine))]
        for machine in free:
            if selector.matches(labels_of(machine)) and (adopted := await self._adopt(scope, machine)) is not None:
                found.append(adopted)
        scope.machines = {uid_of(machine): machine for machine in sorted(found, key=Key.of)}

    async def _adopt(self, scope: MachineSetScope, machine: Obj) -> Obj | None:
        name = name_of(machine)
        owners = owner_references_of(with_owner(machine, owner_reference(scope.machine_set)))
        # Bound to the revision: of two sets that adopt it at the same time, one must fail.
        patch = {"metadata": {"ownerReferences": owners, "resourceVersion": resource_version_of(machine)}}
        try:
            adopted = await self._core.client.patch(MACHINES, name, patch, namespace_of(machine))
        except ApiError as error:
            if error.is_not_found:
                return None
            if error.is_conflict:
                raise Retry(f"machine {name} was changed while it was adopted") from None
            log.warning("failed to adopt machine %s: %s", name, error.message)
            why = f"Failed to adopt Machine {go_quote(name)}: {error.message}"
            self._events.event(scope.machine_set, WARNING, "FailedAdopt", why)
            return None
        self._core.wrote(NAME, scope.key, self._core.machines, adopted)
        log.info("adopted machine %s", name)
        self._events.event(scope.machine_set, NORMAL, "SuccessfulAdopt", f"Adopted Machine {go_quote(name)}")
        return adopted

    def sets_for(self, machine: Obj) -> Iterable[Key]:
        """The sets that may adopt a machine without a controller."""
        if controller_of(machine) is not None:
            return
        for machine_set in self._core.machine_sets.indexed(BY_CLUSTER, cluster_key_of(machine)):
            try:
                matches = selector_of(machine_set).matches(labels_of(machine))
            except SelectorError:
                continue
            if matches:
                yield Key.of(machine_set)


def _uncontrolled(machine: Obj) -> Iterable[Hashable]:
    return (cluster_key_of(machine),) if controller_of(machine) is None else ()
