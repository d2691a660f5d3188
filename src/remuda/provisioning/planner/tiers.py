"""One tier of machines: the next plan, drain or wait of each (docs/reference/planner.md#one-machine).

Tiers come in order (bootstrap, etcd, control plane, worker); :mod:`.decide` ends the pass at the first one that is not done.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from remuda.kube.clock import rfc3339
from remuda.kube.waits import Actor, Code, Ref, Wait

from .. import well_known
from ..plans.plan import Plan, restarts_nothing, same
from . import (
    change_budgets,
    concurrency,
    drain,
    etcd_liveness,
    held_plans,
    machine_health,
    managesystemagent,
    plan_failures,
    waits,
)
from .decision import Draft, MachineEvent
from .snapshot import CannotRender, ClusterSnapshot, Condition, Join, Machine, Render

READY = Condition("Reconciled", "True", "Reconciled")
TURN = "waiting for its turn to be changed"
_BUDGET_AGAIN = 60.0
INTERRUPT = "waiting for plan to be applied, before it is changed"


@dataclass(frozen=True, slots=True)
class Tier:
    """`of` are the machines whose state counts; of them those of `changed` are changed. `drained_with` are all that count
    for a drain, also those of other tiers. `join` gives None while there is no server to join."""

    name: str
    of: Callable[[Machine], bool]
    changed: Callable[[Machine], bool]
    drained_with: Callable[[Machine], bool]
    join: Callable[[Machine], Join | None]
    concurrency: str = "1"
    drain: Mapping[str, Any] = field(default_factory=dict)
    required: bool = True


@dataclass(slots=True)
class Pass:
    """The state that all tiers of one pass share. `machines` by name, with the annotations decided in this pass."""

    snapshot: ClusterSnapshot
    render: Render
    machines: list[Machine]
    draft: Draft
    visited: set[str] = field(default_factory=set)
    # Machines whose services restart because of this pass.
    disturbed: set[str] = field(default_factory=set)
    # Machines that are down, so that others may not be changed.
    endangering: set[str] = field(default_factory=set)
    # True while a restore brings back machines that are all stopped: no budget is needed for that.
    restores: bool = False
    # True while only the restored machine has data: no other member can be lost by its restart.
    begins: bool = False
    # Machines whose plans are held (:mod:`.held_plans`).
    held: list[Machine] = field(default_factory=list)
    # Reports about machines, each once.
    events: list[MachineEvent] = field(default_factory=list)


class _Group(IntEnum):
    """The groups of machines, in the order of messages."""

    UNCORDONING = 0
    DRAINING = 1
    CONFIGURING = 2
    ASIDE = 3  # waits, but blocks no other machine
    READY = 4


@dataclass(frozen=True, slots=True)
class _State:
    """`counts_as`: the code by which it blocks others, if that is another one than is told."""

    group: _Group
    code: Code = Code.STEP
    actor: Actor = Actor.REMUDA
    message: str = ""
    on: Ref | None = None
    counts_as: Code | None = None


@dataclass(frozen=True, slots=True)
class TierOutcome:
    """`blocking` ends the pass; `aside` is reported at its end. `codes` are those of single machines among `blocking`."""

    blocking: tuple[Wait, ...] = ()
    aside: tuple[Wait, ...] = ()
    codes: frozenset[Code] = frozenset()


@dataclass(frozen=True, slots=True)
class _Entry:
    machine: Machine
    join: Join | None
    desired: Plan | None = None
    unmade: _State | None = None
    change: bool = False
    minor: bool = False
    # Only its agent file, or the work on files of snapshots, is added or removed.
    passing: bool = False
    marks: Mapping[str, str | None] = field(default_factory=dict)


def reconcile(run: Pass, tier: Tier) -> TierOutcome:
    """Raises InvalidConcurrency."""
    counted = [machine for machine in run.machines if tier.of(machine)]
    if not counted:
        text = f"waiting for at least one {tier.name} node"
        missing = waits.of_control_plane(run.snapshot, Code.ROLES, Actor.USER, text)
        return TierOutcome((missing,), codes=frozenset({Code.ROLES})) if tier.required else TierOutcome()
    entries = [_entry(run, tier, machine) for machine in counted if tier.changed(machine)]
    run.visited.update(entry.machine.name for entry in entries)
    lagging = [entry.machine for entry in entries if _lags(run, entry)]
    staying = [machine for machine in counted if not machine.deleting]
    drained_with = [machine for machine in run.machines if tier.drained_with(machine) and not machine.deleting]
    turns = concurrency.Slots.among(staying, drained_with, lagging, concurrency.limit(tier.concurrency, len(entries)))
    return _outcome(run, tier, [(entry.machine, _step(run, tier, turns, entry)) for entry in entries])


def _entry(run: Pass, tier: Tier, machine: Machine) -> _Entry:
    join = tier.join(machine)
    if join is None:
        return _Entry(machine, None, unmade=_State(_Group.CONFIGURING, Code.JOIN_URL, message=waits.CONTROL_PLANE))
    try:
        desired = run.render(run.snapshot, machine, join)
    except CannotRender as reason:
        return _Entry(machine, join, unmade=_State(_Group.ASIDE, Code.RENDER, reason.actor, reason.message, reason.on))
    if desired.error:
        return _Entry(machine, join, unmade=_State(_Group.ASIDE, Code.RENDER, Actor.USER, desired.error))
    if machine.node is None:
        return _Entry(machine, join, desired)
    verdict, rendering = managesystemagent.judge(run.snapshot, machine), held_plans.judge(run.snapshot, machine, desired)
    if rendering.held:
        run.held.append(machine)
        if not held_plans.is_noted(run.snapshot, machine):
            run.events.append(MachineEvent(machine.name, "PlanHeld", held_plans.text_of(run.snapshot, [machine])))
    found, whole = machine.node.plan, verdict.plan(rendering.plan)
    marks = {**verdict.annotations, **rendering.annotations}
    if same(found, whole):
        return _Entry(machine, join, whole, marks=marks)
    passing = same(managesystemagent.lasting(found), managesystemagent.lasting(rendering.plan))
    return _Entry(machine, join, whole, None, True, restarts_nothing(found, whole), passing, marks)


def _lags(run: Pass, entry: _Entry) -> bool:
    settled = entry.desired is not None and not entry.change and entry.machine.node is not None
    return settled and machine_health.kubelet_lags(run.snapshot, entry.machine)


def _step(run: Pass, tier: Tier, turns: concurrency.Slots, entry: _Entry) -> _State:
    machine, node = entry.machine, entry.machine.node
    if entry.unmade is not None:
        return entry.unmade
    if node is None:
        _write(run, entry)
        turns.take(machine, False)
        return _State(_Group.CONFIGURING, Code.CHECK_IN, Actor.USER, waits.CHECK_IN)
    run.draft.annotate(machine, entry.marks)
    if entry.passing:
        # It restarts nothing and blocks no other machine, so it needs no turn.
        if machine_health.may_be_written(run.snapshot, machine):
            _write(run, entry)
    elif entry.change:
        return _change(run, tier, turns, entry)
    elif node.failed:
        return _failed(run, machine)
    reason = machine_health.unapplied(node)
    if reason is not None and not (reason.code is Code.PLAN and managesystemagent.is_all_that_changes(node)):
        return _unsettled(run, machine, reason)
    if well_known.PLAN_FAILURE in machine.plan_annotations:
        run.draft.annotate(machine, {well_known.PLAN_FAILURE: None})
    way_back = drain.back(machine, tier.drain)
    if not way_back.done:
        run.draft.annotate(machine, way_back.annotations)
        return _State(_Group.UNCORDONING, way_back.code, way_back.actor, way_back.message)
    return _settled(run, machine)


def _silent(run: Pass, machine: Machine, reason: machine_health.Reason) -> _State | None:
    """The state of a machine whose agent does not answer; None while it may. An agent that runs is asked now and then."""
    said_at = run.snapshot.said_at.get(machine.name, 0.0)
    found = etcd_liveness.silence(run.snapshot.now, machine, applied=reason.code in _APPLIED, said_at=said_at)
    if found.ask:
        # Members of etcd are asked together, as before a restart: asked in turn, their answers would go stale in turn.
        for each in [machine, *(machine_health.other_members(machine, run.machines) if machine.is_etcd else ())]:
            run.draft.ask(each, run.snapshot.now)
    if found.revisit_at is not None:
        run.draft.revisit.append(found.revisit_at)
    if not found.since or reason.code not in _ANSWERED:
        return None
    text = f"{reason.message}: {waits.SILENT}, since {found.since}"
    return _State(_Group.CONFIGURING, Code.SILENT, Actor.USER, text, counts_as=reason.code)


# The waits for a host that end when its agent, or what it has started, does its work.
_APPLIED = frozenset((Code.PROBES, Code.KUBELET, Code.CLUSTER_AGENT))
_ANSWERED = _APPLIED | {Code.PLAN}


def _settled(run: Pass, machine: Machine) -> _State:
    if machine_health.kubelet_lags(run.snapshot, machine):
        return _unsettled(run, machine, machine_health.Reason(Code.KUBELET, Actor.MACHINE, waits.KUBELET))
    if machine.is_control_plane and run.snapshot.pre_bootstrap:
        return _State(_Group.CONFIGURING, Code.PRE_BOOTSTRAP, Actor.REMUDA, waits.PRE_BOOTSTRAP)
    if machine.is_control_plane and not run.snapshot.control_plane.agent_connected:
        # A server that is off has no agent of the cluster either.
        return _unsettled(run, machine, machine_health.Reason(Code.CLUSTER_AGENT, Actor.USER, waits.CLUSTER_AGENT))
    return _State(_Group.READY)


def _unsettled(run: Pass, machine: Machine, reason: machine_health.Reason) -> _State:
    return _silent(run, machine, reason) or _State(_Group.CONFIGURING, reason.code, reason.actor, reason.message)


def _change(run: Pass, tier: Tier, turns: concurrency.Slots, entry: _Entry) -> _State:
    machine, desired = entry.machine, entry.desired
    assert desired is not None
    if not machine_health.may_be_written(run.snapshot, machine):
        return _State(_Group.CONFIGURING, Code.PLAN, Actor.MACHINE, INTERRUPT)
    if entry.minor:
        _write(run, entry)
        return _State(_Group.CONFIGURING, Code.PLAN, Actor.MACHINE, waits.PLAN)
    held = _endangered(run, machine)
    if held is not None:
        # A node drained for the change is uncordoned; else the machine that is down might wait for this one's turn to end.
        run.draft.annotate(machine, drain.back(machine, tier.drain).annotations)
        return held
    failed = turns.failed_before(machine)
    if failed is not None:
        return _State(_Group.CONFIGURING, Code.TURN, Actor.USER, f"not changed, since {failed.name} failed", failed.ref())
    needs_drain = drain.is_wanted(machine, desired, tier.drain, len(run.machines))
    holder = turns.before(machine, needs_drain)
    if holder is not None:
        return _State(_Group.CONFIGURING, Code.TURN, Actor.REMUDA, TURN, holder.ref())
    beyond = _beyond_budget(run, machine, drains=needs_drain)
    if beyond is not None:
        # As above: it must not stay cordoned until the budget allows more.
        run.draft.annotate(machine, drain.back(machine, tier.drain).annotations)
        return beyond
    if needs_drain:
        step = drain.before_change(machine, tier.drain, len(run.machines))
        if not step.done:
            turns.take(machine, True)
            run.draft.annotate(machine, step.annotations)
            group = _Group.UNCORDONING if step.message.startswith(waits.UNCORDON) else _Group.DRAINING
            return _State(group, step.code, step.actor, step.message)
    turns.take(machine, drain.is_in_drain(machine))
    asked = _asked_before(run, machine)
    if asked is not None:
        return asked
    run.disturbed.add(machine.name)
    _write(run, entry)
    return _State(_Group.CONFIGURING, Code.PLAN, Actor.MACHINE, waits.PLAN)


def held_before_restart(run: Pass, machine: Machine) -> Wait | None:
    """The wait because of which this machine may not restart now; asks other members of etcd for signs of life."""
    held = _endangered(run, machine) or _beyond_budget(run, machine) or _asked_before(run, machine)
    return None if held is None else waits.of_machine(run.snapshot, machine, held.code, held.actor, held.message, held.on)


def _beyond_budget(run: Pass, machine: Machine, *, drains: bool = False) -> _State | None:
    """The state if a change budget forbids a restart of this machine now; else None. The first plan restarts nothing."""
    if run.restores or machine.node is None or machine.node.applied is None:
        return None
    begun = {name for name, change in run.draft.secrets.items() if change.annotations.get(well_known.DRAIN_OPTIONS)}
    found = change_budgets.why_held(run.snapshot, machine, run.machines, run.disturbed, begun, drains=drains)
    if found is None:
        return None
    # A budget may change at any time; the one of the namespace is not watched.
    run.draft.revisit.append(min(found.opens_at or math.inf, run.snapshot.now + _BUDGET_AGAIN))
    text = f"{waits.BUDGET}: {found.why}"
    if machine.reconciled is None or machine.reconciled.message != text:
        run.events.append(MachineEvent(machine.name, "ChangeBudget", text))
    return _State(_Group.CONFIGURING, Code.BUDGET, Actor.USER, text)


def _endangered(run: Pass, machine: Machine) -> _State | None:
    """The state if etcd's quorum forbids a restart of this machine until a user acts; else None."""
    if run.begins:
        return None
    now, down = run.snapshot.now, machine_health.quorum_blocker(machine, run.machines, run.disturbed)
    why = "is not available"
    if down is None:
        down = etcd_liveness.of_others(now, machine, run.machines, run.disturbed).missing
    if down is None:
        return None
    if etcd_liveness.is_silent(now, down):
        why = f"has not answered since {down.plan_annotations[well_known.ASKED_AT]}"
    run.endangering.add(down.name)
    return _State(_Group.CONFIGURING, Code.QUORUM, Actor.USER, f"{waits.QUORUM}, since {down.name} {why}", down.ref())


def _asked_before(run: Pass, machine: Machine) -> _State | None:
    """The wait for answers of other members before this machine restarts, once nothing else blocks it; also asks them."""
    now = run.snapshot.now
    found = etcd_liveness.of_others(now, machine, run.machines, run.disturbed)
    if run.begins or not found.awaited:
        return None
    for other in found.ask:
        run.draft.ask(other, now)
    run.draft.revisit.extend(
        (now if other in found.ask else other.asked_at or now) + etcd_liveness.FRESH + 1 for other in found.awaited
    )
    text = f"{waits.ASKING} {waits.some_names([other.name for other in found.awaited])}"
    return _State(_Group.CONFIGURING, Code.STEP, Actor.MACHINE, text, found.awaited[0].ref())


def _write(run: Pass, entry: _Entry) -> None:
    assert entry.desired is not None and entry.join is not None
    deliver(run, entry.machine, entry.desired, entry.join, failure_threshold=5 if entry.machine.is_windows else 1)


def deliver(
    run: Pass,
    machine: Machine,
    plan: Plan,
    join: Join,
    *,
    failure_threshold: int = 1,
    max_failures: int = -1,
    task: str = "",
) -> None:
    """Write a machine's plan, with the notes that belong to a new one."""
    annotations: dict[str, str | None] = {
        well_known.JOINED_TO: "" if join.init else join.server,
        well_known.PLAN_UPDATED: rfc3339(run.snapshot.now),
        well_known.PROBES_PASSED: "",
        **drain.marks(machine, plan),
        **({} if any(each is machine for each in run.held) else held_plans.marks(run.snapshot, machine)),
    }
    if well_known.PLAN_FAILURE in machine.plan_annotations:
        annotations[well_known.PLAN_FAILURE] = None
    if task or well_known.TASK in machine.plan_annotations:
        annotations[well_known.TASK] = task or None
    run.draft.write_plan(machine, plan, annotations, failure_threshold, max_failures)


def _failed(run: Pass, machine: Machine) -> _State:
    node = machine.node
    assert node is not None
    snapshot = run.snapshot
    verdict = plan_failures.judge(machine, node, snapshot.now, snapshot.control_plane, snapshot.known_versions)
    if verdict.retry:
        held = _endangered(run, machine) or _beyond_budget(run, machine) or _asked_before(run, machine)
        if held is not None:
            return replace(held, message=f"{waits.PLAN_FAILED}; not tried again: {held.message}")
        run.disturbed.add(machine.name)
        run.draft.retry(machine, {well_known.PLAN_UPDATED: rfc3339(run.snapshot.now)})
    if verdict.note is not None:
        run.draft.annotate(machine, {well_known.PLAN_FAILURE: verdict.note.text()})
    if verdict.revisit_at is not None:
        run.draft.revisit.append(verdict.revisit_at)
    return _State(_Group.CONFIGURING, verdict.code, verdict.actor, verdict.message)


_VERBS = {_Group.UNCORDONING: "uncordoning", _Group.DRAINING: "draining", _Group.CONFIGURING: "configuring"}


def _outcome(run: Pass, tier: Tier, states: list[tuple[Machine, _State]]) -> TierOutcome:
    snapshot = run.snapshot
    heads, each, aside = [], [], []
    codes: set[Code] = set()
    for machine, state in states:
        if state.group is _Group.READY:
            run.draft.set_reconciled(machine, READY)
            continue
        run.draft.set_reconciled(machine, Condition("Reconciled", "Unknown", "Waiting", state.message))
        wait = waits.of_machine(snapshot, machine, state.code, state.actor, state.message, state.on)
        if state.group is _Group.ASIDE:
            aside.append(wait)
            continue
        codes.add(state.counts_as or state.code)
        each.append(wait)
    for group, verb in _VERBS.items():
        members = [(machine, state) for machine, state in states if state.group is group]
        if members:
            heads.append(_head(snapshot, f"{verb} {tier.name} node(s)", members))
    ready = [machine for machine, state in states if state.group is _Group.READY]
    for word, kind in (("failing", "failing"), ("non-ready", "non_ready")):
        troubled = [(machine, _State(_Group.ASIDE, Code.MACHINES, Actor.PROVIDER, getattr(machine, kind))) for machine in ready]
        troubled = [(machine, state) for machine, state in troubled if state.message]
        if troubled:
            aside.append(_head(snapshot, f"{word} {tier.name} machine(s)", troubled))
    return TierOutcome((*heads, *each), tuple(aside), frozenset(codes))


def _head(snapshot: ClusterSnapshot, what: str, members: list[tuple[Machine, _State]]) -> Wait:
    """The control plane's own wait, on the first machine that does more than wait for its turn."""
    text = f"{what} {waits.some_names([machine.name for machine, _ in members])}"
    if len(members) == 1 and members[0][1].message:
        text += f": {members[0][1].message}"
    machine, state = next((member for member in members if member[1].code is not Code.TURN), members[0])
    return waits.of_control_plane(snapshot, state.code, state.actor, text, machine.ref())
