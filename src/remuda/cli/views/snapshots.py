"""Backups of clusters' etcd in a table, one line each with its copies. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from remuda.kube.clock import rfc3339
from remuda.kube.duration import human_age
from remuda.provisioning.etcd.snapshot_sets import AVAILABLE, FAILED, MISSING, SnapshotCopy, SnapshotSet

from .output import Column, Output

COLUMNS = (
    Column("NAME"),
    Column("CLUSTER"),
    Column("STATE"),
    Column("AGE"),
    Column("SIZE"),
    Column("VERSION"),
    Column("COPIES"),
    Column("NAMESPACE", wide=True),
    Column("MESSAGE", wide=True),
)
_COLOURS = {AVAILABLE: "green", MISSING: "yellow", FAILED: "red"}


def rows(found: Sequence[SnapshotSet], now: float, output: Output) -> list[list[str]]:
    return [
        [
            each.name,
            each.cluster,
            output.paint(each.state, _COLOURS[each.state]),
            human_age(rfc3339(each.created), now),
            size(each.size),
            each.version or "-",
            ",".join(_copy(copy) for copy in each.copies),
            each.namespace,
            "; ".join(dict.fromkeys(copy.message for copy in each.copies if copy.message)),
        ]
        for each in found
    ]


def sentence(found: SnapshotSet) -> str:
    """A backup in a line: its size, version, and the places of its copies."""
    version = f", {found.version}" if found.version else ""
    return f"{found.name}: {size(found.size)}{version}, on {', '.join(_copy(copy) for copy in found.copies)}"


def _copy(copy: SnapshotCopy) -> str:
    place = copy.storage if copy.storage != "local" else copy.node or copy.machine or "-"
    return place if copy.state == AVAILABLE else f"{place}({copy.state})"


def size(count: int) -> str:
    """As Kubernetes writes quantities, with one decimal."""
    for unit, factor in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if count >= factor:
            return f"{count / factor:.1f}{unit}"
    return str(count) if count else "-"
