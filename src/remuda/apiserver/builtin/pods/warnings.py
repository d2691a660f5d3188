"""Warnings for pods and pod templates: accepted, but probably unintended values."""

from __future__ import annotations

from remuda.kube import names
from remuda.kube.errors import go_quote

from .. import checks
from ..checks import Obj, sub
from ..resource_quantities import fractional
from .security_context import apparmor_profile
from .spec import each_container

_NODE_LABELS = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": "deprecated since v1.22; use Taints and Tolerations instead",
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane" instead',
}
_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": 'non-functional in v1.16+; use the "priorityClassName" field instead',
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}
_SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP, _APPARMOR = "container.seccomp.security.alpha.kubernetes.io/", "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP_ADVICE = 'non-functional in v1.27+; use the "seccompProfile" field instead'
APPARMOR_ADVICE = 'deprecated since v1.30; use the "appArmorProfile" field instead'
_VOLUMES = (
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
)
_NULL_SELECTOR = "a null labelSelector results in matching no pod"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def hostname_warnings(obj: Obj, what: str) -> list[str]:
    """Warnings for a name that is not a DNS label, since it becomes the hostname."""
    problems = names.dns_label_problems(sub(obj, "metadata").get("name") or "")
    if not problems:
        return []
    advice = "which can result in surprising behavior; a DNS label is recommended"
    return [f"metadata.name: this is used in {what}, {advice}: [{' '.join(problems)}]"]


def pod_warnings(obj: Obj, old: Obj | None) -> list[str]:
    if old is not None:
        return []
    return hostname_warnings(obj, "the Pod's hostname") + template_warnings(obj, "")


def template_warnings(template: Obj | None, path: str) -> list[str]:
    """Warnings for a template; `path` is its path, "" for a pod itself."""
    if not template:
        return []
    prefix = f"{path}." if path else ""
    spec, annotations = sub(template, "spec"), sub(template, "metadata").get("annotations") or {}
    found = _node_label_warnings(spec, f"{prefix}spec")
    for key, advice in _ANNOTATIONS.items():
        if key in annotations:
            found.append(f"{prefix}metadata.annotations[{key}]: {advice}")
    found += _volume_warnings(spec, f"{prefix}spec")
    found += _duplicate_warnings(spec, f"{prefix}spec")
    if _SECCOMP_POD in annotations and not sub(spec, "securityContext").get("seccompProfile"):
        found.append(f"{prefix}metadata.annotations[{_SECCOMP_POD}]: {_SECCOMP_ADVICE}")
    for at, container in each_container(spec, f"{prefix}spec"):
        found += _profile_warnings(spec, container, annotations, prefix) if annotations else []
        found += _container_warnings(container, at)
    found += _port_warnings(spec, f"{prefix}spec")
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        advice = "must be >= 0; negative values are invalid and will be treated as 1"
        found.append(f"{prefix}spec.terminationGracePeriodSeconds: {advice}")
    return found + _affinity_warnings(spec, f"{prefix}spec.affinity") + _address_warnings(spec, f"{prefix}spec")


def _profile_warnings(spec: Obj, container: Obj, annotations: dict[str, str], prefix: str) -> list[str]:
    name, context = container.get("name") or "", sub(container, "securityContext")
    found = []
    if (key := _SECCOMP + name) in annotations and not context.get("seccompProfile"):
        found.append(f"{prefix}metadata.annotations[{key}]: {_SECCOMP_ADVICE}")
    # Those of a pod itself become fields, with this warning.
    if prefix and (key := _APPARMOR + name) in annotations and not context.get("appArmorProfile"):
        common = sub(spec, "securityContext").get("appArmorProfile")
        if common is None or common != apparmor_profile(annotations[key]):
            found.append(f"{prefix}metadata.annotations[{key}]: {APPARMOR_ADVICE}")
    return found


def _node_label_warnings(spec: Obj, path: str) -> list[str]:
    found = [f"{path}.nodeSelector[{k}]: {_NODE_LABELS[k]}" for k in spec.get("nodeSelector") or {} if k in _NODE_LABELS]
    nodes = sub(spec, "affinity", "nodeAffinity")
    for index, term in enumerate(sub(nodes, _REQUIRED).get("nodeSelectorTerms") or ()):
        found += _term_warnings(term, f"{path}.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms[{index}]", False)
    for index, weighted in enumerate(nodes.get(_PREFERRED) or ()):
        at = f"{path}.affinity.nodeAffinity.{_PREFERRED}[{index}].preference"
        found += _term_warnings(weighted.get("preference") or {}, at, True)
    for index, each in enumerate(spec.get("topologySpreadConstraints") or ()):
        at, key = f"{path}.topologySpreadConstraints[{index}]", each.get("topologyKey") or ""
        if key in _NODE_LABELS:
            found.append(f"{at}.topologyKey: {key} is {_NODE_LABELS[key]}")
        if each.get("labelSelector") is None:
            found.append(f"{at}.labelSelector: {_NULL_SELECTOR}")
    return found


def _term_warnings(term: Obj, path: str, check_values: bool) -> list[str]:
    found: list[str] = []
    for index, each in enumerate(term.get("matchExpressions") or ()):
        at, key = f"{path}.matchExpressions[{index}]", each.get("key") or ""
        if key in _NODE_LABELS:
            found.append(f"{at}.key: {key} is {_NODE_LABELS[key]}")
        if check_values:
            for place, value in enumerate(each.get("values") or ()):
                for why in names.label_value_problems(value):
                    found.append(f"{at}.values[{place}]: {value} is invalid, {why}")
    return found


def _volume_warnings(spec: Obj, path: str) -> list[str]:
    found: list[str] = []
    for index, volume in enumerate(spec.get("volumes") or ()):
        for field, shown, advice in _VOLUMES:
            if volume.get(field) is not None:
                found.append(f"{path}.volumes[{index}].{shown}: {advice}")
    for volume in spec.get("volumes") or ():
        found += _overlap_warnings(volume)
    return found


def _overlap_warnings(volume: Obj) -> list[str]:
    """Warnings for items of a volume that overwrite one another."""
    name = go_quote(volume.get("name") or "")
    found: list[str] = []
    config, secret, downward = (volume.get(field) for field in ("configMap", "secret", "downwardAPI"))
    for source, kind in (
        (config, f"ConfigMap {go_quote((config or {}).get('name') or '')}"),
        (secret, f"Secret {go_quote((secret or {}).get('secretName') or '')}"),
        (downward, "DownwardAPI"),
    ):
        paths = [(item.get("path") or "", "") for item in (source or {}).get("items") or ()]
        found += [f"volume {name} ({kind}): overlapping paths: {text}" for text in _overlaps(paths)]
    projected: list[tuple[str, str]] = []
    for source in sub(volume, "projected").get("sources") or ():
        if not source:
            found.append(f"volume {name} (Projected) has no sources provided")
        projected += _projected_paths(source)
    return found + [f"volume {name} (Projected): overlapping paths: {text}" for text in _overlaps(projected)]


def _projected_paths(source: Obj) -> list[tuple[str, str]]:
    for field, kind in (("configMap", "ConfigMap"), ("secret", "Secret")):
        if source.get(field) is not None and source[field].get("items"):
            label = f"{kind} {go_quote(source[field].get('name') or '')}"
            return [(item.get("path") or "", label) for item in source[field]["items"]]
    if source.get("downwardAPI") is not None:
        return [(item.get("path") or "", "DownwardAPI") for item in source["downwardAPI"].get("items") or ()]
    if source.get("serviceAccountToken") is not None:
        return [(source["serviceAccountToken"].get("path") or "", "ServiceAccountToken")]
    return []


def _overlaps(paths: list[tuple[str, str]]) -> list[str]:
    def shown(path: str, label: str) -> str:
        return f"{go_quote(path)} ({label})" if label else go_quote(path)

    seen: list[tuple[str, str]] = []
    found: list[str] = []
    for raw, label in paths:
        path = raw.rstrip("/")
        for other, other_label in seen:
            inside = path and other and (f"{other}/".startswith(f"{path}/") or f"{path}/".startswith(f"{other}/"))
            if inside:
                found.append(f"{shown(path, label)} with {shown(other, other_label)}")
        seen.append((path, label))
    return found


def _duplicate_warnings(spec: Obj, path: str) -> list[str]:
    found: list[str] = []
    for field, key in (("hostAliases", "ip"), ("imagePullSecrets", "name")):
        seen: set[str] = set()
        for index, each in enumerate(spec.get(field) or ()):
            value = each.get(key) or ""
            if value in seen:
                found.append(f"{path}.{field}[{index}].{key}: duplicate {key} {go_quote(value)}")
            seen.add(value)
    for index, each in enumerate(spec.get("imagePullSecrets") or ()):
        if not each.get("name"):
            found.append(f'{path}.imagePullSecrets[{index}].name: invalid empty name ""')
    return found + _fraction_warnings(spec.get("overhead") or {}, f"{path}.overhead")


def _fraction_warnings(amounts: Obj, path: str) -> list[str]:
    return [
        f"{path}[{name}]: fractional byte value {go_quote(amounts[name])} is invalid, must be an integer"
        for name in ("memory", "ephemeral-storage")
        if name in amounts and fractional(amounts[name])
    ]


def _container_warnings(container: Obj, path: str) -> list[str]:
    resources = sub(container, "resources")
    found: list[str] = []
    for name in ("memory", "ephemeral-storage"):
        for field in ("limits", "requests"):
            amounts = resources.get(field) or {}
            if name in amounts:
                found += _fraction_warnings({name: amounts[name]}, f"{path}.resources.{field}")
    seen: set[str] = set()
    for index, variable in enumerate(container.get("env") or ()):
        name, value = variable.get("name") or "", variable.get("value") or ""
        reference = f"$({name})"
        if name in seen and (variable.get("valueFrom") is not None or value == reference or reference not in value):
            advice = f"hides previous definition of {go_quote(name)}, which may be dropped when using apply"
            found.append(f"{path}.env[{index}]: {advice}")
        seen.add(name)
    return found


def _port_warnings(spec: Obj, path: str) -> list[str]:
    found: list[str] = []
    ports: dict[tuple[int, str], list[tuple[str, Obj]]] = {}
    for at, container in each_container(spec, path):
        for index, port in enumerate(container.get("ports") or ()):
            where = f"{at}.ports[{index}]"
            others = ports.setdefault((port.get("containerPort") or 0, port.get("protocol") or ""), [])
            for other_path, other in others:
                found += _port_pair_warnings(port, other, where, other_path)
            others.append((where, port))
    names_seen: dict[str, str] = {}
    for at, container in each_container(spec, path):
        for index, port in enumerate(container.get("ports") or ()):
            name, where = port.get("name") or "", f"{at}.ports[{index}]"
            if name and name in names_seen:
                first = names_seen[name]
                advice = f"services and probes that select ports by name will use {first}"
                found.append(f"{where}: duplicate port name {go_quote(name)} with {first}, {advice}")
            elif name:
                names_seen[name] = where
    return found


def _port_pair_warnings(port: Obj, other: Obj, path: str, other_path: str) -> list[str]:
    host, other_host = port.get("hostPort") or 0, other.get("hostPort") or 0
    ip, other_ip = port.get("hostIP") or "", other.get("hostIP") or ""
    if ip == other_ip and host == other_host:
        return [f"{path}: duplicate port definition with {other_path}"]
    if not host or not other_host:
        return [f"{path}: overlapping port definition with {other_path}"]
    if host == other_host and bool(ip) != bool(other_ip):
        return [f"{path}: dangerously ambiguous port definition with {other_path}"]
    return []


def _affinity_warnings(spec: Obj, path: str) -> list[str]:
    found: list[str] = []
    for field in ("podAffinity", "podAntiAffinity"):
        pods = sub(spec, "affinity", field)
        for index, term in enumerate(pods.get(_REQUIRED) or ()):
            if term.get("labelSelector") is None:
                found.append(f"{path}.{field}.{_REQUIRED}[{index}].labelSelector: {_NULL_SELECTOR}")
        for index, weighted in enumerate(pods.get(_PREFERRED) or ()):
            if sub(weighted, "podAffinityTerm").get("labelSelector") is None:
                found.append(f"{path}.{field}.{_PREFERRED}[{index}].podAffinityTerm.labelSelector: {_NULL_SELECTOR}")
    return found


def _address_warnings(spec: Obj, path: str) -> list[str]:
    found: list[str] = []
    for index, server in enumerate(sub(spec, "dnsConfig").get("nameservers") or ()):
        found += checks.ip_warnings(server, f"{path}.dnsConfig.nameservers[{index}]")
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        found += checks.ip_warnings(alias.get("ip") or "", f"{path}.hostAliases[{index}].ip")
    return found
