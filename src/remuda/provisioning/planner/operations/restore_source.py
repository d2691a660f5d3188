"""The snapshot that a restore asks for: the reasons why it can't be restored, and the machine that begins with it. Judgements on
what is known without asking a host; :mod:`.etcd_snapshot_restore` has the file itself checked before it stops anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from remuda.capi.kubernetes_versions import KubernetesVersion, VersionError, parse

from ...etcd.snapshot_specs import NONE
from ...releases.distributions import of_version
from ..election import disqualifier
from ..snapshot import ClusterSnapshot, Machine

# Kubernetes 1.25 no longer knows pod security policies, which older clusters have.
_WITHOUT_POLICIES = 25


def refusal(snapshot: ClusterSnapshot) -> str:
    """The reason why the snapshot can't be restored; "" if nothing speaks against it so far."""
    control_plane, stored = snapshot.control_plane, snapshot.stored
    asked = control_plane.spec["etcdSnapshotRestore"]
    name, mode = str(asked.get("name") or ""), str(asked.get("restoreRKEConfig") or "")
    if asked.get("fromMachine"):
        return "" if mode in NONE else "without a snapshot, only none can be restored"
    if stored is None:
        if mode not in NONE:
            return f"there is no ETCDSnapshot {name}, so the spec of that time is not known: only none can be restored with it"
        return _why_no_file(name)
    if stored.cluster != str(control_plane.spec.get("clusterName") or control_plane.name):
        return f"there is no ETCDSnapshot {name} of this cluster"
    if stored.problem and (stored.spec is None or mode not in NONE):
        return f"ETCDSnapshot {name}: {stored.problem}"
    if mode not in NONE and not stored.version:
        return f"ETCDSnapshot {name} does not have the spec of that time: only none can be restored with it"
    return _why_no_file(stored.file) or _why_unreadable(snapshot, stored.version, mode, stored.release_error)


def why_not_its_own(snapshot: ClusterSnapshot) -> str:
    """The reason why the copy in the bucket is not the snapshot that was taken, or not this cluster's. What the distribution did
    not write into the bucket is believed of the ETCDSnapshot."""
    known, stored = snapshot.control_plane.cluster_id, snapshot.stored
    if stored is None:
        return ""
    copy = stored.copy
    if copy.cluster_id and known and copy.cluster_id != known and not stored.is_of_another:
        return f"{stored.file} in the bucket is of another cluster: its id is {copy.cluster_id}, and this cluster's is {known}"
    if copy.sha256 and stored.sha256 and copy.sha256 != stored.sha256:
        return f"{stored.file} in the bucket is not the file that was taken: its SHA-256 differs"
    return ""


def _why_no_file(name: str) -> str:
    if not name or "/" in name or name.startswith((".", "-")) or not name.isprintable():
        return f"{name!r} is not the name of a file"
    return ""


def _why_unreadable(snapshot: ClusterSnapshot, version: str, mode: str, release_error: str) -> str:
    """The reason why the version that is to run can't read what the snapshot's version wrote."""
    current = snapshot.control_plane.version
    if not version:
        return ""
    if of_version(version) != of_version(current):
        return f"it was taken with {of_version(version).name}, and the cluster has {of_version(current).name}"
    if mode not in NONE:
        return release_error
    before, after = _parsed(version), _parsed(current)
    if before is None or after is None:
        return ""
    if before.minor < _WITHOUT_POLICIES <= after.minor:
        return f"{current} can't read what {version} has stored: restore with kubernetesVersion or all"
    if (before.major, before.minor) > (after.major, after.minor):
        return f"it was taken with {version}, which is newer than {current}: restore with kubernetesVersion or all"
    return ""


def _parsed(version: str) -> KubernetesVersion | None:
    try:
        return parse(version.removeprefix("v"))
    except VersionError:
        return None


def choose(snapshot: ClusterSnapshot, machines: Sequence[Machine]) -> Machine | str:
    """The machine that begins the restored cluster, or the reason why there is none. `machines` by name."""
    stored = snapshot.stored
    kept = (snapshot.control_plane.spec.get("etcdSnapshotRestore") or {}).get("fromMachine")
    if kept:
        owner = next((machine for machine in machines if machine.name == kept), None)
        why = "gone" if owner is None else disqualifier(owner)
        return f"machine {kept}, which has the data: {why}" if owner is None or why else owner
    if stored is not None and stored.s3 is None and stored.machine:
        owner = next((machine for machine in machines if machine.name == stored.machine), None)
        if owner is None:
            return f"machine {stored.machine}, which has the file, is gone"
        why = disqualifier(owner)
        return f"machine {owner.name}, which has the file: {why}" if why else owner
    candidates = [machine for machine in machines if not disqualifier(machine) and not machine.is_windows]
    if not candidates:
        lacking = "; ".join(f"{machine.name}: {disqualifier(machine)}" for machine in machines if machine.is_etcd)
        return f"no etcd machine can begin with it{f' ({lacking})' if lacking else ''}"
    if stored is not None and (stored.s3 is not None or stored.uploaded):
        return min(candidates, key=lambda machine: (not machine.is_init, not (machine.join_url and machine.node), machine.name))
    if len(candidates) > 1:
        names = ", ".join(machine.name for machine in candidates)
        return f"no ETCDSnapshot says which machine has the file, and it could be any of {names}"
    return candidates[0]
