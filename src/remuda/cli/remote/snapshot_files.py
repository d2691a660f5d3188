"""Checking and deleting the files of snapshots: requests on their ETCDSnapshots, which are awaited copy by copy.

A check is requested by an annotation, and `status.verification` has its result. An ETCDSnapshot is deleted with a finalizer that
holds it until its file is gone; without it only the object would go, and come back with the next report of its host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from remuda.api import rke_cattle_io as rke
from remuda.client.interface import Client
from remuda.kube.clock import SYSTEM_CLOCK, Clock, rfc3339
from remuda.kube.errors import ApiError
from remuda.kube.objects import dig, metadata, resource_version_of, uid_of
from remuda.provisioning.etcd.snapshot_sets import AVAILABLE, SnapshotCopy, SnapshotSet, copy_of
from remuda.provisioning.well_known import SNAPSHOT_FILE, VERIFY_SNAPSHOT

from ..exit_codes import Code, Failure
from ..views.snapshots import place

Obj = dict[str, Any]
Told = Callable[[str], None]

_EVERY, _ATTEMPTS = 1.0, 5
# A host answers within minutes, but one that works on an operation, or hashes a large file, takes longer.
QUIET: Final = 900.0


@dataclass(slots=True)
class _Patience:
    """Ends the waiting when nothing has changed for very long."""

    clock: Clock
    seen: Any = None
    since: float = 0.0

    def check(self, seen: Any, waiting: Iterable[str], what: str) -> None:
        """Raises Failure."""
        now = self.clock.monotonic()
        if seen != self.seen or not self.since:
            self.seen, self.since = seen, now
        if now - self.since >= QUIET:
            text = f"nothing has changed for {QUIET / 60:g} minutes: {', '.join(sorted(waiting))} not {what}; the request stays"
            raise Failure(text, Code.TIMEOUT)


def copies_of(found: SnapshotSet, name: str) -> tuple[SnapshotCopy, ...]:
    """The copies that are meant by a name: that of an ETCDSnapshot means one, that of a file its copies, any other all."""
    named = [copy for copy in found.copies if copy.name == name] or [copy for copy in found.copies if copy.file == name]
    return tuple(named) or found.copies


async def verified(
    client: Client, namespace: str, copies: Sequence[SnapshotCopy], told: Told, clock: Clock = SYSTEM_CLOCK
) -> dict[str, SnapshotCopy | None]:
    """Each copy after its check, by the name of its ETCDSnapshot; None for one that is gone.

    Copies that can't be seen now are not checked. Raises ApiError, and Failure when nothing changes for very long.
    """
    before: dict[str, Any] = {}
    for copy in copies:
        if copy.state == AVAILABLE:
            before[copy.name] = copy.verification
            marks = {"metadata": {"annotations": {VERIFY_SNAPSHOT: rfc3339(clock.time())}}}
            await client.patch(rke.ETCD_SNAPSHOTS, copy.name, marks, namespace)
    found: dict[str, SnapshotCopy | None] = {copy.name: copy for copy in copies}
    waiting, patience = set(before), _Patience(clock)
    while waiting:
        for name in sorted(waiting):
            snapshot = await _look(client, namespace, name)
            now = found[name] = copy_of(snapshot) if snapshot is not None else None
            if now is None or now.state != AVAILABLE or (now.verification and now.verification != before[name]):
                waiting.discard(name)
                told(f"{place(now)}: checked" if now is not None else f"{name}: gone")
        if waiting:
            patience.check(sorted(waiting), waiting, "checked")
            await clock.sleep(_EVERY)
    return found


async def delete(
    client: Client, namespace: str, copies: Sequence[SnapshotCopy], told: Told, clock: Clock = SYSTEM_CLOCK, *, wait: bool = True
) -> None:
    """Raises ApiError, and Failure when nothing changes for very long."""
    uids = {copy.name: await _begin_deletion(client, namespace, copy.name) for copy in copies}
    waiting = {copy.name: copy for copy in copies} if wait else {}
    said: dict[str, str] = {}
    patience = _Patience(clock)
    while waiting:
        for name, copy in sorted(waiting.items()):
            snapshot = await _look(client, namespace, name)
            if snapshot is not None and uid_of(snapshot) != uids[name]:
                snapshot = None
            if snapshot is None:
                del waiting[name]
            _tell_change(said, copy, snapshot, told)
        if waiting:
            patience.check(dict(said), waiting, "deleted")
            await clock.sleep(_EVERY)


def _tell_change(said: dict[str, str], copy: SnapshotCopy, snapshot: Obj | None, told: Told) -> None:
    why = str(dig(snapshot or {}, "status", "message") or "")
    text = "deleted" if snapshot is None else f"is being deleted{f': {why}' if why else ''}"
    if said.get(copy.name) != text:
        said[copy.name] = text
        told(f"{place(copy)}: {text}")


async def _begin_deletion(client: Client, namespace: str, name: str) -> str:
    """The uid of the object that is being deleted; "" if there is none."""
    for attempt in range(1, _ATTEMPTS + 1):
        snapshot = await _look(client, namespace, name)
        if snapshot is None:
            return ""
        held = list(metadata(snapshot).get("finalizers") or ())
        try:
            if SNAPSHOT_FILE not in held and not metadata(snapshot).get("deletionTimestamp"):
                marks: Mapping[str, Any] = {
                    "metadata": {"resourceVersion": resource_version_of(snapshot), "finalizers": [*held, SNAPSHOT_FILE]}
                }
                await client.patch(rke.ETCD_SNAPSHOTS, name, marks, namespace)
            await client.delete(rke.ETCD_SNAPSHOTS, name, namespace, uid=uid_of(snapshot))
            return uid_of(snapshot)
        except ApiError as error:
            if error.is_not_found:
                return ""
            if error.code != 409 or attempt == _ATTEMPTS:
                raise
    return ""


async def _look(client: Client, namespace: str, name: str) -> Obj | None:
    try:
        return await client.get(rke.ETCD_SNAPSHOTS, name, namespace)
    except ApiError as error:
        if error.is_not_found:
            return None
        raise
