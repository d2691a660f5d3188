"""What happens to each machine in a rehearsal, by its versions, those of its plan, and the moves of its host. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from remuda.capi.well_known import DEPLOYMENT_NAME
from remuda.kube.encoding import jsonio
from remuda.kube.objects import Key, annotations_of, dig, is_being_deleted, labels_of, name_of, namespace_of
from remuda.lab.sim.adopted_hosts import node_of
from remuda.lab.sim.members import Move
from remuda.provisioning.plans.machine_plan_secret import DeliveredPlan, PlanSecretError, decode
from remuda.provisioning.plans.plan import Plan, PlanError
from remuda.provisioning.well_known import (
    CONTROL_PLANE_ROLE,
    DRAIN_DONE,
    ETCD_ROLE,
    POOL_NAME,
    PROBES_PASSED,
    WORKER_ROLE,
    plan_name,
)

from . import differences
from .record import SECRETS, Record, Version
from .result import FieldChange, Outcome

Obj = dict[str, Any]

_ROLES = ((ETCD_ROLE, "etcd"), (CONTROL_PLANE_ROLE, "control plane"), (WORKER_ROLE, "worker"))
_RUNNING = "Running"


@dataclass(frozen=True)
class Judged:
    """A machine, what happens to it, and when; `down` are the intervals in which its services do not run."""

    key: str
    cluster: Key
    machine: Obj
    outcome: Outcome
    begins: float = 0.0
    ends: float = 0.0
    down: tuple[tuple[float, float], ...] = ()
    reasons: tuple[FieldChange, ...] = ()
    replaces: str = ""

    @property
    def name(self) -> str:
        return name_of(self.machine)

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(word for label, word in _ROLES if labels_of(self.machine).get(label) == "true")

    @property
    def pool(self) -> str:
        return labels_of(self.machine).get(POOL_NAME, "")

    @property
    def deployment(self) -> str:
        return labels_of(self.machine).get(DEPLOYMENT_NAME, "")


def judged(record: Record) -> list[Judged]:
    """All machines of the clusters, those that are made on the way included."""
    found = [_judged(record, key, cluster) for key, cluster in record.machines().items()]
    return _paired([each for each in found if each is not None])


def _judged(record: Record, key: str, cluster: Key) -> Judged | None:
    before, after, machine = record.before.get(key), record.after.get(key), record.last(key)
    versions = record.versions.get(key, ())
    moves = [move for move in record.moves.get(cluster, ()) if move.host == node_of(machine)]
    if before is None:
        if after is None or is_being_deleted(after):
            # Made and given up on the way: no machine of before or after.
            return None
        ends = next((each.at for each in versions if dig(each.obj, "status", "phase") == _RUNNING), record.seconds)
        return Judged(key, cluster, machine, Outcome.CREATED, versions[0].at, ends)
    going = next((each.at for each in versions if each.obj is None or is_being_deleted(each.obj)), None)
    if (after is None or is_being_deleted(after)) and (going is not None or not is_being_deleted(before)):
        begins = going if going is not None else 0.0
        return Judged(key, cluster, before, Outcome.DELETED, begins, versions[-1].at if versions else begins)
    return _in_place(record, Judged(key, cluster, machine, Outcome.UNTOUCHED), moves)


def _in_place(record: Record, found: Judged, moves: Sequence[Move]) -> Judged:
    key = _plan_key(found.machine)
    before = _delivered(record.before.get(key))
    versions = record.versions.get(key, ())
    given = [
        each for each in versions if (new := _delivered(each.obj)) is not None and (before is None or new.data != before.data)
    ]
    drained = any(annotations_of(each.obj or {}).get(DRAIN_DONE) and _drains(each.obj or {}) for each in versions)
    down = tuple(_intervals(moves, versions, record.seconds))
    if down:
        outcome = Outcome.DRAINED if drained else Outcome.RESTARTED
    elif drained:
        outcome = Outcome.DRAINED
    else:
        outcome = Outcome.CONFIGURED if given else Outcome.UNTOUCHED
    if outcome is Outcome.UNTOUCHED:
        return found
    after = _delivered(record.after.get(key))
    # Before its turn a machine may get what disturbs nothing: that is no part of its wave.
    times = [moment for interval in down for moment in interval] or [each.at for each in given]
    reasons = differences.of_plans(_plan(before), _plan(after)) or _on_the_way(before, given)
    return replace(
        found, outcome=outcome, begins=min(times, default=0.0), ends=max(times, default=0.0), down=down, reasons=reasons
    )


def _on_the_way(before: DeliveredPlan | None, given: Sequence[Version]) -> tuple[FieldChange, ...]:
    """What a plan had in between, if it is in the end as it was: the tasks of an operation."""
    for each in given:
        found = differences.of_plans(_plan(before), _plan(_delivered(each.obj)))
        if found:
            return found
    return ()


def _intervals(moves: Sequence[Move], versions: Sequence[Version], end: float) -> Iterator[tuple[float, float]]:
    """From each stop (or start, of what was not stopped) until the probes have passed."""
    stopped: float | None = None
    for move in moves:
        if move.what == "stopped":
            stopped = move.at if stopped is None else stopped
        elif move.what == "started":
            begin = move.at if stopped is None else stopped
            yield begin, _passed(versions, move.at, end)
            stopped = None
    if stopped is not None:
        yield stopped, end


def _passed(versions: Sequence[Version], since: float, end: float) -> float:
    """The first moment since then at which all probes of the plan have passed."""
    for each in versions:
        if each.at >= since and annotations_of(each.obj or {}).get(PROBES_PASSED):
            return each.at
    return end


def _drains(secret: Obj) -> bool:
    """True if the drain that was done was a real one: hooks alone move no pods."""
    try:
        said = jsonio.loads(annotations_of(secret)[DRAIN_DONE].encode())
    except jsonio.JsonError:
        return False
    return isinstance(said, dict) and said.get("enabled") is True


def _plan_key(machine: Obj) -> str:
    bootstrap = str(dig(machine, "spec", "bootstrap", "configRef", "name") or "")
    return f"{SECRETS}{namespace_of(machine)}/{plan_name(bootstrap)}"


def _delivered(secret: Obj | None) -> DeliveredPlan | None:
    try:
        return None if secret is None else decode(secret)
    except PlanSecretError:
        return None


def _plan(found: DeliveredPlan | None) -> Plan | None:
    try:
        return None if found is None else found.plan()
    except PlanError:
        return None


# --- replacement ------------------------------------------------------------------------------------------------------------


def _paired(found: list[Judged]) -> list[Judged]:
    """A machine that goes while another one comes in its deployment is replaced; in the order of both."""
    coming: dict[tuple[Key, str], list[Judged]] = defaultdict(list)
    for each in sorted(found, key=lambda one: (one.begins, one.name)):
        if each.outcome is Outcome.CREATED and each.deployment:
            coming[each.cluster, each.deployment].append(each)
    changed: dict[str, Judged] = {}
    for each in sorted(found, key=lambda one: (one.begins, one.name)):
        others = coming.get((each.cluster, each.deployment))
        if each.outcome is Outcome.DELETED and others:
            new = others.pop(0)
            changed[each.key] = replace(each, outcome=Outcome.REPLACED)
            changed[new.key] = replace(new, replaces=each.name)
    return [changed.get(each.key, each) for each in found]


def by_begin(found: Iterable[Judged]) -> list[Judged]:
    return sorted(found, key=lambda each: (each.begins, each.ends, each.name))
