"""Machines of a set deleted, each under the uid that was seen: a new machine of an old name is not ours to delete."""

from __future__ import annotations

from typing import Any

from remuda.api.cluster_x_k8s_io import MACHINES
from remuda.kube.errors import ApiError
from remuda.kube.objects import is_being_deleted, name_of, namespace_of, uid_of

from ..core import Core
from .scope import NAME, Scope

Obj = dict[str, Any]


async def remove_machine(core: Core, scope: Scope, machine: Obj) -> None:
    """Begin to delete a machine; the scope then has it as it is."""
    if is_being_deleted(machine):
        return
    try:
        left = await core.client.delete(MACHINES, name_of(machine), namespace_of(machine), uid=uid_of(machine))
    except ApiError as error:
        # Gone, or another one by now.
        if not (error.is_not_found or error.is_conflict):
            raise
        scope.lost(machine)
        return
    if left.get("kind") == "Machine" and is_being_deleted(left):
        core.wrote(NAME, scope.key, core.machines, left)
        scope.saw(left)
    else:
        core.deleted(NAME, scope.key, core.machines, machine)
        scope.lost(machine)
