"""The steps that all operations are made of: the task of one machine, and what an operation adds to a pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from remuda.kube.clock import rfc3339
from remuda.kube.waits import Actor, Code, Ref, Wait

from ... import well_known
from ...plans.plan import INSTALL, Plan, same
from .. import machine_health, plan_failures, waits
from ..snapshot import CannotRender, Condition, Join, Machine, Task
from ..tiers import INTERRUPT, Pass, deliver

# A reason in a condition; a host's output may be of any length.
_LONGEST = 600
# How often an image is asked for whose registry does not answer: some ten minutes.
_FETCHES = 6


@dataclass(frozen=True, slots=True)
class OperationProgress:
    """The additions of an operation to a pass: fields of the status (None removes one), conditions, and waits.

    `blocking` waits end the pass, `aside` ones only keep it from being complete, `notes` are only reported. `initialized` is None
    to stay as it is.
    """

    status: Mapping[str, Any] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    blocking: tuple[Wait, ...] = ()
    notes: tuple[Wait, ...] = ()
    initialized: bool | None = None
    aside: tuple[Wait, ...] = ()

    def also(self, other: OperationProgress) -> OperationProgress:
        return OperationProgress(
            {**self.status, **other.status},
            (*self.conditions, *other.conditions),
            (*self.blocking, *other.blocking),
            (*self.notes, *other.notes),
            self.initialized if other.initialized is None else other.initialized,
            (*self.aside, *other.aside),
        )


@dataclass(frozen=True, slots=True)
class MachineStep:
    """The task of one machine: done, unless it `failed` (the reason) or is waited for."""

    machine: Machine
    failed: str = ""
    wait: Wait | None = None

    @property
    def done(self) -> bool:
        return not self.failed and self.wait is None


def join_of(machine: Machine) -> Join:
    """The way it has joined: a task changes nothing of that."""
    return Join(init=True) if machine.is_init else Join(server=machine.joined_to or "")


def is_task_plan(plan: Plan) -> bool:
    """True if the plan has more to do once than to install."""
    return any(instruction.name != INSTALL for instruction in plan.instructions)


def assign(
    run: Pass,
    machine: Machine,
    join: Join,
    task: Task | None,
    what: str,
    *,
    attempts: int,
    paused: bool,
    restarts: bool = False,
    before: Callable[[], Wait | None] = lambda: None,
    probes: bool = True,
    note: str = "",
) -> MachineStep:
    """Give a machine the plan of a task unless it has it, and judge how far it is.

    `attempts` is how often it is tried; 0 is without an end. A task that `restarts` the service keeps the files that the host
    has, so that it brings no other configuration. `before` returns the wait that forbids to begin now. Without `probes` a task is
    done when it is applied. With a `note` the plan is written once for it, whatever becomes of its input meanwhile; without, it
    must be the current one.
    """

    def waiting(code: Code, actor: Actor, text: str, on: Ref | None = None) -> MachineStep:
        text = f"{what}: {text}"[:_LONGEST]
        run.visited.add(machine.name)
        run.draft.set_reconciled(machine, Condition("Reconciled", "Unknown", "Waiting", text))
        return MachineStep(machine, wait=waits.of_machine(run.snapshot, machine, code, actor, text, on))

    def held() -> MachineStep | None:
        found = before()
        return None if found is None else waiting(found.code, found.actor, found.evidence, found.on or found.subject)

    node = machine.node
    if node is None or not note or machine.plan_annotations.get(well_known.TASK) != note:
        try:
            desired = run.render(run.snapshot, machine, join, task)
        except CannotRender as problem:
            return waiting(Code.RENDER, problem.actor, problem.message, problem.on)
        if restarts and node is not None:
            desired = _with_present_files(node.plan, desired)
        if node is None or note or not same(node.plan, desired):
            if paused:
                return waiting(Code.PAUSED, Actor.USER, waits.PAUSED)
            if not machine_health.may_be_written(run.snapshot, machine):
                return waiting(Code.PLAN, Actor.MACHINE, INTERRUPT)
            if (reason_not := held()) is not None:
                return reason_not
            if restarts:
                run.disturbed.add(machine.name)
            deliver(run, machine, desired, join, failure_threshold=attempts, max_failures=attempts, task=note)
            return waiting(Code.PLAN, Actor.MACHINE, waits.PLAN)
    if node.failed:
        return _failed(run, machine, attempts, paused, waiting, held)
    reason = machine_health.unapplied(node)
    if reason is not None and reason.code is Code.PROBES and not probes:
        reason = None
    return MachineStep(machine) if reason is None else waiting(reason.code, reason.actor, reason.message)


def _with_present_files(present: Plan, desired: Plan) -> Plan:
    """The plan with the content that its files have on the host."""
    known = {file.path: file for file in present.files}
    return msgspec.structs.replace(desired, files=tuple(known.get(file.path, file) for file in desired.files))


def _failed(
    run: Pass,
    machine: Machine,
    attempts: int,
    paused: bool,
    waiting: Callable[[Code, Actor, str], MachineStep],
    held: Callable[[], MachineStep | None],
) -> MachineStep:
    """The reason if a failed task is given up; else it is tried again when that is due."""
    node = machine.node
    assert node is not None
    verdict = plan_failures.judge(machine, node, run.snapshot.now)
    note = verdict.note or plan_failures.noted(machine)
    if note is not None and node.state != "failed":
        # The next try, which has not ended: its Secret still counts the failures before.
        return waiting(Code.PLAN_FAILED, Actor.MACHINE, verdict.message)
    if attempts and plan_failures.is_out_of_reach(node.failure):
        # Nothing was done: the image is fetched first.
        attempts = max(attempts, _FETCHES)
    # Agents of the older kind have tried as often as they were told when they report a failure.
    if attempts and (note is None or note.attempts >= attempts):
        text = verdict.message.partition(f"{waits.PLAN_FAILED} ")[2] or verdict.message
        return MachineStep(machine, failed=text[:_LONGEST])
    if verdict.retry and not paused:
        if (reason := held()) is not None:
            return reason
        run.draft.retry(machine, {well_known.PLAN_UPDATED: rfc3339(run.snapshot.now)})
    if verdict.note is not None:
        run.draft.annotate(machine, {well_known.PLAN_FAILURE: verdict.note.text()})
    if verdict.revisit_at is not None:
        run.draft.revisit.append(verdict.revisit_at)
    return waiting(Code.PLAN_FAILED, Actor.MACHINE, verdict.message)


def was_written(run: Pass, machine: Machine) -> bool:
    """True if this very pass gives it a plan, so that the time of its last one says nothing."""
    written = run.draft.secrets.get(machine.name)
    return written is not None and (written.plan is not None or written.retry)


def pending(run: Pass, what: str, steps: Sequence[MachineStep]) -> tuple[Wait, ...]:
    """The control plane's own wait, then those of its machines."""
    each = [step.wait for step in steps if step.wait is not None]
    first = each[0]
    text = f"{what} on {waits.some_names([step.machine.name for step in steps])}"
    if len(each) == 1:
        text = f"{text}: {first.evidence.removeprefix(f'{what}: ')}"
    return (waits.of_control_plane(run.snapshot, first.code, first.actor, text, first.subject), *each)
