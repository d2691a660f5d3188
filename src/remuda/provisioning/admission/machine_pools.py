"""Validation of a machine pool, besides its schema, so that the object graph can be built from it.

Roles and names of pools are checked in :mod:`remuda.provisioning.admission.clusters`, which also validates clusters
without machines.
"""

from __future__ import annotations

import re
from typing import Any

from remuda.access.settings.validation import duration
from remuda.capi.admission.shared_rules import int_or_percent
from remuda.kube.errors import FieldError, forbidden_field, invalid_value, not_supported
from remuda.kube.names import annotation_errors, label_errors, label_value_problems, qualified_name_problems

Obj = dict[str, Any]

_DURATIONS = ("drainBeforeDeleteTimeout", "nodeStartupTimeout", "unhealthyNodeTimeout")
_SERVER_ROLES = ("etcdRole", "controlPlaneRole")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_RANGE = re.compile(r"\[(\d{1,9})-(\d{1,9})\]")
_COUNT = re.compile(r"\d{1,9}|(\d{1,2}|100)%")


def pool_errors(pool: Obj, path: str) -> list[FieldError]:
    return [
        *_system_errors(pool, path),
        *_rollout_errors(pool, path),
        *_health_errors(pool, path),
        *_mark_errors(pool, path),
    ]


def _system_errors(pool: Obj, path: str) -> list[FieldError]:
    if pool.get("machineOS") != "windows":
        return []
    why = "a machine that runs Windows can only be a worker"
    return [forbidden_field(f"{path}.{role}", why) for role in _SERVER_ROLES if pool.get(role) is True]


def _rollout_errors(pool: Obj, path: str) -> list[FieldError]:
    rolling = pool.get("rollingUpdate")
    if not isinstance(rolling, dict):
        return []
    at = f"{path}.rollingUpdate"
    errors = [problem for name in ("maxSurge", "maxUnavailable") for problem in _share_errors(rolling.get(name), f"{at}.{name}")]
    if not errors and rolling.get("maxSurge") in (0, "0%") and rolling.get("maxUnavailable") in (None, 0, "0%"):
        errors.append(invalid_value(f"{at}.maxUnavailable", rolling.get("maxUnavailable"), "can't be 0 when maxSurge is 0"))
    return errors


def _share_errors(value: object, path: str) -> list[FieldError]:
    if isinstance(value, int) and value < 0:
        return [invalid_value(path, value, "must not be negative")]
    if isinstance(value, str) and value.startswith("-"):
        return [invalid_value(path, value, "must not be negative")]
    return int_or_percent(value, path)


def _health_errors(pool: Obj, path: str) -> list[FieldError]:
    errors = [
        invalid_value(f"{path}.{name}", pool[name], why)
        for name in _DURATIONS
        if isinstance(pool.get(name), str) and (why := duration(pool[name]))
    ]
    most, between = pool.get("maxUnhealthy"), pool.get("unhealthyRange")
    if isinstance(most, str) and most and not _COUNT.fullmatch(most):
        errors.append(invalid_value(f"{path}.maxUnhealthy", most, "must be a number, or a percentage such as 40%"))
    if isinstance(between, str) and between:
        found = _RANGE.fullmatch(between)
        if found is None or int(found[1]) > int(found[2]):
            errors.append(invalid_value(f"{path}.unhealthyRange", between, "must be a range such as [1-3]"))
    return errors


def _mark_errors(pool: Obj, path: str) -> list[FieldError]:
    errors = [
        *label_errors(pool.get("labels"), f"{path}.labels"),
        *label_errors(pool.get("machineDeploymentLabels"), f"{path}.machineDeploymentLabels"),
        *annotation_errors(pool.get("machineDeploymentAnnotations"), f"{path}.machineDeploymentAnnotations"),
    ]
    for index, taint in enumerate(pool.get("taints") or ()):
        errors += taint_errors(taint, f"{path}.taints[{index}]")
    return errors


def taint_errors(taint: Obj, path: str) -> list[FieldError]:
    key, value, effect = (taint.get(name) or "" for name in ("key", "value", "effect"))
    errors = [invalid_value(f"{path}.key", key, why) for why in qualified_name_problems(key)]
    errors += [invalid_value(f"{path}.value", value, why) for why in label_value_problems(value)]
    if effect not in _EFFECTS:
        errors.append(not_supported(f"{path}.effect", effect, _EFFECTS))
    return errors
