"""Small checks for the validation of built-in kinds. Each returns the errors that it finds, in order.

Paths are texts such as `spec.containers[0].image`. Metadata in general is :mod:`remuda.apiserver.registry.object_meta`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from remuda.kube import names
from remuda.kube.encoding.jsonio import dumps_text
from remuda.kube.errors import FieldError, invalid_value, not_supported, required
from remuda.kube.errors import Verbatim as Verbatim

from ..registry import object_meta
from ..registry.object_meta import IMMUTABLE, NameProblems
from ..registry.object_meta import NEGATIVE as NEGATIVE

Obj = dict[str, Any]
Errors = list[FieldError]

NOT_POSITIVE = "must be greater than zero"
FILE_MODE = "must be a number between 0 and 0777 (octal), both inclusive"
MAX_INT32 = 2**31 - 1
PROTOCOLS = ("SCTP", "TCP", "UDP")
TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

_STANDARD_FINALIZERS = frozenset(("kubernetes", "orphan", "foregroundDeletion"))
_PORT_NAME = re.compile(r"[-a-z0-9]+")
_PERCENT = re.compile(r"[0-9]+%")
_HEADER = re.compile(r"[-A-Za-z0-9]+")
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_DOMAIN_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")


def sub(obj: Obj | None, *path: str) -> Obj:
    """The object at `path`, or an empty one (not to be changed)."""
    for step in path:
        obj = (obj or {}).get(step)
    return obj or {}


def same(a: Any, b: Any) -> bool:
    """Kubernetes' equality: an absent list or map equals an empty one."""
    if isinstance(a, dict) and isinstance(b, dict):
        if a == b:
            return True
        return all(same(a.get(key), b.get(key)) for key in a.keys() | b.keys())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(left, right) for left, right in zip(a, b, strict=True))
    if a is None or b is None:
        other = b if a is None else a
        return other is None or (isinstance(other, list | dict) and not other)
    return bool(a == b)


def shown_selector(selector: Obj | None) -> Verbatim:
    if selector is None:
        return Verbatim("null")
    shown: Obj = {}
    if selector.get("matchLabels"):
        shown["matchLabels"] = dict(sorted(selector["matchLabels"].items()))
    if selector.get("matchExpressions"):
        fields = ("key", "operator", "values")
        shown["matchExpressions"] = [{f: each[f] for f in fields if f in each} for each in selector["matchExpressions"]]
    return Verbatim(dumps_text(shown))


# ---------------------------------------------------------------------------------------------------------------------
# Metadata of built-in kinds


def finalizer_name_errors(name: str, path: str) -> Errors:
    if "/" in name or name in _STANDARD_FINALIZERS:
        return []
    return [invalid_value(path, name, "name is neither a standard finalizer name nor is it fully qualified")]


def _finalizers(meta: Obj) -> Errors:
    found = meta.get("finalizers") or ()
    return [e for i, name in enumerate(found) for e in finalizer_name_errors(name, f"metadata.finalizers[{i}]")]


def meta_errors(obj: Obj, namespaced: bool, name_problems: NameProblems) -> Errors:
    meta = obj.get("metadata") or {}
    return object_meta.validate_object_meta(meta, namespaced, name_problems) + _finalizers(meta)


def meta_update_errors(obj: Obj, old: Obj) -> Errors:
    meta = obj.get("metadata") or {}
    return object_meta.validate_object_meta_update(meta, old.get("metadata") or {}) + _finalizers(meta)


# ---------------------------------------------------------------------------------------------------------------------
# Values


def nonnegative(value: int | None, path: str) -> Errors:
    return [invalid_value(path, value, NEGATIVE)] if value is not None and value < 0 else []


def positive(value: int | None, path: str) -> Errors:
    return [invalid_value(path, value or 0, NOT_POSITIVE)] if (value or 0) <= 0 else []


def all_nonnegative(obj: Obj, fields: Iterable[str], path: str) -> Errors:
    return [error for field in fields for error in nonnegative(obj.get(field), f"{path}.{field}")]


def immutable(new: Any, old: Any, path: str, shown: Any = None) -> Errors:
    if same(new, old):
        return []
    return [invalid_value(path, new if shown is None else shown, IMMUTABLE)]


def dns_label(value: str, path: str) -> Errors:
    return [invalid_value(path, value, why) for why in names.dns_label_problems(value)]


def subdomain(value: str, path: str) -> Errors:
    return [invalid_value(path, value, why) for why in names.dns_subdomain_problems(value)]


def qualified(value: str, path: str) -> Errors:
    return [invalid_value(path, value, why) for why in names.qualified_name_problems(value)]


def config_key(value: str, path: str) -> Errors:
    return [invalid_value(path, value, why) for why in names.config_key_problems(value)]


def supported(value: Any, allowed: Sequence[str], path: str, need: bool = True) -> Errors:
    """Errors unless `value` is one of `allowed`; a missing value is an error too, unless `need` is false."""
    if value in allowed:
        return []
    if not value:
        return [required(path)] if need else []
    return [not_supported(path, value, allowed)]


def between(low: int, high: int) -> str:
    return f"must be between {low} and {high}, inclusive"


def in_range(value: int, low: int, high: int, path: str) -> Errors:
    return [] if low <= value <= high else [invalid_value(path, value, between(low, high))]


def port_number(value: int | None, path: str) -> Errors:
    return in_range(value or 0, 1, 65535, path)


def port_name_problems(name: str) -> list[str]:
    problems = ["must be no more than 15 characters"] if len(name) > 15 else []
    if not _PORT_NAME.fullmatch(name):
        problems.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not any("a" <= char <= "z" for char in name):
        problems.append("must contain at least one letter (a-z)")
    if "--" in name:
        problems.append("must not contain consecutive hyphens")
    if name.startswith("-") or name.endswith("-"):
        problems.append("must not begin or end with a hyphen")
    return problems


def port_or_name(value: int | str | None, path: str) -> Errors:
    if isinstance(value, str):
        return [invalid_value(path, value, why) for why in port_name_problems(value)]
    return port_number(value, path)


def header_name(value: str, path: str) -> Errors:
    if _HEADER.fullmatch(value):
        return []
    why = (
        "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for "
        "validation is '[-A-Za-z0-9]+')"
    )
    return [invalid_value(path, value, why)]


def _percent_problems(value: str) -> list[str]:
    if _PERCENT.fullmatch(value):
        return []
    return [
        "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used "
        "for validation is '[0-9]+%')"
    ]


def int_or_percent(value: int | str | None, path: str) -> Errors:
    """Errors unless `value` is a non-negative integer or a percentage."""
    if isinstance(value, str):
        return [invalid_value(path, value, why) for why in _percent_problems(value)]
    return nonnegative(value, path)


def scaled(value: int | str | None) -> int:
    """The number of an int-or-percent value."""
    if isinstance(value, str):
        if _percent_problems(value):
            return int(value) if re.fullmatch(r"[-+]?\d+", value) else 0
        return int(value[:-1])
    return value or 0


def at_most_100_percent(value: int | str | None, path: str) -> Errors:
    if isinstance(value, str) and not _percent_problems(value) and int(value[:-1]) > 100:
        return [invalid_value(path, value, "must not be greater than 100%")]
    return []


def domain_prefixed_path(value: str, path: str) -> Errors:
    if not value:
        return [required(path)]
    host, slash, rest = value.partition("/")
    if not slash or not host or not rest:
        return [invalid_value(path, value, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    errors = [invalid_value(path, host, why) for why in names.dns_subdomain_problems(host)]
    if not _DOMAIN_PATH.fullmatch(rest):
        why = f"Invalid path (regex used for validation is '{_DOMAIN_PATH.pattern}')"
        errors.append(invalid_value(path, rest, why))
    return errors


# ---------------------------------------------------------------------------------------------------------------------
# Addresses

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _without_leading_zeros(value: str) -> str:
    """Without leading zeros in IPv4 parts: Kubernetes parses 010.0.0.1 as decimal, for its own error about it."""
    if ":" in value and "." not in value:
        return value
    head, colon, tail = value.rpartition(":")
    parts = tail.split(".")
    if len(parts) != 4 or not all(part.isascii() and part.isdigit() for part in parts):
        return value
    return head + colon + ".".join(str(int(part)) for part in parts)


def parse_ip(value: str) -> Address | None:
    if "%" in value:
        return None
    try:
        return ipaddress.ip_address(_without_leading_zeros(value))
    except ValueError:
        return None


def ip(value: str, path: str, known: Sequence[str] = ()) -> Errors:
    if value in known:
        return []
    parsed = parse_ip(value)
    if parsed is None:
        return [invalid_value(path, value, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")]
    errors: Errors = []
    if _without_leading_zeros(value) != value:
        errors.append(invalid_value(path, value, "must not have leading 0s"))
    elif isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped:
        errors.append(invalid_value(path, value, "must not be an IPv4-mapped IPv6 address"))
    return errors


def cidr(value: str, path: str, known: Sequence[str] = ()) -> Errors:
    if value in known:
        return []
    address, slash, bits = value.partition("/")
    parsed = parse_ip(address)
    limit = 128 if isinstance(parsed, ipaddress.IPv6Address) else 32
    if parsed is None or not slash or not (bits.isascii() and bits.isdigit()) or int(bits) > limit:
        return [invalid_value(path, value, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)")]
    if _without_leading_zeros(address) != address or str(int(bits)) != bits:
        return [invalid_value(path, value, "must not have leading 0s in IP or prefix length")]
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped:
        return [invalid_value(path, value, "must not have an IPv4-mapped IPv6 address")]
    if ipaddress.ip_network(value, strict=False).network_address != parsed:
        return [invalid_value(path, value, "must not have bits set beyond the prefix length")]
    return []


def ip_warnings(value: str, path: str) -> list[str]:
    parsed = parse_ip(value)
    if parsed is None:
        return []
    if isinstance(parsed, ipaddress.IPv6Address) and str(parsed) != value and not parsed.ipv4_mapped:
        return [f'{path}: IPv6 address "{value}" should be in RFC 5952 canonical format ("{parsed}")']
    return []


def families(addresses: Iterable[str]) -> set[int]:
    return {parsed.version for parsed in map(parse_ip, addresses) if parsed is not None}


def endpoint_ip(value: str, path: str) -> Errors:
    parsed = parse_ip(value)
    if parsed is None:
        return [invalid_value(path, value, "must be a valid IP address")]
    errors: Errors = []
    if parsed.is_unspecified:
        errors.append(invalid_value(path, value, f"may not be unspecified ({value})"))
    if parsed.is_loopback:
        errors.append(invalid_value(path, value, "may not be in the loopback range (127.0.0.0/8, ::1/128)"))
    if parsed.is_link_local:
        errors.append(invalid_value(path, value, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"))
    if _link_local_multicast(parsed):
        why = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
        errors.append(invalid_value(path, value, why))
    return errors


def _link_local_multicast(parsed: Address) -> bool:
    if isinstance(parsed, ipaddress.IPv4Address):
        return parsed in ipaddress.ip_network("224.0.0.0/24")
    packed = parsed.packed
    return packed[0] == 0xFF and packed[1] & 0x0F == 0x02


# ---------------------------------------------------------------------------------------------------------------------
# Conditions of the shape that metav1 defines


def condition_errors(conditions: Sequence[Obj] | None, path: str) -> Errors:
    errors: Errors = []
    seen: set[str] = set()
    for index, condition in enumerate(conditions or ()):
        at = f"{path}[{index}]"
        kind = condition.get("type") or ""
        if kind in seen:
            errors.append(FieldError("FieldValueDuplicate", f"{at}.type", kind))
        seen.add(kind)
        errors += qualified(kind, f"{at}.type")
        status = condition.get("status") or ""
        if status not in ("True", "False", "Unknown"):
            errors.append(not_supported(f"{at}.status", status, ("False", "True", "Unknown")))
        generation = condition.get("observedGeneration") or 0
        if generation < 0:
            errors.append(invalid_value(f"{at}.observedGeneration", generation, "must be greater than or equal to zero"))
        if not condition.get("lastTransitionTime"):
            errors.append(required(f"{at}.lastTransitionTime"))
        errors += _reason_errors(condition.get("reason") or "", f"{at}.reason")
        if len(condition.get("message") or "") > 32 * 1024:
            errors.append(FieldError("FieldValueTooLong", f"{at}.message", "", "may not be more than 32768 bytes"))
    return errors


def _reason_errors(reason: str, path: str) -> Errors:
    if not reason:
        return [required(path)]
    errors: Errors = []
    if not _REASON.fullmatch(reason):
        why = (
            "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
            "characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or "
            "'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is "
            f"'{_REASON.pattern}')"
        )
        errors.append(invalid_value(path, reason, why))
    if len(reason) > 1024:
        errors.append(FieldError("FieldValueTooLong", path, "", "may not be more than 1024 bytes"))
    return errors


# ---------------------------------------------------------------------------------------------------------------------
# Preparation in most strategies, before validation


def drop_status(obj: Obj) -> None:
    obj["status"] = {}


def fresh_status(**zeroes: Any) -> Callable[[Obj], None]:
    """Sets an empty status, except for the numbers that Go prints even when they are zero."""

    def prepare(obj: Obj) -> None:
        obj["status"] = dict(zeroes)

    return prepare


def keep_status(obj: Obj, old: Obj) -> None:
    _keep(obj, old, "status")


def keep_spec(obj: Obj, old: Obj) -> None:
    _keep(obj, old, "spec")


def _keep(obj: Obj, old: Obj, field: str) -> None:
    if field in old:
        obj[field] = old[field]
    else:
        obj.pop(field, None)


def keep_labels(obj: Obj, old: Obj) -> None:
    meta = obj.setdefault("metadata", {})
    labels = sub(old, "metadata").get("labels")
    if labels is None:
        meta.pop("labels", None)
    else:
        meta["labels"] = labels
