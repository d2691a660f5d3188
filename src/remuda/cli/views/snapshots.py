"""Backups of clusters' etcd in a table, one line each with its copies. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from remuda.gateway.explain.states import one_line
from remuda.kube.clock import rfc3339
from remuda.kube.duration import human_age
from remuda.provisioning.etcd import snapshot_sets as sets
from remuda.provisioning.etcd.snapshot_sets import AVAILABLE, FAILED, LOCAL, MISSING, SnapshotCopy, SnapshotSet

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
    return place(copy) if copy.state == AVAILABLE else f"{place(copy)}({copy.state})"


def place(copy: SnapshotCopy) -> str:
    """Where it is: its node, or the kind of its storage."""
    return copy.storage if copy.storage != LOCAL else copy.node or copy.machine or "-"


def source(copy: SnapshotCopy) -> str:
    """What a restore begins with, in words."""
    match copy.storage:
        case sets.S3:
            return f"the bucket ({copy.location})"
        case sets.SERVER:
            return f"the file {copy.file}, which was uploaded"
    return f"node {copy.node}, {copy.file}"


def size(count: int) -> str:
    """The size as Kubernetes writes quantities, with one decimal."""
    for unit, factor in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if count >= factor:
            return f"{count / factor:.1f}{unit}"
    return str(count) if count else "-"


# --- checks ------------------------------------------------------------------------------------------------------------------

VERIFICATION_COLUMNS = (
    Column("COPY"),
    Column("RESULT"),
    Column("REVISION"),
    Column("KEYS"),
    Column("SHA256"),
    Column("MESSAGE"),
)
_VALID = "valid"


def is_valid(copy: SnapshotCopy | None) -> bool:
    return copy is not None and copy.state == AVAILABLE and (copy.verification or {}).get("result") == _VALID


def verification_rows(copies: Iterable[SnapshotCopy], output: Output) -> list[list[str]]:
    return [_verification_row(copy, output) for copy in copies]


def _verification_row(copy: SnapshotCopy, output: Output) -> list[str]:
    found = copy.verification or {}
    result = str(found.get("result") or "") if copy.state == AVAILABLE else copy.state
    told = one_line(str((found.get("message") if copy.state == AVAILABLE else copy.message) or ""))
    numbers = (str(found.get(field) or "-") for field in ("revision", "keys", "sha256"))
    return [place(copy), output.paint(result or "unknown", "green" if result == _VALID else "red"), *numbers, told]
