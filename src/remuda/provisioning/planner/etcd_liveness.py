"""Liveness of the other etcd members *now*, before one of them is restarted.

A crashed host leaves healthy probes behind, and its Node looks healthy for most of a minute. A restart of another member in
that time costs etcd its majority. So the agents of the others are asked just before, by their plan secrets
(:func:`remuda.provisioning.plans.machine_plan_secret.with_question`): that works with any agent, even if the cluster can't be
reached. An answer is valid for a moment, and for one restart; a member that was asked and does not answer counts as down until
it does. Agents without work are asked now and then, too: else a dead one would be noticed only when its host gets a plan.
Judgements; :mod:`.tiers` and :mod:`.decide` act.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from remuda.kube.clock import time_of
from remuda.kube.waits import Actor, Code, Wait

from .. import well_known
from . import machine_health, waits
from .snapshot import ClusterSnapshot, Condition, Machine

# Seconds after a question within which an answer counts, and after which a missing one is reported.
FRESH = 20.0


@dataclass(frozen=True, slots=True)
class Liveness:
    """`missing` is the member that blocks the restart until a user repairs it. Without that, `awaited` still have to answer;
    of them `ask` were not asked yet, or too long ago. If all are empty, the restart is allowed."""

    missing: Machine | None = None
    awaited: tuple[Machine, ...] = ()
    ask: tuple[Machine, ...] = ()


_ENOUGH = Liveness()


def of_others(now: float, machine: Machine, machines: Iterable[Machine], disturbed: Collection[str]) -> Liveness:
    """The signs of the others for a restart of this machine. A machine that reports itself down is free to restart."""
    if not machine.is_etcd or not machine_health.serves(machine):
        return _ENOUGH
    others = machine_health.other_members(machine, machines)
    able = [other for other in others if other.name not in disturbed and machine_health.serves(other)]
    since = _last_change(now, [machine, *others])
    awaited = [other for other in able if not is_heard(now, other, since)]
    enough = machine_health.quorum(others)
    if len(able) - len(awaited) >= enough:
        return _ENOUGH
    silent = [other for other in awaited if is_silent(now, other)]
    if len(able) - len(silent) < enough:
        return Liveness((silent or [other for other in others if other not in able])[0])
    hopeful = tuple(other for other in awaited if other not in silent)
    return Liveness(awaited=hopeful, ask=tuple(other for other in hopeful if not _is_being_asked(now, other)))


def is_heard(now: float, machine: Machine, since: float) -> bool:
    """True if it has just reported that it is healthy, asked later than `since`."""
    node, at, age = machine.node, machine.asked_at, _age(now, machine)
    if node is None or node.asked or node.wavering or at is None or age is None:
        return False
    return age <= FRESH and at > since


def _last_change(now: float, members: Iterable[Machine]) -> float:
    """The time when one of them last got a plan: earlier answers were for another member's restart."""
    times = [time_of(member.plan_annotations.get(well_known.PLAN_UPDATED)) or 0.0 for member in members]
    return max((at for at in times if at <= now + 1), default=0.0)


def is_silent(now: float, machine: Machine) -> bool:
    """True if it was asked, and has had the time to answer."""
    age = _age(now, machine)
    return machine.node is not None and machine.node.asked and age is not None and age > FRESH


def _is_being_asked(now: float, machine: Machine) -> bool:
    age = _age(now, machine)
    if machine.node is None or age is None or age > FRESH:
        return False
    # Wavering probes are repeated by the agent itself, every few seconds.
    return machine.node.asked or machine.node.wavering


def _age(now: float, machine: Machine) -> float | None:
    """The age of the last question; None if there was none, or if a clock was set back since."""
    at = machine.asked_at
    return None if at is None or at > now + 1 else max(now - at, 0.0)


# --- an agent that does not answer ------------------------------------------------------------------------------------------

# An agent takes a pending plan at once. One that has applied it and whose probes fail is asked so often.
SILENT_AFTER, ASK_AGAIN = 60.0, 300.0
# A host whose agent prints progress is at work, however long it takes.
_WORKS_FOR = 120.0
# An agent without work writes nothing for hours, so it is asked so often: two writes of its Secret each time. If its node is not
# ready, it is asked at once. It may be connecting to the server again, which takes it up to a minute.
IDLE_ASK, IDLE_ANSWER = 1800.0, 90.0


@dataclass(frozen=True, slots=True)
class AgentSilence:
    """`since` is the time since which the agent does not answer; empty while it may. `ask`: it should be asked now."""

    since: str = ""
    ask: bool = False
    revisit_at: float | None = None


def silence(now: float, machine: Machine, *, applied: bool, said_at: float = 0.0) -> AgentSilence:
    """The silence of an agent whose plan is not applied, or (`applied`) whose services are not healthy. `said_at` is the time of
    its last line of progress."""
    node, written = machine.node, machine.plan_annotations.get(well_known.PLAN_UPDATED, "")
    at = time_of(written)
    if node is None or at is None or at > now + 1:
        return AgentSilence()
    if not applied:
        # An agent at work answers nothing; when it takes too long, it is no longer at work.
        limit = {"pending": SILENT_AFTER, "in-progress": machine_health.HANGS_AFTER}.get(node.state)
        if limit is None:
            return AgentSilence()
        until = max(at + limit, said_at + _WORKS_FOR if node.state == "in-progress" and said_at <= now + 1 else 0.0)
        return AgentSilence(written) if now > until else AgentSilence(revisit_at=until + 1)
    if is_silent(now, machine):
        return AgentSilence(machine.plan_annotations[well_known.ASKED_AT])
    if now - at <= SILENT_AFTER:
        return AgentSilence(revisit_at=at + SILENT_AFTER + 1)
    age = _age(now, machine)
    if age is not None and age <= ASK_AGAIN and now - age > at:
        return AgentSilence(revisit_at=now - age + FRESH + 1 if node.asked else None)
    return AgentSilence(ask=True, revisit_at=now + FRESH + 1)


@dataclass(frozen=True, slots=True)
class IdleAgents:
    """Agents of hosts that have nothing to do: those that should be asked now, and those that do not answer. These are no reason
    why the cluster is not ready: its nodes may well be."""

    ask: tuple[Machine, ...] = ()
    waits: tuple[Wait, ...] = ()
    revisit: tuple[float, ...] = ()
    condition: Condition | None = None


def of_idle(snapshot: ClusterSnapshot, machines: Iterable[Machine], busy: Collection[str]) -> IdleAgents:
    """`busy`: the names of machines that get a plan now."""
    judged = [
        (each, idle_silence(snapshot.now, each)) for each in machines if machine_health.is_idle(each) and each.name not in busy
    ]
    silent = {each.name: (each, found.since) for each, found in judged if found.since}
    return IdleAgents(
        tuple(each for each, found in judged if found.ask),
        tuple(
            Wait(Code.SILENT, each.ref(), Actor.USER, None, f"{waits.SILENT}, since {since}", since)
            for each, since in silent.values()
        ),
        tuple(found.revisit_at for _, found in judged if found.revisit_at is not None),
        _responding(snapshot, {name: since for name, (_, since) in silent.items()}),
    )


def _responding(snapshot: ClusterSnapshot, silent: Mapping[str, str]) -> Condition | None:
    if silent:
        text = f"{waits.some_names(list(silent))}: {waits.SILENT}, since {min(silent.values())}"
        return Condition(waits.AGENTS_RESPONDING, "False", "NoAnswer", text)
    known = snapshot.control_plane.condition(waits.AGENTS_RESPONDING) is not None
    return Condition(waits.AGENTS_RESPONDING, "True") if known else None


def idle_silence(now: float, machine: Machine) -> AgentSilence:
    """The silence of an agent that has nothing to do: its plan is applied, and its services are healthy."""
    node, age = machine.node, _age(now, machine)
    if node is None:
        return AgentSilence()
    if node.asked and age is not None:
        if age > IDLE_ANSWER:
            return AgentSilence(machine.plan_annotations[well_known.ASKED_AT])
        return AgentSilence(revisit_at=now - age + IDLE_ANSWER + 1)
    written = time_of(machine.plan_annotations.get(well_known.PLAN_UPDATED))
    troubled = bool(machine.failing or machine.non_ready)
    asked_lately = age is not None and age <= (ASK_AGAIN if troubled else IDLE_ASK)
    planned_lately = written is not None and 0 <= now - written <= (SILENT_AFTER if troubled else IDLE_ASK)
    if asked_lately or planned_lately:
        return AgentSilence()
    return AgentSilence(ask=True, revisit_at=now + IDLE_ANSWER + 1)
