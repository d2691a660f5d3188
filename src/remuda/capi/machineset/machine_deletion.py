"""Machines of a set deleted, each under the uid that was seen: a new machine of an old name is not ours to delete."""

from __future__ import annotations

from typing import Any

from remuda.api.cluster_x_k8s_io import GROUP, MACHINES
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, is_being_deleted, name_of, namespace_of, uid_of
from remuda.kube.waits import Actor, Code, Ref, Wait

from ..controller_context import Core
from .scope import NAME, Scope

Obj = dict[str, Any]


# How soon a deletion that was refused is tried again: another machine has to come up first.
REFUSED_AGAIN = 15.0


class Refused(Exception):
    """Admission keeps a machine; its message says why. Trying again later may help."""

    def __init__(self, machine: Obj, why: str) -> None:
        super().__init__(why)
        self.machine = machine

    def wait(self, scope: Scope) -> Wait:
        on = Ref(GROUP, "Machine", *Key.of(self.machine))
        return Wait(Code.REFUSED, scope.ref(), Actor.USER, on, str(self))


async def remove_machine(core: Core, scope: Scope, machine: Obj) -> None:
    """Begin to delete a machine; the scope then has it as it is. Raises Refused."""
    if is_being_deleted(machine):
        return
    try:
        left = await core.client.delete(MACHINES, name_of(machine), namespace_of(machine), uid=uid_of(machine))
    except ApiError as error:
        if error.code == 403:
            raise Refused(machine, error.message) from None
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


async def check_removal(core: Core, machine: Obj) -> None:
    """Raises Refused if admission keeps the machine, and does nothing else."""
    try:
        await core.client.delete(MACHINES, name_of(machine), namespace_of(machine), uid=uid_of(machine), dry_run=True)
    except ApiError as error:
        if error.code == 403:
            raise Refused(machine, error.message) from None
