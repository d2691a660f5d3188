"""Each of the two Clusters of a cluster, as it follows from the other one. Pure (capr.md §2.1).

As a rule the management Cluster follows from what somebody wants. A cluster that was there already (without `rkeConfig`) is,
once it is known, what its management Cluster says; only name and workspace still follow. Old names (`c-xxxxx`, `local`) are the
other way round altogether: there the management Cluster was first.
"""

from __future__ import annotations

from typing import Any

from remuda.access.clusters.server_settings import ServerFacts
from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.kube.objects import annotations_of, dig, labels_of, name_of, namespace_of
from remuda.kube.wrangler import PREFIX, marks, without_marks

from .names import (
    ADMINISTRATED,
    DESCRIPTION,
    DISPLAY_NAME,
    FROM_MANAGED,
    FROM_WANTED,
    LAST_APPLIED,
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
    """The workspace of a cluster: as the annotation says, else where it is by now, else the namespace of what was wanted."""
    said = annotations_of(wanted).get(WORKSPACE_NAME) if facts.workspaces_follow_annotations else ""
    return said or dig(managed or {}, "spec", "fleetWorkspaceName") or namespace_of(wanted)


# --- the management Cluster ---------------------------------------------------------------------------------------------------


def seed(wanted: Obj, name: str, workspace: str) -> Obj:
    """Hardly more than that it is there and whose it is; what never goes from it again."""
    labels, annotations = marks(FROM_WANTED, wanted)
    return _managed(name, labels, annotations, {"displayName": name_of(wanted), "fleetWorkspaceName": workspace})


def managed_of(wanted: Obj, name: str, workspace: str, facts: ServerFacts) -> Obj:
    """All that follows from what is wanted."""
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


def kept_of(wanted: Obj, name: str, workspace: str) -> Obj:
    """What of the management Cluster of a cluster that was there already still follows from what is wanted."""
    labels, annotations = marks(FROM_WANTED, wanted)
    spec = {"displayName": name_of(wanted), "fleetWorkspaceName": workspace}
    return _managed(name, labels, {ADMINISTRATED: "false", **annotations}, spec)


def _managed(name: str, labels: Obj, annotations: Obj, spec: Obj) -> Obj:
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    return {"apiVersion": management.API_VERSION, "kind": "Cluster", "metadata": metadata, "spec": spec}


def _administrated(spec: Obj, facts: ServerFacts) -> Obj:
    """What is only said of clusters that are ours to make."""
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
    """The registry that the cluster itself says system images come from: for all machines, or for those that nobody selected."""
    everywhere = dig(spec, "rkeConfig", "machineGlobalConfig", _REGISTRY)
    if isinstance(everywhere, str) and everywhere:
        return everywhere
    for each in dig(spec, "rkeConfig", "machineSelectorConfig") or []:
        found = dig(each, "config", _REGISTRY)
        if not dig(each, "machineLabelSelector") and isinstance(found, str) and found:
            return found
    return ""


def resolved(image: str, registry: str) -> str:
    """An image as it is called where it is pulled from."""
    if not registry or not image or image.startswith(f"{registry}/"):
        return image
    return f"{registry}/{image if '/' in image else f'rancher/{image}'}"


# --- the one that is wanted ---------------------------------------------------------------------------------------------------


def wanted_of(managed: Obj) -> Obj:
    """The clusters.provisioning.cattle.io of a management Cluster that was first."""
    labels, annotations = marks(FROM_MANAGED, managed)
    spec = managed.get("spec") or {}
    metadata = {
        "name": name_of(managed),
        "namespace": spec["fleetWorkspaceName"],
        "labels": {**_exported(labels_of(managed)), **labels},
        "annotations": {
            **_exported(annotations_of(managed)),
            DISPLAY_NAME: spec.get("displayName") or name_of(managed),
            **annotations,
        },
    }
    found = {field: spec[field] for field in _CUSTOMIZATIONS if spec.get(field)}
    return {"apiVersion": provisioning.API_VERSION, "kind": "Cluster", "metadata": metadata, "spec": found}


def _exported(said: dict[str, str]) -> dict[str, str]:
    """Without what Rancher and kubectl keep for themselves."""
    return {name: value for name, value in said.items() if "cattle.io/" not in name and "kubernetes.io/" not in name}
