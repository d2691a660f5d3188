"""ResourceQuotas and LimitRanges."""

from __future__ import annotations

from remuda.kube.errors import duplicate, forbidden_field, invalid_value, required

from ...registry import object_meta
from ...registry.strategy import AGE, DEFAULT, NAME, Strategy, column
from .. import checks
from ..checks import Errors, Obj, sub
from ..resource_quantities import (
    amount,
    container_name_errors,
    is_standard_quota_name,
    may_overcommit,
    name_errors,
    quantity_errors,
    quota_name_errors,
)

_POD_RESOURCES = frozenset(("pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"))
_SCOPES: dict[str, frozenset[str]] = {
    "Terminating": _POD_RESOURCES,
    "NotTerminating": _POD_RESOURCES,
    "NotBestEffort": _POD_RESOURCES,
    "PriorityClass": _POD_RESOURCES,
    "CrossNamespacePodAffinity": _POD_RESOURCES,
    "BestEffort": frozenset(("pods",)),
    "VolumeAttributesClass": frozenset(("persistentvolumeclaims", "requests.storage")),
}
_PAIRS = (("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating"))
_EXISTS_ONLY = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)


def _amounts_errors(amounts: Obj, path: str) -> Errors:
    errors: Errors = []
    for name, value in amounts.items():
        errors += quota_name_errors(name, f"{path}[{name}]") + quantity_errors(name, value, f"{path}[{name}]")
    return errors


def _unfit(scope: str, hard: Obj) -> int:
    fit = _SCOPES.get(scope)
    return 0 if fit is None else sum(is_standard_quota_name(name) and name not in fit for name in hard)


def _spec_errors(spec: Obj) -> Errors:
    hard, scopes = spec.get("hard") or {}, spec.get("scopes") or []
    errors = _amounts_errors(hard, "spec.hard")
    for scope in scopes:
        if scope not in _SCOPES:
            errors.append(invalid_value("spec.scopes", scopes, "unsupported scope"))
        why = "unsupported scope applied to resource"
        errors += [invalid_value("spec.scopes", scopes, why)] * _unfit(scope, hard)
    errors += [invalid_value("spec.scopes", scopes, "conflicting scopes") for a, b in _PAIRS if a in scopes and b in scopes]
    selector = spec.get("scopeSelector")
    return errors + (_selector_errors(selector, hard, scopes) if selector is not None else [])


def _selector_errors(selector: Obj, hard: Obj, scopes: list[str]) -> Errors:
    path = "spec.scopeSelector.matchExpressions"
    errors: Errors = []
    found: set[str] = set()
    for each in selector.get("matchExpressions") or ():
        scope, operator, values = each.get("scopeName") or "", each.get("operator") or "", each.get("values") or []
        if scope not in _SCOPES:
            errors.append(invalid_value(f"{path}.scopeName", scope, "unsupported scope"))
        why = "unsupported scope applied to resource"
        errors += [invalid_value(path, selector, why)] * _unfit(scope, hard)
        if scope in _SCOPES and scope not in ("PriorityClass", "VolumeAttributesClass") and operator != "Exists":
            errors.append(invalid_value(f"{path}.operator", operator, _EXISTS_ONLY))
        if operator in ("In", "NotIn"):
            if not values:
                why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                errors.append(required(f"{path}.values", why))
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
                errors.append(invalid_value(f"{path}.values", values, why))
        else:
            errors.append(invalid_value(f"{path}.operator", operator, "not a valid selector operator"))
        found.add(scope)
    shown = scopes or None
    return errors + [invalid_value(path, shown, "conflicting scopes") for a, b in _PAIRS if a in found and b in found]


def _status_errors(obj: Obj) -> Errors:
    status = sub(obj, "status")
    return _amounts_errors(status.get("hard") or {}, "status.hard") + _amounts_errors(status.get("used") or {}, "status.used")


def _update_errors(obj: Obj, old: Obj) -> Errors:
    errors = checks.meta_update_errors(obj, old) + _spec_errors(sub(obj, "spec"))
    scopes = sub(obj, "spec").get("scopes") or []
    if set(scopes) != set(sub(old, "spec").get("scopes") or ()):
        errors.append(invalid_value("spec.scopes", scopes or None, object_meta.IMMUTABLE))
    return errors


def _warnings(obj: Obj, old: Obj | None) -> list[str]:
    hard = sub(obj, "spec").get("hard") or {}
    found: list[str] = []
    for name in ("cpu", "memory", "storage", "ephemeral-storage") if old is None else ():
        request = f"requests.{name}"
        if request not in hard and name in ("cpu", "memory"):
            request = name
        limit = f"limits.{name}"
        if request in hard and limit in hard and amount(hard[request]) > amount(hard[limit]):
            found.append(f"ResourceQuota {request} ({hard[request]}) should be less than {limit} ({hard[limit]})")
    return found


def _shown(obj: Obj, limits: bool) -> str:
    status = sub(obj, "status")
    hard, used = status.get("hard") or {}, status.get("used") or {}
    names = sorted(name for name in hard if name.startswith("limits.") is limits)
    return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in names)


QUOTA = Strategy(
    prepare_for_create=checks.drop_status,
    validate=lambda obj: (
        checks.meta_errors(obj, True, object_meta.subdomain_name) + _spec_errors(sub(obj, "spec")) + _status_errors(obj)
    ),
    prepare_for_update=checks.keep_status,
    validate_update=_update_errors,
    prepare_for_status_update=checks.keep_spec,
    validate_status_update=lambda obj, old: checks.meta_update_errors(obj, old) + _status_errors(obj),
    warnings=_warnings,
    name_problems=object_meta.subdomain_name,
    columns=(
        NAME,
        column("Request", lambda obj: _shown(obj, False), "The usage and the limits."),
        column("Limit", lambda obj: _shown(obj, True), "The sum of the limits, and its maximum."),
        AGE,
    ),
)


# ---------------------------------------------------------------------------------------------------------------------
# Limit ranges


def _default_range(obj: Obj) -> None:
    for item in sub(obj, "spec").get("limits") or ():
        if item.get("type") != "Container":
            continue
        limits, requests = dict(item.get("default") or {}), dict(item.get("defaultRequest") or {})
        for name, value in (item.get("max") or {}).items():
            limits.setdefault(name, value)
        for source in (limits, item.get("min") or {}):
            for name, value in source.items():
                requests.setdefault(name, value)
        for field, amounts in (("default", limits), ("defaultRequest", requests)):
            if amounts:
                item[field] = amounts


def _range_errors(obj: Obj, old: Obj | None = None) -> Errors:
    errors = checks.meta_errors(obj, True, object_meta.subdomain_name)
    seen: set[str] = set()
    for index, item in enumerate(sub(obj, "spec").get("limits") or ()):
        path, kind = f"spec.limits[{index}]", item.get("type") or ""
        found = checks.qualified(kind, f"{path}.type")
        if not found and "/" not in kind and kind not in ("Pod", "Container", "PersistentVolumeClaim"):
            why = "must be a standard limit type or fully qualified"
            found = [invalid_value(f"{path}.type", kind, why)]
        errors += found
        if kind in seen:
            errors.append(duplicate(f"{path}.type", kind))
        seen.add(kind)
        errors += _item_errors(item, kind, path)
    return errors


def _item_errors(item: Obj, kind: str, path: str) -> Errors:
    check = container_name_errors if kind in ("Pod", "Container") else name_errors
    errors: Errors = []

    def named(field: str) -> Obj:
        nonlocal errors
        amounts: Obj = item.get(field) or {}
        for name in amounts:
            errors += check(name, f"{path}.{field}[{name}]")
        return amounts

    most, least = named("max"), named("min")
    limits: Obj = {}
    requests: Obj = {}
    if kind == "Pod":
        for field in ("default", "defaultRequest"):
            if item.get(field):
                errors.append(forbidden_field(f"{path}.{field}", "may not be specified when `type` is 'Pod'"))
    else:
        limits, requests = named("default"), named("defaultRequest")
    if kind == "PersistentVolumeClaim" and "storage" not in most and "storage" not in least:
        why = "either minimum or maximum storage value is required, but neither was provided"
        errors.append(required(f"{path}.limits", why))
    ratios = named("maxLimitRequestRatio")
    for name in sorted(most.keys() | least.keys() | limits.keys() | requests.keys() | ratios.keys()):
        errors += _order_errors(name, most, least, limits, requests, path)
        errors += _ratio_errors(name, ratios, most, least, path)
        differ = name in limits and name in requests and amount(limits[name]) != amount(requests[name])
        if differ and not may_overcommit(name):
            why = f"default value {limits[name]} must equal to defaultRequest value {requests[name]} in {name}"
            errors.append(invalid_value(f"{path}.defaultRequest[{name}]", requests[name], why))
    return errors


def _order_errors(name: str, most: Obj, least: Obj, limits: Obj, requests: Obj, path: str) -> Errors:
    pairs = (
        (least, most, "min", least, "min value {} is greater than max value {}"),
        (least, requests, "defaultRequest", requests, "min value {} is greater than default request value {}"),
        (requests, most, "defaultRequest", requests, "default request value {} is greater than max value {}"),
        (requests, limits, "defaultRequest", requests, "default request value {} is greater than default limit value {}"),
        (least, limits, "default", least, "min value {} is greater than default value {}"),
        (limits, most, "default", most, "default value {} is greater than max value {}"),
    )
    errors: Errors = []
    for low, high, field, shown, text in pairs:
        if name in low and name in high and amount(low[name]) > amount(high[name]):
            why = text.format(low[name], high[name])
            errors.append(invalid_value(f"{path}.{field}[{name}]", shown[name], why))
    return errors


def _ratio_errors(name: str, ratios: Obj, most: Obj, least: Obj, path: str) -> Errors:
    if name not in ratios:
        return []
    ratio, at = amount(ratios[name]), f"{path}.maxLimitRequestRatio[{name}]"
    errors: Errors = []
    if ratio < amount("1"):
        errors.append(invalid_value(at, ratios[name], f"ratio {ratios[name]} is less than 1"))
    if name in most and name in least and amount(least[name]).milli_value:
        limit = amount(most[name]).milli_value / amount(least[name]).milli_value
        if ratio.milli_value / 1000 > limit:
            why = f"ratio {ratios[name]} is greater than max/min = {limit:f}"
            errors.append(invalid_value(at, ratios[name], why))
    return errors


LIMIT_RANGE = Strategy(
    default=_default_range,
    validate=_range_errors,
    validate_update=_range_errors,
    name_problems=object_meta.subdomain_name,
    columns=DEFAULT,
    allow_create_on_update=True,
)
