"""The plan of a change for people: a line for each machine, then the order, the changed objects, and warnings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from remuda.kube.duration import human_duration

from .output import Column, Output

if TYPE_CHECKING:
    from remuda.app.changeplan.result import ChangePlan, FieldChange, HeldMachine, MachinePlan, ObjectChange, Wave

COLUMNS = (Column("WAVE"), Column("MACHINE"), Column("NODE"), Column("ROLES"), Column("POOL"), Column("OUTCOME"), Column("WHY"))
_COLOURS = {
    "untouched": "dim",
    "configured": "green",
    "created": "green",
    "restarted": "yellow",
    "drained": "yellow",
    "replaced": "red",
    "deleted": "red",
}
_MOST_REASONS, _MOST_FIELDS = 2, 12


def show(plan: ChangePlan, output: Output) -> None:
    output.line(f"{plan.id}: {plan.verdict} ({', '.join(plan.clusters)}, read at revision {plan.revision})")
    if plan.machines:
        output.line()
        output.table(COLUMNS, (_row(each, output) for each in plan.machines))
    for line in lines(plan):
        output.line(line)


def _row(machine: MachinePlan, output: Output) -> list[str]:
    return [
        str(machine.wave) if machine.wave else "-",
        machine.name,
        machine.node or "-",
        ",".join(role.replace(" ", "-") for role in machine.roles) or "-",
        machine.pool or "-",
        output.paint(machine.outcome, _COLOURS[machine.outcome]),
        why(machine),
    ]


def why(machine: MachinePlan) -> str:
    """The reasons in one line."""
    told = [f"in place of {machine.replaces}"] if machine.replaces else []
    told += [difference(each) for each in machine.reasons[:_MOST_REASONS]]
    more = len(machine.reasons) - _MOST_REASONS
    return "; ".join([*told, *([f"and {more} more"] if more > 0 else [])])


def difference(change: FieldChange) -> str:
    if change.before and change.after:
        return (
            f"{change.field}: {change.after}"
            if change.before == "as before"
            else f"{change.field}: {change.before} → {change.after}"
        )
    return f"{change.field}: {change.after}" if change.after else f"{change.field}: {change.before or '?'} → (none)"


def lines(plan: ChangePlan) -> Iterator[str]:
    """The lines below the table."""
    took = [f"in all about {human_duration(plan.seconds)}, by what these hosts took before"] if plan.waves else []
    yield from _section("Order", [*(_wave(each) for each in plan.waves), *took])
    if plan.snapshots:
        yield from _section("Snapshots", [f"{plan.snapshots} of etcd would be taken"])
    yield from _section("Objects", [line for each in plan.objects for line in _object(each)])
    yield from _section("Over budget, would wait (Budget)", map(_held, plan.held))
    yield from _section("Would stop", plan.stuck)
    yield from _section("Warnings", plan.warnings)
    yield from _section("Without the change, too", plan.already)
    yield from _section("Not exact", plan.inexact)


def _held(machine: HeldMachine) -> str:
    return f"{machine.name} would be {machine.outcome}: {machine.why}"


def _section(title: str, told: Iterable[str]) -> Iterator[str]:
    listed = list(told)
    if listed:
        yield ""
        yield f"{title}:"
        yield from (f"  {line}" for line in listed)


def _wave(wave: Wave) -> str:
    down = ", ".join(f"{count} {role}" for role, count in wave.down.items())
    parts = [f"wave {wave.number}: {len(wave.machines)} machine{'s' if len(wave.machines) > 1 else ''}"]
    parts.append(f"at once down: {down}" if down else "nothing is down")
    if wave.quorum_margin is not None:
        margin = wave.quorum_margin
        parts.append(f"etcd could lose {margin} more" if margin >= 0 else "etcd has no quorum meanwhile")
    return "; ".join(parts)


def _object(change: ObjectChange) -> Iterator[str]:
    where = f"{change.namespace}/{change.name}" if change.namespace else change.name
    yield f"{change.kind} {where} {change.action}"
    yield from (f"  {difference(each)}" for each in change.fields[:_MOST_FIELDS])
    if len(change.fields) > _MOST_FIELDS:
        yield f"  and {len(change.fields) - _MOST_FIELDS} more fields"
