"""Replacement of hosts' agents that differ from the server's: by a file in their plan, and only in theirs
(docs/reference/planner.md#agents).

Rancher starts a pod on every node that runs its install script again. Here an agent reports its version in its Secret
(:mod:`remuda.provisioning.plans.agent_report`); if it differs from the server's, its plan gets the server's as a minor file,
which restarts nothing. The agent tries the file and is replaced by it, or reports why not. After either report the file leaves
the plan. Hosts without a report (Rancher's own agent) and up-to-date hosts never get the file.

It waits until nothing else is to be done, begins with one host, and continues with a few at once. Progress and result are
noted on the plan's Secret. A host whose update is given up keeps its agent, and blocks no other host.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import msgspec

from remuda.kube.clock import rfc3339, time_of
from remuda.kube.encoding import jsonio
from remuda.kube.waits import Actor, Code, Wait

from .. import well_known
from ..plans.plan import File, Plan, same, without_file_work
from . import machine_health, waits
from .snapshot import AgentProgram, ClusterSnapshot, Condition, Machine, PlanNode

CONDITION = "SystemAgentUpdated"
# Time within which a host must run the agent that it was given.
LIMIT = 600.0
TRIES = 3
_FIRST_PAUSE = 3600.0
_FILE = re.compile(r"/[0-9a-f]{64}\.pyz$")


@dataclass(frozen=True, slots=True)
class UpdateNote:
    """The note about a host that was given the agent `checksum`: `at` is the time of the offer while it is `offered`, else the
    time when it was given up, with the reason. A new `generation`, requested by a user, starts again."""

    checksum: str
    offered: bool
    at: float
    attempts: int = 1
    generation: str = ""
    reason: str = ""

    def text(self) -> str:
        said = {"checksum": self.checksum, "state": "offered" if self.offered else "failed", "at": rfc3339(self.at)}
        more = {"generation": self.generation, "reason": self.reason}
        return json.dumps({**said, "attempts": self.attempts, **{name: text for name, text in more.items() if text}})

    @property
    def again_at(self) -> float | None:
        """The time of the next automatic try; None if only a user can start one."""
        return None if self.attempts >= TRIES else self.at + _FIRST_PAUSE * 2.0 ** (self.attempts - 1)


@dataclass(frozen=True, slots=True)
class AgentUpdate:
    """`file` belongs into the machine's plan; `note` on its Secret."""

    file: File | None = None
    note: UpdateNote | None = None

    def plan(self, desired: Plan) -> Plan:
        return desired if self.file is None else msgspec.structs.replace(desired, files=(*desired.files, self.file))

    @property
    def annotations(self) -> Mapping[str, str | None]:
        return {well_known.AGENT_UPDATE: self.note.text() if self.note else None}


@dataclass(frozen=True, slots=True)
class Update:
    """The update of all agents of a cluster: plans to write now, waits for the others, and times to look again."""

    plans: tuple[tuple[Machine, Plan, Mapping[str, str | None]], ...] = ()
    waits: tuple[Wait, ...] = ()
    condition: Condition | None = None
    revisit: tuple[float, ...] = ()


def noted(machine: Machine) -> UpdateNote | None:
    """The note of a machine; None also if it is malformed."""
    text = machine.plan_annotations.get(well_known.AGENT_UPDATE)
    if not text:
        return None
    try:
        said = jsonio.loads(text)
        at, attempts = time_of(said["at"]), int(said["attempts"])
        words = [str(said.get(name) or "") for name in ("checksum", "state", "generation", "reason")]
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None
    if at is None or attempts < 1:
        return None
    return UpdateNote(words[0], words[1] == "offered", at, attempts, words[2], words[3])


def without(plan: Plan) -> Plan:
    """The plan without agent files."""
    kept = tuple(file for file in plan.files if not (file.minor and _FILE.search(file.path)))
    return plan if len(kept) == len(plan.files) else msgspec.structs.replace(plan, files=kept)


def lasting(plan: Plan) -> Plan:
    """The plan without what comes and goes beside the cluster's own changes: agent files, and work on files of snapshots."""
    return without(without_file_work(plan))


def is_all_that_changes(node: PlanNode) -> bool:
    """True if its plan differs from the one that the host has applied by nothing but such parts."""
    applied, plan = node.applied, node.plan
    if applied is None or same(applied, plan):
        return False
    return same(lasting(applied), lasting(plan))


def judge(snapshot: ClusterSnapshot, machine: Machine) -> AgentUpdate:
    """The verdict on one machine: an agent file in its plan stays or goes."""
    program, node, note = snapshot.agent, machine.node, noted(machine)
    report = node.agent if node else None
    if program is None or node is None or report is None or note is None or note.checksum != program.checksum:
        return AgentUpdate()
    if report.checksum == program.checksum:
        return AgentUpdate()
    if not note.offered:
        return AgentUpdate(note=note)
    reason = _given_up(snapshot, note, node)
    if reason:
        return AgentUpdate(note=replace(note, offered=False, at=float(int(snapshot.now)), reason=reason))
    return AgentUpdate(program.file(report.successors), note)


def _given_up(snapshot: ClusterSnapshot, note: UpdateNote, node: PlanNode) -> str:
    report = node.agent
    if report is not None and report.refused == note.checksum:
        return report.reason or "its host does not take it"
    if node.failed:
        *_, said = node.failure.strip().splitlines() or ["no reason is known"]
        return f"{waits.PLAN_FAILED} with it: {said[:300]}"
    # An offer in the future, after a clock was set back, is not waited for either.
    if abs(snapshot.now - note.at) < LIMIT:
        return ""
    applied = "it does not run" if node.in_sync else "its plan was not applied"
    return f"{applied} after {LIMIT / 60:g} minutes"


def update(snapshot: ClusterSnapshot, machines: Iterable[Machine], busy: Collection[str]) -> Update:
    """Called when nothing else is to be done. `busy`: the names of machines whose plans can't be made, or are written anyway."""
    program = snapshot.agent
    if program is None:
        return Update()
    told = [machine for machine in machines if machine.node is not None and machine.node.agent is not None]
    others = [machine for machine in told if not machine.deleting and not _has(machine, program)]
    verdicts = {machine.name: judge(snapshot, machine) for machine in others}
    under_way = [machine for machine in others if verdicts[machine.name].file is not None]
    # The first host of a cluster shows whether the agent works there at all.
    most = program.at_once if len(told) > len(others) else 1
    ready = [machine for machine in others if machine.name not in busy and _may_begin(snapshot, machine, verdicts[machine.name])]
    ready.sort(key=lambda machine: (not machine.is_only_worker, machine.name))
    begun = ready[: max(most - len(under_way), 0)]
    notes = {machine.name: _begin(snapshot, program, machine) for machine in begun}
    plans = tuple((machine, *_offer(program, machine, notes[machine.name])) for machine in begun)
    known = {name: verdict.note for name, verdict in verdicts.items() if verdict.note is not None} | notes
    return Update(
        plans,
        tuple(_wait(machine, known[machine.name]) for machine in others if machine.name in known),
        _condition(snapshot, program, others, known),
        tuple(at for at in _next_looks(known.values()) if at > snapshot.now),
    )


def _has(machine: Machine, program: AgentProgram) -> bool:
    node = machine.node
    return node is not None and node.agent is not None and node.agent.checksum == program.checksum


def _may_begin(snapshot: ClusterSnapshot, machine: Machine, verdict: AgentUpdate) -> bool:
    node = machine.node
    if node is None or machine.is_windows or verdict.file is not None or machine.failing or machine.non_ready:
        return False
    if node.failed or not node.in_sync or not machine_health.is_healthy(node):
        return False
    note = verdict.note
    if note is None or note.generation != _generation(snapshot):
        return True
    return note.again_at is not None and snapshot.now >= note.again_at


def _begin(snapshot: ClusterSnapshot, program: AgentProgram, machine: Machine) -> UpdateNote:
    old = noted(machine)
    goes_on = old is not None and old.checksum == program.checksum and old.generation == _generation(snapshot)
    attempts = old.attempts + 1 if old is not None and goes_on else 1
    return UpdateNote(program.checksum, True, float(int(snapshot.now)), attempts, _generation(snapshot))


def _offer(program: AgentProgram, machine: Machine, note: UpdateNote) -> tuple[Plan, Mapping[str, str | None]]:
    node = machine.node
    assert node is not None and node.agent is not None
    verdict = AgentUpdate(program.file(node.agent.successors), note)
    marks = {well_known.PLAN_UPDATED: rfc3339(note.at), well_known.PROBES_PASSED: ""}
    return verdict.plan(without(node.plan)), {**marks, **verdict.annotations}


def _generation(snapshot: ClusterSnapshot) -> str:
    return snapshot.control_plane.annotations.get(well_known.REDEPLOY_AGENT, "")


def _wait(machine: Machine, note: UpdateNote) -> Wait:
    actor = Actor.MACHINE if note.offered else Actor.USER
    return Wait(Code.AGENT, machine.ref(), actor, None, _words(note), rfc3339(note.at))


def _words(note: UpdateNote) -> str:
    if note.offered:
        return f"its agent is being replaced by {note.checksum[:12]}"
    then = f"tried again at {rfc3339(note.again_at)}" if note.again_at is not None else "not tried again"
    return f"its agent could not be replaced by {note.checksum[:12]}, and the one before stays ({then}): {note.reason}"


def _condition(
    snapshot: ClusterSnapshot, program: AgentProgram, others: list[Machine], known: Mapping[str, UpdateNote]
) -> Condition | None:
    failed = [name for name, note in known.items() if not note.offered]
    if failed:
        text = f"agents of {waits.some_names(failed)}: {_words(known[sorted(failed)[0]])}"
        return Condition(CONDITION, "False", "UpdateFailed", text)
    if others:
        text = f"agents of {waits.some_names([machine.name for machine in others])} are to be replaced by {program.checksum[:12]}"
        return Condition(CONDITION, "Unknown", "Updating", text)
    # A cluster that never had another agent needs no condition.
    return Condition(CONDITION, "True") if snapshot.control_plane.condition(CONDITION) is not None else None


def _next_looks(found: Iterable[UpdateNote]) -> Iterable[float]:
    for note in found:
        at = note.at + LIMIT if note.offered else note.again_at
        if at is not None:
            yield at
