"""Security contexts of pods and containers."""

from __future__ import annotations

import re

from remuda.kube.errors import duplicate, forbidden_field, invalid_value, not_supported, required, too_long

from .. import checks, internal_types
from ..checks import MAX_INT32, Errors, Obj
from .volumes import local_descending

# kube-apiserver's --allow-privileged, which every distribution turns on.
ALLOW_PRIVILEGED = True
_SYSCTL = r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL_NAME = re.compile(_SYSCTL)
_IPC_SYSCTLS = ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")


def _id_errors(value: int | None, path: str) -> Errors:
    return [] if value is None else checks.in_range(value, 0, MAX_INT32, path)


def _seccomp_errors(profile: Obj | None, path: str) -> Errors:
    if profile is None:
        return []
    kind = profile.get("type") or ""
    errors: Errors = []
    allowed = ("Localhost", "RuntimeDefault", "Unconfined")
    if not kind:
        errors.append(required(f"{path}.type", "type is required when seccompProfile is set"))
    elif kind not in allowed:
        errors.append(not_supported(f"{path}.type", kind, allowed))
    local = profile.get("localhostProfile")
    if kind == "Localhost":
        if local is None:
            errors.append(required(f"{path}.localhostProfile", "must be set when seccomp type is Localhost"))
        else:
            errors += local_descending(local, f"{path}.localhostProfile")
    elif local is not None:
        why = "can only be set when seccomp type is Localhost"
        errors.append(invalid_value(f"{path}.localhostProfile", internal_types.shown("SeccompProfile", profile), why))
    return errors


def apparmor_profile(annotation: str) -> Obj | None:
    """The field for the text of an annotation; None for a text that is no profile."""
    kinds = {"unconfined": "Unconfined", "runtime/default": "RuntimeDefault"}
    if annotation in kinds:
        return {"type": kinds[annotation]}
    found: Obj = {"type": "Localhost", "localhostProfile": annotation.removeprefix("localhost/")}
    return found if annotation.startswith("localhost/") and not _apparmor_errors(found, "") else None


def _apparmor_errors(profile: Obj | None, path: str) -> Errors:
    if profile is None:
        return []
    kind, local = profile.get("type") or "", profile.get("localhostProfile")
    at = f"{path}.localhostProfile"
    if kind == "Localhost":
        if local is None:
            return [required(at, "must be set when AppArmor type is Localhost")]
        errors: Errors = []
        if local.strip() != local:
            errors.append(invalid_value(at, local, "must not be padded with whitespace"))
        elif not local:
            errors.append(required(at, "must be set when AppArmor type is Localhost"))
        if len(local) > 4095:
            errors.append(too_long(at, 4095))
        return errors
    if kind in ("RuntimeDefault", "Unconfined"):
        why = "can only be set when AppArmor type is Localhost"
        return [] if local is None else [invalid_value(at, local, why)]
    if not kind:
        return [required(f"{path}.type", "type is required when appArmorProfile is set")]
    return [not_supported(f"{path}.type", kind, ("Localhost", "RuntimeDefault", "Unconfined"))]


def security_context_errors(context: Obj | None, path: str, host_users: bool) -> Errors:
    if context is None:
        return []
    errors: Errors = []
    privileged = context.get("privileged")
    if privileged and not ALLOW_PRIVILEGED:
        errors.append(forbidden_field(f"{path}.privileged", "disallowed by cluster policy"))
    errors += _id_errors(context.get("runAsUser"), f"{path}.runAsUser")
    errors += _id_errors(context.get("runAsGroup"), f"{path}.runAsGroup")
    mount = context.get("procMount")
    if mount is not None:
        if mount not in ("Default", "Unmasked"):
            errors.append(not_supported(f"{path}.procMount", mount, ("Default", "Unmasked")))
        if host_users and mount == "Unmasked":
            errors.append(invalid_value(f"{path}.procMount", mount, "`hostUsers` must be false to use `Unmasked`"))
    errors += _seccomp_errors(context.get("seccompProfile"), f"{path}.seccompProfile")
    if context.get("allowPrivilegeEscalation") is False:
        if privileged:
            why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            errors.append(invalid_value(path, internal_types.shown("SecurityContext", context), why))
        for capability in (context.get("capabilities") or {}).get("add") or ():
            if capability == "CAP_SYS_ADMIN":
                why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
                errors.append(invalid_value(path, internal_types.shown("SecurityContext", context), why))
    return errors + _apparmor_errors(context.get("appArmorProfile"), f"{path}.appArmorProfile")


def pod_security_errors(spec: Obj, path: str) -> Errors:
    """`spec.securityContext`; in kube-apiserver it also holds the pod's host flags."""
    context = spec.get("securityContext") or {}
    errors: Errors = []
    for field in ("fsGroup", "runAsUser", "runAsGroup"):
        errors += _id_errors(context.get(field), f"{path}.{field}")
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        errors += _id_errors(group, f"{path}.supplementalGroups[{index}]")
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        why = "ShareProcessNamespace and HostPID cannot both be enabled"
        errors.append(invalid_value(f"{path}.shareProcessNamespace", True, why))
    errors += _sysctl_errors(spec, context.get("sysctls") or [], f"{path}.sysctls")
    errors += _choice(context, "fsGroupChangePolicy", ("Always", "OnRootMismatch"), path)
    errors += _seccomp_errors(context.get("seccompProfile"), f"{path}.seccompProfile")
    errors += _apparmor_errors(context.get("appArmorProfile"), f"{path}.appArmorProfile")
    errors += _choice(context, "supplementalGroupsPolicy", ("Merge", "Strict"), path)
    return errors + _choice(context, "seLinuxChangePolicy", ("MountOption", "Recursive"), path)


def _choice(context: Obj, field: str, allowed: tuple[str, ...], path: str) -> Errors:
    value = context.get(field)
    return [] if value is None or value in allowed else [not_supported(f"{path}.{field}", value, allowed)]


def _sysctl_errors(spec: Obj, sysctls: list[Obj], path: str) -> Errors:
    errors: Errors = []
    seen: set[str] = set()
    for index, each in enumerate(sysctls):
        at, name = f"{path}[{index}].name", each.get("name") or ""
        if not name:
            errors.append(required(at))
        elif len(name) > 253 or not _SYSCTL_NAME.fullmatch(name):
            errors.append(invalid_value(at, name, f"must have at most 253 characters and match regex ^{_SYSCTL}$"))
        elif name in seen:
            errors.append(duplicate(at, name))
        dotted = name.replace("/", ".")
        if spec.get("hostNetwork") and dotted.startswith("net."):
            errors.append(invalid_value(at, name, "may not be specified when 'hostNetwork' is true"))
        elif spec.get("hostIPC") and dotted.startswith(_IPC_SYSCTLS):
            errors.append(invalid_value(at, name, "may not be specified when 'hostIPC' is true"))
        seen.add(name)
    return errors
