"""From the records of two rehearsals, with the change and without it, to the plan. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from remuda.kube.objects import Key, dig, name_of, namespace_of
from remuda.kube.waits import NOTES, Wait

from . import differences
from .machine_outcomes import Judged, by_begin, judged
from .record import MACHINES, SECRETS, Record
from .result import ChangePlan, FieldChange, HeldMachine, MachinePlan, ObjectChange, Outcome, Verdict, Wave

Obj = dict[str, Any]

_DEPLOYMENTS = "/registry/cluster.x-k8s.io/machinedeployments/"
# Made for machines, and shown with these; or of no interest to a person who plans a change.
_WITH_MACHINES = (
    MACHINES,
    SECRETS,
    "/registry/cluster.x-k8s.io/machinesets/",
    "/registry/rke.cattle.io/rkebootstraps/",
    "/registry/rke.cattle.io/custommachines/",
    "/registry/rke-machine.cattle.io/",
    "/registry/management.cattle.io/nodes/",
    "/registry/rke.cattle.io/etcdsnapshots/",
    "/registry/plan.cattle.io/",
    "/registry/serviceaccounts/",
    "/registry/roles/",
    "/registry/rolebindings/",
    "/registry/jobs/",
)
_LOG = "/provisioning-log"
_ROLE_KINDS = ("etcd", "control plane", "worker")


def compare(without: Record, changed: Record) -> ChangePlan:
    """The plan; its id, revision and warnings are still to be filled in."""
    anyway = {each.key: each for each in judged(without) if each.outcome is not Outcome.UNTOUCHED}
    found = judged(changed)
    already = tuple(f"machine {each.name} is {each.outcome} without the change, too" for each in by_begin(anyway.values()))
    waves, numbers = _waves([each for each in found if each.outcome is not Outcome.UNTOUCHED], changed)
    machines = tuple(_shown(each, changed, numbers.get(each.key, 0)) for each in by_begin(found))
    waiting = stuck(without, changed)
    objects = _objects(without, changed)
    happens = bool(numbers) or bool(objects)
    verdict = Verdict.STUCK if waiting else Verdict.CHANGES if happens else Verdict.NOTHING
    return ChangePlan(
        id="",
        revision="",
        verdict=verdict,
        clusters=tuple(map(str, changed.clusters)),
        machines=tuple(sorted(machines, key=lambda each: (each.wave == 0, each.wave))),
        waves=waves,
        objects=objects,
        seconds=round(changed.seconds, 1) if happens else 0.0,
        snapshots=sum(move.what == "saved" for moves in changed.moves.values() for move in moves),
        stuck=waiting,
        already=already,
        inexact=tuple(f"in the rehearsal {line}" for line in changed.violations),
    )


def with_held(plan: ChangePlan, held: tuple[HeldMachine, ...], waiting: tuple[str, ...]) -> ChangePlan:
    """The plan of a change that budgets hold in part; `waiting` are the waits that it would end in without them."""
    if not held:
        return plan
    verdict = Verdict.STUCK if waiting else Verdict.OVER_BUDGET
    return msgspec.structs.replace(plan, verdict=verdict, held=held, stuck=waiting)


def _shown(found: Judged, record: Record, wave: int) -> MachinePlan:
    reasons = found.reasons
    if found.outcome in (Outcome.CREATED, Outcome.REPLACED, Outcome.DELETED):
        reasons = _why_replaced(found, record)
    node = dig(found.machine, "status", "nodeRef", "name") or ""
    return MachinePlan(
        cluster=str(found.cluster),
        name=found.name,
        outcome=found.outcome,
        roles=found.roles,
        node=str(node) if found.outcome is not Outcome.CREATED else "",
        pool=found.pool,
        wave=wave,
        reasons=reasons,
        replaces=found.replaces,
    )


def _why_replaced(found: Judged, record: Record) -> tuple[FieldChange, ...]:
    """The fields of its deployment, and of the template that this names, that differ."""
    key = f"{_DEPLOYMENTS}{found.cluster.namespace}/{found.deployment}"
    before, after = record.before.get(key), record.after.get(key)
    if not found.deployment or (before is None and after is None):
        return () if found.outcome is Outcome.CREATED else (FieldChange("Machine", "present", "deleted"),)
    if before is None or after is None:
        return (FieldChange(f"pool {found.pool}", "" if before is None else "present", "deleted" if after is None else "added"),)
    paths = ("spec", "template", "spec", "infrastructureRef")
    reasons: list[FieldChange] = []
    if found.outcome is Outcome.REPLACED or found.replaces:
        templates = [_template(record, dig(each, *paths) or {}, found.cluster.namespace) for each in (before, after)]
        if templates[0] is not None and templates[1] is not None and templates[0] is not templates[1]:
            old, new = (dig(each, "spec", "template", "spec") for each in templates)
            reasons += differences.of_values(old, new, f"pool {found.pool}: machine config")
        old, new = (_without_ref(dig(each, "spec", "template", "spec") or {}) for each in (before, after))
        reasons += differences.of_values(old, new, f"pool {found.pool}: template")
        return tuple(reasons) or (FieldChange("Machine", "present", "deleted"),)
    return differences.of_values(dig(before, "spec", "replicas"), dig(after, "spec", "replicas"), f"pool {found.pool}: quantity")


def _without_ref(spec: Obj) -> Obj:
    return {name: value for name, value in spec.items() if name != "infrastructureRef"}


def _template(record: Record, ref: Obj, namespace: str) -> Obj | None:
    kind, group, name = (str(ref.get(each) or "") for each in ("kind", "apiGroup", "name"))
    key = f"/registry/{group}/{kind.lower()}s/{namespace}/{name}"
    return record.before.get(key) or record.after.get(key)


# --- waves ------------------------------------------------------------------------------------------------------------------


def _waves(found: Sequence[Judged], record: Record) -> tuple[tuple[Wave, ...], dict[str, int]]:
    """Machines whose changes overlap in time are one wave; also its number by the key of each machine."""
    groups: list[list[Judged]] = []
    until = 0.0
    for each in by_begin(found):
        if groups and each.begins < until:
            groups[-1].append(each)
        else:
            groups.append([each])
        until = max(until, each.ends)
    numbers = {each.key: number for number, group in enumerate(groups, 1) for each in group}
    return tuple(_wave(number, group, record) for number, group in enumerate(groups, 1)), numbers


def _wave(number: int, group: Sequence[Judged], record: Record) -> Wave:
    begins, ends = min(each.begins for each in group), max(each.ends for each in group)
    margins = [
        move.up - (move.members // 2 + 1)
        for cluster in {each.cluster for each in group}
        for move in record.moves.get(cluster, ())
        if begins <= move.at <= ends and move.members and move.what in ("stopped", "left")
    ]
    concerned = any("etcd" in each.roles and each.outcome is not Outcome.CONFIGURED for each in group)
    return Wave(
        number=number,
        begins=round(begins, 1),
        ends=round(ends, 1),
        machines=tuple(each.name for each in group),
        down={role: most for role in _ROLE_KINDS if (most := _most_down(each for each in group if role in each.roles))},
        quorum_margin=min(margins) if margins and concerned else None,
    )


def _most_down(machines: Iterable[Judged]) -> int:
    """The most that are down at the same time; one that ends when another begins does not count with it."""
    moments = sorted(edge for each in machines for begin, end in each.down for edge in ((begin, 1), (end, -1)))
    most = now = 0
    for _, step in moments:
        now += step
        most = max(most, now)
    return most


# --- waits and objects ------------------------------------------------------------------------------------------------------


def stuck(without: Record, changed: Record) -> tuple[str, ...]:
    """The waits at the end that are not there without the change."""
    if changed.ready:
        return ()
    known = {_identity(wait) for wait in without.waits}
    new = [wait for wait in changed.waits if wait.code not in NOTES and _identity(wait) not in known]
    mine = [wait for wait in new if _concerns(wait, changed.clusters)] or new
    told = tuple(dict.fromkeys(f"{wait.subject}: {wait.message()}" for wait in mine))
    return told or (() if not without.ready else ("the clusters are not ready at the end",))


def _identity(wait: Wait) -> tuple[object, ...]:
    return wait.code, wait.subject, wait.on


def _concerns(wait: Wait, clusters: Iterable[Key]) -> bool:
    return wait.subject.namespace in {each.namespace for each in clusters}


def _objects(without: Record, changed: Record) -> tuple[ObjectChange, ...]:
    found = []
    for key in sorted({*without.after, *changed.after}):
        if key.startswith(_WITH_MACHINES) or key.endswith(_LOG):
            continue
        before, after = without.after.get(key), changed.after.get(key)
        change = _object(before, after)
        if change is not None:
            found.append(change)
    return tuple(found)


def _object(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> ObjectChange | None:
    shown = dict(after or before or {})
    named = str(shown.get("kind")), namespace_of(shown), name_of(shown)
    if before is None or after is None:
        return ObjectChange(*named, "created" if before is None else "deleted")
    fields = differences.of_objects(dict(before), dict(after))
    return ObjectChange(*named, "changed", fields) if fields else None
