"""References from a pod to its own fields and resources (the downward API), for environment variables and volumes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from remuda.kube.errors import invalid_value, not_supported, required

from .. import checks
from ..checks import Errors, Obj
from ..resource_quantities import ZERO, amount

_LABELS = frozenset(
    (
        "metadata.annotations",
        "metadata.labels",
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.serviceAccountName",
        "spec.schedulerName",
        "status.phase",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    )
)
_SUBSCRIPT = re.compile(r"(.*)\['(.*)'\]", re.DOTALL)
_RESOURCES = (
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
)
_HUGE = ("limits.hugepages-", "requests.hugepages-")
_SIZES = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")


def field_ref_errors(reference: Obj, allowed: Sequence[str], path: str) -> Errors:
    version, field = reference.get("apiVersion") or "", reference.get("fieldPath") or ""
    if not version:
        return [required(f"{path}.apiVersion")]
    if not field:
        return [required(f"{path}.fieldPath")]
    problem = _conversion_problem(version, field)
    if problem:
        return [invalid_value(f"{path}.fieldPath", field, f"error converting fieldPath: {problem}")]
    subscript = _SUBSCRIPT.fullmatch(field)
    if subscript:
        key = subscript.group(2)
        return checks.qualified(key.lower() if subscript.group(1) == "metadata.annotations" else key, path)
    field = "spec.nodeName" if field == "spec.host" else field
    return [] if field in allowed else [not_supported(f"{path}.fieldPath", field, sorted(allowed))]


def _conversion_problem(version: str, field: str) -> str:
    if version != "v1":
        return f"unsupported pod version: {version}"
    subscript = _SUBSCRIPT.fullmatch(field)
    if subscript:
        known = subscript.group(1) in ("metadata.annotations", "metadata.labels")
        return "" if known else f"field label does not support subscript: {field}"
    return "" if field in _LABELS or field == "spec.host" else f"field label not supported: {field}"


def resource_field_errors(reference: Obj, path: str, volume: bool) -> Errors:
    resource = reference.get("resource") or ""
    errors: Errors = []
    if volume and not reference.get("containerName"):
        errors.append(required(f"{path}.containerName"))
    elif not resource:
        errors.append(required(f"{path}.resource"))
    elif resource not in _RESOURCES and not resource.startswith(_HUGE):
        errors.append(not_supported(f"{path}.resource", resource, _RESOURCES))
    return errors + _divisor_errors(resource, str(reference.get("divisor") or "0"), path)


def _divisor_errors(resource: str, divisor: str, path: str) -> Errors:
    if amount(divisor) == ZERO:
        return []
    if resource.endswith(".cpu"):
        if divisor in ("1m", "1"):
            return []
        why = "only divisor's values 1m and 1 are supported with the cpu resource"
    elif resource.endswith((".memory", ".ephemeral-storage")) or resource.startswith(_HUGE):
        if divisor in _SIZES:
            return []
        plain = "memory" if resource.endswith(".memory") else "local ephemeral storage"
        what = "hugepages" if resource.startswith(_HUGE) else plain
        why = f"only divisor's values {', '.join(_SIZES)} are supported with the {what} resource"
    else:
        return []
    return [invalid_value(f"{path}.divisor", resource, why)]
