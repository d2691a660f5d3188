"""Paused objects: only their Paused condition is written."""

from __future__ import annotations

from typing import Any

from remuda.kube.conditions import FALSE, TRUE, with_condition
from remuda.kube.objects import annotations_of, dig

from .well_known import PAUSED

Obj = dict[str, Any]


def is_paused(cluster: Obj | None, obj: Obj) -> bool:
    """`cluster` may be `obj` itself."""
    return dig(cluster, "spec", "paused") is True or PAUSED in annotations_of(obj)


def with_paused(obj: Obj, cluster: Obj | None, now: float) -> Obj:
    """`obj` with its current Paused condition."""
    if not is_paused(cluster, obj):
        return with_condition(obj, "Paused", FALSE, "NotPaused", now=now)
    why = []
    if dig(cluster, "spec", "paused") is True:
        why.append("Cluster spec.paused is set to true")
    if PAUSED in annotations_of(obj):
        why.append(f"{obj.get('kind')} has the {PAUSED} annotation")
    return with_condition(obj, "Paused", TRUE, "Paused", ", ".join(why), now=now)
