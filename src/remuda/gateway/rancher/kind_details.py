"""What clients expect of a few kinds beyond the stored object. Pure.

A setting's value is its default while it has none of its own. A feature has explicit nulls: for clients an absent value is not
the same as none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

Obj = dict[str, Any]


def _setting(obj: Obj) -> Obj:
    return obj if obj.get("value") else {**obj, "value": obj.get("default") or ""}


def _feature(obj: Obj) -> Obj:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    return {
        **obj,
        "spec": {**spec, "value": spec.get("value")},
        "status": {**status, "lockedValue": status.get("lockedValue")},
    }


# Actions on an object, which other modules answer.
ACTIONS: Final[Mapping[str, tuple[str, ...]]] = {"management.cattle.io.cluster": ("generateKubeconfig",)}
_DETAILS: Final[Mapping[str, Callable[[Obj], Obj]]] = {
    "management.cattle.io.setting": _setting,
    "management.cattle.io.feature": _feature,
}


def shown(type_id: str, obj: Obj) -> Obj:
    change = _DETAILS.get(type_id)
    return obj if change is None else change(obj)
