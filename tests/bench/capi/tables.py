"""What was measured, as Markdown: the embedded core, the cores on a real Kubernetes beside each other, and the goals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from tests.bench.capi.anywhere import PROVIDERS
from tests.bench.capi.load import Load

Found = dict[str, Any]
MEMORY, DISK = "memory", "sqlite"


@dataclass(frozen=True, slots=True)
class Embedded:
    """One load on the embedded API, and what was found; `idle` seconds were watched at rest."""

    load: Load
    store: str
    idle: float = 0.0


@dataclass(frozen=True, slots=True)
class Anywhere:
    """One load on a real Kubernetes."""

    load: Load
    core: str


def named(load: Load) -> str:
    return f"{load.clusters:,} × (1 + {load.workers:,})" if load.workers else f"{load.clusters:,} × 1"


def embedded(found: dict[Embedded, Found]) -> str:
    head = ["clusters × machines", "store", "s until all run", "CPU-s", "CPU-s/machine", "peak MiB"]
    head += ["writes/machine", "conflicts", "idle, % of a core"]
    lines = []
    for case, each in found.items():
        if "wall" in each:
            costs = _costs(each, case.load.machines)
            memory, idle = f"{each['memory']:,.0f}", _percent(each.get("idle"))
            lines.append([named(case.load), case.store, *costs[:3], memory, *costs[3:], idle])
        if roll := each.get("roll"):
            costs = _costs(roll, case.load.workers)
            name = f"… rolling update of {case.load.workers:,}, maxSurge {case.load.surge}"
            lines.append([name, case.store, *costs[:3], "", *costs[3:], ""])
    return markdown(head, lines, left=2)


def _costs(found: Found, machines: int) -> list[str]:
    return [
        f"{found['wall']:,.1f}",
        f"{found['cpu']:,.1f}",
        f"{found['cpu'] / machines:.3f}",
        f"{found['writes'] / machines:.1f}",
        f"{found['conflicts']:,}",
    ]


def _percent(idle: Found | None) -> str:
    return "" if idle is None else f"{idle['cpu'] / idle['wall'] * 100:.2f}"


def anywhere(found: dict[Anywhere, Found]) -> str:
    head = [
        "clusters × machines",
        "core",
        "s until all run",
        "CPU-s, all together",
        "CPU-s/machine",
        "of that: core",
        "kube-apiserver",
    ]
    head += [
        "etcd",
        "kcm",
        "beside: providers",
        "peak MiB, core",
        "peak MiB, all",
        "requests/machine",
        "writes/machine",
        "conflicts",
    ]
    head += ["idle, % of a core", "of that: core"]
    lines = []
    for case, each in found.items():
        cpu, count = each["cpu"], case.load.machines
        parts = [cpu[name] for name in (case.core, "kube-apiserver", "etcd", "kube-controller-manager")]
        memory = {name: value for name, value in each["memory"].items() if name != PROVIDERS}
        idle = each.get("idle")
        lines.append(
            [
                *(named(case.load), case.core, f"{each['wall']:,.1f}", f"{sum(parts):,.1f}", f"{sum(parts) / count:.3f}"),
                *(f"{part:,.1f}" for part in (*parts, cpu[PROVIDERS])),
                *(f"{memory[case.core]:,.0f}", f"{sum(memory.values()):,.0f}"),
                *(f"{each['requests'] / count:.1f}", f"{each['writes'] / count:.1f}", f"{each['conflicts']:,.0f}"),
                *(["", ""] if idle is None else [_share(idle, _without_providers(idle)), _share(idle, idle["cpu"][case.core])]),
            ]
        )
    return markdown(head, lines, left=2)


def _share(idle: Found, cpu: float) -> str:
    return f"{cpu / idle['seconds'] * 100:.1f}"


def _without_providers(found: Found) -> float:
    used: dict[str, float] = found["cpu"]
    return sum(value for name, value in used.items() if name != PROVIDERS)


@dataclass(frozen=True, slots=True)
class Goal:
    what: str
    bound: float
    value: float | None
    digits: int = 1
    at_least: bool = False

    def line(self) -> list[str]:
        sign = "≥" if self.at_least else "≤"
        shown = [self.what, f"{sign} {self.bound:,.{self.digits}f}"]
        if self.value is None:
            return [*shown, "", ""]
        reached = self.value >= self.bound if self.at_least else self.value <= self.bound
        return [*shown, f"{self.value:,.{self.digits}f}", "reached" if reached else "missed"]


def goals(core: dict[Embedded, Found], real: dict[Anywhere, Found]) -> str:
    disk = {(case.load.clusters, case.load.workers): each for case, each in core.items() if case.store == DISK}

    def of(clusters: int, workers: int, *path: str) -> float | None:
        found: Any = disk.get((clusters, workers))
        for name in path:
            found = None if found is None else found.get(name)
        return cast(float | None, found)

    def per_machine(clusters: int) -> float | None:
        cpu = of(clusters, 3, "cpu")
        return None if cpu is None else cpu / (clusters * 4)

    at_rest, small, large = disk.get((500, 3), {}).get("idle"), per_machine(20), per_machine(1000)
    listed = [
        Goal(f"CPU-s a machine, {clusters:,} × (1 + 3)", 0.1, per_machine(clusters), 3) for clusters in (20, 100, 500, 1000)
    ]
    listed += [
        Goal("CPU-s a machine at 1,000 clusters, times that at 20", 1.25, large / small if small and large else None, 2),
        Goal("20 × (1 + 3) run after, s", 5, of(20, 3, "wall")),
        Goal("100 × (1 + 3) run after, s", 30, of(100, 3, "wall")),
        Goal("1,000 × 1 run after, s", 180, of(1000, 0, "wall")),
        Goal("peak memory at 100 × (1 + 3), MiB", 300, of(100, 3, "memory"), 0),
        Goal("idle at 500 × (1 + 3), % of a core", 1, at_rest["cpu"] / at_rest["wall"] * 100 if at_rest else None, 2),
        Goal("conflicts at 100 × (1 + 3), a machine", 0.01, _over(of(100, 3, "conflicts"), 400), 3),
    ]
    listed += [
        Goal(f"upstream's CPU over Remuda's, all together, {named(load)}", 2, _ratio(real, load), 2, at_least=True)
        for load in dict.fromkeys(case.load for case in real)
    ]
    return markdown(["goal", "", "reached", ""], [each.line() for each in listed], left=2)


def _over(value: float | None, count: int) -> float | None:
    return None if value is None else value / count


def _ratio(real: dict[Anywhere, Found], load: Load) -> float | None:
    ours, theirs = real.get(Anywhere(load, "remuda")), real.get(Anywhere(load, "upstream"))
    return None if ours is None or theirs is None else _without_providers(theirs) / _without_providers(ours)


def markdown(head: Sequence[str], lines: Iterable[Sequence[str]], left: int) -> str:
    """Aligned; the first columns are words, the others numbers."""
    rows = [list(head), *(list(line) for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    shown = [
        "| "
        + " | ".join(cell.ljust(w) if i < left else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True)))
        + " |"
        for row in rows
    ]
    rule = "|" + "|".join("-" * (w + 1) + ("-" if i < left else ":") for i, w in enumerate(widths)) + "|"
    return "\n".join([shown[0], rule, *shown[1:]])
