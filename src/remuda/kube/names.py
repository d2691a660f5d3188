"""Validation of names, labels and annotations, with Kubernetes' own rules and wording.

Each `*_problems` function returns the sentences that kube-apiserver would print; an empty list means valid.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .errors import FieldError, invalid_value, too_long

DNS1123_LABEL_MAX = 63
DNS1123_SUBDOMAIN_MAX = 253
# The limit for a label's value, and for its key without the prefix.
LABEL_MAX = 63

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_DNS1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")

_LABEL_MSG = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an "
    "alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_SUBDOMAIN_MSG = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_DNS1035_MSG = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and "
    "end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_QUALIFIED_MSG = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. "
    "'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_LABEL_VALUE_MSG = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def max_length_problem(limit: int, unit: str = "characters") -> str:
    # Upstream counts in bytes everywhere, but says so only for label keys and values.
    return f"must be no more than {limit} {unit}"


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def _length_problems(value: str, limit: int, unit: str = "characters") -> list[str]:
    return [max_length_problem(limit, unit)] if _size(value) > limit else []


def dns_label_problems(value: str) -> list[str]:
    problems = _length_problems(value, DNS1123_LABEL_MAX)
    if not _LABEL.fullmatch(value):
        if _SUBDOMAIN.fullmatch(value):
            problems.append("must not contain dots")
        else:
            problems.append(_LABEL_MSG)
    return problems


def dns_subdomain_problems(value: str, unit: str = "characters") -> list[str]:
    problems = _length_problems(value, DNS1123_SUBDOMAIN_MAX, unit)
    if not _SUBDOMAIN.fullmatch(value):
        problems.append(_SUBDOMAIN_MSG)
    return problems


def dns1035_label_problems(value: str) -> list[str]:
    problems = _length_problems(value, DNS1123_LABEL_MAX)
    if not _DNS1035.fullmatch(value):
        problems.append(_DNS1035_MSG)
    return problems


def path_segment_problems(value: str) -> list[str]:
    """Names that only have to fit into a URL path, such as those of RBAC objects."""
    if value in (".", ".."):
        return [f"may not be '{value}'"]
    return [f"may not contain '{char}'" for char in ("/", "%") if char in value]


def qualified_name_problems(value: str) -> list[str]:
    parts = value.split("/")
    problems: list[str] = []
    if len(parts) == 1:
        name = parts[0]
    elif len(parts) == 2:
        prefix, name = parts
        if not prefix:
            problems.append("prefix part must be non-empty")
        else:
            problems.extend(f"prefix part {problem}" for problem in dns_subdomain_problems(prefix, "bytes"))
    else:
        return [
            "a valid label key " + _QUALIFIED_MSG + " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    if not name:
        problems.append("name part must be non-empty")
    else:
        problems.extend(f"name part {problem}" for problem in _length_problems(name, LABEL_MAX, "bytes"))
    if not _QUALIFIED.fullmatch(name):
        problems.append(f"name part {_QUALIFIED_MSG}")
    return problems


def label_value_problems(value: str) -> list[str]:
    problems = _length_problems(value, LABEL_MAX, "bytes")
    if not _LABEL_VALUE.fullmatch(value):
        problems.append(_LABEL_VALUE_MSG)
    return problems


def config_key_problems(value: str) -> list[str]:
    """Keys of ConfigMaps and Secrets."""
    problems = _length_problems(value, DNS1123_SUBDOMAIN_MAX)
    if not _CONFIG_KEY.fullmatch(value):
        problems.append(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
            "'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
        )
    return problems + _hides_parent(value)


def _hides_parent(value: str) -> list[str]:
    if value == ".":
        return ["must not be '.'"]
    if value == "..":
        return ["must not be '..'"]
    return ["must not start with '..'"] if value.startswith("..") else []


# Labels and annotation keys that are known to be valid: the same few are on nearly every object.
_good: set[tuple[str, str]] = set()
_GOOD_MAX = 20_000


def _remember_good(key: str, value: str = "") -> None:
    if len(_good) >= _GOOD_MAX:
        _good.clear()
    _good.add((key, value))


def label_errors(labels: Mapping[str, Any] | None, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for key, value in (labels or {}).items():
        if (key, value) in _good:
            continue
        before = len(errors)
        errors.extend(invalid_value(path, key, problem) for problem in qualified_name_problems(key))
        errors.extend(invalid_value(path, value, problem) for problem in label_value_problems(value))
        if len(errors) == before:
            _remember_good(key, value)
    return errors


ANNOTATIONS_MAX_BYTES = 256 * 1024


def annotation_errors(annotations: Mapping[str, str] | None, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    total = 0
    for key, value in (annotations or {}).items():
        # A valid label key is a valid annotation key, too; an annotation's prefix may also have capitals.
        if (key, "") not in _good:
            problems = qualified_name_problems(key.lower())
            errors.extend(invalid_value(path, key, problem) for problem in problems)
            if not problems and key == key.lower():
                _remember_good(key)
        total += _size(key) + _size(value)
    if total > ANNOTATIONS_MAX_BYTES:
        errors.append(too_long(path, ANNOTATIONS_MAX_BYTES))
    return errors
