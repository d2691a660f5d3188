"""What each of the two Clusters says of the other in its status. Pure."""

from __future__ import annotations

from typing import Any

from remuda.access.clusters.well_known import LOCAL
from remuda.access.rancher_conditions import ERROR, FALSE, TRUE, is_true, with_condition
from remuda.api.provisioning_cattle_io import API_VERSION
from remuda.kube.objects import annotations_of, dig, metadata, name_of, namespace_of, with_path

from .names import UI_PROVIDER, is_administrated

Obj = dict[str, Any]

CREATED = "Created"
_WAITING = "waiting for the cluster agent to connect"
# Set when it goes, so that nothing about it looks as if it were still under way.
_ENDED = ("Provisioned", "Waiting", "Pending", "Updated")


def with_managed(wanted: Obj, managed: Obj, workspace: str, now: float) -> Obj:
    """`wanted` with the status that follows from its management Cluster. `ready` stays true once it was."""
    ready = bool(dig(wanted, "status", "ready")) or is_true(managed, "Connected")
    found = with_path(wanted, ("status", "ready"), ready)
    found = with_path(found, ("status", "clusterName"), name_of(managed))
    found = with_path(found, ("status", "fleetWorkspaceName"), workspace)
    found = with_path(found, ("status", "agentDeployed"), is_true(managed, "AgentDeployed"))
    found = with_path(found, ("status", "observedGeneration"), int(metadata(wanted).get("generation") or 0))
    found = with_condition(found, CREATED, TRUE, now=now)
    return found if is_administrated(wanted) else _progressing(found, ready, now)


def _progressing(wanted: Obj, ready: bool, now: float) -> Obj:
    """What kstatus, and with it `kubectl wait` and others, take for done."""
    if ready:
        wanted = with_condition(wanted, "Reconciling", FALSE, now=now)
    else:
        wanted = with_condition(wanted, "Reconciling", TRUE, "Reconciling", _WAITING, now=now)
    return with_condition(wanted, "Stalled", FALSE, now=now)


def with_failure(wanted: Obj, message: str, now: float) -> Obj:
    """Nothing goes on until somebody changes something."""
    wanted = with_condition(wanted, CREATED, FALSE, ERROR, message, now=now)
    return with_condition(wanted, "Stalled", TRUE, ERROR, message, now=now)


def with_client_secret(wanted: Obj, name: str) -> Obj:
    return with_path(wanted, ("status", "clientSecretName"), name)


def with_removal(wanted: Obj, now: float, waiting_for: str = "") -> Obj:
    for kind in _ENDED:
        wanted = with_condition(wanted, kind, TRUE, now=now)
    if waiting_for:
        return with_condition(wanted, "Removed", "Unknown", "Waiting", waiting_for, now=now)
    return wanted


# --- the management Cluster ---------------------------------------------------------------------------------------------------


def with_info(managed: Obj, wanted: Obj) -> Obj:
    """`managed` with what lists of clusters show; what only the cluster itself knows is left to who asks it."""
    reference = {
        "apiVersion": API_VERSION,
        "kind": "Cluster",
        "namespace": namespace_of(wanted),
        "name": name_of(wanted),
    }
    found = with_path(managed, ("status", "info", "provisioningClusterRef"), reference)
    if provider := machine_provider(wanted):
        found = with_path(found, ("status", "info", "machineProvider"), provider)
    version = dig(managed, "status", "version", "gitVersion") or dig(wanted, "spec", "kubernetesVersion")
    if version:
        found = with_path(found, ("status", "info", "kubernetesVersion"), version)
    if (count := dig(managed, "status", "nodeCount")) is not None:
        found = with_path(found, ("status", "info", "nodeCount"), count)
    if (distribution := distribution_of(wanted)) and not dig(managed, "status", "provider"):
        found = with_path(found, ("status", "provider"), distribution)
    return found


def machine_provider(wanted: Obj) -> str:
    """What makes its machines; empty where that is not ours to know."""
    if said := annotations_of(wanted).get(UI_PROVIDER):
        return said
    if not is_administrated(wanted):
        return LOCAL if name_of(wanted) == LOCAL else ""
    pools = dig(wanted, "spec", "rkeConfig", "machinePools") or []
    if not pools:
        return "custom"
    kind = dig(pools[0], "machineConfigRef", "kind") or ""
    return str(kind).removesuffix("Config").lower()


def distribution_of(wanted: Obj) -> str:
    version = dig(wanted, "spec", "kubernetesVersion") or ""
    return next((each for each in ("rke2", "k3s", "remuda") if f"+{each}" in version), "")
