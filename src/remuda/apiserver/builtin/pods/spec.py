"""Pod specs as a whole, in pods and in the templates of workload kinds."""

from __future__ import annotations

import re

from remuda.kube import names
from remuda.kube.errors import FieldError, duplicate, forbidden_field, invalid_value, not_supported, required, too_long
from remuda.kube.pod_resources import LIMITS, REQUESTS, of_containers

from .. import checks
from ..checks import MAX_INT32, Errors, Obj, sub
from ..resource_quantities import amount, is_huge_page, requirement_errors
from .containers import PodContext, containers_errors, ephemeral_containers_errors, init_containers_errors
from .defaults import CONTAINER_FIELDS
from .scheduling import affinity_errors, spread_errors, toleration_errors
from .security_context import pod_security_errors
from .volumes import local_descending, volumes_errors

MIRROR = "kubernetes.io/config.mirror"
_APPARMOR = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_COST = re.compile(r"-?(0|[1-9][0-9]*)")
_UNDERSCORED = re.compile(r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*")


def _no_host_users(spec: Obj) -> bool:
    return spec.get("hostUsers") is False


def pod_spec_errors(spec: Obj, meta: Obj | None, path: str, is_pod: bool = False) -> Errors:
    """Errors in a pod spec; `meta` is the pod's own metadata, None in a template."""
    errors: Errors = []
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is None:
        errors.append(required(f"{path}.terminationGracePeriodSeconds"))
    pod_name = (meta or {}).get("name") or ""
    volumes, found = volumes_errors(spec.get("volumes") or [], f"{path}.volumes", pod_name, is_pod)
    errors += found + _claims_errors(spec.get("resourceClaims") or [], meta, f"{path}.resourceClaims")
    around = PodContext(
        volumes,
        frozenset(claim["name"] for claim in spec.get("resourceClaims") or () if claim.get("name")),
        grace,
        spec.get("restartPolicy") or "",
        not _no_host_users(spec),
    )
    regular, init = spec.get("containers") or [], spec.get("initContainers") or []
    errors += containers_errors(regular, around, f"{path}.containers")
    errors += init_containers_errors(init, regular, around, f"{path}.initContainers")
    ephemeral = spec.get("ephemeralContainers") or []
    errors += ephemeral_containers_errors(ephemeral, regular + init, around, f"{path}.ephemeralContainers")
    errors += _pod_resources_errors(spec, around.claims, f"{path}.resources")
    errors += _host_network_errors(spec, is_pod, f"{path}.containers")
    return errors + _placement_errors(spec, path) + _identity_errors(spec, path) + _system_errors(spec, path)


def _placement_errors(spec: Obj, path: str) -> Errors:
    errors = checks.supported(spec.get("restartPolicy") or "", ("Always", "OnFailure", "Never"), f"{path}.restartPolicy")
    policies = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
    errors += checks.supported(spec.get("dnsPolicy") or "", policies, f"{path}.dnsPolicy")
    errors += names.label_errors(spec.get("nodeSelector"), f"{path}.nodeSelector")
    errors += pod_security_errors(spec, f"{path}.securityContext")
    errors += affinity_errors(spec.get("affinity"), f"{path}.affinity")
    errors += _dns_errors(spec.get("dnsConfig"), spec.get("dnsPolicy") or "", f"{path}.dnsConfig")
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        errors += checks.qualified(gate.get("conditionType") or "", f"{path}.readinessGates[{index}].conditionType")
    seen: set[str] = set()
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        at, name = f"{path}.schedulingGates[{index}]", gate.get("name") or ""
        errors += checks.qualified(name, at)
        if name in seen:
            errors.append(duplicate(at, name))
        seen.add(name)
    return errors + spread_errors(spec.get("topologySpreadConstraints") or [], f"{path}.topologySpreadConstraints")


def _identity_errors(spec: Obj, path: str) -> Errors:
    errors: Errors = []
    if _no_host_users(spec):
        errors += _host_users_errors(spec, path)
    errors += _hostname_errors(spec, path)
    for field in ("serviceAccountName", "nodeName"):
        if spec.get(field):
            errors += checks.subdomain(spec[field], f"{path}.{field}")
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None:
        errors += checks.in_range(deadline, 1, MAX_INT32, f"{path}.activeDeadlineSeconds")
    for field in ("hostname", "subdomain"):
        if spec.get(field):
            errors += checks.dns_label(spec[field], f"{path}.{field}")
    errors += toleration_errors(spec.get("tolerations") or [], f"{path}.tolerations")
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        at = f"{path}.hostAliases[{index}]"
        errors += checks.ip(alias.get("ip") or "", f"{at}.ip")
        for place, hostname in enumerate(alias.get("hostnames") or ()):
            errors += checks.subdomain(hostname, f"{at}.hostnames[{place}]")
    return errors


def _system_errors(spec: Obj, path: str) -> Errors:
    errors: Errors = []
    if spec.get("priorityClassName"):
        errors += checks.subdomain(spec["priorityClassName"], f"{path}.priorityClassName")
    if spec.get("runtimeClassName") is not None:
        errors += checks.subdomain(spec["runtimeClassName"], f"{path}.runtimeClassName")
    if spec.get("preemptionPolicy") is not None:
        allowed = ("PreemptLowerPriority", "Never")
        errors += checks.supported(spec["preemptionPolicy"], allowed, f"{path}.preemptionPolicy")
    if spec.get("overhead") is not None:
        errors += requirement_errors({"limits": spec["overhead"]}, frozenset(), f"{path}.overhead")
    return errors + _os_errors(spec, path) + _file_volume_errors(spec, path)


def _os_errors(spec: Obj, path: str) -> Errors:
    os = spec.get("os")
    if os is None:
        return []
    name = os.get("name") or ""
    if not name:
        return [required(f"{path}.os.name")]
    if name not in ("linux", "windows"):
        return [not_supported(f"{path}.os", name, ("linux", "windows"))]
    holders = [(f"{path}.securityContext", spec.get("securityContext") or {})]
    holders += [(f"{at}.securityContext", each.get("securityContext") or {}) for at, each in each_container(spec, path)]
    if name == "linux":
        why = "windows options cannot be set for a linux pod"
        return [forbidden_field(f"{at}.windowsOptions", why) for at, context in holders if context.get("windowsOptions")]
    unfit = ("appArmorProfile", "seLinuxOptions", "seccompProfile", "runAsUser", "runAsGroup")
    why = "cannot be set for a windows pod"
    return [forbidden_field(f"{at}.{f}", why) for at, context in holders for f in unfit if context.get(f) is not None]


def each_container(spec: Obj, path: str) -> list[tuple[str, Obj]]:
    """Every container with its path: init, regular, ephemeral."""
    return [(f"{path}.{field}[{i}]", each) for field in CONTAINER_FIELDS for i, each in enumerate(spec.get(field) or ())]


def _file_volume_errors(spec: Obj, path: str) -> Errors:
    volumes = {volume.get("name"): volume for volume in spec.get("volumes") or ()}
    errors: Errors = []
    for at, container in each_container(spec, path):
        for index, variable in enumerate(container.get("env") or ()):
            reference = sub(variable, "valueFrom").get("fileKeyRef")
            if reference is None:
                continue
            where, name = f"{at}.env[{index}].valueFrom.fileKeyRef.volumeName", reference.get("volumeName") or ""
            if name not in volumes:
                errors.append(FieldError("FieldValueNotFound", where, name))
            elif volumes[name].get("emptyDir") is None:
                errors.append(invalid_value(where, name, "referenced volume must be of type emptyDir"))
    return errors


def _claims_errors(claims: list[Obj], meta: Obj | None, path: str) -> Errors:
    errors: Errors = []
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        if MIRROR in ((meta or {}).get("annotations") or {}):
            errors.append(forbidden_field("[]", "static pods do not support resource claims"))
            continue
        at, name = f"{path}[{index}]", claim.get("name") or ""
        if not name:
            errors.append(required(f"{at}.name"))
        elif name in seen:
            errors.append(duplicate(f"{at}.name", name))
        else:
            errors += checks.dns_label(name, f"{at}.name")
            seen.add(name)
        for field in ("resourceClaimName", "resourceClaimTemplateName"):
            if claim.get(field) is not None:
                errors += checks.subdomain(claim[field], f"{at}.{field}")
    return errors


def _pod_resources_errors(spec: Obj, claims: frozenset[str], path: str) -> Errors:
    resources = spec.get("resources")
    if resources is None:
        return []
    if sub(spec, "os").get("name") == "windows":
        return [forbidden_field(path, "may not be set for a windows pod")]
    errors: Errors = []
    if resources.get("claims") is not None:
        errors.append(forbidden_field(f"{path}.claims", "claims may not be set for Resources at pod-level"))
    errors += requirement_errors(resources, claims, path, pod_level=True)
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for name, total in of_containers(spec, REQUESTS).items():
        if name in requests and total > amount(requests[name]):
            why = f"must be greater than or equal to aggregate container requests of {total}"
            errors.append(invalid_value(f"{path}.requests[{name}]", requests[name], why))
    for name, total in of_containers(spec, LIMITS).items():
        if is_huge_page(name) and name in limits and total > amount(limits[name]):
            why = f"must be greater than or equal to aggregate container limits of {total}"
            errors.append(invalid_value(f"{path}.limits[{name}]", limits[name], why))
    for index, container in enumerate(spec.get("containers") or ()):
        for name, value in (sub(container, "resources").get("limits") or {}).items():
            if name in limits and amount(value) > amount(limits[name]):
                why = f"must be less than or equal to pod limits of {limits[name]}"
                errors.append(invalid_value(f"{path}.containers[{index}][{name}].limits", value, why))
    return errors


def _host_network_errors(spec: Obj, is_pod: bool, path: str) -> Errors:
    if not spec.get("hostNetwork"):
        return []
    why = "must match `containerPort` when `hostNetwork` is true"
    errors: Errors = []
    for index, container in enumerate(spec.get("containers") or ()):
        for place, port in enumerate(container.get("ports") or ()):
            host = port.get("hostPort") or 0
            if (is_pod or host) and host != (port.get("containerPort") or 0):
                errors.append(invalid_value(f"{path}[{index}].ports[{place}].hostPort", host, why))
    return errors


def _host_users_errors(spec: Obj, path: str) -> Errors:
    why = "when `hostUsers` is false"
    pairs = (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC"))
    errors = [forbidden_field(f"{path}.{shown}", why) for field, shown in pairs if spec.get(field)]
    for at, container in each_container(spec, path):
        if container.get("volumeDevices"):
            errors.append(forbidden_field(f"{at}.volumeDevices", why))
    return errors


def _hostname_errors(spec: Obj, path: str) -> Errors:
    override = spec.get("hostnameOverride")
    if override is None:
        return []
    at = f"{path}.hostnameOverride"
    errors: Errors = []
    if spec.get("setHostnameAsFQDN"):
        errors.append(forbidden_field(at, "may not be specified when setHostnameAsFQDN is true"))
    if spec.get("hostNetwork"):
        errors.append(forbidden_field(at, "may not be specified when hostNetwork is true"))
    if len(override) > 64:
        errors.append(too_long(at, 64))
    return errors + checks.subdomain(override, at)


def _dns_errors(config: Obj | None, policy: str, path: str) -> Errors:
    servers = (config or {}).get("nameservers") or []
    if policy == "None":
        if config is None:
            return [required(path, "must provide `dnsConfig` when `dnsPolicy` is None")]
        if not servers:
            why = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            return [required(f"{path}.nameservers", why)]
    if config is None:
        return []
    errors: Errors = []
    if len(servers) > 3:
        errors.append(invalid_value(f"{path}.nameservers", servers, "must not have more than 3 nameservers"))
    for index, server in enumerate(servers):
        errors += checks.ip(server, f"{path}.nameservers[{index}]")
    searches = config.get("searches") or []
    if len(searches) > 32:
        errors.append(invalid_value(f"{path}.searches", searches, "must not have more than 32 search paths"))
    if len(" ".join(searches)) > 2048:
        why = "must not have more than 2048 characters (including spaces) in the search list"
        errors.append(invalid_value(f"{path}.searches", searches, why))
    for index, search in enumerate(searches):
        if search != ".":
            errors += _search_errors(search.removesuffix("."), f"{path}.searches[{index}]")
    for index, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            errors.append(required(f"{path}.options[{index}]", "must not be empty"))
    return errors


def _search_errors(search: str, path: str) -> Errors:
    errors: Errors = []
    if len(search) > 253:
        errors.append(invalid_value(path, search, "must be no more than 253 characters"))
    if not _UNDERSCORED.fullmatch(search):
        why = (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must "
            "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
            "'_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')"
        )
        errors.append(invalid_value(path, search, why))
    return errors


# ---------------------------------------------------------------------------------------------------------------------
# Annotations with a meaning for pods, and templates


def pod_annotation_errors(annotations: dict[str, str] | None, spec: Obj, path: str) -> Errors:
    found = annotations or {}
    errors: Errors = []
    if MIRROR in found and not spec.get("nodeName"):
        why = "must set spec.nodeName if mirror pod annotation is set"
        errors.append(invalid_value(f"{path}[{MIRROR}]", found[MIRROR], why))
    cost = found.get(_DELETION_COST)
    if cost is not None and not (_COST.fullmatch(cost) and -(2**31) <= int(cost) < 2**31):
        errors.append(invalid_value(f"{path}[{_DELETION_COST}]", cost, "must be a 32bit integer"))
    for key in (_SECCOMP_POD, *(key for key in found if key.startswith(_SECCOMP_CONTAINER))):
        errors += _seccomp_annotation_errors(found[key], f"{path}.{key}") if key in found else []
    containers = {each.get("name") for _, each in each_container(spec, "")}
    for key, value in found.items():
        if not key.startswith(_APPARMOR):
            continue
        name = key.removeprefix(_APPARMOR)
        if name not in containers:
            errors.append(invalid_value(f"{path}[{key}]", name, "container not found"))
        if value not in ("", "runtime/default", "unconfined") and not value.startswith("localhost/"):
            errors.append(invalid_value(f"{path}[{key}]", value, f'invalid AppArmor profile name: "{value}"'))
    return errors


def _seccomp_annotation_errors(text: str, path: str) -> Errors:
    if text in ("runtime/default", "docker/default", "unconfined"):
        return []
    if text.startswith("localhost/"):
        return local_descending(text.removeprefix("localhost/"), path)
    return [invalid_value(path, text, "must be a valid seccomp profile")]


def profile_match_errors(annotations: dict[str, str] | None, spec: Obj, path: str) -> Errors:
    """Errors when an old annotation names a different profile than the field."""
    found = annotations or {}
    if not any(key.startswith((_APPARMOR, _SECCOMP_CONTAINER)) or key == _SECCOMP_POD for key in found):
        return []
    context = spec.get("securityContext") or {}
    errors: Errors = []
    if context.get("seccompProfile") and _SECCOMP_POD in found:
        at = f"{path}.securityContext.seccompProfile"
        errors += _match_errors(found[_SECCOMP_POD], context["seccompProfile"], "seccomp", at)
    containers = each_container(spec, path)
    for at, container in containers:
        profile = sub(container, "securityContext").get("seccompProfile")
        text = found.get(_SECCOMP_CONTAINER + (container.get("name") or ""))
        if profile and text is not None:
            errors += _match_errors(text, profile, "seccomp", f"{at}.securityContext.seccompProfile")
    for at, container in containers:
        profile = sub(container, "securityContext").get("appArmorProfile") or context.get("appArmorProfile")
        text = found.get(_APPARMOR + (container.get("name") or ""))
        if profile and text is not None:
            errors += _match_errors(text, profile, "apparmor", f"{at}.securityContext.appArmorProfile")
    return errors


def _match_errors(text: str, profile: Obj, what: str, path: str) -> Errors:
    wrong = [forbidden_field(f"{path}.type", f"{what} type in annotation and field must match")]
    match profile.get("type"):
        case "Unconfined":
            return [] if text == "unconfined" else wrong
        case "RuntimeDefault":
            return [] if text in ("runtime/default", "docker/default") else wrong
        case "Localhost":
            if not text.startswith("localhost/"):
                return wrong
            if text.removeprefix("localhost/") != profile.get("localhostProfile"):
                why = f"{what} profile in annotation and field must match"
                return [forbidden_field(f"{path}.localhostProfile", why)]
    return []


def template_errors(template: Obj, path: str) -> Errors:
    meta, spec = sub(template, "metadata"), sub(template, "spec")
    errors = names.label_errors(meta.get("labels"), f"{path}.labels")
    errors += names.annotation_errors(meta.get("annotations"), f"{path}.annotations")
    errors += pod_annotation_errors(meta.get("annotations"), spec, f"{path}.annotations")
    errors += pod_spec_errors(spec, None, f"{path}.spec")
    errors += profile_match_errors(meta.get("annotations"), spec, f"{path}.spec")
    if spec.get("ephemeralContainers"):
        why = "ephemeral containers not allowed in pod template"
        errors.append(forbidden_field(f"{path}.spec.ephemeralContainers", why))
    return errors
