"""The one table: what was measured, both servers beside each other, and whether the goals are reached."""

from __future__ import annotations

from dataclasses import dataclass

from tests.bench.series import Found, Sizes


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on Remuda's value divided by Kubernetes' (or on the value itself)."""

    bound: float
    at_least: bool
    absolute: bool = False

    def text(self) -> str:
        sign = "≥" if self.at_least else "≤"
        return f"{sign} {self.bound:,.0f}" if self.absolute else f"{sign} {self.bound:.2f} ×"

    def reached(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound


@dataclass(frozen=True, slots=True)
class Row:
    key: str
    label: str
    digits: int = 0
    goal: Goal | None = None


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


def table(sizes: Sizes, remuda: Found, kubernetes: Found) -> str:
    """Aligned, and Markdown as it stands."""
    lines = [["", "Remuda", "Kubernetes", "Remuda / Kubernetes", "goal", ""]]
    for row in rows(sizes):
        ours, theirs = remuda.get(row.key), kubernetes.get(row.key)
        if ours is None and theirs is None:
            continue
        ratio = ours / theirs if ours is not None and theirs else None
        lines.append(
            [row.label, _number(ours, row.digits), _number(theirs, row.digits), _number(ratio, 2), *_goal(row.goal, ours, ratio)]
        )
    widths = [max(len(line[column]) for line in lines) for column in range(6)]
    shown = [_line(line, widths) for line in lines]
    rule = "|" + "|".join("-" * (width + 1) + ("-" if column in (0, 4, 5) else ":") for column, width in enumerate(widths)) + "|"
    return "\n".join([shown[0], rule, *shown[1:]])


def _goal(goal: Goal | None, ours: float | None, ratio: float | None) -> list[str]:
    if goal is None:
        return ["", ""]
    value = ours if goal.absolute else ratio
    if value is None:
        return [goal.text(), ""]
    return [goal.text(), "reached" if goal.reached(value) else "missed"]


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def _line(cells: list[str], widths: list[int]) -> str:
    padded = [
        cell.ljust(width) if column in (0, 4, 5) else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "| " + " | ".join(padded) + " |"
