"""State of one reconcile of a MachineSet, handed from phase to phase; and concurrent calls for its machines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from remuda.api.cluster_x_k8s_io import GROUP
from remuda.kube.objects import Key, dig, is_being_deleted, labels_of, name_of, uid_of
from remuda.kube.waits import Ref

from ..well_known import DEPLOYMENT_NAME

Obj = dict[str, Any]

NAME = "machineset"


class CreationFailure(NamedTuple):
    """The reason and the message of the condition MachinesCreated when machines could not be made."""

    reason: str
    message: str


@dataclass(slots=True)
class MachineSetScope:
    """`machines` is None until they are known; `why` is the reason."""

    machine_set: Obj
    cluster: Obj | None
    now: float
    deployment: Obj | None = None
    machines: dict[str, Obj] | None = None  # by uid, in order of names
    why: str = ""
    infrastructure_missing: bool = False
    bootstrap_missing: bool = False
    preflight: list[str] = field(default_factory=list)
    failure: CreationFailure | None = None
    created: int = 0

    @property
    def key(self) -> Key:
        return Key.of(self.machine_set)

    @property
    def namespace(self) -> str:
        return self.key.namespace

    @property
    def deleting(self) -> bool:
        return is_being_deleted(self.machine_set)

    @property
    def replicas(self) -> int | None:
        found = dig(self.machine_set, "spec", "replicas")
        return found if isinstance(found, int) else None

    @property
    def infrastructure(self) -> Obj:
        """The reference to the template of infrastructure machines."""
        return dig(self.machine_set, "spec", "template", "spec", "infrastructureRef") or {}

    @property
    def bootstrap(self) -> Obj | None:
        """The reference to the template of bootstrap configurations, if there is one."""
        return dig(self.machine_set, "spec", "template", "spec", "bootstrap", "configRef") or None

    @property
    def listed(self) -> list[Obj]:
        return list((self.machines or {}).values())

    def ref(self) -> Ref:
        return Ref(GROUP, "MachineSet", self.namespace, name_of(self.machine_set))

    def saw(self, machine: Obj) -> None:
        """Note a machine's state after a write."""
        if self.machines is not None:
            self.machines[uid_of(machine)] = machine

    def lost(self, machine: Obj) -> None:
        """Note that a machine is gone."""
        if self.machines is not None:
            self.machines.pop(uid_of(machine), None)


def is_deployment_child(machine_set: Obj) -> bool:
    return DEPLOYMENT_NAME in labels_of(machine_set)


# --- concurrency ----------------------------------------------------------------------------------------------------------
#
# Concurrent calls with a limit, and no new ones once one has failed.

T = TypeVar("T")
AT_ONCE = 10


async def for_each(items: Iterable[T], do: Callable[[T], Awaitable[None]], at_once: int = AT_ONCE) -> list[Exception]:
    """`do` for every item, in their order as far as possible; the errors. What has begun is finished.

    When it is cancelled, it cancels what has begun: the next reconcile finds what is half done.
    """
    waiting: Iterator[T] = iter(items)
    errors: list[Exception] = []

    async def work() -> None:
        for item in waiting:
            try:
                await do(item)
            except Exception as error:
                errors.append(error)
            if errors:
                return

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(work())
    return errors
