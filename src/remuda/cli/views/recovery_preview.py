"""The effects of a recovery, for the user who is about to confirm it: what it begins with, what is lost, what is kept. Pure.

:mod:`.restore_preview` is the one of a restore, which loses no machines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from remuda.gateway.explain import states
from remuda.gateway.explain.states import one_line
from remuda.kube.clock import rfc3339
from remuda.kube.duration import human_age
from remuda.kube.objects import dig, is_being_deleted, labels_of, name_of
from remuda.provisioning.etcd.snapshot_sets import AVAILABLE, FAILED, LOCAL, SnapshotCopy, SnapshotSet
from remuda.provisioning.well_known import CONTROL_PLANE_ROLE, ETCD_ROLE, NODE_NAME, WORKER_ROLE

from .restore_preview import NoCopy, of_another
from .snapshots import size, source

Obj = dict[str, Any]

_CUSTOM = "CustomMachine"
_ROLES = ((ETCD_ROLE, "etcd"), (CONTROL_PLANE_ROLE, "controlplane"), (WORKER_ROLE, "worker"))
_MOST_NAMES = 5


def copy_to_recover_from(found: SnapshotSet, name: str, machines: Iterable[Obj]) -> SnapshotCopy:
    """The copy that is meant by `name`: an ETCDSnapshot's name is that very one; other names mean one that no machine has,
    since machines may be lost, else one of a machine that is still there. Raises NoCopy."""
    for copy in found.copies:
        if copy.name == name:
            if copy.state == FAILED:
                raise NoCopy(f"ETCDSnapshot {name} is of a snapshot that failed: {copy.message or 'the reason is not known'}")
            return copy
    there = {name_of(machine): states.of_machine(machine).word == states.READY for machine in machines}
    fit = [copy for copy in found.copies if copy.state == AVAILABLE and (copy.storage != LOCAL or copy.machine in there)]
    if fit:
        return min(fit, key=lambda copy: (copy.storage == LOCAL, not there.get(copy.machine), copy.name))
    kept = ", ".join(sorted({copy.node or copy.machine or "a machine that is gone" for copy in found.copies}))
    raise NoCopy(f"the files of snapshot {found.name} were on {kept} alone, and can't be seen now: choose one in a bucket")


def without_a_source(cluster: str, known: Sequence[SnapshotSet], machines: Sequence[Obj]) -> str:
    """The way on for a user who has named nothing to begin with."""
    with_etcd = [name_of(machine) for machine in machines if _has(machine, ETCD_ROLE) and not is_being_deleted(machine)]
    names = ", ".join(with_etcd[:_MOST_NAMES]) or "none is left"
    if known:
        newest = max(known, key=lambda each: each.created)
        return (
            f"say what to recover {cluster} from: --snapshot NAME (the newest is {newest.name}; remuda snapshot ls {cluster} "
            f"lists all), or --from-machine M, the data of a server that still answers (with etcd: {names})"
        )
    return (
        f"no snapshot of {cluster} is known: import one (--from-file, --from-s3, or remuda snapshot import), or go on from a "
        f"server that still answers (--from-machine M; with etcd: {names}). Without any of these the cluster's state is lost"
    )


def machine_named(machines: Iterable[Obj], name: str) -> Obj | None:
    """The machine of this name, or whose node has it."""
    return next(
        (each for each in machines if name in (name_of(each), labels_of(each).get(NODE_NAME), states.node_of(each))), None
    )


@dataclass(frozen=True, slots=True)
class Preview:
    """The preview of a recovery from a snapshot's `copy`, or from the data of `machine`."""

    wanted: Obj
    machines: Sequence[Obj]
    now: float
    found: SnapshotSet | None = None
    copy: SnapshotCopy | None = None
    machine: str = ""

    @property
    def source(self) -> str:
        return f"snapshot {self.found.name}" if self.found is not None else f"the etcd data of machine {self.machine}"

    def lines(self) -> list[str]:
        """Paragraphs; those that begin with a space belong to the one before."""
        return [
            f"Cluster {name_of(self.wanted)} is recovered from {self.source}{self._taken()}.",
            *self._of_copy(),
            "Servers that do not answer within a minute are deleted, with their disks if a pool has made them:",
            *self._servers(),
            *self._places(),
            self._lost(),
            self._kept(),
            "A lost host must not start again with its old disk: it would go on with the old data. Erase it first.",
        ]

    def _kept(self) -> str:
        if self.copy is not None and self.copy.is_of_another:
            return of_another(name_of(self.wanted))
        return "Kept: workers and what runs on them, the cluster's CA, its tokens, and the kubeconfigs of users."

    def _taken(self) -> str:
        if self.found is None:
            return ""
        return f", taken {human_age(rfc3339(self.found.created), self.now)} ago, {rfc3339(self.found.created)}"

    def _of_copy(self) -> list[str]:
        if self.copy is None:
            return []
        version = str(dig(self.wanted, "spec", "kubernetesVersion") or "?")
        return [
            f"  from      {source(self.copy)}, {size(self.copy.size)}",
            f"  version   {self.copy.version or 'not known'} then, {version} now",
        ]

    def _servers(self) -> list[str]:
        servers = [machine for machine in self.machines if _has(machine, ETCD_ROLE) or _has(machine, CONTROL_PLANE_ROLE)]
        return [f"  {name_of(each)}  {_roles(each)}  {_state(each)}" for each in servers] or ["  there is none any more"]

    def _places(self) -> list[str]:
        servers = [machine for machine in self.machines if _has(machine, ETCD_ROLE) or _has(machine, CONTROL_PLANE_ROLE)]
        kinds = {dig(machine, "spec", "infrastructureRef", "kind") == _CUSTOM for machine in servers}
        pools = ["Pools make new machines in their places."] if False in kinds else []
        hosts = ["Register new hosts in their places when it waits for them; it says how many, and with which roles."]
        return [*pools, *(hosts if True in kinds or not kinds else [])]

    def _lost(self) -> str:
        if self.found is None:
            return "Lost: the last changes, if only lost servers had them. Servers that answer get the data of this machine, too."
        return "Lost: every change of the cluster's objects since then, also deletions, which are undone."


def _has(machine: Obj, role: str) -> bool:
    return labels_of(machine).get(role) == "true"


def _roles(machine: Obj) -> str:
    return ",".join(name for label, name in _ROLES if _has(machine, label))


def _state(machine: Obj) -> str:
    state = states.of_machine(machine)
    return one_line(f"{state.word}{f': {state.message}' if state.message else ''}")[:120]
