"""Requests that are answered and not stored: access reviews, token reviews and token requests."""

from __future__ import annotations

from remuda.kube import names
from remuda.kube.errors import FieldError, forbidden_field, invalid_value, required

from ..registry.strategy import Strategy
from .checks import Errors, Obj, qualified, sub


def _meta_errors(obj: Obj, *, but: tuple[str, ...] = (), why: str = "must be empty") -> Errors:
    meta = sub(obj, "metadata")
    given = {key: value for key, value in meta.items() if value and key not in ("managedFields", *but)}
    if not given:
        return []
    return [invalid_value("metadata", {**meta, "creationTimestamp": meta.get("creationTimestamp")}, why)]


def _attribute_errors(spec: Obj) -> Errors:
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and other is not None:
        why = "cannot be specified in combination with resourceAttributes"
        return [invalid_value("spec.nonResourceAttributes", other, why)]
    if resource is None and other is None:
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        return [invalid_value("spec.resourceAttributes", None, why)]
    return []


def _selector_errors(spec: Obj) -> Errors:
    attributes = spec.get("resourceAttributes")
    errors: Errors = []
    for field in ("fieldSelector", "labelSelector"):
        selector = sub(attributes).get(field)
        if selector is None:
            continue
        path = f"spec.resourceAttributes.{field}"
        raw, requirements = selector.get("rawSelector") or "", selector.get("requirements") or []
        if raw and requirements:
            why = "may not specified at the same time as requirements"
            errors.append(invalid_value(f"{path}.rawSelector", raw, why))
        if not raw and not requirements:
            why = f"when {path} is specified, requirements or rawSelector is required"
            errors.append(required(f"{path}.requirements", why))
        for index, each in enumerate(requirements):
            errors += _requirement_errors(each, field == "labelSelector", f"{path}.requirements[{index}]")
    return errors


def _requirement_errors(requirement: Obj, label: bool, path: str) -> Errors:
    key, operator, values = requirement.get("key") or "", requirement.get("operator") or "", requirement.get("values") or []
    errors: list[FieldError] = []
    if not label and not key:
        errors.append(required(f"{path}.key", "must be specified"))
    if operator in ("In", "NotIn") and not values:
        errors.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    if operator in ("Exists", "DoesNotExist") and values:
        why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        errors.append(forbidden_field(f"{path}.values", why))
    if label:
        errors += qualified(key, f"{path}.key")
        for index, value in enumerate(values):
            problems = names.label_value_problems(value)
            errors += [invalid_value(f"{path}.values[{index}]", value, why) for why in problems]
    return errors


def _subject_errors(spec: Obj) -> Errors:
    if spec.get("user") or spec.get("groups"):
        return []
    return [invalid_value("spec.user", "", "at least one of user or group must be specified")]


def _access_errors(obj: Obj) -> Errors:
    spec = sub(obj, "spec")
    return _attribute_errors(spec) + _subject_errors(spec) + _selector_errors(spec) + _meta_errors(obj)


def _self_access_errors(obj: Obj) -> Errors:
    spec = sub(obj, "spec")
    return _attribute_errors(spec) + _selector_errors(spec) + _meta_errors(obj)


def _local_access_errors(obj: Obj) -> Errors:
    spec = sub(obj, "spec")
    errors = _attribute_errors(spec) + _subject_errors(spec) + _selector_errors(spec)
    errors += _meta_errors(obj, but=("namespace",), why="must be empty except for namespace")
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    namespace = sub(obj, "metadata").get("namespace") or ""
    if resource is not None and (resource.get("namespace") or "") != namespace:
        path = "spec.resourceAttributes.namespace"
        errors.append(invalid_value(path, resource.get("namespace") or "", "must match metadata.namespace"))
    if other is not None:
        errors.append(invalid_value("spec.nonResourceAttributes", other, "disallowed on this kind of request"))
    return errors


def _default_token_request(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    if spec.get("expirationSeconds") is None:
        spec["expirationSeconds"] = 3600


def _token_request_errors(obj: Obj) -> Errors:
    path, seconds = "spec.expirationSeconds", sub(obj, "spec").get("expirationSeconds") or 0
    errors: Errors = []
    if seconds < 600:
        errors.append(invalid_value(path, seconds, "may not specify a duration less than 10 minutes"))
    if seconds > 1 << 32:
        errors.append(invalid_value(path, seconds, "may not specify a duration larger than 2^32 seconds"))
    return errors


SUBJECT_ACCESS = Strategy(validate=_access_errors)
SELF_SUBJECT_ACCESS = Strategy(validate=_self_access_errors)
LOCAL_SUBJECT_ACCESS = Strategy(validate=_local_access_errors)
TOKEN_REQUEST = Strategy(default=_default_token_request, validate=_token_request_errors)
# Validated when they are answered: a token review without a token is a bad request, the others can't be invalid.
UNCHECKED = Strategy()
