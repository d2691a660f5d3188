"""Operations on a whole cluster, from its spec and the status of its control plane: requested, running, or how they ended. Pure.

The planner runs one at a time (docs/reference/operations.md). A request is a field of `spec.rkeConfig` with a generation, or an
annotation; the status has the request that was taken up, and its phase. The snapshot before an upgrade belongs to the upgrade,
and is an operation only until that begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from remuda.kube import conditions
from remuda.kube.objects import annotations_of, dig
from remuda.provisioning.etcd import recovery_request
from remuda.provisioning.etcd.snapshot_specs import request_of
from remuda.provisioning.well_known import RECOVER as RECOVER_ANNOTATION
from remuda.provisioning.well_known import UPGRADE_SNAPSHOT

from .states import one_line

Obj = dict[str, Any]

QUEUED, REQUESTED, RUNNING, FAILED, INCOMPLETE, DONE = "queued", "requested", "running", "failed", "incomplete", "done"
CREATE, RESTORE = "etcdSnapshotCreate", "etcdSnapshotRestore"
CERTIFICATES, KEYS = "rotateCertificates", "rotateEncryptionKeys"
RECOVERY, BEFORE_UPGRADE = "recover", "upgradeSnapshot"


@dataclass(frozen=True, slots=True)
class _Kind:
    """`phases` are those in which it runs, in their order; empty if the number of them depends on the version."""

    title: str
    condition: str
    phases: tuple[str, ...] = ()


# In the order in which the planner begins them. A recovery ends with a restore.
KINDS: Final[Mapping[str, _Kind]] = {
    RECOVERY: _Kind("recovery", "ClusterRecovered", ("Survey", "Machines", "Hosts", "Restoring")),
    BEFORE_UPGRADE: _Kind("snapshot before the upgrade", "UpgradeSnapshotTaken", ("Started",)),
    CREATE: _Kind("snapshot of etcd", "EtcdSnapshotCreated", ("Started", "RestartCluster")),
    RESTORE: _Kind(
        "restore of etcd",
        "EtcdSnapshotRestored",
        (
            "Started",
            "Shutdown",
            "Restore",
            "PostRestorePodCleanup",
            "InitialRestartCluster",
            "PostRestoreNodeCleanup",
            "RestartCluster",
        ),
    ),
    CERTIFICATES: _Kind("rotation of certificates", "CertificatesRotated"),
    KEYS: _Kind("rotation of encryption keys", "EncryptionKeysRotated"),
}


@dataclass(frozen=True, slots=True)
class Operation:
    """The result of the newest request of one kind. `since` is that of its result; "" while there is none."""

    field: str
    generation: int
    word: str
    phase: str = ""
    message: str = ""
    since: str = ""
    # The operation that runs before it, if it is queued.
    after: str = ""

    @property
    def title(self) -> str:
        return KINDS[self.field].title

    @property
    def has_ended(self) -> bool:
        return self.word in (FAILED, INCOMPLETE, DONE)

    @property
    def detail(self) -> str:
        """The progress, such as `3 of 7 (Restore)`, or what it waits for; "" if it has ended."""
        if self.after:
            return f"after the {KINDS[self.after].title}"
        phases = KINDS[self.field].phases if self.word == RUNNING else ()
        if self.phase not in phases:
            return self.phase if self.word == RUNNING else ""
        return f"{phases.index(self.phase) + 1} of {len(phases)} ({self.phase})"

    @property
    def sentence(self) -> str:
        """Its state in words, without its title."""
        return f"{self.word}{f' {self.detail}' if self.detail else ''}" + (f": {self.message}" if self.message else "")

    def data(self) -> Obj:
        return {
            "field": self.field,
            "generation": self.generation,
            "state": self.word,
            "phase": self.phase,
            "after": self.after,
            "message": self.message,
            "since": self.since or None,
        }


def of_cluster(wanted: Obj, plane: Obj | None) -> tuple[Operation, ...]:
    """All that were ever requested and whose requests still stand. The one that runs is first, then the queued ones."""
    if plane is None or not was_up(plane):
        return ()
    found = [each for field in KINDS if (each := of(wanted, plane, field)) is not None]
    ahead = [each for each in found if each.word == RUNNING]
    asked = [each for each in found if each.word == REQUESTED]
    begun = ahead or asked[:1]
    queued = [replace(each, word=QUEUED, after=begun[0].field) for each in asked if each not in begun]
    return (*begun, *queued, *(each for each in found if each.has_ended))


def of(wanted: Obj, plane: Obj, field: str) -> Operation | None:
    """The result of the newest request of this kind; None if nothing was requested. It does not know the queue."""
    asked = requested(wanted, field) if field != BEFORE_UPGRADE else _upgrade(plane)
    if asked is None:
        return None
    generation = int(asked.get("generation") or 0)
    status, result = plane.get("status") or {}, conditions.get(plane, KINDS[field].condition) or {}
    phase = str(status.get(f"{field}Phase") or "") if field != BEFORE_UPGRADE else str(dig(status, field, "phase") or "")
    if not _is_taken_up(field, asked, status, result):
        return Operation(field, generation, REQUESTED)
    word = _word(field, phase, result)
    if word == RUNNING:
        return Operation(field, generation, RUNNING, phase)
    since = str(result.get("lastUpdateTime") or result.get("lastTransitionTime") or "")
    return Operation(field, generation, word, phase, one_line(str(result.get("message") or "")), since)


def requested(wanted: Obj, field: str) -> Obj | None:
    """The fields of a request that stands; None if there is none."""
    if field == RECOVERY:
        found = recovery_request.requested(annotations_of(wanted).get(RECOVER_ANNOTATION))
        return None if found is None else found.data()
    asked = dig(wanted, "spec", "rkeConfig", field)
    return asked if isinstance(asked, dict) and _is_request(field, asked) else None


def _upgrade(plane: Obj) -> Obj | None:
    """The request of a snapshot before an upgrade, which no user makes: the control plane's annotation `FROM TO NUMBER`."""
    text = annotations_of(plane).get(UPGRADE_SNAPSHOT, "")
    number = text.rpartition(" ")[2]
    return {"request": text, "generation": int(number) if number.isdigit() else 0} if text else None


def unsuccessful(wanted: Obj, plane: Obj | None) -> tuple[Operation, ...]:
    """Those whose last request has failed, or left something undone, until a user requests them again. A snapshot before an
    upgrade is tried again by itself, and the planner has a wait for it."""
    found = (each for each in of_cluster(wanted, plane) if each.field != BEFORE_UPGRADE)
    return tuple(each for each in found if each.word in (FAILED, INCOMPLETE))


def known_generation(wanted: Obj, plane: Obj | None, field: str) -> int:
    """The highest generation that was ever requested, as far as the objects tell; the next one is new to the planner."""
    known = (
        (requested(wanted, field) or {}).get("generation"),
        dig(wanted, "spec", "rkeConfig", field, "generation"),
        dig(plane or {}, "status", field, "generation"),
        dig(plane or {}, "status", "certificateRotationGeneration") if field == CERTIFICATES else 0,
    )
    return max(int(number or 0) for number in known)


def was_up(plane: Obj) -> bool:
    """A spec may be a copy of another cluster's: before there is a cluster, its requests mean nothing."""
    status = plane.get("status") or {}
    return dig(status, "initialization", "controlPlaneInitialized") is not None or status.get("appliedSpec") is not None


def _is_request(field: str, asked: Obj) -> bool:
    return bool(asked.get("name") or asked.get("fromMachine")) if field == RESTORE else bool(asked.get("generation"))


def _is_taken_up(field: str, asked: Obj, status: Obj, result: Obj) -> bool:
    if field == CERTIFICATES:
        return result.get("status") == "Unknown" or status.get("certificateRotationGeneration") == asked.get("generation")
    last = status.get(field)
    if not isinstance(last, dict):
        return False
    if field == RECOVERY:
        return recovery_request.noted(last) == recovery_request.noted(asked)
    if field == BEFORE_UPGRADE:
        return last.get("request") == asked["request"] and last.get("phase") != "Retry"
    return request_of(last) == request_of(asked) if field == RESTORE else last.get("generation") == asked.get("generation")


def _word(field: str, phase: str, result: Obj) -> str:
    if phase == "Failed" or result.get("status") == "False":
        return FAILED
    if (phase and phase not in ("Finished", "Done")) or (field == CERTIFICATES and result.get("status") == "Unknown"):
        return RUNNING
    return INCOMPLETE if result.get("reason") == "Incomplete" else DONE
