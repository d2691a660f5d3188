"""Machines that never became nodes: nothing runs on them, so an outdated one may go before another is there. Pure.

A Machine whose provider says by an annotation that it holds data is none of them, node or not.
"""

from __future__ import annotations

from typing import Any

from remuda.kube.objects import annotations_of, dig, is_being_deleted

from .well_known import HOLDS_DATA

Obj = dict[str, Any]


def is_stillborn(machine: Obj) -> bool:
    if is_being_deleted(machine) or dig(machine, "status", "nodeRef", "name"):
        return False
    return HOLDS_DATA not in annotations_of(machine)
