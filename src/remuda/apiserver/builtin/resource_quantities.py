"""Resource names and quantities of containers, quotas and limit ranges."""

from __future__ import annotations

from remuda.kube import names, quantity
from remuda.kube.errors import FieldError, duplicate, forbidden_field, invalid_value, not_supported, required
from remuda.kube.quantity import Quantity

from . import checks
from .checks import NEGATIVE, Errors, Obj

_COUNTED = frozenset(
    (
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    )
)
_AMOUNTS = frozenset(
    (
        "cpu",
        "memory",
        "ephemeral-storage",
        "requests.cpu",
        "requests.memory",
        "requests.storage",
        "requests.ephemeral-storage",
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
    )
)
_CONTAINER = frozenset(("cpu", "memory", "ephemeral-storage"))
_POD_LEVEL = ("cpu", "hugepages-", "memory")


def is_huge_page(name: str) -> bool:
    return name.startswith("hugepages-")


def _is_quota_huge_page(name: str) -> bool:
    return name.startswith(("hugepages-", "requests.hugepages-"))


def is_native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def is_extended(name: str) -> bool:
    if is_native(name) or name.startswith("requests."):
        return False
    return not names.qualified_name_problems(f"requests.{name}")


def is_standard_quota_name(name: str) -> bool:
    return name in _COUNTED or name in _AMOUNTS or _is_quota_huge_page(name)


def may_overcommit(name: str) -> bool:
    return is_native(name) and not is_huge_page(name)


def quantity_errors(name: str, value: str, path: str) -> Errors:
    errors: Errors = []
    if amount(value) < ZERO:
        errors.append(invalid_value(path, value, NEGATIVE))
    if (name in _COUNTED or is_extended(name)) and fractional(value):
        errors.append(invalid_value(path, value, "must be an integer"))
    return errors


def positive_quantity_errors(value: str, path: str) -> Errors:
    return [invalid_value(path, value, checks.NOT_POSITIVE)] if amount(value) <= ZERO else []


def basic_quantity_errors(value: str, path: str) -> Errors:
    number = whole(value)
    return [invalid_value(path, number, "must be a valid resource quantity")] if number < 0 else []


def name_errors(name: str, path: str) -> Errors:
    errors = checks.qualified(name, path)
    if errors or "/" in name or is_standard_quota_name(name) or name == "storage":
        return errors
    return [invalid_value(path, name, "must be a standard resource type or fully qualified")]


def container_name_errors(name: str, path: str) -> Errors:
    errors = name_errors(name, path)
    if "/" not in name:
        if name not in _CONTAINER and not is_huge_page(name):
            errors.append(invalid_value(path, name, "must be a standard resource for containers"))
    elif not is_native(name) and not is_extended(name):
        errors.append(invalid_value(path, name, "doesn't follow extended resource name standard"))
    return errors


def pod_level_name_errors(name: str, path: str) -> Errors:
    errors = name_errors(name, path)
    if errors or name in _POD_LEVEL or is_huge_page(name):
        return errors
    return [not_supported(path, name, _POD_LEVEL)]


def quota_name_errors(name: str, path: str) -> Errors:
    errors = name_errors(name, path)
    if "/" not in name and not is_standard_quota_name(name):
        errors.append(invalid_value(path, name, "must be a standard resource for quota"))
    return errors


def requirement_errors(requirements: Obj | None, claims: frozenset[str], path: str, pod_level: bool = False) -> Errors:
    """Errors in the requests and limits of a container (or of a whole pod)."""
    if not requirements:
        return []
    check_name = pod_level_name_errors if pod_level else container_name_errors
    limits, requests = requirements.get("limits") or {}, requirements.get("requests") or {}
    errors: Errors = []
    for name, value in limits.items():
        at = f"{path}.limits[{name}]"
        errors += check_name(name, at) + quantity_errors(name, value, at) + _huge_page_errors(name, value, at)
    for name, value in requests.items():
        at = f"{path}.requests[{name}]"
        errors += check_name(name, at) + quantity_errors(name, value, at)
        errors += _against_limit(name, value, limits, path) + _huge_page_errors(name, value, at)
    asked = limits.keys() | requests.keys()
    if any(is_huge_page(name) for name in asked) and not asked & {"cpu", "memory"}:
        errors.append(forbidden_field(path, "HugePages require cpu or memory"))
    return errors + _claim_errors(requirements.get("claims") or [], claims, f"{path}.claims")


def _against_limit(name: str, value: str, limits: Obj, path: str) -> Errors:
    if name not in limits:
        if may_overcommit(name):
            return []
        return [required(f"{path}.limits", "Limit must be set for non overcommitable resources")]
    limit = limits[name]
    if amount(value) != amount(limit) and not may_overcommit(name):
        return [invalid_value(f"{path}.requests", value, f"must be equal to {name} limit of {limit}")]
    if amount(value) > amount(limit):
        return [invalid_value(f"{path}.requests", value, f"must be less than or equal to {name} limit of {limit}")]
    return []


def _huge_page_errors(name: str, value: str, path: str) -> Errors:
    if not is_huge_page(name):
        return []
    page = whole(name.removeprefix("hugepages-"))
    if page > 0 and whole(value) % page == 0:
        return []
    return [invalid_value(path, value, f"{value} is not positive integer multiple of {name}")]


def _claim_errors(wanted: list[Obj], claims: frozenset[str], path: str) -> Errors:
    errors: Errors = []
    seen: set[str] = set()
    for index, claim in enumerate(wanted):
        at, name, request = f"{path}[{index}]", claim.get("name") or "", claim.get("request") or ""
        if not name:
            errors.append(required(at))
            continue
        key = f"{name}/{request}" if request else name
        if request and name not in seen:
            errors += checks.dns_label(request, f"{at}.request")
        if name in seen or key in seen or (not request and any(each.startswith(f"{name}/") for each in seen)):
            errors.append(duplicate(at, key if key in seen else name))
        seen.add(key)
        if name not in claims:
            known = ": " + ", ".join(sorted(claims)) if claims else " which is empty"
            why = f"must be one of the names in pod.spec.resourceClaims{known}"
            errors.append(FieldError("FieldValueNotFound", at, name, why))
    return errors


# --- quantities -----------------------------------------------------------------------------------------------------------
#
# Quantities in objects that passed the codec: comparison and rounding of the values of :mod:`remuda.kube.quantity`.

ZERO = quantity.parse("0")


def amount(value: str | int | float | None) -> Quantity:
    return ZERO if value is None else quantity.from_json(value)


def whole(value: str | int | float | None) -> int:
    """The quantity rounded up to an integer, like Go's Value()."""
    return amount(value).value


def fractional(value: str | int | float | None) -> bool:
    """True when the quantity, rounded up to thousandths, is not an integer."""
    return amount(value).milli_value % 1000 != 0
