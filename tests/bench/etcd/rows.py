"""What the tables of the bench on etcd show: the rows of the servers' table with other goals, and those of three replicas."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.bench.etcd.disruptions import Event
from tests.bench.series import Sizes
from tests.bench.table import Goal, Row, markdown
from tests.bench.table import rows as server_rows

WRITES = Goal(0.7, True, against="Kubernetes")
READS = Goal(1.1, False, against="sqlite")

WRITTEN = ("create_1", "create_16", "create_64", "update_16", "custom")
READ = ("list", "list_gzip", *(f"watch_{key}_{part}" for key in ("1", "scoped", "all") for part in ("p50", "p99")))

# Below a row that is the sum of both.
PARTS = {
    "cpu_create": (
        Row("cpu_create_server", "… of which the server"),
        Row("cpu_create_etcd", "… of which etcd"),
    ),
    "memory_idle": (Row("memory_idle_etcd", "… of which etcd"),),
    "memory_loaded": (Row("memory_loaded_etcd", "… of which etcd"),),
}


def rows(sizes: Sizes) -> list[Row]:
    found: list[Row] = []
    for row in server_rows(sizes):
        goal = WRITES if row.key in WRITTEN else READS if row.key in READ else None
        found += [replace(row, goal=goal), *PARTS.get(row.key, ())]
    return found


REPLICA_ROWS = (
    Row("create_16", "creates/s, 4 KB, 16 clients"),
    Row("create_64", "creates/s, 4 KB, 64 clients"),
    Row("get_16", "GETs/s, 4 KB, 16 clients"),
    Row("cpu_create", "CPU per create (16 clients), µs"),
    Row("cpu_create_server", "… of which the three servers"),
    Row("cpu_create_etcd", "… of which the three members of etcd"),
    Row("cpu_get", "CPU per GET (16 clients), µs"),
)


def disruptions(found: Sequence[Event]) -> str:
    """A column for each kind of event. Of several rounds: the median and the worst time, and the sum of what is counted."""
    kinds = list(dict.fromkeys(event.kind for event in found))
    lines = [["", *kinds]]
    for label, shown in SHOWN:
        lines.append([label, *(shown([event for event in found if event.kind == kind]) for kind in kinds)])
    return markdown(lines)


def reasons(found: Sequence[Event]) -> list[str]:
    """What attempts failed with, and what was lost: a note for each kind of event."""
    notes: list[str] = []
    for kind in dict.fromkeys(event.kind for event in found):
        why: Counter[str] = Counter()
        for event in found:
            if event.kind == kind:
                why.update(event.retried.why)
                if event.retried.problem:
                    notes.append(f"{kind}: {event.retried.problem}")
                if event.elected is not None and event.moved:
                    notes.append(f"{kind}: another replica leads the controllers since")
        if why:
            notes.append(f"{kind}: attempts failed with " + ", ".join(f"{reason} ({count})" for reason, count in why.items()))
    return notes


Shown = Callable[[list[Event]], str]


def _times(value: Callable[[Event], float | None], digits: int = 2) -> Shown:
    def shown(events: list[Event]) -> str:
        values = [found for event in events if (found := value(event)) is not None]
        if not values:
            return ""
        median, worst = f"{statistics.median(values):,.{digits}f}", f"{max(values):,.{digits}f}"
        return median if len(values) == 1 else f"{median} ({worst})"

    return shown


def _sum(value: Callable[[Event], int]) -> Shown:
    return lambda events: f"{sum(value(event) for event in events):,}"


SHOWN: tuple[tuple[str, Shown], ...] = (
    ("until another replica holds the Lease, s", _times(lambda event: event.held)),
    ("until etcd has another leader, s", _times(lambda event: event.elected)),
    ("until the controllers act, s", _times(lambda event: event.acted)),
    ("until the process had ended, s", _times(lambda event: event.ended)),
    ("requests", _sum(lambda event: event.retried.done)),
    ("… failed at first", _sum(lambda event: event.retried.failed)),
    ("… lost after retries (must be 0)", _sum(lambda event: event.retried.lost)),
    ("objects created and not there (must be 0)", _sum(lambda event: event.missing)),
    ("objects created and not found at once (must be 0)", _sum(lambda event: event.retried.stale)),
    ("longest wait of a client, ms", _times(lambda event: event.retried.longest_ms, 0)),
    ("… before, ms", _times(lambda event: event.retried.calm_ms, 0)),
)
