"""The MachineDeployment controller: many machines of one kind, rolled out when their template changes.

It creates, scales and deletes MachineSets and sums up their status and their machines'. The decisions are made elsewhere:
:mod:`.desired_machinesets` finds the new set and the content of each, :mod:`.rollout_plan` their sizes, :mod:`.status` the
status. :mod:`.rollout_execution` writes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from remuda.api.cluster_x_k8s_io import CLUSTERS, GROUP, MACHINE_DEPLOYMENTS, MACHINE_SETS
from remuda.kube.errors import ApiError, go_quote
from remuda.kube.objects import (
    Key,
    dig,
    is_being_deleted,
    labels_of,
    name_of,
    namespace_of,
    owner_references_of,
    resource_version_of,
    uid_of,
    with_metadata,
)
from remuda.kube.owners import controller_of, has_finalizer, reference, with_finalizer, with_owner, without_finalizer
from remuda.kube.selectors import LabelSelector, SelectorError, checked_structure
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import DONE, NORMAL, WARNING, Controller, Recorder, Result, Retry, Watch, changed, logger, owner, spec_change
from remuda.runtime.patching import Patch

from ..contracts import NoContract
from ..controller_context import BY_CLUSTER, BY_DEPLOYMENT, Core, cluster_key_of, cluster_name_of
from ..external_objects import External
from ..machine_budgets import HELD_AGAIN, MachineBudgets
from ..phases import Phases, Stuck, is_paused, pause_wait, with_paused
from ..well_known import CLUSTER_NAME, DEPLOYMENT_NAME, MACHINE_DEPLOYMENT_FINALIZER
from .desired_machinesets import find
from .machineset_view import count, spec_replicas
from .rollout_execution import Rollouts
from .scope import NAME, MachineDeploymentScope
from .status import OWNED, next_report_at, with_status

Obj = dict[str, Any]


class MachineDeployments:
    # Its own status writes don't wake it.
    controller = Controller(NAME, MACHINE_DEPLOYMENTS, when=spec_change)

    def __init__(self, core: Core) -> None:
        self._core = core
        self._recorder = core.recorder("machinedeployment-controller")
        self._rollouts = Rollouts(core, self._recorder)
        self._budgets = MachineBudgets.of(core)
        namespace = core.options.namespace
        self.controller = replace(
            type(self).controller,
            lane=core.lane(core.machine_deployments),
            concurrency=core.options.concurrency,
            resync=core.options.sync_period,
            namespace=namespace,
            watches=(
                Watch(MACHINE_SETS, self._of_machine_set, namespace=namespace),
                Watch(CLUSTERS, core.of_cluster(core.machine_deployments), _cluster_change, namespace=namespace),
            ),
        )
        core.externals.followed_by(NAME, core.machine_deployments, template_references, _template_change)

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
            return Result(waits=(pause_wait(_ref(deployment), deployment, cluster),))
        return await self._reconcile(
            patch, MachineDeploymentScope(with_paused(deployment, cluster, core.now()), cluster, core.now())
        )

    async def _reconcile(self, patch: Patch, scope: MachineDeploymentScope) -> Result:
        scope.selector = selector_of(scope.deployment)
        self._read_machines(scope)
        phases = Phases()
        await phases.run(self._delete(scope) if is_being_deleted(scope.deployment) else self._roll_out(scope))
        await patch.write(with_status(scope.snapshot()), observed=not phases.failed)
        heard = next_report_at(scope.machines, scope.now)
        after = None if heard is None else max(heard - scope.now, 0.0) + 1.0
        phases.add(Result(after=after, rest=_rest(scope)))
        return phases.outcome()

    def _read_machines(self, scope: MachineDeploymentScope) -> None:
        if scope.selector is not None:
            scope.machines = machines_of(self._core, scope.deployment, scope.selector)

    async def _roll_out(self, scope: MachineDeploymentScope) -> Result:
        scope.deployment = _in_cluster(scope.deployment, scope.cluster)
        await own_templates(self._core, scope)
        scope.machine_sets = await own_machine_sets(self._core, scope, self._recorder)
        # Again: a machine that was being created must not be missed between the two reads.
        self._read_machines(scope)
        scope.count_machines(self._core.pending)
        if self._knows_nodes(scope):
            scope.count_alive()
        held = await self._held_rollout(scope)
        paused = dig(scope.deployment, "spec", "paused") is True
        found = await self._rollouts.roll(scope, paused=paused or held is not None)
        after = None if found.revisit_at is None else max(found.revisit_at - scope.now, 0.0)
        if held is None:
            return Result(after, waits_of(scope))
        return Result(min(after or HELD_AGAIN, HELD_AGAIN), (held, *waits_of(scope)))

    async def _held_rollout(self, scope: MachineDeploymentScope) -> Wait | None:
        """The wait because of which no machine may be replaced now, if any would be; the deployment is only scaled then."""
        if not scope.machines or not needs_rollout(scope):
            return None
        held = await self._budgets.why_no_rollout(scope.deployment, scope.cluster)
        if held is None:
            return None
        self._recorder.event(scope.deployment, WARNING, "ChangeBudget", f"No machine is replaced: {held.why}")
        return scope.waits_for(Code.BUDGET, Actor.USER, held.why)

    def _knows_nodes(self, scope: MachineDeploymentScope) -> bool:
        """False if the cluster can't be reached: its machines may have become nodes all the same."""
        if dig(scope.cluster, "status", "initialization", "controlPlaneInitialized") is not True:
            return True
        return self._core.workloads.get(Key(namespace_of(scope.deployment), cluster_name_of(scope.deployment))) is not None

    async def _delete(self, scope: MachineDeploymentScope) -> Result:
        scope.machine_sets = await own_machine_sets(self._core, scope, self._recorder)
        if not scope.machine_sets:
            scope.deployment = without_finalizer(scope.deployment, MACHINE_DEPLOYMENT_FINALIZER)
            return DONE
        for each in scope.machine_sets:
            if not is_being_deleted(each):
                await self._rollouts.delete(scope, each, tell=False)
        gone = (scope.waits_for(Code.DELETION, Actor.REMUDA, "must be gone first", scope.of(each)) for each in scope.machine_sets)
        return Result(waits=tuple(gone))


def _rest(scope: MachineDeploymentScope) -> float:
    """Summing up a thousand machines takes its time, and each change is an event. When one set has them all, and as many as are
    wanted, there are only sums left to write, and they are not urgent."""
    wanted = spec_replicas(scope.deployment)
    sets = [each for each in scope.machine_sets or () if spec_replicas(each) or scope.there[uid_of(each)]]
    rolled = len(sets) == 1 and spec_replicas(sets[0]) == wanted == len(scope.machines)
    return min(1.0, (0.5 if rolled and not is_being_deleted(scope.deployment) else 0.05) + 0.001 * len(scope.machines))


async def _finalized(patch: Patch, deployment: Obj, cluster: Obj | None) -> Obj:
    """The deployment with its finalizer, before anything is made that must be deleted with it."""
    if has_finalizer(deployment, MACHINE_DEPLOYMENT_FINALIZER) or is_being_deleted(deployment):
        return deployment
    wanted = with_finalizer(deployment, MACHINE_DEPLOYMENT_FINALIZER)
    return await patch.write(wanted if is_paused(cluster, deployment) else _in_cluster(wanted, cluster))


def _in_cluster(deployment: Obj, cluster: Obj | None) -> Obj:
    """The deployment with its cluster's label, and owned by the cluster."""
    labels = labels_of(deployment)
    name = cluster_name_of(deployment)
    if labels.get(CLUSTER_NAME) != name:
        deployment = with_metadata(deployment, labels={**labels, CLUSTER_NAME: name})
    return deployment if cluster is None else with_owner(deployment, reference(cluster))


def _waits_for(deployment: Obj, code: Code, evidence: str, on: Ref | None = None) -> Wait:
    return Wait(code, _ref(deployment), Actor.USER, on, evidence)


def _ref(deployment: Obj) -> Ref:
    return Ref(GROUP, "MachineDeployment", *Key.of(deployment))


def _waits_for_cluster(deployment: Obj) -> Wait:
    on = Ref(GROUP, "Cluster", namespace_of(deployment), cluster_name_of(deployment))
    return _waits_for(deployment, Code.REFERENCE, "the cluster is not there", on)


# True if the Cluster appeared, went, or was paused or unpaused.
_cluster_change = changed("spec.paused")


# True if the template appeared, went, or its owners changed. Its content concerns only later machines.
_template_change = changed("metadata.ownerReferences")


def needs_rollout(scope: MachineDeploymentScope) -> bool:
    """True if there are machines of an older template."""
    found = find(scope.deployment, scope.machine_sets or [], scope.now)
    return found.new is None or any(spec_replicas(each) or scope.there[uid_of(each)] for each in found.old)


# --- ownership ------------------------------------------------------------------------------------------------------------
#
# A MachineDeployment's MachineSets and Machines, found through indexes; matching sets without a controller are adopted.
#
# Only objects of the deployment's own cluster count: a selector that happens to match another cluster's must not reach them.

log = logger(__name__)

_controlling = owner("MachineDeployment", GROUP, controller=True)


def selector_of(deployment: Obj) -> LabelSelector | None:
    """The selector; None when there is none, or an invalid one."""
    try:
        found = checked_structure((deployment.get("spec") or {}).get("selector"))
    except (SelectorError, AttributeError, TypeError) as error:
        log.warning("spec.selector can't be used: %s", error)
        return None
    return None if found.empty or found.nothing else found


def machines_of(core: Core, deployment: Obj, selector: LabelSelector) -> list[Obj]:
    """The machines that the selector matches, by name."""
    cluster = cluster_key_of(deployment)
    named = [each.values for each in selector.requirements if each.key == DEPLOYMENT_NAME and each.operator in ("=", "in")]
    if named:
        found = [obj for name in named[0] for obj in core.machines.indexed(BY_DEPLOYMENT, Key(cluster.namespace, name))]
    else:
        found = core.machines.indexed(BY_CLUSTER, cluster)
    matching = (each for each in found if selector.matches(labels_of(each)) and cluster_key_of(each) == cluster)
    return sorted(matching, key=Key.of)


def deployments_of(core: Core, machine_set: Obj) -> Iterable[Key]:
    """The deployments that a MachineSet concerns: its controller or, if it has none, those that might adopt it."""
    if controller_of(machine_set) is not None:
        return _controlling(machine_set)
    labels = labels_of(machine_set)
    if not labels:
        return ()
    candidates = core.machine_deployments.indexed(BY_CLUSTER, cluster_key_of(machine_set))
    return [Key.of(each) for each in candidates if (found := selector_of(each)) is not None and found.matches(labels)]


async def own_machine_sets(core: Core, scope: MachineDeploymentScope, recorder: Recorder) -> list[Obj]:
    """The deployment's sets, by name, orphans adopted. Raises Stuck when the selector is unusable."""
    deployment, selector = scope.deployment, scope.selector
    if selector is None:
        why = "label selector computed from MachineDeployment.spec.selector is empty or invalid"
        raise Stuck(scope.waits_for(Code.MALFORMED, Actor.USER, why))
    found = core.controlled(core.machine_sets, deployment)
    for each in core.machine_sets.indexed(BY_CLUSTER, cluster_key_of(deployment)):
        orphan = controller_of(each) is None and not is_being_deleted(each)
        if orphan and selector.matches(labels_of(each)):
            adopted = await _adopt(core, deployment, each, recorder)
            if adopted is not None:
                found.append(adopted)
    return sorted(found, key=Key.of)


async def _adopt(core: Core, deployment: Obj, machine_set: Obj, recorder: Recorder) -> Obj | None:
    name = name_of(machine_set)
    owned = with_owner(machine_set, reference(deployment, controller=True))
    meta = {"ownerReferences": owned["metadata"]["ownerReferences"], "resourceVersion": resource_version_of(machine_set)}
    try:
        written = await core.client.patch(MACHINE_SETS, name, {"metadata": meta}, namespace_of(machine_set))
    except ApiError as error:
        # The faster writer has caused an event, which starts another reconcile.
        if not error.is_conflict and not error.is_not_found:
            recorder.event(deployment, WARNING, "FailedAdopt", f"Failed to adopt MachineSet {go_quote(name)}: {error.message}")
        return None
    core.wrote(NAME, Key.of(deployment), core.machine_sets, written)
    log.info("adopted MachineSet %s", name)
    recorder.event(deployment, NORMAL, "SuccessfulAdopt", f"Adopted MachineSet {go_quote(name)}")
    return written


# --- templates ------------------------------------------------------------------------------------------------------------
#
# The templates that a MachineDeployment refers to: whether they exist, and that the cluster owns them.

_TRIES = 4


def template_references(deployment: Obj) -> list[Obj]:
    """References to templates; other kinds are not ours to adopt."""
    spec = dig(deployment, "spec", "template", "spec") or {}
    found = (dig(spec, "infrastructureRef"), dig(spec, "bootstrap", "configRef"))
    return [ref for ref in found if isinstance(ref, dict) and str(ref.get("kind") or "").endswith("Template")]


async def own_templates(core: Core, scope: MachineDeploymentScope) -> None:
    """Note the missing ones. Raises Stuck when a kind is not known."""
    spec = dig(scope.deployment, "spec", "template", "spec") or {}
    for ref in template_references(scope.deployment):
        missing = not await _own(core, scope, ref)
        if ref is spec.get("infrastructureRef"):
            scope.infrastructure_missing = missing
        else:
            scope.bootstrap_missing = missing


async def _own(core: Core, scope: MachineDeploymentScope, ref: Obj) -> bool:
    namespace = namespace_of(scope.deployment)
    try:
        found = await core.externals.get(ref, namespace)
    except NoContract as error:
        log.warning("failed to get object from ref: %s", error)
        on = Ref(error.group, error.kind, namespace, ref.get("name") or "")
        raise Stuck(scope.waits_for(Code.REFERENCE, Actor.USER, str(error), on)) from None
    return found is not None and await _owned(core, scope, found)


async def _owned(core: Core, scope: MachineDeploymentScope, found: External) -> bool:
    """True if it exists; then it belongs to the cluster. MachineSets do the same, so another writer may be faster."""
    obj, owner = found.obj, reference(scope.cluster or {})
    key = Key.of(obj)
    for _ in range(_TRIES):
        wanted = with_owner(obj, owner)
        if wanted is obj:
            return True
        # A list is written as a whole: only on top of the revision that was read.
        meta = {"ownerReferences": owner_references_of(wanted), "resourceVersion": resource_version_of(obj)}
        try:
            written = await core.client.patch(found.resource, key.name, {"metadata": meta}, key.namespace)
        except ApiError as error:
            if error.is_not_found:
                return False
            if not error.is_conflict:
                raise
            obj = await core.client.get(found.resource, key.name, key.namespace)
            continue
        core.wrote(NAME, scope.key, found.informer, written)
        return True
    raise Retry(f"{found.kind.kind} {key} keeps changing")


# --- waiting --------------------------------------------------------------------------------------------------------------
#
# The waits of a rollout: sets that have not reached their size yet, or whose machines are not available. Pure.


def waits_of(scope: MachineDeploymentScope) -> tuple[Wait, ...]:
    return tuple(wait for each in (scope.rolled.machine_sets if scope.rolled else ()) if (wait := _wait(scope, each)))


def _wait(scope: MachineDeploymentScope, machine_set: Obj) -> Wait | None:
    wanted = spec_replicas(machine_set) or 0
    present, available = (count(machine_set, "status", field) or 0 for field in ("replicas", "availableReplicas"))
    if present > wanted:
        return scope.waits_for(Code.DELETION, Actor.REMUDA, f"{present - wanted} machines must go", scope.of(machine_set))
    if available < wanted:
        evidence = f"{available} of {wanted} machines are available"
        return scope.waits_for(Code.MACHINES, Actor.REMUDA, evidence, scope.of(machine_set))
    return None
