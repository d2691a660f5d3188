"""Reports of hosts, the cluster itself and buckets about snapshots, in one form (docs/reference/operations.md#inventory). Pure.

All of it may be wrong or hostile: sizes are limited, unreadable lines are left out, and a report that was cut off is incomplete,
so that nothing disappears by it. :mod:`.inventory` makes ETCDSnapshots of it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from remuda.kube.clock import time_of
from remuda.kube.encoding import jsonio
from remuda.kube.objects import dig, name_of

from .s3.copies import Copy
from .s3.place import is_file_name
from .snapshot_sets import FAILED, LOCAL, S3, message_of

Obj = dict[str, Any]

# The periodic instruction by which hosts print their files, and how often they do.
INSTRUCTION: Final = "snapshots"
PERIOD: Final = 900

# Limits of one report: files of a host, objects of a cluster, and the metadata of all snapshots together.
MOST_FILES: Final = 1000
_MOST_OF_CLUSTER: Final = 5000
_MOST_METADATA, _LARGEST_METADATA = 8 << 20, 2 << 20
_LONGEST_NAME, _LONGEST_TEXT = 255, 1000
_LARGEST_SIZE = 1 << 50
_LATEST = 1 << 35
_HASH = re.compile(r"[0-9a-f]{64}")
_TAKEN = re.compile(r"-(\d{9,11})$")
_COMPRESSED: Final = ".zip"
_NONE = "-"


@dataclass(frozen=True, slots=True)
class Seen:
    """A snapshot as one source shows it; what that does not know is empty. `machine` has the file, "" for one in a bucket;
    `metadata` is base64, as an ETCDSnapshot has it; `reference` is the name of the cluster's own object."""

    storage: str
    file: str
    node: str = ""
    machine: str = ""
    location: str = ""
    size: int = 0
    created: float = 0.0
    sha256: str = ""
    metadata: str = ""
    s3: Mapping[str, Any] | None = None
    failed: bool = False
    message: str = ""
    reference: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """Equal for the same snapshot in all reports."""
        if self.storage == S3 and self.location:
            return (S3, self.location)
        return (self.storage, self.machine or self.node, self.file)


@dataclass(frozen=True, slots=True)
class Report:
    """A list of snapshots. `at` is when it was begun, by the clock of its source. Nothing is concluded from what an incomplete
    one lacks."""

    complete: bool
    at: float
    seen: tuple[Seen, ...] = ()

    def by_key(self) -> dict[tuple[str, ...], Seen]:
        return {each.key: each for each in self.seen}


@dataclass(slots=True)
class _Lines:
    at: float = 0.0
    directory: str = ""
    complete: bool = False
    # The lines of files, also unreadable ones.
    number: int = 0
    files: list[tuple[int, float, str, str, str]] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)


def taken_at(file: str, otherwise: float) -> float:
    """The time of a snapshot: the seconds in its name are the same in all reports."""
    found = _TAKEN.search(file.removesuffix(_COMPRESSED))
    return float(found[1]) if found else otherwise


# --- hosts ------------------------------------------------------------------------------------------------------------------


def of_host(machine: str, node: str, text: str) -> Report | None:
    """A host's report (:mod:`remuda.provisioning.planner.render.snapshots`); None if it is no report at all."""
    lines = _read(text)
    if not lines.at:
        return None
    budget = _MOST_METADATA
    seen = []
    for size, modified, sha256, digest, file in lines.files:
        metadata = lines.metadata.get(digest, "")
        budget -= len(metadata)
        seen.append(
            Seen(
                storage=LOCAL,
                file=file,
                node=node,
                machine=machine,
                location=f"file://{lines.directory}/{file}" if lines.directory else "",
                size=size,
                created=taken_at(file, modified),
                sha256=sha256,
                metadata=metadata if budget >= 0 else "",
            )
        )
    return Report(lines.complete, lines.at, tuple(seen))


def _read(text: str) -> _Lines:
    found = _Lines()
    for line in text.rstrip("\n").split("\n"):
        kind, _, rest = line.partition(" ")
        # An agent shortens what is too long in the middle: no line may follow the end, and none may be unknown.
        found.complete = False
        match kind:
            case "at" if not found.at:
                found.at = float(_number(rest, _LATEST) or 0)
            case "directory" if _is_text(rest) and rest.startswith("/"):
                found.directory = rest
            case "file":
                found.number += 1
                if (read := _file(rest)) is not None and len(found.files) < MOST_FILES:
                    found.files.append(read)
            case "metadata":
                digest, _, content = rest.partition(" ")
                if _HASH.fullmatch(digest) and digest not in found.metadata:
                    found.metadata[digest] = _metadata(content)
            case "end":
                found.complete = rest == str(found.number)
            case _:
                return found
    return found


def _file(text: str) -> tuple[int, float, str, str, str] | None:
    parts = text.split(" ", 4)
    if len(parts) != 5:
        return None
    size, modified = _number(parts[0], _LARGEST_SIZE), _number(parts[1], _LATEST)
    sha256, digest, file = parts[2:]
    if size is None or modified is None or not is_snapshot_name(file):
        return None
    hashes = [each if _HASH.fullmatch(each) else "" for each in (sha256, digest)]
    return size, float(modified), hashes[0], hashes[1], file


def _metadata(text: str) -> str:
    """A map of strings in base64 of JSON; written again, so that it is the same from each source."""
    if len(text) > _LARGEST_METADATA:
        return ""
    try:
        found = jsonio.loads(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return ""
    return packed_metadata(found) if isinstance(found, dict) else ""


def packed_metadata(found: Mapping[Any, Any]) -> str:
    """The metadata of a snapshot as an ETCDSnapshot has it."""
    said = {str(key): value for key, value in sorted(found.items()) if isinstance(value, str)}
    return base64.b64encode(jsonio.dumps(said)).decode() if said else ""


def _number(text: str, largest: int) -> int | None:
    found = int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None
    return found if found is not None and found <= largest else None


def is_snapshot_name(file: object) -> bool:
    """True for a name that the file of a snapshot can have, and that is no option of a command."""
    return isinstance(file, str) and is_file_name(file) and _is_text(file, _LONGEST_NAME) and not file.startswith((".", "-"))


def _is_text(text: str, longest: int = _LONGEST_TEXT) -> bool:
    return text.isprintable() and len(text) <= longest


# --- buckets ----------------------------------------------------------------------------------------------------------------


def of_bucket(at: float, copies: Iterable[Copy], s3: Mapping[str, Any], cluster_id: str, nodes: Iterable[str]) -> Report:
    """The copies of one cluster in a folder that others may share. A copy without an id is its own if one of its `nodes` took
    it. `s3` describes the bucket as a cluster's spec does."""
    known, budget, seen = set(nodes), _MOST_METADATA, []
    for copy in copies:
        if not is_snapshot_name(copy.name) or not _is_of(copy, cluster_id, known):
            continue
        metadata = packed_metadata(copy.metadata)
        budget -= len(metadata)
        seen.append(in_bucket(copy, metadata if budget >= 0 else "", s3))
    return Report(True, at, tuple(seen))


def in_bucket(copy: Copy, metadata: str, s3: Mapping[str, Any]) -> Seen:
    return Seen(
        storage=S3,
        file=copy.name,
        node=copy.node if _is_text(copy.node, _LONGEST_NAME) else "",
        location=copy.location,
        size=copy.size,
        created=taken_at(copy.name, copy.created),
        sha256=copy.sha256 if _HASH.fullmatch(copy.sha256) else "",
        metadata=metadata,
        s3=dict(s3),
    )


def _is_of(copy: Copy, cluster_id: str, nodes: set[str]) -> bool:
    if copy.cluster_id:
        return copy.cluster_id == cluster_id
    if copy.node and copy.node != S3:
        return copy.node in nodes
    return any(f"-{node}-" in copy.name for node in nodes)


# --- the cluster itself -----------------------------------------------------------------------------------------------------


def of_cluster(at: float, files: Iterable[Obj], machines: Mapping[str, str], *, complete: bool = True) -> Report:
    """The cluster's ETCDSnapshotFiles. `machines` are the names of Machines by those of their nodes; files of other nodes are
    left out."""
    seen, budget = [], _MOST_METADATA
    for number, file in enumerate(files):
        if number == _MOST_OF_CLUSTER:
            complete = False
            break
        read = _own_object(file, machines)
        if read is not None:
            budget -= len(read.metadata)
            seen.append(read if budget >= 0 else _without_metadata(read))
    return Report(complete, at, tuple(seen))


def _own_object(obj: Obj, machines: Mapping[str, str]) -> Seen | None:
    spec, status = dig(obj, "spec"), dig(obj, "status")
    if not isinstance(spec, dict) or not isinstance(status, dict):
        # Without a status it is not known yet whether it succeeded.
        return None
    error = status.get("error")
    bucket = spec.get("s3")
    metadata = spec.get("metadata")
    return _of_own(
        file=spec.get("snapshotName"),
        node=spec.get("nodeName"),
        location=spec.get("location"),
        machines=machines,
        size=_quantity(status.get("size")),
        created=time_of(status.get("creationTime")) or 0.0,
        s3=_bucket(bucket) if isinstance(bucket, dict) else None,
        metadata=packed_metadata(metadata) if isinstance(metadata, dict) else "",
        failed=isinstance(error, dict) and not status.get("readyToUse"),
        message=str(error.get("message") or "") if isinstance(error, dict) else "",
        reference=name_of(obj),
    )


def of_config_map(at: float, data: Mapping[str, Any], machines: Mapping[str, str]) -> Report:
    """The list of distributions before ETCDSnapshotFiles: a ConfigMap with a file as JSON in each of its values. It is limited in
    size, so it may lack some."""
    seen = [_listed(text, machines) for text in list(data.values())[:_MOST_OF_CLUSTER]]
    return Report(False, at, tuple(each for each in seen if each is not None))


def _listed(text: object, machines: Mapping[str, str]) -> Seen | None:
    try:
        said = jsonio.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None
    if not isinstance(said, dict):
        return None
    bucket, metadata = said.get("s3"), said.get("metadata")
    return _of_own(
        file=said.get("name"),
        node=said.get("nodeName"),
        location=said.get("location"),
        machines=machines,
        size=_quantity(said.get("size")),
        created=time_of(said.get("createdAt")) or 0.0,
        s3=_bucket(bucket) if isinstance(bucket, dict) else None,
        metadata=_metadata(metadata) if isinstance(metadata, str) else "",
        failed=said.get("status") == FAILED,
        message=message_of(said),
        reference="",
    )


def _of_own(
    *,
    file: object,
    node: object,
    location: object,
    machines: Mapping[str, str],
    size: int,
    created: float,
    s3: Mapping[str, Any] | None,
    metadata: str,
    failed: bool,
    message: str,
    reference: str,
) -> Seen | None:
    if not is_snapshot_name(file) or not isinstance(file, str) or not isinstance(node, str):
        return None
    machine = "" if s3 is not None else machines.get(node, "")
    if s3 is None and not machine:
        return None
    where = location if isinstance(location, str) and _is_text(location) else ""
    if s3 is not None and not failed and not where:
        return None
    return Seen(
        storage=LOCAL if s3 is None else S3,
        file=file,
        node=node if _is_text(node, _LONGEST_NAME) else "",
        machine=machine,
        location=where,
        size=size,
        created=taken_at(file, created),
        metadata=metadata if len(metadata) <= _LARGEST_METADATA else "",
        s3=s3,
        failed=failed,
        message=message[:_LONGEST_TEXT] if failed else "",
        reference=reference,
    )


def _without_metadata(seen: Seen) -> Seen:
    return Seen(**{name: getattr(seen, name) for name in Seen.__slots__ if name != "metadata"})


def _quantity(found: object) -> int:
    """A size as a number, or as digits; k3s writes a quantity without a unit."""
    if isinstance(found, bool):
        return 0
    if isinstance(found, int):
        return found if 0 <= found <= _LARGEST_SIZE else 0
    return (_number(found, _LARGEST_SIZE) or 0) if isinstance(found, str) else 0


def _bucket(said: Mapping[str, Any]) -> dict[str, Any]:
    """k3s' description of a bucket in the words of a cluster's spec."""
    texts = {name: said.get(name) for name in ("bucket", "endpoint", "endpointCA", "folder", "region")}
    texts["folder"] = texts["folder"] or said.get("prefix")
    found: dict[str, Any] = {name: text for name, text in texts.items() if isinstance(text, str) and text and len(text) < 1 << 16}
    return {**found, "skipSSLVerify": True} if said.get("skipSSLVerify") is True else found
