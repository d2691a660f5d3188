"""The execution of plans: sets created, changed and scaled, each by one server-side apply, and empty old ones deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from remuda.api.cluster_x_k8s_io import MACHINE_SETS
from remuda.client.server_side_apply import Applier
from remuda.kube.clock import rfc3339
from remuda.kube.errors import ApiError, go_quote
from remuda.kube.objects import Key, annotations_of, is_being_deleted, metadata, name_of, namespace_of, uid_of, with_metadata
from remuda.kube.waits import Actor, Code
from remuda.runtime import NORMAL, WARNING, Recorder, Retry, logger

from ..controller_context import Core
from ..phases import Stuck
from ..well_known import MAX_REPLICAS, REVISION
from .desired_machinesets import (
    DesiredMachineSets,
    MachineSetName,
    current_machine_set,
    find,
    identity,
    new_machine_set,
    old_machine_set,
    revised,
)
from .machineset_view import ON_DELETE, MachineSet, RolloutBounds, count, created, spec_replicas, strategy_of
from .rollout_plan import RolloutPlan, plan_on_delete, plan_rolling_update, plan_scaling
from .scope import NAME, MachineDeploymentScope
from .status import Rolled, is_complete

Obj = dict[str, Any]

log = logger(__name__)

_FIELD_MANAGER = "capi-machinedeployment"


class _Change(NamedTuple):
    """A set as it is (None: not yet) and as it should be."""

    present: Obj | None
    wanted: Obj

    @property
    def size(self) -> int:
        return int(self.wanted["spec"]["replicas"])

    @property
    def before(self) -> int:
        return spec_replicas(self.present or {}) or 0


class Rollouts:
    def __init__(self, core: Core, recorder: Recorder) -> None:
        self._core = core
        self._recorder = recorder
        self._applier = Applier(core.client, _FIELD_MANAGER)
        core.machine_sets.on_change(self._forget)

    def _forget(self, new: Obj | None, old: Obj | None) -> None:
        if new is None and old is not None:
            self._applier.forget(uid_of(old))

    async def roll(self, scope: MachineDeploymentScope, *, paused: bool) -> DesiredMachineSets:
        """One step of the rollout. `paused`: only scaling."""
        _check_counts(scope)
        found = find(scope.deployment, scope.machine_sets or [], scope.now)
        made = None
        if found.new is None and not paused:
            if scope.infrastructure_missing or scope.bootstrap_missing:
                why = "cannot create a MachineSet when templates do not exist"
                raise Stuck(scope.waits_for(Code.REFERENCE, Actor.USER, why))
            made = self._identity(scope)
            log.info("a new MachineSet %s is needed: %s", made.name, found.why)
        plan = _plan(scope, found, made, paused)
        for name, notes in plan.notes.items():
            log.debug("MachineSet %s: to %d: %s", name, plan.sizes[name], ", ".join(notes))
        changes = _changes(scope.deployment, found, made, plan)
        sets = [await self._apply(scope, change, paused) for change in changes]
        new = sets[0] if found.new is not None or made is not None else None
        scope.rolled = Rolled(new, sets)
        if new is not None:
            self._surface_revision(scope, new)
        if not paused and is_complete(scope.deployment, sets):
            await self._clean_up(scope, sets[1:])
        return found

    def _identity(self, scope: MachineDeploymentScope) -> MachineSetName:
        """A free name; if the server has a set of this name all the same, we made it and have not seen it yet."""
        for salt in range(100):
            made = identity(scope.deployment, scope.now, salt)
            if self._core.machine_sets.get(namespace_of(scope.deployment), made.name) is None:
                return made
        raise Retry("no name is free for a new MachineSet")

    @staticmethod
    def _surface_revision(scope: MachineDeploymentScope, new: Obj) -> None:
        revision = annotations_of(new).get(REVISION)
        present = annotations_of(scope.deployment)
        if revision and present.get(REVISION) != revision:
            scope.deployment = with_metadata(scope.deployment, annotations={**present, REVISION: revision})

    # --- writing --------------------------------------------------------------------------------------------------------

    async def _apply(self, scope: MachineDeploymentScope, change: _Change, paused: bool) -> Obj:
        """The set as the server has it after the change."""
        wanted, present = change.wanted, change.present
        key = Key.of(wanted)
        try:
            written = await self._applier.apply(MACHINE_SETS, wanted, present)
        except ApiError as error:
            if present is not None and is_being_deleted(present) and _is_gone(error):
                return present
            failed, doing = ("FailedCreate", "create") if present is None else ("FailedUpdate", "update")
            message = f"Failed to {doing} MachineSet {key}: failed to apply MachineSet: {error.message}"
            self._recorder.event(scope.deployment, WARNING, failed, message)
            raise
        if written is None:
            assert present is not None
            return present
        if present is None:
            # From now on it is applied with its uid, which is equivalent.
            self._applier.remember(with_metadata(wanted, uid=uid_of(written)))
        self._core.wrote(NAME, scope.key, self._core.machine_sets, written)
        self._record_event(scope, change, paused)
        return written

    def _record_event(self, scope: MachineDeploymentScope, change: _Change, paused: bool) -> None:
        key, before, size = Key.of(change.wanted), change.before, change.size
        if change.present is None:
            log.info("MachineSet %s created with %d replicas", key.name, size)
            message = f"Created MachineSet {key} with {size} replicas"
            self._recorder.event(scope.deployment, NORMAL, "SuccessfulCreate", message)
            return
        if before == size:
            return
        log.info("MachineSet %s scaled from %d to %d replicas", key.name, before, size)
        if paused:
            message = f"Scaled MachineSet {key}: {before} -> {size}"
        else:
            message = f"Scaled {'up' if size > before else 'down'} MachineSet {key.name}: {before} -> {size}"
        self._recorder.event(scope.deployment, NORMAL, "SuccessfulScale", message)

    async def _clean_up(self, scope: MachineDeploymentScope, old: Sequence[Obj]) -> None:
        """Deletes old sets without machines."""
        for each in sorted(old, key=lambda each: (created(each), name_of(each))):
            if _is_empty(each) and not is_being_deleted(each):
                await self.delete(scope, each)

    async def delete(self, scope: MachineDeploymentScope, machine_set: Obj, *, tell: bool = True) -> None:
        name = name_of(machine_set)
        try:
            await self._core.client.delete(MACHINE_SETS, name, namespace_of(machine_set), uid=uid_of(machine_set))
        except ApiError as error:
            if not _is_gone(error):
                if tell:
                    message = f"Failed to delete MachineSet {go_quote(name)}: {error.message}"
                    self._recorder.event(scope.deployment, WARNING, "FailedDelete", message)
                raise
        self._core.deleted(NAME, scope.key, self._core.machine_sets, machine_set)
        log.info("MachineSet %s deleting", name)
        if tell:
            self._recorder.event(scope.deployment, NORMAL, "SuccessfulDelete", f"Deleted MachineSet {go_quote(name)}")


def _check_counts(scope: MachineDeploymentScope) -> None:
    """Raises without sizes, which a plan needs; they are missing only when admission was bypassed."""
    if spec_replicas(scope.deployment) is None:
        raise Stuck(scope.waits_for(Code.CONTENT, Actor.USER, "spec.replicas is not set"))
    for each in scope.machine_sets or ():
        if spec_replicas(each) is None:
            raise Stuck(scope.waits_for(Code.CONTENT, Actor.USER, "spec.replicas is not set", scope.of(each)))


def _plan(scope: MachineDeploymentScope, found: DesiredMachineSets, made: MachineSetName | None, paused: bool) -> RolloutPlan:
    def value(obj: Obj) -> MachineSet:
        return MachineSet.of(obj, scope.there[uid_of(obj)], scope.marked[uid_of(obj)], scope.alive.get(uid_of(obj)))

    bounds, old = RolloutBounds.of(scope.deployment), [value(each) for each in found.old]
    new = None if found.new is None else value(found.new)
    if paused:
        present = count(scope.deployment, "status", "replicas") or 0
        sets = [each for each in (found.new, *found.old) if each is not None]
        return plan_scaling(bounds, new, old, {name_of(each): _planned(each, present) for each in sets})
    if new is None:
        assert made is not None
        new = MachineSet(made.name, rfc3339(scope.now))
    plan = plan_on_delete if strategy_of(scope.deployment) == ON_DELETE else plan_rolling_update
    return plan(bounds, new, old)


def _planned(machine_set: Obj, present: int) -> int:
    """The intended size of the whole deployment when this set was last scaled; else the present size."""
    text = annotations_of(machine_set).get(MAX_REPLICAS, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else present


def _changes(deployment: Obj, found: DesiredMachineSets, made: MachineSetName | None, plan: RolloutPlan) -> list[_Change]:
    """The changes, the new set first."""
    revision = revised(found.new, found.old)
    changes = [_Change(each, old_machine_set(deployment, each)) for each in found.old]
    if found.new is not None:
        changes.insert(0, _Change(found.new, current_machine_set(deployment, found.new, revision)))
    elif made is not None:
        changes.insert(0, _Change(None, new_machine_set(deployment, made, revision)))
    for change in changes:
        change.wanted["spec"]["replicas"] = plan.sizes.get(name_of(change.wanted), change.before)
    return changes


def _is_gone(error: ApiError) -> bool:
    """True if an apply or a delete with a uid failed because that object is gone, or is another one."""
    return error.is_not_found or error.is_conflict or error.code == 422


def _is_empty(machine_set: Obj) -> bool:
    observed = count(machine_set, "status", "observedGeneration") or 0
    return (
        not count(machine_set, "status", "replicas")
        and spec_replicas(machine_set) == 0
        and int(metadata(machine_set).get("generation") or 0) <= observed
    )
