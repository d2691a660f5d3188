"""The one table: what was measured, the servers beside each other, and whether the goals are reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.bench.series import Found, Sizes


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on our value divided by another's (or on the value itself); `against` is that one's short name."""

    bound: float
    at_least: bool
    absolute: bool = False
    against: str = "Kubernetes"

    def text(self, several: bool = False) -> str:
        """With `several` others beside us, which of them is meant."""
        sign = "≥" if self.at_least else "≤"
        if self.absolute:
            return f"{sign} {self.bound:,g}"
        return f"{sign} {self.bound:.2f} ×" + (f" {self.against}" if several else "")

    def reached(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound


@dataclass(frozen=True, slots=True)
class Row:
    key: str
    label: str
    digits: int = 0
    goal: Goal | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """One server's column; ratios are named by the short names."""

    name: str
    short: str
    found: Found


WRITES, READS = Goal(1.5, True), Goal(2, True)
LISTS, WATCHES = Goal(1 / 3, False), Goal(1, False)
STARTS, MEMORY = Goal(0.2, False), Goal(0.25, False)
IN_PROCESS = Goal(3000, True, absolute=True)


def rows(sizes: Sizes) -> list[Row]:
    many = f"{sizes.watchers:,}"
    return [
        Row("create_1", "creates/s, 4 KB, 1 client", 0, WRITES),
        Row("create_16", "creates/s, 4 KB, 16 clients", 0, WRITES),
        Row("create_64", "creates/s, 4 KB, 64 clients", 0, WRITES),
        Row("update_16", "updates/s (PUT), 4 KB, 16 clients", 0),
        Row("get_16", "GETs/s, 4 KB, 16 clients", 0, READS),
        Row("list", f"list of {sizes.listed:,}, ms", 0, LISTS),
        Row("list_gzip", f"list of {sizes.listed:,}, gzip, ms", 0, LISTS),
        Row("custom_seconds", f"load of {sizes.custom:,} custom resources, s", 1),
        Row("custom", "… creates/s, 2 KB, 16 clients", 0, WRITES),
        Row("watch_1_p50", "watch p50, 200 writes/s, 1 watcher, ms", 1),
        Row("watch_1_p99", "watch p99, 200 writes/s, 1 watcher, ms", 1, WATCHES),
        Row("watch_scoped_p50", f"watch p50, 200 writes/s, {many} watchers of one object each, ms", 1),
        Row("watch_scoped_p99", f"watch p99, 200 writes/s, {many} watchers of one object each, ms", 1, WATCHES),
        Row("watch_all_p50", f"watch p50, 20 writes/s, {many} watchers of everything, ms", 1),
        Row("watch_all_p99", f"watch p99, 20 writes/s, {many} watchers of everything, ms", 1),
        Row("start", "start until ready, nothing there yet, s", 2, STARTS),
        Row("start_loaded", f"start until ready, {sizes.total:,} objects, s", 2),
        Row("memory_idle", "memory idle, MiB", 0, MEMORY),
        Row("memory_loaded", f"memory with {sizes.total:,} objects, MiB", 0, MEMORY),
        Row("cpu_create", "CPU per create (16 clients), µs", 0),
        Row("cpu_update", "CPU per update (16 clients), µs", 0),
        Row("cpu_get", "CPU per GET (16 clients), µs", 0),
        Row("cpu_list", f"CPU per list of {sizes.listed:,}, ms", 0),
        Row("cpu_list_gzip", f"CPU per list of {sizes.listed:,}, gzip, ms", 0),
        Row("watch_1_cpu", "CPU at 200 writes/s, 1 watcher, % of a core", 0),
        Row("watch_scoped_cpu", f"CPU at 200 writes/s, {many} watchers of one object each, % of a core", 0),
        Row("watch_all_cpu", f"CPU at 20 writes/s, {many} watchers of everything, % of a core", 0),
        Row("inprocess_1", "in-process durable creates/s, 4 KB, 1 task", 0),
        Row("inprocess_64", "in-process durable creates/s, 4 KB, 64 tasks", 0, IN_PROCESS),
    ]


def table(rows: Sequence[Row], ours: Side, others: Sequence[Side]) -> str:
    """Our column, theirs, and ours divided by each of theirs; only rows that somebody has, and goals if there are any."""
    ratios = [f"{ours.short} / {other.short}" for other in others]
    goals = any(row.goal is not None for row in rows)
    lines = [["", ours.name, *(other.name for other in others), *ratios, *(("goal", "") if goals else ())]]
    for row in rows:
        values = [side.found.get(row.key) for side in (ours, *others)]
        if all(value is None for value in values):
            continue
        divided = {other.short: _ratio(values[0], value) for other, value in zip(others, values[1:], strict=True)}
        numbers = [_number(value, row.digits) for value in values] + [_number(value, 2) for value in divided.values()]
        lines.append([row.label, *numbers, *(_goal(row.goal, values[0], divided) if goals else ())])
    columns = len(lines[0])
    return markdown(lines, left=(0, columns - 2, columns - 1) if goals else (0,))


def markdown(lines: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> str:
    """Aligned, and Markdown as it stands; the first line is the heading, and columns are aligned right unless named."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    shown = [_line(line, widths, left) for line in lines]
    rule = "|" + "|".join("-" * (width + 1) + ("-" if column in left else ":") for column, width in enumerate(widths)) + "|"
    return "\n".join([shown[0], rule, *shown[1:]])


def _ratio(ours: float | None, theirs: float | None) -> float | None:
    return ours / theirs if ours is not None and theirs else None


def _goal(goal: Goal | None, ours: float | None, ratios: dict[str, float | None]) -> list[str]:
    if goal is None:
        return ["", ""]
    value = ours if goal.absolute else ratios.get(goal.against)
    text = goal.text(several=len(ratios) > 1)
    if value is None:
        return [text, ""]
    return [text, "reached" if goal.reached(value) else "missed"]


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def _line(cells: Sequence[str], widths: Sequence[int], left: Sequence[int]) -> str:
    padded = [
        cell.ljust(width) if column in left else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "| " + " | ".join(padded) + " |"
