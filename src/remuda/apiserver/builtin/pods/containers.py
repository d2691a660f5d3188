"""Containers of pods and templates: names, images, ports, environment, mounts, probes, hooks and resources."""

from __future__ import annotations

from dataclasses import dataclass

from remuda.kube.errors import duplicate, forbidden_field, invalid_value, not_supported, required, too_many, value_not_found
from remuda.kube.names import config_key_problems

from ...registry import object_meta
from .. import checks
from ..checks import PROTOCOLS, Errors, Obj, sub
from ..resource_quantities import requirement_errors
from .downward_api import field_ref_errors, resource_field_errors
from .security_context import security_context_errors
from .volumes import local_descending, no_backsteps, pull_policy_errors

_ENV_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_ENV_NAME = "a valid environment variable name must consist only of printable ASCII characters other than '='"
_RESTART_POLICIES = ("Always", "Never", "OnFailure")
_WITHOUT_ALWAYS = "may not be set for init containers without restartPolicy=Always"
_NOT_EPHEMERAL = (
    ("ports", "ports"),
    ("resources", "resources"),
    ("resizePolicy", "resizePolicy"),
    ("restartPolicy", "restartPolicy"),
    ("restartPolicyRules", "restartPolicyRules"),
    ("livenessProbe", "livenessProbe"),
    ("readinessProbe", "readinessProbe"),
    ("startupProbe", "startupProbe"),
    ("lifecycle", "lifecycle"),
)


@dataclass(frozen=True, slots=True)
class PodContext:
    """Values of the pod that the checks of its containers need."""

    volumes: dict[str, Obj]
    claims: frozenset[str]
    grace: int | None
    restart_policy: str
    host_users: bool


def env_name_errors(name: str, path: str) -> Errors:
    if all(" " <= char <= "~" and char != "=" for char in name):
        return []
    return [invalid_value(path, name, _ENV_NAME)]


def _port_errors(ports: list[Obj], path: str) -> Errors:
    errors: Errors = []
    seen: set[str] = set()
    for index, port in enumerate(ports):
        at, name = f"{path}[{index}]", port.get("name") or ""
        problems = checks.port_name_problems(name) if name else []
        errors += [invalid_value(f"{at}.name", name, why) for why in problems]
        if name and not problems:
            if name in seen:
                errors.append(duplicate(f"{at}.name", name))
            seen.add(name)
        if not port.get("containerPort"):
            errors.append(required(f"{at}.containerPort"))
        else:
            errors += checks.port_number(port["containerPort"], f"{at}.containerPort")
        if port.get("hostPort"):
            errors += checks.port_number(port["hostPort"], f"{at}.hostPort")
        errors += checks.supported(port.get("protocol") or "", PROTOCOLS, f"{at}.protocol")
    return errors


def _env_errors(variables: list[Obj], path: str) -> Errors:
    errors: Errors = []
    for index, variable in enumerate(variables):
        at, name = f"{path}[{index}]", variable.get("name") or ""
        errors += env_name_errors(name, f"{at}.name") if name else [required(f"{at}.name")]
        errors += _value_from_errors(variable, f"{at}.valueFrom")
    return errors


def _value_from_errors(variable: Obj, path: str) -> Errors:
    source = variable.get("valueFrom")
    if source is None:
        return []
    errors: Errors = []
    if source.get("fieldRef") is not None:
        errors += field_ref_errors(source["fieldRef"], _ENV_FIELDS, f"{path}.fieldRef")
    if source.get("resourceFieldRef") is not None:
        errors += resource_field_errors(source["resourceFieldRef"], f"{path}.resourceFieldRef", volume=False)
    for field in ("configMapKeyRef", "secretKeyRef"):
        if source.get(field) is not None:
            errors += _key_errors(source[field], f"{path}.{field}")
    if source.get("fileKeyRef") is not None:
        errors += _file_key_errors(source["fileKeyRef"], f"{path}.fileKeyRef")
    found = sum(value is not None for value in source.values())
    if not found:
        why = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        errors.append(invalid_value(path, "", why))
    elif variable.get("value"):
        errors.append(invalid_value(path, "", "may not be specified when `value` is not empty"))
    elif found > 1:
        errors.append(invalid_value(path, "", "may not have more than one field specified at a time"))
    return errors


def _key_errors(selector: Obj, path: str) -> Errors:
    errors = checks.subdomain(selector.get("name") or "", f"{path}.name")
    key = selector.get("key") or ""
    if not key:
        return [*errors, required(f"{path}.key")]
    return errors + [invalid_value(f"{path}.key", key, why) for why in config_key_problems(key)]


def _file_key_errors(selector: Obj, path: str) -> Errors:
    key, volume, file = (selector.get(field) or "" for field in ("key", "volumeName", "path"))
    errors = env_name_errors(key, f"{path}.key") if key else [required(f"{path}.key")]
    errors += checks.dns_label(volume, f"{path}.volumeName") if volume else [required(f"{path}.volumeName")]
    return errors + (no_backsteps(file, f"{path}.path") if file else [required(f"{path}.path")])


def _env_from_errors(sources: list[Obj], path: str) -> Errors:
    errors: Errors = []
    for index, source in enumerate(sources):
        at = f"{path}[{index}]"
        if source.get("prefix"):
            errors += env_name_errors(source["prefix"], f"{at}.prefix")
        found = 0
        for field in ("configMapRef", "secretRef"):
            if source.get(field) is None:
                continue
            found += 1
            name = source[field].get("name") or ""
            if not name:
                errors.append(required(f"{at}.{field}.name"))
            else:
                problems = object_meta.subdomain_name(name, True)
                errors += [invalid_value(f"{at}.{field}.name", name, why) for why in problems]
        if not found:
            errors.append(invalid_value(path, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif found > 1:
            errors.append(invalid_value(path, "", "may not have more than one field specified at a time"))
    return errors


def _mount_errors(container: Obj, around: PodContext, path: str) -> Errors:
    errors: Errors = []
    devices = {each.get("name") or "": each.get("devicePath") or "" for each in container.get("volumeDevices") or ()}
    seen: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        at, name, where = f"{path}[{index}]", mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            errors.append(required(f"{at}.name"))
        if name not in around.volumes:
            errors.append(value_not_found(f"{at}.name", name))
        if not where:
            errors.append(required(f"{at}.mountPath"))
        if where in seen:
            errors.append(invalid_value(f"{at}.mountPath", where, "must be unique"))
        seen.add(where)
        if name in devices:
            errors.append(invalid_value(f"{at}.name", name, "must not already exist in volumeDevices"))
        if where in devices.values():
            why = "must not already exist as a path in volumeDevices"
            errors.append(invalid_value(f"{at}.mountPath", where, why))
        # kube-apiserver omits the index in the paths of the other errors.
        errors += _mount_detail_errors(container, mount, at, path)
    return errors


def _mount_detail_errors(container: Obj, mount: Obj, at: str, path: str) -> Errors:
    errors: Errors = []
    below, expression = mount.get("subPath") or "", mount.get("subPathExpr") or ""
    if below:
        errors += local_descending(below, f"{path}.subPath")
    if expression:
        if below:
            why = "subPathExpr and subPath are mutually exclusive"
            errors.append(invalid_value(f"{at}.subPathExpr", expression, why))
        errors += local_descending(expression, f"{path}.subPathExpr")
    propagation = mount.get("mountPropagation")
    if propagation is not None:
        allowed = ("Bidirectional", "HostToContainer", "None")
        if propagation not in allowed:
            errors.append(not_supported(f"{path}.mountPropagation", propagation, allowed))
        if propagation == "Bidirectional" and not sub(container, "securityContext").get("privileged"):
            why = "Bidirectional mount propagation is available only to privileged containers"
            errors.append(forbidden_field(f"{path}.mountPropagation", why))
    recursive = mount.get("recursiveReadOnly")
    if recursive in ("Enabled", "IfPossible"):
        if not mount.get("readOnly"):
            errors.append(forbidden_field(f"{path}.recursiveReadOnly", "may only be specified when readOnly is true"))
        if propagation not in (None, "None"):
            why = "may only be specified when mountPropagation is None or not specified"
            errors.append(forbidden_field(f"{path}.recursiveReadOnly", why))
    elif recursive not in (None, "Disabled"):
        errors.append(not_supported(f"{path}.recursiveReadOnly", recursive, ("Disabled", "Enabled", "IfPossible")))
    return errors


def _device_errors(container: Obj, around: PodContext, path: str) -> Errors:
    errors: Errors = []
    mounts = {each.get("name") or "": each.get("mountPath") or "" for each in container.get("volumeMounts") or ()}
    names: set[str] = set()
    paths: set[str] = set()
    for index, device in enumerate(container.get("volumeDevices") or ()):
        at, name, where = f"{path}[{index}]", device.get("name") or "", device.get("devicePath") or ""
        volume = around.volumes.get(name)
        if not name:
            errors.append(required(f"{at}.name"))
        if name in names:
            errors.append(invalid_value(f"{at}.name", name, "must be unique"))
        if volume is None:
            errors.append(value_not_found(f"{at}.name", name))
        elif volume.get("persistentVolumeClaim") is None and volume.get("ephemeral") is None:
            why = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            errors.append(invalid_value(f"{at}.name", name, why))
        if not where:
            errors.append(required(f"{at}.devicePath"))
        if where in paths:
            errors.append(invalid_value(f"{at}.devicePath", where, "must be unique"))
        if where and no_backsteps(where, path):
            errors.append(invalid_value(f"{at}.devicePath", where, "can not contain backsteps ('..')"))
        else:
            paths.add(where)
        if name in mounts:
            errors.append(invalid_value(f"{at}.name", name, "must not already exist in volumeMounts"))
        if where in mounts.values():
            why = "must not already exist as a path in volumeMounts"
            errors.append(invalid_value(f"{at}.devicePath", where, why))
        if name:
            names.add(name)
    return errors


def _resize_errors(policies: list[Obj], restart_policy: str, path: str) -> Errors:
    errors: Errors = []
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        resource, action = policy.get("resourceName") or "", policy.get("restartPolicy") or ""
        if resource in seen:
            errors.append(duplicate(f"{path}[{index}]", resource))
        seen.add(resource)
        errors += checks.supported(resource, ("cpu", "memory"), path)
        errors += checks.supported(action, ("NotRequired", "RestartContainer"), path)
        if restart_policy == "Never" and action != "NotRequired":
            why = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            errors.append(invalid_value(path, action, why))
    return errors


def _common_errors(container: Obj, around: PodContext, path: str) -> Errors:
    name = container.get("name") or ""
    errors = checks.dns_label(name, f"{path}.name") if name else [required(f"{path}.name")]
    if not container.get("image"):
        errors.append(required(f"{path}.image"))
    policies = ("File", "FallbackToLogsOnError")
    errors += checks.supported(container.get("terminationMessagePolicy") or "", policies, f"{path}.terminationMessagePolicy")
    errors += _port_errors(container.get("ports") or [], f"{path}.ports")
    errors += _env_errors(container.get("env") or [], f"{path}.env")
    errors += _env_from_errors(container.get("envFrom") or [], f"{path}.envFrom")
    errors += _mount_errors(container, around, f"{path}.volumeMounts")
    errors += _device_errors(container, around, f"{path}.volumeDevices")
    errors += pull_policy_errors(container.get("imagePullPolicy") or "", f"{path}.imagePullPolicy")
    errors += requirement_errors(container.get("resources"), around.claims, f"{path}.resources")
    errors += _resize_errors(container.get("resizePolicy") or [], around.restart_policy, f"{path}.resizePolicy")
    return errors + security_context_errors(container.get("securityContext"), f"{path}.securityContext", around.host_users)


# ---------------------------------------------------------------------------------------------------------------------
# Probes and hooks


def _handler_errors(handler: Obj, kinds: tuple[str, ...], grace: int | None, path: str) -> Errors:
    errors: Errors = []
    found = 0
    for kind in kinds:
        action = handler.get(kind)
        if action is None:
            continue
        found += 1
        if found > 1:
            errors.append(forbidden_field(f"{path}.{kind}", "may not specify more than 1 handler type"))
        else:
            errors += _action_errors(kind, action, grace, f"{path}.{kind}")
    if not found:
        errors.append(required(path, "must specify a handler type"))
    return errors


def _action_errors(kind: str, action: Obj, grace: int | None, path: str) -> Errors:
    match kind:
        case "exec":
            return [] if action.get("command") else [required(f"{path}.command")]
        case "httpGet":
            return _http_get_errors(action, path)
        case "tcpSocket":
            return checks.port_or_name(action.get("port"), f"{path}.port")
        case "grpc":
            return checks.port_number(action.get("port"), f"{path}.port")
    seconds = action.get("seconds") or 0
    if grace is None or 0 <= seconds <= grace:
        return []
    why = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
    return [invalid_value(path, seconds, why)]


def _http_get_errors(action: Obj, path: str) -> Errors:
    errors: Errors = [] if action.get("path") else [required(f"{path}.path")]
    errors += checks.port_or_name(action.get("port"), f"{path}.port")
    scheme = action.get("scheme") or ""
    if scheme not in ("HTTP", "HTTPS"):
        errors.append(not_supported(f"{path}.scheme", scheme, ("HTTP", "HTTPS")))
    for header in action.get("httpHeaders") or ():
        errors += checks.header_name(header.get("name") or "", f"{path}.httpHeaders")
    return errors


_PROBES = ("exec", "httpGet", "tcpSocket", "grpc")
_HOOKS = ("exec", "httpGet", "tcpSocket", "sleep")
_PROBE_NUMBERS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")


def _probe_errors(container: Obj, grace: int | None, path: str) -> Errors:
    errors: Errors = []
    for kind in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(kind)
        if probe is None:
            continue
        at = f"{path}.{kind}"
        errors += _handler_errors(probe, _PROBES, grace, at) + checks.all_nonnegative(probe, _PROBE_NUMBERS, at)
        period = probe.get("terminationGracePeriodSeconds")
        if period is not None and period <= 0:
            errors.append(invalid_value(f"{at}.terminationGracePeriodSeconds", period, "must be greater than 0"))
        if kind == "readinessProbe":
            if period is not None:
                why = "must not be set for readinessProbes"
                errors.append(invalid_value(f"{at}.terminationGracePeriodSeconds", period, why))
        elif probe.get("successThreshold") != 1:
            errors.append(invalid_value(f"{at}.successThreshold", probe.get("successThreshold") or 0, "must be 1"))
    return errors


def _lifecycle_errors(lifecycle: Obj | None, around: PodContext, path: str) -> Errors:
    if lifecycle is None:
        return []
    errors: Errors = []
    for hook in ("postStart", "preStop"):
        if lifecycle.get(hook) is not None:
            errors += _handler_errors(lifecycle[hook], _HOOKS, around.grace, f"{path}.{hook}")
    return errors


def _restart_errors(container: Obj, path: str) -> Errors:
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules") or []
    errors: Errors = []
    if policy is None:
        if not rules:
            return []
        errors.append(required(f"{path}.restartPolicy", "must specify restartPolicy when restart rules are used"))
    elif policy not in _RESTART_POLICIES:
        errors.append(not_supported(f"{path}.restartPolicy", policy, _RESTART_POLICIES))
    if len(rules) > 20:
        errors.append(too_many(f"{path}.restartPolicyRules", len(rules), 20))
    for index, rule in enumerate(rules):
        at = f"{path}.restartPolicyRules[{index}]"
        action = rule.get("action") or ""
        if action not in ("Restart", "RestartAllContainers"):
            errors.append(not_supported(f"{at}.action", action, ("Restart", "RestartAllContainers")))
        codes = rule.get("exitCodes")
        if codes is None:
            errors.append(required(f"{at}.exitCodes", "must be specified"))
            continue
        if codes.get("operator") not in ("In", "NotIn"):
            errors.append(not_supported(f"{at}.exitCodes.operator", codes.get("operator") or "", ("In", "NotIn")))
        if len(codes.get("values") or ()) > 255:
            errors.append(too_many(f"{at}.exitCodes.values", len(codes["values"]), 255))
    return errors


# ---------------------------------------------------------------------------------------------------------------------
# The three lists


def _host_port_errors(containers: list[Obj], path: str) -> Errors:
    errors: Errors = []
    seen: set[str] = set()
    for index, container in enumerate(containers):
        for place, port in enumerate(container.get("ports") or ()):
            if not port.get("hostPort"):
                continue
            key = f"{port.get('protocol') or ''}/{port.get('hostIP') or ''}/{port['hostPort']}"
            if key in seen:
                errors.append(duplicate(f"{path}[{index}].ports[{place}].hostPort", key))
            seen.add(key)
    return errors


def containers_errors(containers: list[Obj], around: PodContext, path: str) -> Errors:
    if not containers:
        return [required(path)]
    errors: Errors = []
    seen: set[str] = set()
    for index, container in enumerate(containers):
        at, name = f"{path}[{index}]", container.get("name") or ""
        errors += _common_errors(container, around, at)
        if name in seen:
            errors.append(duplicate(f"{at}.name", name))
        seen.add(name)
        errors += _lifecycle_errors(container.get("lifecycle"), around, f"{at}.lifecycle")
        errors += _probe_errors(container, around.grace, at) + _restart_errors(container, at)
    return errors + _host_port_errors(containers, path)


def init_containers_errors(containers: list[Obj], regular: list[Obj], around: PodContext, path: str) -> Errors:
    errors: Errors = []
    seen = {each.get("name") or "" for each in regular}
    for index, container in enumerate(containers):
        at, name = f"{path}[{index}]", container.get("name") or ""
        errors += _common_errors(container, around, at) + _restart_errors(container, at)
        if name in seen:
            errors.append(duplicate(f"{at}.name", name))
        elif name:
            seen.add(name)
        errors += _host_port_errors([container], path)
        if container.get("restartPolicy") == "Always":
            errors += _lifecycle_errors(container.get("lifecycle"), around, f"{at}.lifecycle")
            errors += _probe_errors(container, around.grace, at)
            continue
        for field in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
            if container.get(field) is not None:
                errors.append(forbidden_field(f"{at}.{field}", _WITHOUT_ALWAYS))
        for place, policy in enumerate(container.get("resizePolicy") or ()):
            if policy.get("restartPolicy") == "RestartContainer":
                why = "must not be set to 'RestartContainer' for non-sidecar initContainers"
                errors.append(invalid_value(f"{at}.resizePolicy[{place}].restartPolicy", "RestartContainer", why))
    return errors


def ephemeral_containers_errors(containers: list[Obj], others: list[Obj], around: PodContext, path: str) -> Errors:
    errors: Errors = []
    targets = {each.get("name") or "" for each in others}
    seen = set(targets)
    for index, container in enumerate(containers):
        at, name = f"{path}[{index}]", container.get("name") or ""
        errors += _common_errors(container, around, at) + image_space_errors(container, at)
        if name in seen:
            errors.append(duplicate(f"{at}.name", name))
        seen.add(name)
        target = container.get("targetContainerName") or ""
        if target and target not in targets:
            errors.append(value_not_found(f"{at}.targetContainerName", target))
        for field, shown in _NOT_EPHEMERAL:
            if container.get(field):
                errors.append(forbidden_field(f"{at}.{shown}", "cannot be set for an Ephemeral Container"))
        for place, mount in enumerate(container.get("volumeMounts") or ()):
            for field in ("subPath", "subPathExpr"):
                if mount.get(field):
                    why = "cannot be set for an Ephemeral Container"
                    errors.append(forbidden_field(f"{at}.volumeMounts[{place}].{field}", why))
    return errors


def image_space_errors(container: Obj, path: str) -> Errors:
    image = container.get("image") or ""
    if image == image.strip():
        return []
    return [invalid_value(f"{path}.image", image, "must not have leading or trailing whitespace")]
