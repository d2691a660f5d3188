"""The effects of a restore, for the user who is about to confirm it: the copy that is used, what is lost, what is kept. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from remuda.capi.kubernetes_versions import VersionError, parse
from remuda.gateway.explain.states import one_line
from remuda.kube.clock import rfc3339
from remuda.kube.duration import human_age
from remuda.kube.objects import is_being_deleted, name_of
from remuda.kube.redaction import redacted
from remuda.provisioning.etcd.snapshot_sets import AVAILABLE, FAILED, LOCAL, S3, SnapshotCopy, SnapshotSet
from remuda.provisioning.etcd.snapshot_specs import NONE, restored
from remuda.provisioning.planner.join_tokens import state_name

from .snapshots import place, size, source

Obj = dict[str, Any]

# `restoreRKEConfig` by what users write.
MODES: Final[Mapping[str, str]] = {"none": "none", "version": "kubernetesVersion", "all": "all"}
_MOST_FIELDS, _MOST_KINDS, _WIDEST = 20, 12, 60


class NoCopy(Exception):
    """A snapshot that can't be restored; the text says why."""


# --- the copy ---------------------------------------------------------------------------------------------------------------


def copy_to_restore(found: SnapshotSet, name: str, machines: Iterable[Obj], first: str, mode: str) -> SnapshotCopy:
    """The copy that is meant by `name`: an ETCDSnapshot's name is that very one, other names mean the best one.

    The machine `first` is the init node, which the restored cluster best begins with. Raises NoCopy.
    """
    for copy in found.copies:
        if copy.name == name:
            if copy.state == FAILED:
                raise NoCopy(f"ETCDSnapshot {name} is of a snapshot that failed: {copy.message or 'the reason is not known'}")
            return copy
    staying = {name_of(machine) for machine in machines if not is_being_deleted(machine)}
    named = [copy for copy in found.copies if name in (found.name, copy.file)]
    fit = [copy for copy in named if copy.state == AVAILABLE and (copy.storage != LOCAL or copy.machine in staying)]
    if mode not in NONE:
        fit = [copy for copy in fit if copy.version]
    if fit:
        return min(fit, key=lambda copy: (copy.storage != LOCAL, copy.machine != first, copy.node, copy.name))
    raise NoCopy(f"no copy of snapshot {found.name} can be restored: {'; '.join(_why(copy, staying, mode) for copy in named)}")


def _why(copy: SnapshotCopy, staying: set[str], mode: str) -> str:
    where = "in the bucket" if copy.storage == S3 else f"on {copy.node or copy.machine or place(copy)}"
    if copy.state != AVAILABLE:
        return f"{where}: {copy.state}{f' ({copy.message})' if copy.message else ''}"
    if copy.storage == LOCAL and copy.machine not in staying:
        return f"{where}: its machine is gone"
    return f"{where}: it does not have the cluster's spec of that time" if mode not in NONE else f"{where}: not available"


def no_way_back(version: str, upgrade: Mapping[str, Any]) -> str:
    """The reason why a cluster of this version can't go back to before an upgrade; `upgrade` is `status.upgradeSnapshot`."""
    before, phase = str(upgrade.get("from") or ""), upgrade.get("phase")
    if not before:
        return "no snapshot was taken before an upgrade; without one, or with etcd.snapshotBeforeUpgrade: false, there is none"
    if phase != "Finished":
        return f"the snapshot before the upgrade is not taken: {upgrade.get('message') or phase}"
    if _minor(version) == _minor(before):
        return f"it has {version}, as before the upgrade from {before}; remuda snapshot restore brings an earlier state back"
    return ""


def _minor(version: str) -> tuple[int, int] | str:
    try:
        found = parse(version.removeprefix("v"))
    except VersionError:
        return version
    return found.major, found.minor


# --- what changes -----------------------------------------------------------------------------------------------------------


def changed_fields(spec: Obj, before: Mapping[str, Any] | None, mode: str) -> list[str]:
    """The fields of the cluster's spec that a restore changes, each with its value now and then."""
    if before is None or mode in NONE:
        return []
    after = restored(spec, before, mode)
    return [redacted(f"{path}: {_short(now)} → {_short(then)}") for path, now, then in _differences(spec, after, "")]


def _differences(now: Any, then: Any, path: str) -> Iterable[tuple[str, Any, Any]]:
    if now == then:
        return
    if isinstance(now, dict) and isinstance(then, dict):
        for key in sorted({*now, *then}):
            yield from _differences(now.get(key), then.get(key), f"{path}.{key}" if path else str(key))
        return
    yield path, now, then


def _short(value: Any) -> str:
    if value is None:
        return "(unset)"
    text = one_line(value if isinstance(value, str) else str(value))
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


@dataclass(frozen=True, slots=True)
class CreatedSince:
    """Objects of the cluster by kind that were created after the snapshot. `missing` says what was not counted, and why."""

    counts: Mapping[str, int]
    missing: str = ""

    def sentence(self) -> str:
        most = sorted(self.counts.items(), key=lambda each: (-each[1], each[0]))
        told = [f"{count} {kind}" for kind, count in most[:_MOST_KINDS]]
        if len(most) > _MOST_KINDS:
            rest = most[_MOST_KINDS:]
            told.append(f"{sum(count for _, count in rest)} objects of {len(rest)} other kinds")
        return ", ".join(told) or ("not known" if self.missing else "none")


def of_another(cluster: str) -> str:
    """The consequence of a snapshot of another cluster, in place of what is kept."""
    return (
        "The snapshot is of another cluster: its objects, CA and service accounts come with it, and kubeconfigs of this one end. "
        f"It opens only with the token of that cluster: serverToken in the Secret {state_name(cluster)} must be it before."
    )


# --- the whole --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Preview:
    wanted: Obj
    found: SnapshotSet
    copy: SnapshotCopy
    mode: str
    fields: Sequence[str]
    since: CreatedSince
    now: float

    def lines(self) -> list[str]:
        """Paragraphs; those that begin with a space belong to the one before."""
        cluster, spec = name_of(self.wanted), self.wanted.get("spec") or {}
        taken = f"{human_age(rfc3339(self.found.created), self.now)} ago, {rfc3339(self.found.created)}"
        version_now = str(spec.get("kubernetesVersion") or "?")
        return [
            f"Cluster {cluster} goes back to snapshot {self.found.name}, taken {taken}.",
            f"  from      {source(self.copy)}, {size(self.copy.size)}",
            f"  version   {self.copy.version or 'not known'} then, {version_now} now{self._of_version()}",
            *self._of_spec(),
            "Lost: every change of the cluster's objects since then, also deletions, which are undone.",
            f"  created since then: {self.since.sentence()}",
            *([f"  not counted: {self.since.missing}"] if self.since.missing else []),
            self._kept(),
            "All machines stop, and start again one after another. Pods restart, and the cluster can't be reached meanwhile.",
        ]

    def _kept(self) -> str:
        if self.copy.is_of_another:
            return of_another(name_of(self.wanted))
        return "Kept: its machines, CA, tokens, kubeconfigs and snapshots, and what pods wrote to volumes and to disks of hosts."

    def _of_version(self) -> str:
        if not self.copy.version or self.copy.version == (self.wanted.get("spec") or {}).get("kubernetesVersion"):
            return ""
        return "; it stays" if self.mode in NONE else "; that of the snapshot comes back"

    def _of_spec(self) -> list[str]:
        if self.mode in NONE:
            return ["  spec      stays as it is (--config none)"]
        if not self.fields:
            return ["  spec      nothing of it changes"]
        more = len(self.fields) - _MOST_FIELDS
        told = [f"  spec      {field}" for field in self.fields[:_MOST_FIELDS]]
        return [*told, *([f"  spec      and {more} more fields"] if more > 0 else [])]
