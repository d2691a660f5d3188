"""Requests to check or to delete the files of snapshots, and the answers of hosts (docs/reference/operations.md#files). Pure.

A request is on the ETCDSnapshot itself: an annotation, or a deletion that our finalizer holds. A host gets those about its own
files in its plan (:mod:`remuda.provisioning.planner.render.snapshots`), and prints a line for each; :mod:`.snapshot_files`
has the rest. All that a host prints may be wrong or hostile.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from remuda.kube.objects import annotations_of, dig, is_being_deleted, metadata, name_of, uid_of

from ..plans.plan import SNAPSHOT_FILES
from ..well_known import SNAPSHOT_FILE, SNAPSHOT_FILE_NAME, VERIFY_SNAPSHOT
from .snapshot_reports import is_snapshot_name
from .snapshot_sets import FAILED, LOCAL, machine_of, storage_of

Obj = dict[str, Any]

# The periodic instruction, and how often a host tries again what could not be done.
INSTRUCTION: Final = SNAPSHOT_FILES
PERIOD: Final = 120
# The files of one host in one plan; the others follow when these are done.
MOST: Final = 40
VERIFY, DELETE = "verify", "delete"
DELETED, VALID, INVALID, TROUBLE = "deleted", "valid", "invalid", "trouble"
# Of a check that could not be made, which says nothing about the file.
UNKNOWN: Final = "unknown"

_LONGEST: Final = 500
_NUMBERS = r"(?P<revision>[0-9]{1,18}|-) (?P<keys>[0-9]{1,18}|-)"
_ANSWER = re.compile(rf"(?P<id>[0-9a-f]{{16}}) (?P<result>[a-z]+) {_NUMBERS} (?P<sha256>[0-9a-f]{{64}}|-)(?: |$)")


@dataclass(frozen=True, slots=True)
class FileRequest:
    """What is to be done with the file of one ETCDSnapshot, `name`. `id` is another one for each request; a size of 0 and an
    empty sum are unknown. `machine` has the file, "" for one in a bucket."""

    id: str
    action: str
    name: str
    file: str
    machine: str = ""
    location: str = ""
    size: int = 0
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class FileAnswer:
    result: str
    message: str = ""
    revision: int | None = None
    keys: int | None = None
    sha256: str = ""


def request_of(snapshot: Obj) -> FileRequest | None:
    """The request about its file; None if there is none, or if it has no file."""
    asked = annotations_of(snapshot).get(VERIFY_SNAPSHOT)
    action = DELETE if is_held(snapshot) else VERIFY if asked and not is_being_deleted(snapshot) else ""
    file: Obj = snapshot.get("snapshotFile") or {}
    name = str(file.get("name") or annotations_of(snapshot).get(SNAPSHOT_FILE_NAME) or "")
    if not action or file.get("status") == FAILED or not is_snapshot_name(name):
        return None
    local = storage_of(snapshot) == LOCAL
    return FileRequest(
        id=hashlib.sha256(f"{uid_of(snapshot)} {action} {asked if action == VERIFY else ''}".encode()).hexdigest()[:16],
        action=action,
        name=name_of(snapshot),
        file=name,
        machine=machine_of(snapshot) if local else "",
        location=str(file.get("location") or ""),
        size=int(file.get("size") or 0),
        sha256=str(dig(snapshot, "status", "sha256") or ""),
    )


def is_held(snapshot: Obj) -> bool:
    """True if it is being deleted, and our finalizer waits for its file."""
    return is_being_deleted(snapshot) and SNAPSHOT_FILE in (metadata(snapshot).get("finalizers") or ())


def of_machines(snapshots: Iterable[Obj]) -> dict[str, tuple[FileRequest, ...]]:
    """The requests that hosts do, by Machine, as many as one plan has."""
    found: dict[str, list[FileRequest]] = {}
    for request in (request_of(each) for each in snapshots):
        if request is not None and request.machine:
            found.setdefault(request.machine, []).append(request)
    return {machine: tuple(sorted(each, key=lambda one: (one.action, one.name))[:MOST]) for machine, each in found.items()}


def answers(text: str) -> dict[str, FileAnswer]:
    """What a host has printed, by the id of the request; the last line of one counts."""
    found = {}
    for line in text.splitlines():
        said = _ANSWER.match(line)
        if said is None or said["result"] not in (DELETED, VALID, INVALID, TROUBLE):
            continue
        message = "".join(each if each.isprintable() else " " for each in line[said.end() :][:_LONGEST])
        revision, keys, sha256 = (said[name].strip("-") for name in ("revision", "keys", "sha256"))
        numbers = [int(digits) if digits else None for digits in (revision, keys)]
        found[said["id"]] = FileAnswer(said["result"], message.strip(), numbers[0], numbers[1], sha256)
    return found


def verification(answer: FileAnswer, at: str) -> Obj:
    """The `status.verification` of an ETCDSnapshot; None removes a field of an earlier check."""
    return {
        "at": at,
        "result": answer.result if answer.result in (VALID, INVALID) else UNKNOWN,
        "message": answer.message or None,
        "revision": answer.revision,
        "keys": answer.keys,
        "sha256": answer.sha256 or None,
    }
