"""The rules for a host's writes to its plan's Secret: a closed list of keys, each with a limit, and nothing else. Pure.

:mod:`..admission.provider_objects` refuses other writes (:func:`refusal`); the Secret of a host that wrote more before is
repaired with :func:`kept_data`. :mod:`.machine_plan_secret` reads the answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .machine_plan_secret import PlanState, told_state

Obj = dict[str, Any]

# The keys that a host's agent writes, with their limits in bytes (docs/reference/plan-secret.md#data-keys; only our own agent
# writes `failure-reason` and `agent`). It packs each output into 192 KiB; the original does not limit them.
_OUTPUT = 256 << 10
HOST_KEYS: Final[Mapping[str, int]] = {
    "plan-state": 64,
    "plan-revision": 64,
    "applied-checksum": 256,
    "applied-output": _OUTPUT,
    "applied-periodic-output": _OUTPUT,
    "probe-statuses": 64 << 10,
    "failed-checksum": 256,
    "failed-output": _OUTPUT,
    "failure-count": 64,
    "failure-reason": 16 << 10,
    "success-count": 64,
    "last-apply-time": 256,
    "agent": 8 << 10,
}
# All of them together. A Secret holds a mebibyte: the rest is for the plan and its applied copy, which the server must always
# be able to write, regardless of the host's data.
HOST_SHARE: Final = 640 << 10
_SERVER_KEYS = frozenset({"plan", "appliedPlan", "max-failures", "failure-threshold", "probe-period-seconds"})
_FROM_HOST = frozenset({"", PlanState.IN_PROGRESS, PlanState.SUCCEEDED, PlanState.FAILED})


def refusal(old: Obj, new: Obj) -> str:
    """The reason why a host may not make a write; "" if it may. The host answers under :data:`HOST_KEYS` and changes
    nothing else: not the plan or its limits, no label, annotation, owner or finalizer, and not the Secret's immutability."""
    for field_name in ("type", "immutable"):
        if (old.get(field_name) or None) != (new.get(field_name) or None):
            return f"the host does not set {field_name}"
    for field_name in ("labels", "annotations", "ownerReferences", "finalizers"):
        if (old["metadata"].get(field_name) or None) != (new["metadata"].get(field_name) or None):
            return f"the host does not set metadata.{field_name}"
    before: Obj = old.get("data") or {}
    after: Obj = new.get("data") or {}
    changed = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    for key in changed:
        if key not in HOST_KEYS:
            return "the host writes only what its agent answers to a plan"
        if _length(after.get(key)) > HOST_KEYS[key]:
            return f"{key} is longer than {HOST_KEYS[key]} bytes"
    if "plan-state" in changed and told_state(new) not in _FROM_HOST:
        return "plan-state is none that a host sets"
    if changed and sum(_length(after.get(key)) for key in HOST_KEYS) > HOST_SHARE:
        return f"all answers together are longer than {HOST_SHARE} bytes"
    return ""


def is_overfull(secret: Obj) -> bool:
    """True if the host's data leaves too little room for plans."""
    data: Obj = secret.get("data") or {}
    return sum(_length(value) for key, value in data.items() if key not in _SERVER_KEYS) > HOST_SHARE


def kept_data(secret: Obj) -> dict[str, str]:
    """The data of a repaired Secret: the server's own, and those of the host's answers that are within their limits."""
    data: Obj = secret.get("data") or {}
    kept = {key: value for key, value in data.items() if key in _SERVER_KEYS}
    free = HOST_SHARE
    for key, most in HOST_KEYS.items():
        length = _length(data.get(key))
        if key in data and length <= min(most, free):
            kept[key] = data[key]
            free -= length
    return kept


def _length(value: Any) -> int:
    """The decoded length of a base64 text in bytes, at most."""
    return len(value) // 4 * 3 if isinstance(value, str) else 0
