"""ConfigMaps: text and binary keys that must not overlap, and immutability."""

from __future__ import annotations

from remuda.kube.errors import forbidden_field, invalid_value, too_long

from ...registry import object_meta
from ...registry.strategy import AGE, NAME, Strategy, column
from .. import checks
from ..checks import Errors, Obj
from .secret import MAX_SIZE, decoded_size

_LOCKED = "field is immutable when `immutable` is set"


def _validate(obj: Obj) -> Errors:
    errors = checks.meta_errors(obj, True, object_meta.subdomain_name)
    texts, binaries = obj.get("data") or {}, obj.get("binaryData") or {}
    total = 0
    for key, text in texts.items():
        errors += checks.config_key(key, f"data[{key}]")
        if key in binaries:
            errors.append(invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData"))
        total += len(text.encode())
    for key, value in binaries.items():
        errors += checks.config_key(key, f"binaryData[{key}]")
        total += decoded_size(value)
    if total > MAX_SIZE:
        errors.append(too_long("[]", MAX_SIZE))
    return errors


def _validate_update(obj: Obj, old: Obj) -> Errors:
    errors = checks.meta_update_errors(obj, old)
    if old.get("immutable"):
        if not obj.get("immutable"):
            errors.append(forbidden_field("immutable", _LOCKED))
        for field in ("data", "binaryData"):
            if (obj.get(field) or {}) != (old.get(field) or {}):
                errors.append(forbidden_field(field, _LOCKED))
    return errors + _validate(obj)


STRATEGY = Strategy(
    validate=_validate,
    validate_update=_validate_update,
    name_problems=object_meta.subdomain_name,
    columns=(
        NAME,
        column(
            "Data",
            lambda obj: len(obj.get("data") or {}) + len(obj.get("binaryData") or {}),
            "The number of keys of the map.",
        ),
        AGE,
    ),
)
