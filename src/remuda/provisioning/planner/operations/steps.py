"""The steps that all operations are made of: the task of one machine, and what an operation adds to a pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from remuda.kube.clock import rfc3339
from remuda.kube.waits import Actor, Code, Ref, Wait

from ... import well_known
from ...plans.plan import Plan, same
from .. import machine_health, plan_failures, waits
from ..snapshot import CannotRender, Condition, Join, Machine, Task
from ..tiers import INTERRUPT, Pass, deliver

# A reason in a condition; a host's output may be of any length.
_LONGEST = 600
_INSTALL = "install"


@dataclass(frozen=True, slots=True)
class Progress:
    """What an operation adds to a pass: fields of the status (None removes one), conditions, and waits. `blocking` ones end the
    pass, `notes` are only reported."""

    status: Mapping[str, Any] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    blocking: tuple[Wait, ...] = ()
    notes: tuple[Wait, ...] = ()

    def also(self, other: Progress) -> Progress:
        return Progress(
            {**self.status, **other.status},
            (*self.conditions, *other.conditions),
            (*self.blocking, *other.blocking),
            (*self.notes, *other.notes),
        )


@dataclass(frozen=True, slots=True)
class Step:
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
    return any(instruction.name != _INSTALL for instruction in plan.instructions)


def assign(run: Pass, machine: Machine, join: Join, task: Task, what: str, *, attempts: int, paused: bool) -> Step:
    """Give a machine the plan of a task unless it has it, and judge how far it is. `attempts` is how often it is tried."""

    def waiting(code: Code, actor: Actor, text: str, on: Ref | None = None) -> Step:
        text = f"{what}: {text}"[:_LONGEST]
        run.visited.add(machine.name)
        run.draft.set_reconciled(machine, Condition("Reconciled", "Unknown", "Waiting", text))
        return Step(machine, wait=waits.of_machine(run.snapshot, machine, code, actor, text, on))

    try:
        desired = run.render(run.snapshot, machine, join, task)
    except CannotRender as problem:
        return waiting(Code.RENDER, problem.actor, problem.message, problem.on)
    node = machine.node
    if node is None or not same(node.plan, desired):
        if paused:
            return waiting(Code.PAUSED, Actor.USER, waits.PAUSED)
        if not machine_health.may_be_written(run.snapshot, machine):
            return waiting(Code.PLAN, Actor.MACHINE, INTERRUPT)
        deliver(run, machine, desired, join, failure_threshold=attempts, max_failures=attempts)
        return waiting(Code.PLAN, Actor.MACHINE, waits.PLAN)
    if node.failed:
        failed, text = _judged(run, machine, attempts, paused)
        return Step(machine, failed=text[:_LONGEST]) if failed else waiting(Code.PLAN_FAILED, Actor.MACHINE, text)
    reason = machine_health.unapplied(node)
    return Step(machine) if reason is None else waiting(reason.code, reason.actor, reason.message)


def _judged(run: Pass, machine: Machine, attempts: int, paused: bool) -> tuple[bool, str]:
    """True if a failed task is given up, with the reason; else it is tried again when that is due."""
    node = machine.node
    assert node is not None
    verdict = plan_failures.judge(machine, node, run.snapshot.now)
    note = verdict.note or plan_failures.noted(machine)
    # Agents of the older kind have tried as often as they were told when they report a failure.
    if note is None or note.attempts >= attempts:
        return True, verdict.message.partition(f"{waits.PLAN_FAILED} ")[2] or verdict.message
    if verdict.retry and not paused:
        run.draft.retry(machine, {well_known.PLAN_UPDATED: rfc3339(run.snapshot.now)})
    if verdict.note is not None:
        run.draft.annotate(machine, {well_known.PLAN_FAILURE: verdict.note.text()})
    if verdict.revisit_at is not None:
        run.draft.revisit.append(verdict.revisit_at)
    return False, verdict.message
