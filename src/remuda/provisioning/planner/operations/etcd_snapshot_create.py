"""`etcdSnapshotCreate`: every member of etcd that is up saves a snapshot, all at the same time
(docs/reference/operations.md#create).

Nothing restarts: the task's plan installs without a start, and the normal plan that follows has the stamp that the host knows.
"""

from __future__ import annotations

from dataclasses import dataclass

from remuda.kube.clock import time_of
from remuda.kube.waits import Actor, Code, Wait

from .. import machine_health, waits
from ..snapshot import Condition, ControlPlane, Machine, SaveSnapshot
from ..tiers import Pass
from .steps import MachineStep, OperationProgress, assign, is_task_plan, join_of, pending, was_written

FIELD = "etcdSnapshotCreate"
CONDITION = "EtcdSnapshotCreated"
_PHASE = "etcdSnapshotCreatePhase"
_STARTED, _RESTART, _FINISHED, _FAILED = "Started", "RestartCluster", "Finished", "Failed"
_ATTEMPTS = 3
_WHAT = "taking a snapshot of etcd"


def is_wanted(control_plane: ControlPlane) -> bool:
    """A generation other than that of the status requests a snapshot, once there is a cluster and the last one has ended."""
    asked, last = control_plane.spec.get(FIELD), control_plane.etcd_snapshot_create
    if asked is None or is_running(control_plane) or not control_plane.initialized or not control_plane.is_true("Bootstrapped"):
        return False
    return last is None or (last.get("generation") or 0) != (asked.get("generation") or 0)


def is_running(control_plane: ControlPlane) -> bool:
    asked, phase = control_plane.spec.get(FIELD), control_plane.etcd_snapshot_create_phase
    return asked is not None and phase in (_STARTED, _RESTART)


def run(run: Pass, paused: bool) -> OperationProgress:
    control_plane = run.snapshot.control_plane
    if control_plane.spec.get(FIELD) is None:
        begun = control_plane.etcd_snapshot_create is not None or control_plane.etcd_snapshot_create_phase
        return OperationProgress({FIELD: None, _PHASE: None}) if begun else OperationProgress()
    if not paused and is_wanted(control_plane):
        return _begin(run)
    if control_plane.etcd_snapshot_create_phase == _STARTED:
        return _save(run, paused)
    if control_plane.etcd_snapshot_create_phase == _RESTART and _with_task(run) is None:
        return OperationProgress({_PHASE: _FINISHED})
    return OperationProgress()


def end(run: Pass, paused: bool, reason: str) -> OperationProgress:
    return _failed(reason)


def _begin(run: Pass) -> OperationProgress:
    """A member that still has the plan of the last snapshot would take no new one, so the normal plans come first."""
    late = _with_task(run)
    if late is not None:
        text = f"{_WHAT}: waiting until {late.name} has its normal plan"
        return OperationProgress(notes=(waits.of_control_plane(run.snapshot, Code.STEP, Actor.REMUDA, text, late.ref()),))
    asked = dict(run.snapshot.control_plane.spec[FIELD])
    text = f"{_WHAT}: beginning"
    wait = waits.of_control_plane(run.snapshot, Code.STEP, Actor.REMUDA, text)
    return OperationProgress({FIELD: asked, _PHASE: _STARTED}, (Condition(CONDITION, "Unknown", "Started"),), (wait,))


def _with_task(run: Pass) -> Machine | None:
    """A member that still has the task; one that has not answered for very long is not waited for."""
    members = [machine for machine in run.machines if machine.is_etcd and machine.node and is_task_plan(machine.node.plan)]
    return next((machine for machine in members if not machine_health.is_hung(run.snapshot, machine)), None)


def _save(run: Pass, paused: bool) -> OperationProgress:
    saving = save(run, paused, SaveSnapshot(), _WHAT, CONDITION)
    if not isinstance(saving, Saving):
        return OperationProgress(blocking=saving)
    if saving.failed or not saving.done:
        return _failed(saving.text)
    return OperationProgress({_PHASE: _RESTART}, (Condition(CONDITION, "True", message=saving.text),))


@dataclass(frozen=True, slots=True)
class Saving:
    """The end of taking a snapshot: the machines that have it, the reasons of the others, and whether any of them failed."""

    done: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    failed: bool = False

    @property
    def text(self) -> str:
        saved = [f"saved on {waits.some_names(list(self.done))}"] if self.done else []
        return "; ".join([*self.lacking, *saved] if self.failed else [*saved, *self.lacking])


def save(run: Pass, paused: bool, task: SaveSnapshot, what: str, condition: str) -> Saving | tuple[Wait, ...]:
    """Have all members that are up save, and wait for them. `condition` is Unknown since the beginning."""
    members = _members(run)
    taking = members_up(run)
    if not taking:
        return Saving(lacking=("no member of etcd is up",), failed=True)
    steps = [assign(run, each, join_of(each), task, what, attempts=_ATTEMPTS, paused=paused) for each in taking]
    late = [step for step in steps if step.wait is not None and not _is_given_up(run, step, condition)]
    if late:
        return pending(run, what, late)
    lacking = [*(_why(step, what) for step in steps if not step.done), *(f"{m.name}: not up" for m in members if m not in taking)]
    done = tuple(step.machine.name for step in steps if step.done)
    return Saving(done, tuple(lacking), any(step.failed for step in steps))


def members_up(run: Pass) -> list[Machine]:
    """The members that can save now, or have begun."""
    return [machine for machine in _members(run) if _takes_part(machine)]


def _members(run: Pass) -> list[Machine]:
    return [machine for machine in run.machines if machine.is_etcd and not machine.is_windows and machine.node is not None]


def _takes_part(machine: Machine) -> bool:
    """A member that is up, or has begun: a member that is down could only be waited for."""
    node = machine.node
    return machine_health.is_member_up(machine) or (node is not None and is_task_plan(node.plan))


def _is_given_up(run: Pass, step: MachineStep, condition: str) -> bool:
    """True for a host that has had the task, or could have had it, for very long."""
    if step.wait is None or step.wait.code is Code.PAUSED or was_written(run, step.machine):
        return False
    begun = run.snapshot.control_plane.condition(condition)
    since = time_of(begun.at) if begun is not None else None
    is_old = since is None or run.snapshot.now - since >= machine_health.HANGS_AFTER
    return is_old and machine_health.is_hung(run.snapshot, step.machine)


def _why(step: MachineStep, what: str) -> str:
    if step.wait is not None and step.wait.code is Code.RENDER:
        return f"{step.machine.name}: {step.wait.evidence.removeprefix(f'{what}: ')}"
    return f"{step.machine.name}: {step.failed or 'no answer'}"


def _failed(reason: str) -> OperationProgress:
    return OperationProgress({_PHASE: _FAILED}, (Condition(CONDITION, "False", "Failed", reason),))
