"""Each of the two Clusters of a cluster, computed from the other one. Pure (docs/reference/objects.md#two-clusters).

As a rule the management Cluster follows from the user's clusters.provisioning.cattle.io. An imported cluster (without
`rkeConfig`) follows, once it is created, its management Cluster; only name and workspace still follow the user's. For old
names (`c-xxxxx`, `local`) it is the other way round: the management Cluster existed first.
"""

from __future__ import annotations

from typing import Any

from remuda.access.clusters.server_settings import ServerFacts
from remuda.access.clusters.well_known import LOCAL
from remuda.access.rancher_conditions import ERROR, FALSE, TRUE, is_true, with_condition
from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api.provisioning_cattle_io import API_VERSION
from remuda.kube.objects import annotations_of, dig, labels_of, metadata, name_of, namespace_of, with_path
from remuda.kube.wrangler import PREFIX, marks, without_marks

from ..well_known import (
    ADMINISTRATED,
    DESCRIPTION,
    DISPLAY_NAME,
    FROM_MANAGED,
    FROM_WANTED,
    LAST_APPLIED,
    UI_PROVIDER,
    WORKSPACE_NAME,
    is_administrated,
)

Obj = dict[str, Any]

_CUSTOMIZATIONS = (
    "clusterAgentDeploymentCustomization",
    "fleetAgentDeploymentCustomization",
    "webhookDeploymentCustomization",
)
_COPIED = (
    *_CUSTOMIZATIONS,
    "defaultPodSecurityAdmissionConfigurationTemplateName",
    "enableNetworkPolicy",
)
_REGISTRY = "system-default-registry"


def workspace_of(wanted: Obj, managed: Obj | None, facts: ServerFacts) -> str:
    """The workspace of a cluster: from the annotation, else its current one, else the namespace of `wanted`."""
    said = annotations_of(wanted).get(WORKSPACE_NAME) if facts.workspaces_follow_annotations else ""
    return said or dig(managed or {}, "spec", "fleetWorkspaceName") or namespace_of(wanted)


# --- the management Cluster ---------------------------------------------------------------------------------------------------


def minimal_management_cluster(wanted: Obj, name: str, workspace: str) -> Obj:
    """The minimal management Cluster: its names, workspace and origin, which it always keeps."""
    labels, annotations = marks(FROM_WANTED, wanted)
    return _managed(name, labels, annotations, {"displayName": name_of(wanted), "fleetWorkspaceName": workspace})


def managed_of(wanted: Obj, name: str, workspace: str, facts: ServerFacts) -> Obj:
    """The whole management Cluster that follows from `wanted`."""
    labels, annotations = marks(FROM_WANTED, wanted)
    copied = without_marks(annotations_of(wanted))
    copied.pop(LAST_APPLIED, None)
    said = {**copied, ADMINISTRATED: "true" if is_administrated(wanted) else "false", **annotations}
    own = {key: value for key, value in labels_of(wanted).items() if not key.startswith(PREFIX)}
    spec = wanted.get("spec") or {}
    found: Obj = {
        "displayName": name_of(wanted),
        "fleetWorkspaceName": workspace,
        "importedConfig": {},
        **{field: spec[field] for field in _COPIED if spec.get(field) not in (None, "", {})},
    }
    if description := annotations_of(wanted).get(DESCRIPTION):
        found["description"] = description
    if variables := _variables(spec):
        found["agentEnvVars"] = variables
    if is_administrated(wanted):
        found.update(_administrated(spec, facts))
    return _managed(name, {**own, **labels}, said, found)


def imported_part(wanted: Obj, name: str, workspace: str) -> Obj:
    """The part of an imported cluster's management Cluster that still follows from `wanted`."""
    labels, annotations = marks(FROM_WANTED, wanted)
    spec = {"displayName": name_of(wanted), "fleetWorkspaceName": workspace}
    return _managed(name, labels, {ADMINISTRATED: "false", **annotations}, spec)


def _managed(name: str, labels: Obj, annotations: Obj, spec: Obj) -> Obj:
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    return {"apiVersion": management.API_VERSION, "kind": "Cluster", "metadata": metadata, "spec": spec}


def _administrated(spec: Obj, facts: ServerFacts) -> Obj:
    """Fields that only provisioned clusters have."""
    found: Obj = {}
    if dig(spec, "localClusterAuthEndpoint"):
        found["localClusterAuthEndpoint"] = spec["localClusterAuthEndpoint"]
    registry = registry_of(spec)
    found["desiredAgentImage"] = resolved(facts.agent_image, registry or facts.registry)
    if registry:
        secrets: Obj = {"privateRegistryURL": registry}
        if secret := dig(spec, "rkeConfig", "registries", "configs", registry, "authConfigSecretName"):
            secrets["privateRegistrySecret"] = secret
        found["clusterSecrets"] = secrets
    return found


def _variables(spec: Obj) -> list[Obj]:
    found = [dict(each) for each in spec.get("agentEnvVars") or [] if isinstance(each, dict)]
    if directory := dig(spec, "rkeConfig", "dataDirectories", "systemAgent"):
        found.append({"name": "CATTLE_AGENT_VAR_DIR", "value": directory})
    return found


def registry_of(spec: Obj) -> str:
    """The registry that the cluster sets for system images: for all machines, or in a config without a selector."""
    everywhere = dig(spec, "rkeConfig", "machineGlobalConfig", _REGISTRY)
    if isinstance(everywhere, str) and everywhere:
        return everywhere
    for each in dig(spec, "rkeConfig", "machineSelectorConfig") or []:
        found = dig(each, "config", _REGISTRY)
        if not dig(each, "machineLabelSelector") and isinstance(found, str) and found:
            return found
    return ""


def resolved(image: str, registry: str) -> str:
    """The name of an image at the registry it is pulled from."""
    if not registry or not image or image.startswith(f"{registry}/"):
        return image
    return f"{registry}/{image if '/' in image else f'rancher/{image}'}"


# --- the provisioning Cluster -------------------------------------------------------------------------------------------------


def wanted_of(managed: Obj) -> Obj:
    """The clusters.provisioning.cattle.io of a management Cluster that existed first."""
    labels, annotations = marks(FROM_MANAGED, managed)
    spec = managed.get("spec") or {}
    metadata = {
        "name": name_of(managed),
        "namespace": spec["fleetWorkspaceName"],
        "labels": {**_without_reserved(labels_of(managed)), **labels},
        "annotations": {
            **_without_reserved(annotations_of(managed)),
            DISPLAY_NAME: spec.get("displayName") or name_of(managed),
            **annotations,
        },
    }
    found = {field: spec[field] for field in _CUSTOMIZATIONS if spec.get(field)}
    return {"apiVersion": provisioning.API_VERSION, "kind": "Cluster", "metadata": metadata, "spec": found}


def _without_reserved(said: dict[str, str]) -> dict[str, str]:
    """Without the keys that Rancher and kubectl reserve."""
    return {name: value for name, value in said.items() if "cattle.io/" not in name and "kubernetes.io/" not in name}


# --- mirror status --------------------------------------------------------------------------------------------------------
#
# The status of each of the two Clusters that follows from the other. Pure.

CREATED = "Created"
_WAITING = "waiting for the cluster agent to connect"
# Set at deletion, so that no condition still looks in progress.
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
    """The conditions that kstatus, and with it `kubectl wait` and others, read."""
    if ready:
        wanted = with_condition(wanted, "Reconciling", FALSE, now=now)
    else:
        wanted = with_condition(wanted, "Reconciling", TRUE, "Reconciling", _WAITING, now=now)
    return with_condition(wanted, "Stalled", FALSE, now=now)


def with_failure(wanted: Obj, message: str, now: float) -> Obj:
    """Conditions for an error that only a change by a user resolves."""
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
    """`managed` with the fields that cluster lists show; other controllers set the values read from the cluster itself."""
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
    """The provider of its machines; empty if it is unknown here."""
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
