"""The manifest that connects a cluster: all objects that one `kubectl apply` creates in it
(docs/reference/registration.md#import-manifest).

Pure: the cluster, the settings and the token come in, objects go out, in Rancher's order. :mod:`.import_manifest` serves it.
Rancher's agent copies charts out of an assets image before it starts. Ours has none to copy, so there is an init container only
for a cluster that names an assets image, which only users of Rancher's own agent do.

Every object carries the id of the cluster it was made for (`MADE_FOR`), by which removal recognises our objects.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from remuda.access.agent_objects import (
    ADMIN_BINDING,
    ADMIN_ROLE,
    AGENT,
    AUTH,
    AUTH_COMMAND,
    AUTH_PORT,
    BUDGET,
    MADE_FOR,
    NAMESPACE,
    PRIORITY_CLASS,
    PROXY_BINDING,
    PROXY_ROLE,
    PULL_SECRET,
    SCALE_AVAILABLE,
    SERVICE_ACCOUNT,
    STAMP,
    credentials_name,
)
from remuda.access.clusters.cluster_auth import is_wanted
from remuda.access.settings.settings import AGENT_REPOSITORY, Settings, registry_at
from remuda.api.cluster_cattle_io import CLUSTER_AUTH_TOKENS, CLUSTER_USER_ATTRIBUTES, GROUP
from remuda.kube.encoding import jsonio, yamlio
from remuda.kube.objects import dig, with_path

Obj = dict[str, Any]

# The settings that a manifest depends on, as its caller requests them.
TOLD: Final = frozenset(
    {
        "agent-image",
        "agent-tls-mode",
        "cacerts",
        "cluster-agent-default-affinity",
        "server-url",
        "system-default-registry",
        "system-default-registry-pull-secrets",
    }
)
_CREATOR: Final = {"cattle.io/creator": "norman"}
_APP: Final = {"app": AGENT}
_RBAC: Final = "rbac.authorization.k8s.io/v1"
_TOLERATIONS: Final = (
    {"key": "node-role.kubernetes.io/controlplane", "value": "true", "effect": "NoSchedule"},
    {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"},
)
# Without its agent a cluster can't be managed, not even to repair the node that the agent was on. So the agent's pod is
# evicted sooner than other pods (five minutes) once its node is unreachable.
_AWAY_SECONDS: Final = 20
_AWAY: Final = tuple(
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _AWAY_SECONDS}
    for key in ("not-ready", "unreachable")
)
# On a cluster with several nodes: one agent may go with its node, or be replaced, and the other still has its tunnel.
_REPLICAS: Final = "2"
_ON_ONE_NODE: Final = {"labelSelector": {"matchLabels": dict(_APP)}, "topologyKey": "kubernetes.io/hostname"}
_NODE_PARTS: Final = ("nodes/metrics", "nodes/proxy", "nodes/stats", "nodes/log", "nodes/spec")


@dataclass(frozen=True, slots=True)
class ManifestInputs:
    """The inputs of a manifest. `cluster` is the management Cluster; `namespace` is empty for a manifest that is applied by
    hand."""

    cluster: Obj
    settings: Settings
    server: str
    token: str
    ca_checksum: str = ""
    namespace: str = ""
    version: str = ""
    install_uuid: str = ""
    # Of the control plane, where they are known; else the usual ones are tolerated.
    taints: tuple[Obj, ...] | None = None
    features: Mapping[str, bool] = field(default_factory=dict)
    # Secrets of the type kubernetes.io/dockerconfigjson: name and `.dockerconfigjson` as stored.
    pull_secrets: tuple[tuple[str, str], ...] = ()


def resolve_image(image: str, registry: str) -> str:
    """The image in a private registry."""
    if not image or not registry or image.startswith(f"{registry}/"):
        return image
    # An image without an organisation on the public registry is under `rancher` on a private one.
    return f"{registry}/{image if '/' in image else f'rancher/{image}'}"


def agent_image(cluster: Obj, settings: Settings, server: str) -> str:
    """The agent's image for this cluster. Our own comes from `server`, unless there is a registry for all images."""
    if override := _text(cluster, "spec", "agentImageOverride"):
        return override
    wanted = _text(cluster, "spec", "desiredAgentImage")
    image = wanted if wanted and wanted != "fixed" else settings.text("agent-image")
    registry = _registry(cluster, settings)
    if not registry and image.startswith(f"{AGENT_REPOSITORY}:"):
        registry = registry_at(server)
    return resolve_image(image, registry)


def assets_image(cluster: Obj, settings: Settings) -> str:
    if override := _text(cluster, "spec", "assetsImageOverride"):
        return override
    return resolve_image(_text(cluster, "spec", "desiredAssetsImage"), _registry(cluster, settings))


def _registry(cluster: Obj, settings: Settings) -> str:
    return _text(cluster, "spec", "clusterSecrets", "privateRegistryURL") or settings.text("system-default-registry")


def _text(obj: Obj, *path: str) -> str:
    found = dig(obj, *path)
    return found if isinstance(found, str) else ""


def render(wanted: ManifestInputs) -> str:
    """The manifest as text, one document after the other."""
    return "".join(f"---\n{yamlio.dumps(each)}" for each in objects(wanted))


def objects(wanted: ManifestInputs) -> list[Obj]:
    """The objects in the order in which to apply them. The Deployment carries a digest of all of them."""
    made = _objects(wanted)
    stamp = {STAMP: hashlib.sha256(jsonio.dumps_sorted(made)).hexdigest()[:32]}
    return [
        with_path(each, ("metadata", "annotations"), {**each["metadata"]["annotations"], **stamp})
        if each["kind"] == "Deployment"
        else each
        for each in made
    ]


def _objects(wanted: ManifestInputs) -> list[Obj]:
    customization = _customization(wanted)
    return [
        _marked(each, wanted)
        for each in (
            *_for_the_api_server(),
            _object("v1", "Namespace", NAMESPACE),
            _object("v1", "ServiceAccount", SERVICE_ACCOUNT, NAMESPACE),
            _admin_binding(),
            _credentials(wanted),
            *(_pull_secret(name, config) for name, config in wanted.pull_secrets),
            _admin_role(),
            *_priority_class(customization),
            *_budget(customization),
            _deployment(wanted, customization),
            *authentication(wanted.cluster, _pod(wanted, customization)),
            _service(),
        )
    ]


def _customization(wanted: ManifestInputs) -> Obj:
    found = dig(wanted.cluster, "spec", "clusterAgentDeploymentCustomization")
    return found if isinstance(found, dict) else {}


def _object(api_version: str, kind: str, name: str, namespace: str = "", **rest: Any) -> Obj:
    metadata: Obj = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}


def _marked(obj: Obj, wanted: ManifestInputs) -> Obj:
    annotations = {**(obj["metadata"].get("annotations") or {}), MADE_FOR: _text(wanted.cluster, "metadata", "name")}
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}


def _for_the_api_server() -> Iterable[Obj]:
    """Permissions for the cluster's API server to reach its own nodes, where its certificate alone does not suffice."""
    rule = {"apiGroups": [""], "resources": list(_NODE_PARTS), "verbs": ["get", "list", "watch", "create"]}
    yield _object(_RBAC, "ClusterRole", PROXY_ROLE, rules=[rule])
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "kube-apiserver"}
    yield _object(_RBAC, "ClusterRoleBinding", PROXY_BINDING, roleRef=_role(PROXY_ROLE), subjects=[subject])


def _role(name: str) -> Obj:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}


def _admin_binding() -> Obj:
    subject = {"kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": NAMESPACE}
    made = _object(_RBAC, "ClusterRoleBinding", ADMIN_BINDING, roleRef=_role(ADMIN_ROLE), subjects=[subject])
    return {**made, "metadata": {**made["metadata"], "labels": dict(_CREATOR)}}


def _admin_role() -> Obj:
    rules = [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ]
    made = _object(_RBAC, "ClusterRole", ADMIN_ROLE, rules=rules)
    return {**made, "metadata": {**made["metadata"], "labels": dict(_CREATOR)}}


def credentials_key(server: str, token: str, namespace: str) -> str:
    """A suffix for the name of the credentials that changes with them, so that pods are replaced."""
    return hashlib.sha256(f"{server}.{token}.{namespace}".encode()).hexdigest()[:10]


def _credentials(wanted: ManifestInputs) -> Obj:
    said = {"url": wanted.server, "token": wanted.token, "namespace": wanted.namespace}
    data = {name: base64.b64encode(value.encode()).decode() for name, value in said.items()}
    return _object("v1", "Secret", _credentials_of(wanted), NAMESPACE, type="Opaque", data=data)


def _credentials_of(wanted: ManifestInputs) -> str:
    return credentials_name(credentials_key(wanted.server, wanted.token, wanted.namespace))


def _pull_secret(name: str, config: str) -> Obj:
    kind = "kubernetes.io/dockerconfigjson"
    made = _object("v1", "Secret", name, NAMESPACE, type=kind, data={".dockerconfigjson": config})
    return {**made, "metadata": {**made["metadata"], "labels": {PULL_SECRET: "true"}}}


def _priority_class(customization: Obj) -> Iterable[Obj]:
    said = dig(customization, "schedulingCustomization", "priorityClass")
    if isinstance(said, dict):
        rest: Obj = {"preemptionPolicy": said["preemptionPolicy"]} if said.get("preemptionPolicy") else {}
        rest["description"] = "The cluster agent, through which the cluster is managed."
        yield _object("scheduling.k8s.io/v1", "PriorityClass", PRIORITY_CLASS, value=int(said.get("value") or 0), **rest)


def _budget(customization: Obj) -> Iterable[Obj]:
    said = dig(customization, "schedulingCustomization", "podDisruptionBudget")
    share = _share(said) if isinstance(said, dict) else None
    if share is not None:
        spec = {"selector": {"matchLabels": dict(_APP)}, **share}
        yield _object("policy/v1", "PodDisruptionBudget", BUDGET, NAMESPACE, spec=spec)


def _share(said: Obj) -> Obj | None:
    """One of the two, as a number or a percentage; an interface sends 0 for the one that was not filled in."""
    for name in ("minAvailable", "maxUnavailable"):
        value = str(said.get(name) or "")
        if value and value != "0":
            return {name: int(value) if value.isdigit() else value}
    return None


def _deployment(wanted: ManifestInputs, customization: Obj) -> Obj:
    made = _object("apps/v1", "Deployment", AGENT, NAMESPACE)
    annotations = {SCALE_AVAILABLE: _REPLICAS}
    spec = {
        "selector": {"matchLabels": dict(_APP)},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "template": {"metadata": {"labels": dict(_APP)}, "spec": _pod(wanted, customization)},
    }
    return {**made, "metadata": {**made["metadata"], "annotations": annotations}, "spec": spec}


def _pod(wanted: ManifestInputs, customization: Obj) -> Obj:
    charts = assets_image(wanted.cluster, wanted.settings)
    container: Obj = {
        "name": "cluster-register",
        "image": agent_image(wanted.cluster, wanted.settings, wanted.server),
        "imagePullPolicy": "IfNotPresent",
        "env": _environment(wanted),
        "volumeMounts": [{"name": "cattle-credentials", "mountPath": "/cattle-credentials", "readOnly": True}],
    }
    if requirements := customization.get("overrideResourceRequirements"):
        container["resources"] = requirements
    credentials = {"secretName": _credentials_of(wanted), "defaultMode": 320}
    pod: Obj = {
        "serviceAccountName": SERVICE_ACCOUNT,
        "affinity": _affinity(wanted, customization),
        "tolerations": _tolerations(wanted, customization),
        # A wish, as the affinity is: an agent that finds no second node runs beside the first.
        "topologySpreadConstraints": [{**_ON_ONE_NODE, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}],
        "containers": [container],
        "volumes": [{"name": "cattle-credentials", "secret": credentials}],
    }
    if dig(customization, "schedulingCustomization", "priorityClass"):
        pod["priorityClassName"] = PRIORITY_CLASS
    if wanted.pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name, _ in wanted.pull_secrets]
    return _with_charts(pod, charts) if charts else pod


def _with_charts(pod: Obj, image: str) -> Obj:
    copy = {
        "name": "rancher-charts-copy",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", "cp -r /charts/. /rancher-charts/"],
        "volumeMounts": [{"name": "rancher-charts", "mountPath": "/rancher-charts"}],
    }
    (container,) = pod["containers"]
    mount = {"name": "rancher-charts", "mountPath": "/var/lib/rancher-data/local-catalogs/v2", "readOnly": True}
    mounted = {**container, "volumeMounts": [*container["volumeMounts"], mount]}
    volumes = [*pod["volumes"], {"name": "rancher-charts", "emptyDir": {}}]
    return {**pod, "initContainers": [copy], "containers": [mounted], "volumes": volumes}


def _affinity(wanted: ManifestInputs, customization: Obj) -> Obj:
    if own := customization.get("overrideAffinity"):
        return dict(own)
    found: Obj = jsonio.loads(wanted.settings.text("cluster-agent-default-affinity").encode())
    # The usual wish for a control plane's node weighs more than spreading alone; one of two agents should be elsewhere.
    apart = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": _ON_ONE_NODE}]}
    return {"podAntiAffinity": apart, **found}


def _tolerations(wanted: ManifestInputs, customization: Obj) -> list[Obj]:
    own = [_tolerating(taint) for taint in wanted.taints] if wanted.taints is not None else [dict(each) for each in _TOLERATIONS]
    appended = customization.get("appendTolerations") or []
    chosen = {each.get("key") for each in (*own, *appended)}
    return [*own, *(dict(each) for each in _AWAY if each["key"] not in chosen), *appended]


def _tolerating(taint: Obj) -> Obj:
    kept = {name: taint[name] for name in ("key", "value", "effect") if taint.get(name)}
    return kept if taint.get("value") else {**kept, "operator": "Exists"}


def _environment(wanted: ManifestInputs) -> list[Obj]:
    settings = wanted.settings
    said: dict[str, str] = {}
    if wanted.features:
        said["CATTLE_FEATURES"] = ",".join(f"{name}={str(on).lower()}" for name, on in sorted(wanted.features.items()))
    said |= {
        "CATTLE_SERVER": wanted.server,
        "CATTLE_CA_CHECKSUM": wanted.ca_checksum,
        "CATTLE_CLUSTER": "true",
        "CATTLE_K8S_MANAGED": "true",
        "CATTLE_SYSTEM_DEFAULT_REGISTRY": _registry(wanted.cluster, settings),
        "CATTLE_CREDENTIAL_NAME": _credentials_of(wanted),
        "CATTLE_SUC_APP_NAME_OVERRIDE": "",
    }
    if pulled := settings.text("system-default-registry-pull-secrets"):
        said["CATTLE_SYSTEM_DEFAULT_REGISTRY_PULL_SECRETS"] = pulled
    if wanted.pull_secrets:
        said["CATTLE_AGENT_PULL_SECRETS"] = ",".join(name for name, _ in wanted.pull_secrets)
    said |= {
        "CATTLE_SERVER_VERSION": wanted.version,
        "CATTLE_INSTALL_UUID": wanted.install_uuid,
        "CATTLE_INGRESS_IP_DOMAIN": "sslip.io",
    }
    own = _own_variables(wanted.cluster)
    if not any(each.get("name") == "STRICT_VERIFY" for each in own):
        own = [*own, {"name": "STRICT_VERIFY", "value": str(settings.text("agent-tls-mode") == "strict").lower()}]
    chosen = {each.get("name") for each in own}
    return [*({"name": name, "value": value} for name, value in said.items() if name not in chosen), *own]


def _own_variables(cluster: Obj) -> list[Obj]:
    found = dig(cluster, "spec", "agentEnvVars")
    return [dict(each) for each in found if isinstance(each, dict) and each.get("name")] if isinstance(found, list) else []


def _service() -> Obj:
    ports = [
        {"name": "http", "port": 80, "targetPort": 80, "protocol": "TCP"},
        {"name": "https-internal", "port": 443, "targetPort": 444, "protocol": "TCP"},
    ]
    return _object("v1", "Service", AGENT, NAMESPACE, spec={"ports": ports, "selector": dict(_APP)})


# --- kube-api-auth ----------------------------------------------------------------------------------------------------------
#
# The part of the manifest for a cluster with an authorised endpoint: the token webhook of its API server
# (docs/reference/registration.md#import-manifest). `remuda kube-api-auth` runs beside every API server, on an address that only
# the host itself can reach. It may read only the objects that `access/clusters/cluster_auth` has written into the cluster.

_RBAC_API: Final = "rbac.authorization.k8s.io"
_LABELS: Final = {"k8s-app": AUTH}
_ON_SERVERS: Final = tuple(
    {"matchExpressions": [{"key": f"node-role.kubernetes.io/{role}", "operator": "In", "values": ["true", ""]}]}
    for role in ("control-plane", "controlplane", "master")
)


def authentication(cluster: Obj, agent: Obj) -> Iterable[Obj]:
    """`agent` is the pod of the cluster agent; this pod has the same image and pull secrets."""
    if not is_wanted(cluster):
        return
    rule = {
        "apiGroups": [GROUP],
        "resources": [CLUSTER_AUTH_TOKENS.resource, CLUSTER_USER_ATTRIBUTES.resource],
        "verbs": ["get", "list", "watch"],
    }
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": AUTH, "namespace": NAMESPACE}}
    yield {"apiVersion": f"{_RBAC_API}/v1", "kind": "ClusterRole", "metadata": {"name": AUTH}, "rules": [rule]}
    yield {
        "apiVersion": f"{_RBAC_API}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": AUTH},
        "roleRef": {"apiGroup": _RBAC_API, "kind": "ClusterRole", "name": AUTH},
        "subjects": [{"kind": "ServiceAccount", "name": AUTH, "namespace": NAMESPACE}],
    }
    yield {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": AUTH, "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": dict(_LABELS)},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {"metadata": {"labels": dict(_LABELS)}, "spec": _kube_api_auth_pod(agent)},
        },
    }


def _kube_api_auth_pod(agent: Obj) -> Obj:
    container = {
        "name": AUTH,
        "image": agent["containers"][0]["image"],
        "imagePullPolicy": "IfNotPresent",
        "command": list(AUTH_COMMAND),
        "livenessProbe": {"httpGet": {"host": "127.0.0.1", "path": "/healthcheck", "port": AUTH_PORT}, "periodSeconds": 10},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True},
    }
    placed = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(_ON_SERVERS)}}}
    pod: Obj = {
        "serviceAccountName": AUTH,
        # The API server connects to the host's own address.
        "hostNetwork": True,
        "affinity": placed,
        # Beside every API server, also on tainted nodes.
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
    }
    if "imagePullSecrets" in agent:
        pod["imagePullSecrets"] = agent["imagePullSecrets"]
    return pod
