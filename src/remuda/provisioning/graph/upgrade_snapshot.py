"""The snapshot of etcd before a change of the minor version, for the generated objects: they keep the old version until the
planner has taken it (docs/reference/operations.md#before-an-upgrade). Pure.

The snapshot must be taken by hosts that are told the old version, and remember a spec that has it. The annotation
`remuda.dev/upgrade-snapshot` of the control plane asks for it, `status.upgradeSnapshot` answers. Its last number is new for each
change, so that the same change after a way back takes another snapshot.
"""

from __future__ import annotations

from typing import Any

from remuda.capi.kubernetes_versions import VersionError, parse
from remuda.kube import conditions
from remuda.kube.objects import annotations_of, dig, metadata, with_metadata, with_path

from ..etcd.snapshot_specs import is_pending
from ..well_known import UPGRADE_SNAPSHOT

Obj = dict[str, Any]


def held(wanted: Obj, plane: Obj | None) -> Obj:
    """The cluster whose objects are to be made: with the control plane's version while the snapshot is not taken."""
    said, before = annotations_of(wanted), annotations_of(plane or {}).get(UPGRADE_SNAPSHOT, "")
    request = _request(wanted, plane, before) if plane is not None else ""
    if request and _is_taken(request, plane or {}):
        request = ""
    if request or before:
        said = {**said, UPGRADE_SNAPSHOT: request}
    elif UPGRADE_SNAPSHOT in said:
        # Only the control plane's counts.
        said = {key: value for key, value in said.items() if key != UPGRADE_SNAPSHOT}
    if said is not annotations_of(wanted) and said != annotations_of(wanted):
        wanted = with_metadata(wanted, annotations=said)
    return with_path(wanted, ("spec", "kubernetesVersion"), dig(plane, "spec", "kubernetesVersion")) if request else wanted


def _request(wanted: Obj, plane: Obj, before: str) -> str:
    old, new = dig(plane, "spec", "kubernetesVersion"), dig(wanted, "spec", "kubernetesVersion")
    if not _goes_up(old, new) or not _has_data(plane) or not _is_on(wanted):
        return ""
    if is_pending(dig(wanted, "spec", "rkeConfig", "etcdSnapshotRestore"), plane.get("status") or {}):
        # It brings back what is wanted instead of the present.
        return ""
    change = f"{old} {new} "
    return before if before.startswith(change) else f"{change}{metadata(plane).get('generation') or 0}"


def _goes_up(old: object, new: object) -> bool:
    """Only upwards: nothing was ever stored by a version from which a cluster may go down, and its hosts may not have it."""
    try:
        before, after = parse(str(old).removeprefix("v")), parse(str(new).removeprefix("v"))
    except VersionError:
        return False
    return (after.major, after.minor) > (before.major, before.minor)


def _has_data(plane: Obj) -> bool:
    bootstrapped = conditions.get(plane, "Bootstrapped") or {}
    return bool(dig(plane, "status", "initialization", "controlPlaneInitialized")) and bootstrapped.get("status") == "True"


def _is_on(wanted: Obj) -> bool:
    configuration: Obj = dig(wanted, "spec", "rkeConfig") or {}
    if dig(configuration, "etcd", "snapshotBeforeUpgrade") is False:
        return False
    said = [
        configuration.get("machineGlobalConfig"),
        *(dig(each, "config") for each in configuration.get("machineSelectorConfig") or ()),
    ]
    return not any(isinstance(each, dict) and each.get("datastore-endpoint") for each in said)


def _is_taken(request: str, plane: Obj) -> bool:
    state = dig(plane, "status", "upgradeSnapshot") or {}
    return state.get("request") == request and state.get("phase") == "Finished"
