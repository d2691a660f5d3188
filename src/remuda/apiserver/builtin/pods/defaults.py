"""Defaults of pods and pod templates, and the fields that mirror each other (`serviceAccount`, `podIP`)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from remuda.kube.pod_resources import REQUESTS, of_containers

from ..checks import Obj, sub

_REPOSITORY = re.compile(
    r"(?:(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*|\[[a-fA-F0-9:]+\])"
    r"(?::[0-9]+)?/)?[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*"
    r"(?::(?P<tag>[\w][\w.-]{0,127}))?(?:@(?P<digest>[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?"
)
_INIT_ANNOTATIONS = frozenset(
    f"pod.{stage}.kubernetes.io/init-container{what}" for stage in ("alpha", "beta") for what in ("s", "-statuses")
)
CONTAINER_FIELDS = ("initContainers", "containers", "ephemeralContainers")


def pull_policy(image: str) -> str:
    """Always for the tag latest, or no tag; an image that can't be parsed counts as pinned."""
    match = _REPOSITORY.fullmatch(image)
    if match is None or match.group("digest"):
        return "Always" if match is not None and match.group("tag") == "latest" else "IfNotPresent"
    return "Always" if (match.group("tag") or "latest") == "latest" else "IfNotPresent"


def every_container(spec: Obj) -> Iterator[Obj]:
    for field in CONTAINER_FIELDS:
        yield from spec.get(field) or ()


def default_pod(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    _drop_init_annotations(obj)
    for field in ("initContainers", "containers"):
        for container in spec.get(field) or ():
            _requests_from_limits(container)
    _default_pod_requests(spec)
    spec.setdefault("enableServiceLinks", True)
    if spec.get("hostNetwork"):
        for field in ("initContainers", "containers"):
            for container in spec.get(field) or ():
                _host_ports(container)
    default_pod_spec(spec)
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        spec["terminationGracePeriodSeconds"] = 1
    if obj.get("status"):
        _mirror_address(obj["status"])


def default_template(template: Obj) -> None:
    _drop_init_annotations(template)
    default_pod_spec(template.setdefault("spec", {}))


def _drop_init_annotations(obj: Obj) -> None:
    annotations = sub(obj, "metadata").get("annotations")
    if annotations and not _INIT_ANNOTATIONS.isdisjoint(annotations):
        obj["metadata"]["annotations"] = {k: v for k, v in annotations.items() if k not in _INIT_ANNOTATIONS}


def _mirror_address(status: Obj) -> None:
    one, many = status.get("podIP") or "", status.get("podIPs") or []
    if one and (not many or many[0].get("ip") != one):
        status["podIPs"] = [{"ip": one}]
    elif many and not one:
        status["podIP"] = many[0].get("ip")


def _requests_from_limits(container: Obj) -> None:
    resources = container.get("resources") or {}
    limits = resources.get("limits")
    if not limits:
        return
    requests = resources.setdefault("requests", {})
    for name, value in limits.items():
        requests.setdefault(name, value)


def _default_pod_requests(spec: Obj) -> None:
    resources = spec.get("resources")
    limits = (resources or {}).get("limits")
    if not resources or not limits:
        return
    requests = dict(resources.get("requests") or {})
    for name, value in of_containers(spec, REQUESTS).items():
        if name in ("cpu", "memory"):
            requests.setdefault(name, str(value))
    for name, value in limits.items():
        if name in ("cpu", "memory") or name.startswith("hugepages-"):
            requests.setdefault(name, value)
    if requests:
        resources["requests"] = requests


def _host_ports(container: Obj) -> None:
    for port in container.get("ports") or ():
        if not port.get("hostPort"):
            port["hostPort"] = port.get("containerPort")


def default_pod_spec(spec: Obj) -> None:
    """Defaults of pods and templates."""
    if not spec.get("dnsPolicy"):
        spec["dnsPolicy"] = "ClusterFirst"
    if not spec.get("restartPolicy"):
        spec["restartPolicy"] = "Always"
    if spec.get("securityContext") is None:
        spec["securityContext"] = {}
    if spec.get("terminationGracePeriodSeconds") is None:
        spec["terminationGracePeriodSeconds"] = 30
    if not spec.get("schedulerName"):
        spec["schedulerName"] = "default-scheduler"
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    _drop_disabled(spec)
    for volume in spec.get("volumes") or ():
        default_volume(volume)
    for container in every_container(spec):
        _default_container(container)


def _drop_disabled(spec: Obj) -> None:
    """Drops fields whose feature gates are off by default."""
    spec.pop("schedulingGroup", None)
    for container in every_container(spec):
        lifecycle = container.get("lifecycle")
        if lifecycle is not None and lifecycle.pop("stopSignal", None) is not None and not lifecycle:
            del container["lifecycle"]
    for volume in spec.get("volumes") or ():
        for source in sub(volume, "projected").get("sources") or ():
            source.pop("clusterTrustBundle", None)
            source.pop("podCertificate", None)


def _default_container(container: Obj) -> None:
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = pull_policy(container.get("image") or "")
    if not container.get("terminationMessagePath"):
        container["terminationMessagePath"] = "/dev/termination-log"
    if not container.get("terminationMessagePolicy"):
        container["terminationMessagePolicy"] = "File"
    for port in container.get("ports") or ():
        if not port.get("protocol"):
            port["protocol"] = "TCP"
    for variable in container.get("env") or ():
        source = variable.get("valueFrom") or {}
        _default_field_ref(source.get("fieldRef"))
        if source.get("fileKeyRef") is not None:
            source["fileKeyRef"].setdefault("optional", False)
    for field in ("livenessProbe", "readinessProbe", "startupProbe"):
        _default_probe(container.get(field))
    lifecycle = container.get("lifecycle") or {}
    for hook in ("postStart", "preStop"):
        _default_http_get((lifecycle.get(hook) or {}).get("httpGet"))


def _default_field_ref(reference: Obj | None) -> None:
    if reference is not None and not reference.get("apiVersion"):
        reference["apiVersion"] = "v1"


def _default_probe(probe: Obj | None) -> None:
    if probe is None:
        return
    for field, value in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)):
        if not probe.get(field):
            probe[field] = value
    _default_http_get(probe.get("httpGet"))
    if probe.get("grpc") is not None and probe["grpc"].get("service") is None:
        probe["grpc"]["service"] = ""


def _default_http_get(action: Obj | None) -> None:
    if action is None:
        return
    if not action.get("path"):
        action["path"] = "/"
    if not action.get("scheme"):
        action["scheme"] = "HTTP"


_SOURCE_DEFAULTS: dict[str, Obj] = {
    "hostPath": {"type": ""},
    "secret": {"defaultMode": 0o644},
    "configMap": {"defaultMode": 0o644},
    "downwardAPI": {"defaultMode": 0o644},
    "projected": {"defaultMode": 0o644},
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "azureDisk": {"cachingMode": "ReadWrite", "fsType": "ext4", "readOnly": False, "kind": "Shared"},
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
}


def default_source(holder: Obj) -> None:
    """Defaults of the volume source in `holder` (a volume, or a PersistentVolume's spec)."""
    for name, defaults in _SOURCE_DEFAULTS.items():
        source = holder.get(name)
        if source is not None:
            for field, value in defaults.items():
                if source.get(field) is None:
                    source[field] = value


def default_volume(volume: Obj) -> None:
    if not any(value is not None for field, value in volume.items() if field != "name"):
        volume["emptyDir"] = {}
        return
    default_source(volume)
    image = volume.get("image")
    if image is not None and not image.get("pullPolicy"):
        image["pullPolicy"] = pull_policy(image.get("reference") or "")
    for item in (volume.get("downwardAPI") or {}).get("items") or ():
        _default_field_ref(item.get("fieldRef"))
    for source in (volume.get("projected") or {}).get("sources") or ():
        for item in (source.get("downwardAPI") or {}).get("items") or ():
            _default_field_ref(item.get("fieldRef"))
        token = source.get("serviceAccountToken")
        if token is not None and token.get("expirationSeconds") is None:
            token["expirationSeconds"] = 3600
    template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
    if template is not None:
        template.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
