"""The counters of a Cluster: machines of its control plane and of its workers, and their versions.

An unreported number is left out, so an absent counter is not a zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from remuda.kube.conditions import is_true
from remuda.kube.objects import dig

from .. import contract_fields, kubernetes_versions
from .scope import Descendants, Referred

Obj = dict[str, Any]

_COUNTERS = ("desiredReplicas", "replicas", "readyReplicas", "availableReplicas", "upToDateReplicas")
_MOST_VERSIONS = 32
_CONDITIONS = {"readyReplicas": "Ready", "availableReplicas": "Available", "upToDateReplicas": "UpToDate"}


def of_control_plane(before: Obj, control_plane: Referred, descendants: Descendants) -> Obj:
    """`status.controlPlane`: the control plane object's own counters or, without such an object, a count of machines."""
    rest = {key: value for key, value in before.items() if key not in (*_COUNTERS, "versions")}
    if not control_plane.ref:
        machines = descendants.control_plane_machines
        return _with_versions({**rest, **_counted(machines)}, kubernetes_versions.of_machines(machines))
    if control_plane.obj is None:
        return rest
    # Counters that are not reported any more keep their last value.
    kept = {key: before[key] for key in _COUNTERS if key in before}
    reported = _reported(control_plane.obj, control_plane.contract)
    found = _versions_of(control_plane.obj)
    return _with_versions({**rest, **kept, **reported}, before.get("versions") if found is None else found)


def _reported(control_plane: Obj, contract: str) -> Obj:
    found = {
        "desiredReplicas": contract_fields.spec_replicas(control_plane),
        "replicas": contract_fields.status_replicas(control_plane),
        "readyReplicas": contract_fields.ready_replicas(control_plane),
        "availableReplicas": contract_fields.available_replicas(control_plane, contract),
        "upToDateReplicas": contract_fields.up_to_date_replicas(control_plane, contract),
    }
    return {key: value for key, value in found.items() if value is not None}


def _versions_of(control_plane: Obj) -> list[Obj] | None:
    """`status.versions`; None when it is unusable."""
    listed = dig(control_plane, "status", "versions")
    if listed is None:
        return []
    if not isinstance(listed, list):
        return None
    found = [_version(each) for each in listed]
    read = [kubernetes_versions.tolerant(each["version"]) for each in found if each is not None]
    if None in found or None in read:
        return None
    ordered = all(left and right and kubernetes_versions.compare(right, left) >= 0 for left, right in pairwise(read))
    return [each for each in found if each is not None] if ordered else None


def _version(listed: Any) -> Obj | None:
    if not isinstance(listed, dict) or not isinstance(listed.get("version"), str):
        return None
    replicas = listed.get("replicas") or 0
    if not isinstance(replicas, int) or replicas < 0:
        return None
    return {"version": listed["version"]} | ({"replicas": replicas} if replicas else {})


def of_workers(before: Obj, descendants: Descendants) -> Obj:
    """`status.workers`: the sum of MachineDeployments, and of MachineSets and Machines that stand by themselves."""
    groups = [*descendants.machine_deployments, *descendants.standalone_sets]
    machines = descendants.standalone_workers
    totals = _counted(machines)
    for counter in _COUNTERS:
        path = ("spec", "replicas") if counter == "desiredReplicas" else ("status", counter)
        for group in groups:
            if (value := dig(group, *path)) is not None:
                totals[counter] = totals.get(counter, 0) + value
    listed = [version for group in groups for version in dig(group, "status", "versions") or ()]
    rest = {key: value for key, value in before.items() if key not in (*_COUNTERS, "versions")}
    return _with_versions({**rest, **totals}, kubernetes_versions.added_up([*listed, *kubernetes_versions.of_machines(machines)]))


def _counted(machines: list[Obj]) -> Obj:
    """The counters of standalone machines; each is desired, since a user made it."""
    found = {"desiredReplicas": len(machines), "replicas": len(machines)}
    found |= {counter: sum(is_true(machine, kind) for machine in machines) for counter, kind in _CONDITIONS.items()}
    return {counter: value for counter, value in found.items() if value}


def _with_versions(counters: Obj, found: Iterable[Obj] | None) -> Obj:
    listed = list(found or ())[:_MOST_VERSIONS]
    return {**counters, "versions": listed} if listed else counters
