"""Pod security of a cluster that names a template: a file for its API servers, and the argument for it.

Rancher's webhook writes both into the cluster's own spec, and the file into a Secret (names as Rancher's, byte for byte).
Here they are only in generated objects: the control plane's copy. Fields that the webhook left in a spec are recognised and
replaced. A template with which a kube-apiserver would not start is refused here with a message. Pure.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any, Final

from remuda.api import rke_cattle_io
from remuda.api.management_cattle_io import API_VERSION
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.encoding import yamlio
from remuda.kube.objects import dig, name_of
from remuda.kube.owners import reference

from .generated import Generated, Unrenderable, generated

Obj = dict[str, Any]

FIELD: Final = "defaultPodSecurityAdmissionConfigurationTemplateName"
KIND: Final = "PodSecurityAdmissionConfigurationTemplate"

KEY: Final = "admission-config-psact"
ARGUMENTS, ARGUMENT = "kube-apiserver-arg", "admission-control-config-file"
_VERSION = re.compile(r"v1\.(\d+)\.\d+.*\+(k3s|rke2)")
_LEVELS = ("privileged", "baseline", "restricted")
_LEVEL_VERSION = re.compile(r"latest|v1\.(0|[1-9]\d*)")
_FIRST, _STABLE = 23, 25  # minor versions: the first with this admission, and the first with v1 of its configuration
_DEFAULTS = ("audit", "audit-version", "enforce", "enforce-version", "warn", "warn-version")
_EXEMPTIONS = ("namespaces", "runtimeClasses", "usernames")

# The defaults of a new server, as in Rancher. Exempted are the namespaces of its own parts and of the distributions' parts.
# fmt: off
_EXEMPTED = [
    "calico-apiserver", "calico-system", "cattle-alerting", "cattle-capi-system", "cattle-csp-adapter-system",
    "cattle-elemental-system", "cattle-epinio-system", "cattle-externalip-system", "cattle-fleet-local-system",
    "cattle-fleet-system", "cattle-gatekeeper-system", "cattle-global-data", "cattle-global-nt", "cattle-impersonation-system",
    "cattle-istio", "cattle-istio-system", "cattle-logging", "cattle-logging-system", "cattle-monitoring-system",
    "cattle-neuvector-system", "cattle-prometheus", "cattle-provisioning-capi-system", "cattle-resources-system",
    "cattle-sriov-system", "cattle-system", "cattle-turtles-system", "cattle-ui-plugin-system", "cattle-windows-gmsa-system",
    "cert-manager", "cis-operator-system", "compliance-operator-system", "fleet-default", "fleet-local", "ingress-nginx",
    "istio-system", "kube-node-lease", "kube-public", "kube-system", "longhorn-system", "rancher-alerting-drivers",
    "rancher-compliance-system", "security-scan", "sr-operator-system", "tigera-operator", "traefik",
]
# fmt: on


def _template(level: str, description: str, exempted: list[str]) -> Obj:
    defaults = {name: "latest" if name.endswith("-version") else level for name in _DEFAULTS}
    exemptions: Obj = {"namespaces": exempted, "runtimeClasses": [], "usernames": []}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": f"rancher-{level}"},
        "description": description,
        "configuration": {"defaults": defaults, "exemptions": exemptions},
    }


BUILT_IN: Final = {
    name_of(each): each
    for each in (
        _template("privileged", "Asks nothing of pods.", []),
        _template("restricted", "Asks of pods what is good practice for safety, but not in namespaces of the system.", _EXEMPTED),
    )
}


def template_of(wanted: Obj) -> str:
    """The name of the template that applies to a cluster; empty if it names none, or none can be applied."""
    name = str(dig(wanted, "spec", FIELD) or "")
    return name if name and not why_without_effect(wanted) else ""


def why_without_effect(wanted: Obj) -> str:
    """The reason why a cluster's template has no effect; "" if it has."""
    version = str(dig(wanted, "spec", "kubernetesVersion") or "")
    found = _VERSION.match(version)
    if found is None:
        return f"the API server of {version} has no pod security admission; pods are admitted as if no template were named"
    if int(found[1]) < _FIRST:
        return f"{version} has no pod security admission; pods are admitted as if no template were named"
    return ""


def secret_name(cluster: str) -> str:
    return f"{cluster}-admission-configuration-psact"


def content(template: Obj, version: str) -> bytes:
    """The file. Raises Unrenderable for a template that no API server accepts."""
    found = _VERSION.match(version)
    stable = found is not None and int(found[1]) >= _STABLE
    said = template.get("configuration") or {}
    defaults = {name: text for name in _DEFAULTS if (text := dig(said, "defaults", name))}
    for name, text in defaults.items():
        good = _LEVEL_VERSION.fullmatch(text) if name.endswith("-version") else text in _LEVELS
        if not good:
            raise Unrenderable(f"{KIND} {name_of(template)}: configuration.defaults.{name} can not be {text!r}")
    plugin = {
        "apiVersion": f"pod-security.admission.config.k8s.io/{'v1' if stable else 'v1beta1'}",
        "kind": "PodSecurityConfiguration",
        "defaults": defaults,
        "exemptions": {name: listed for name in _EXEMPTIONS if (listed := dig(said, "exemptions", name))},
    }
    config = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [{"name": "PodSecurity", "path": "", "configuration": plugin}],
    }
    return yamlio.dumps(config).encode()


def secret(wanted: Obj, data: bytes) -> Generated:
    made = generated(
        SECRETS,
        "v1",
        "Secret",
        wanted,
        secret_name(name_of(wanted)),
        annotations={rke_cattle_io.AUTHORIZED: name_of(wanted)},
        owners=[reference(wanted)],
    )
    return Generated(SECRETS, {**made.obj, "type": "Opaque", "data": {KEY: base64.b64encode(data).decode()}})


def with_admission(told: Obj, wanted: Obj, data: bytes | None) -> Obj:
    """A control plane's spec with the file and its argument; without `data`, without any remains of either."""
    found = _VERSION.match(str(told.get("kubernetesVersion") or ""))
    if found is None:
        return told
    name, path = secret_name(name_of(wanted)), f"/etc/rancher/{found[2]}/config/rancher-psact.yaml"
    given = told.get("machineSelectorFiles") or []
    files = [each for each in given if not _brings(each, name)]
    before = dig(told, "machineGlobalConfig", ARGUMENTS)
    words = [str(word) for word in ([before] if isinstance(before, str) else before or [])]
    prefix = f"{ARGUMENT}="
    if data is None:
        arguments = [word for word in words if word.removeprefix("--") != prefix + path]
    else:
        files.append(_file(name, path, base64.b64encode(hashlib.sha256(data).digest()).decode()))
        arguments = [*(word for word in words if not word.removeprefix("--").startswith(prefix)), prefix + path]
    if files != given:
        told = {**told, "machineSelectorFiles": files}
    if arguments != words:
        everywhere = {key: value for key, value in (told.get("machineGlobalConfig") or {}).items() if key != ARGUMENTS}
        told = {**told, "machineGlobalConfig": {**everywhere, **({ARGUMENTS: arguments} if arguments else {})}}
    return told


def _file(name: str, path: str, digest: str) -> Obj:
    item = {"key": KEY, "path": path, "hash": digest}
    selector = {"matchLabels": {rke_cattle_io.CONTROL_PLANE_ROLE: "true"}}
    return {"machineLabelSelector": selector, "fileSources": [{"secret": {"name": name, "items": [item]}}]}


def _brings(entry: Obj, name: str) -> bool:
    sources = entry.get("fileSources") or []
    return len(sources) == 1 and dig(sources[0], "secret", "name") == name
