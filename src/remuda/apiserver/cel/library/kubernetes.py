"""Kubernetes' own values in CEL: quantities, semantic versions, named formats, and authorization checks.

The host provides the authorizer: any object with the methods of `Authorizer`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from remuda.kube import names, quantity

from ..errors import EvalError
from ..timestamps import parse_date, parse_timestamp
from ..values import NONE, Opaque, Optional, Value, some
from .network import parse_request_uri


class Quantity(Opaque):
    __slots__ = ("amount",)
    type_name = "kubernetes.Quantity"

    def __init__(self, amount: quantity.Quantity) -> None:
        self.amount = amount

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.amount.compare(other.amount) == 0

    def __hash__(self) -> int:
        return hash(self.amount)


def _quantity(text: str) -> Quantity:
    try:
        return Quantity(quantity.parse(text))
    except ValueError as error:
        raise EvalError(str(error)) from None


def _is_quantity(text: str) -> bool:
    try:
        quantity.parse(text)
    except ValueError:
        return False
    return True


def _is_integer(value: Quantity) -> bool:
    """True when the number is written as an integer, as in Kubernetes: `1k` is one, `1000m` is not."""
    return value.amount.exponent >= 0 and value.amount.is_integer


def _as_integer(value: Quantity) -> int:
    if not _is_integer(value):
        raise EvalError("cannot convert value to integer")
    return value.amount.value


def _combine(left: Quantity, right: Quantity | int, sign: int) -> Quantity:
    other = right.amount if isinstance(right, Quantity) else quantity.parse(str(right))
    try:
        return Quantity(left.amount.add(other) if sign > 0 else left.amount.sub(other))
    except ValueError as error:
        raise EvalError(str(error)) from None


# --- semantic versions


@dataclass(frozen=True, slots=True)
class _Version:
    major: int
    minor: int
    patch: int
    pre: tuple[int | str, ...]

    def compare(self, other: _Version) -> int:
        mine, theirs = (self.major, self.minor, self.patch), (other.major, other.minor, other.patch)
        if mine != theirs:
            return -1 if mine < theirs else 1
        if not self.pre or not other.pre:
            return bool(other.pre) - bool(self.pre)
        for a, b in zip(self.pre, other.pre, strict=False):
            if a == b:
                continue
            if isinstance(a, int) and isinstance(b, int):
                return -1 if a < b else 1
            if isinstance(a, int) or isinstance(b, int):
                return -1 if isinstance(a, int) else 1
            return -1 if a < b else 1
        return (len(self.pre) > len(other.pre)) - (len(self.pre) < len(other.pre))


class Semver(Opaque):
    __slots__ = ("version",)
    type_name = "kubernetes.Semver"

    def __init__(self, version: _Version) -> None:
        self.version = version

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self.version.compare(other.version) == 0

    def __hash__(self) -> int:
        return hash(self.version)


_DIGITS = re.compile(r"[0-9]+", re.ASCII)
_ALNUM = re.compile(r"[0-9A-Za-z-]+", re.ASCII)


def _number(text: str, what: str) -> int:
    if not _DIGITS.fullmatch(text):
        raise EvalError(f'Invalid character(s) found in {what} number "{text}"')
    if len(text) > 1 and text[0] == "0":
        raise EvalError(f'{what.capitalize()} number must not contain leading zeroes "{text}"')
    if len(text) > 20 or int(text) >= 2**64:
        raise EvalError(f'strconv.ParseUint: parsing "{text}": value out of range')
    return int(text)


def _prerelease(text: str) -> int | str:
    if not text:
        raise EvalError("Prerelease is empty")
    if _DIGITS.fullmatch(text):
        if len(text) > 1 and text[0] == "0":
            raise EvalError(f'Numeric PreRelease version must not contain leading zeroes "{text}"')
        return int(text[:30])
    if not _ALNUM.fullmatch(text):
        raise EvalError(f'Invalid character(s) found in prerelease "{text}"')
    return text


def _parse_version(text: str) -> _Version:
    if not text:
        raise EvalError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise EvalError("No Major.Minor.Patch elements found")
    major, minor = _number(parts[0], "major"), _number(parts[1], "minor")
    rest, plus, build = parts[2].partition("+")
    patch, dash, pre = rest.partition("-")
    number = _number(patch, "patch")
    prerelease = tuple(_prerelease(part) for part in pre.split(".")) if dash else ()
    for part in build.split(".") if plus else ():
        if not part:
            raise EvalError("Build meta data is empty")
        if not _ALNUM.fullmatch(part):
            raise EvalError(f'Invalid character(s) found in build meta data "{part}"')
    return _Version(major, minor, number, prerelease)


def _normalized(text: str) -> str:
    parts = text.removeprefix("v").split(".", 2)
    for index, part in enumerate(parts):
        if len(part) > 1:
            stripped = part.lstrip("0")
            parts[index] = stripped if stripped[:1].isdigit() else "0" + stripped
    if len(parts) < 3:
        if "+" in parts[-1] or "-" in parts[-1]:
            raise EvalError("short version cannot contain PreRelease/Build meta data")
        parts += ["0"] * (3 - len(parts))
    return ".".join(parts)


def _semver(text: str, normalize: bool = False) -> Semver:
    return Semver(_parse_version(_normalized(text) if normalize else text))


def _is_semver(text: str, normalize: bool = False) -> bool:
    try:
        _semver(text, normalize)
    except EvalError:
        return False
    return True


# --- formats


class Format(Opaque):
    __slots__ = ("name", "problems", "regex_size")
    type_name = "kubernetes.NamedFormat"

    def __init__(self, name: str, regex_size: int, problems: Callable[[str], list[str]]) -> None:
        self.name = name
        self.regex_size = regex_size
        self.problems = problems

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Format) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE | re.ASCII)


def _prefix(problems: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """The problems of a name prefix, which may end with a dash, since a generated part follows."""
    return lambda text: problems(text[:-1] + "a" if len(text) > 1 and text.endswith("-") else text)


def _unless(fine: Callable[[str], bool], problem: str) -> Callable[[str], list[str]]:
    return lambda text: [] if fine(text) else [problem]


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return bool(text)


def _uri_problems(text: str) -> list[str]:
    try:
        parse_request_uri(text)
    except ValueError as error:
        return [str(error)]
    return []


def _is_date_time(text: str) -> bool:
    return parse_timestamp(text.replace("t", "T").replace("z", "Z")) is not None


FORMATS: dict[str, Format] = {
    "dns1123Label": Format("DNS1123Label", 30, names.dns_label_problems),
    "dns1123Subdomain": Format("DNS1123Subdomain", 60, names.dns_subdomain_problems),
    "dns1035Label": Format("DNS1035Label", 30, names.dns1035_label_problems),
    "qualifiedName": Format("QualifiedName", 60, names.qualified_name_problems),
    "dns1123LabelPrefix": Format("DNS1123LabelPrefix", 30, _prefix(names.dns_label_problems)),
    "dns1123SubdomainPrefix": Format("DNS1123SubdomainPrefix", 60, _prefix(names.dns_subdomain_problems)),
    "dns1035LabelPrefix": Format("DNS1035LabelPrefix", 30, _prefix(names.dns1035_label_problems)),
    "labelValue": Format("LabelValue", 40, names.label_value_problems),
    "uri": Format("URI", 1104, _uri_problems),
    "uuid": Format("uuid", 72, _unless(lambda text: _UUID.fullmatch(text) is not None, "does not match the UUID format")),
    "byte": Format("byte", 84, _unless(_is_base64, "invalid base64")),
    "date": Format("date", 72, _unless(lambda text: parse_date(text) is not None, "invalid date")),
    "datetime": Format("datetime", 72, _unless(_is_date_time, "invalid datetime")),
}


def _validate(kind: Format, text: str) -> Optional:
    problems = kind.problems(text)
    return some(list(problems)) if problems else NONE


def _named(name: str) -> Optional:
    return some(FORMATS[name]) if name in FORMATS else NONE


# --- authorization


@dataclass(frozen=True, slots=True)
class Check:
    """A question to the authorizer: a resource or a path, and the user."""

    verb: str = ""
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    field_selector: str = ""
    label_selector: str = ""
    service_account: tuple[str, str] | None = None  # namespace, name; None is the requesting user


@dataclass(frozen=True, slots=True)
class Decision:
    allowed: bool
    reason: str = ""
    error: str = ""


class Authorizer(Protocol):
    def authorize(self, check: Check) -> Decision:
        """The decision for the user of the request (or the service account named in the check)."""


class AuthorizerValue(Opaque):
    """The `authorizer` variable, and each step of building a check."""

    __slots__ = ("authorizer", "check", "type_name")

    def __init__(self, authorizer: Authorizer, check: Check | None = None, step: str = "Authorizer") -> None:
        self.authorizer = authorizer
        self.check = check or Check()
        self.type_name = f"kubernetes.authorization.{step}"

    def then(self, step: str, **changes: str | tuple[str, str]) -> AuthorizerValue:
        return AuthorizerValue(self.authorizer, replace(self.check, **changes), step)  # type: ignore[arg-type]


class DecisionValue(Opaque):
    __slots__ = ("decision",)
    type_name = "kubernetes.authorization.Decision"

    def __init__(self, decision: Decision) -> None:
        self.decision = decision


def _service_account(value: AuthorizerValue, namespace: str, name: str) -> AuthorizerValue:
    for problem in names.dns_subdomain_problems(name):
        raise EvalError(f"Invalid service account name: {problem}")
    for problem in names.dns_label_problems(namespace):
        raise EvalError(f"Invalid service account namespace: {problem}")
    return value.then("Authorizer", service_account=(namespace, name))


def _check(value: AuthorizerValue, verb: str) -> DecisionValue:
    return DecisionValue(value.authorizer.authorize(replace(value.check, verb=verb)))


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "string_to_quantity": _quantity,
    "is_quantity_string": _is_quantity,
    "quantity_get_float": lambda value: float(value.amount.as_float()),
    "quantity_get_int": _as_integer,
    "quantity_is_integer": _is_integer,
    "quantity_sign": lambda value: value.amount.sign,
    "quantity_compare_to": lambda left, right: left.amount.compare(right.amount),
    "quantity_is_greater_than": lambda left, right: left.amount.compare(right.amount) > 0,
    "quantity_is_less_than": lambda left, right: left.amount.compare(right.amount) < 0,
    "quantity_add": lambda left, right: _combine(left, right, 1),
    "quantity_add_int": lambda left, right: _combine(left, right, 1),
    "quantity_sub": lambda left, right: _combine(left, right, -1),
    "quantity_sub_int": lambda left, right: _combine(left, right, -1),
    "string_to_semver": _semver,
    "string_bool_to_semver": _semver,
    "is_semver_string": _is_semver,
    "is_semver_string_bool": _is_semver,
    "semver_major": lambda value: value.version.major,
    "semver_minor": lambda value: value.version.minor,
    "semver_patch": lambda value: value.version.patch,
    "semver_compare_to": lambda left, right: left.version.compare(right.version),
    "semver_is_greater_than": lambda left, right: left.version.compare(right.version) > 0,
    "semver_is_less_than": lambda left, right: left.version.compare(right.version) < 0,
    **{f"format.{name}": (lambda kind=kind: kind) for name, kind in FORMATS.items()},
    "format-named": _named,
    "format-validate": _validate,
    "authorizer_path": lambda value, path: value.then("PathCheck", path=path),
    "authorizer_group": lambda value, group: value.then("GroupCheck", group=group),
    "authorizer_serviceaccount": _service_account,
    "groupcheck_resource": lambda value, resource: value.then("ResourceCheck", resource=resource),
    "resourcecheck_subresource": lambda value, name: value.then("ResourceCheck", subresource=name),
    "resourcecheck_namespace": lambda value, name: value.then("ResourceCheck", namespace=name),
    "resourcecheck_name": lambda value, name: value.then("ResourceCheck", name=name),
    "authorizer_fieldselector": lambda value, text: value.then("ResourceCheck", field_selector=text),
    "authorizer_labelselector": lambda value, text: value.then("ResourceCheck", label_selector=text),
    "pathcheck_check": _check,
    "resourcecheck_check": _check,
    "decision_allowed": lambda value: value.decision.allowed,
    "decision_reason": lambda value: value.decision.reason,
    "decision_errored": lambda value: bool(value.decision.error),
    "decision_error": lambda value: value.decision.error,
}
