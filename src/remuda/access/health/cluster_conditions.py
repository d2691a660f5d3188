"""The status of a cluster from observations: conditions in Rancher's order and words
(docs/reference/tunnel.md#conditions-of-a-connected-cluster). Pure.

An import begins as Pending and Waiting. With the agent's first contact it is Provisioned, when the agent answers Connected, and
when the API answers Ready. A cluster that we provisioned (`provisioning.cattle.io/administrated`) reports its provisioning
itself, and gets only Connected, AgentDeployed and Ready here; Ready stays while its control plane changes (`readyReconciling`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from remuda.kube.objects import annotations_of, dig, with_path

from ..rancher_conditions import FALSE, TRUE, UNKNOWN, condition_of, is_true, with_condition
from .cluster_resources import ClusterCapacity

Obj = dict[str, Any]

ADMINISTRATED: Final = "provisioning.cattle.io/administrated"
PENDING, PROVISIONED, WAITING = "Pending", "Provisioned", "Waiting"
CONNECTED, READY, AGENT_DEPLOYED = "Connected", "Ready", "AgentDeployed"
DISCONNECTED: Final = "Disconnected"
NOT_CONNECTED: Final = "Cluster agent is not connected"
WAITING_FOR_API: Final = "Waiting for API to be available"
WAITING_FOR_CONTACT: Final = "waiting for full cluster configuration"
API_FAILED: Final = "ComponentStatusFetchingFailure"


@dataclass(frozen=True, slots=True)
class ClusterObservation:
    """`problem`: the reason why the agent does not count as connected. `api`: the problem with the API; None if it was not asked,
    or not often enough to say. Both are empty if all is well."""

    problem: str
    api: str | None = None
    version: Obj | None = None
    summary: ClusterCapacity | None = None


def is_administrated(cluster: Obj) -> bool:
    return annotations_of(cluster).get(ADMINISTRATED) == "true"


def is_internal(cluster: Obj) -> bool:
    return bool(dig(cluster, "spec", "internal"))


def judged(cluster: Obj, seen: ClusterObservation, now: float) -> Obj:
    """The cluster with the observations in its status; the same object if nothing is new."""
    said = _beginning(cluster, seen, now)
    if seen.problem:
        said = with_condition(said, CONNECTED, FALSE, DISCONNECTED, seen.problem, now=now)
    else:
        said = with_condition(said, CONNECTED, TRUE, now=now)
        said = with_condition(said, AGENT_DEPLOYED, TRUE, now=now)
    said = _with(said, ("connected",), not seen.problem)
    said = _ready(said, seen, now)
    return _described(said, seen)


def _beginning(cluster: Obj, seen: ClusterObservation, now: float) -> Obj:
    if is_administrated(cluster):
        return cluster
    if is_internal(cluster) or dig(cluster, "status", "apiEndpoint"):
        said = with_condition(cluster, PENDING, TRUE, now=now)
        said = with_condition(said, PROVISIONED, TRUE, now=now)
    elif condition_of(cluster, PROVISIONED) is None:
        said = with_condition(cluster, PENDING, UNKNOWN, now=now)
        said = with_condition(said, PROVISIONED, UNKNOWN, "Pending", WAITING_FOR_CONTACT, now=now)
    else:
        said = cluster
    if seen.api == "":
        return with_condition(said, WAITING, TRUE, now=now)
    return said if is_true(said, WAITING) else with_condition(said, WAITING, UNKNOWN, "", WAITING_FOR_API, now=now)


def _ready(cluster: Obj, seen: ClusterObservation, now: float) -> Obj:
    if dig(cluster, "status", "readyReconciling"):
        return cluster
    if not is_true(cluster, PROVISIONED):
        first = condition_of(cluster, READY) is None and not is_administrated(cluster)
        return with_condition(cluster, READY, FALSE, "", WAITING_FOR_API, now=now) if first else cluster
    if seen.problem:
        return with_condition(cluster, READY, FALSE, DISCONNECTED, NOT_CONNECTED, now=now)
    if seen.api is None:
        return cluster
    if seen.api:
        return with_condition(cluster, READY, FALSE, API_FAILED, f"Failed to communicate with API server: {seen.api}", now=now)
    return with_condition(cluster, READY, TRUE, now=now)


def _described(cluster: Obj, seen: ClusterObservation) -> Obj:
    said = cluster
    if seen.version is not None:
        said = _with(said, ("version",), seen.version)
    found = seen.summary
    if found is None:
        return said
    for name, value in (
        ("capacity", found.capacity),
        ("allocatable", found.allocatable),
        ("requested", found.requested),
        ("limits", found.limits),
        ("linuxWorkerCount", found.linux_workers),
        ("windowsWorkerCount", found.windows_workers),
    ):
        said = _with(said, (name,), value)
    if is_administrated(cluster):
        # Counted from its machines, which exist before their nodes.
        return said
    said = _with(said, ("nodeCount",), found.nodes)
    said = _with(said, ("provider",), found.provider)
    for name, text in (
        ("kubernetesVersion", str(dig(said, "status", "version", "gitVersion") or "")),
        ("nodeCount", found.nodes),
        ("arch", found.architecture),
        ("cloudProvider", found.cloud),
        ("operatingSystems", list(found.systems)),
    ):
        said = _with(said, ("info", name), text)
    return said


def _with(cluster: Obj, path: tuple[str, ...], value: Any) -> Obj:
    return cluster if dig(cluster, "status", *path) == value else with_path(cluster, ("status", *path), value)
