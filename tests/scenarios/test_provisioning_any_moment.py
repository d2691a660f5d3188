"""The controllers die after any write, or any write of theirs is refused, while a cluster is made, upgraded with drains, loses
its first server or is deleted: the same cluster comes of it, no host is asked to begin a second one, and etcd keeps its
majority."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from remuda.api.cluster_x_k8s_io import MACHINES
from remuda.app.rehearsal import provisioning
from remuda.client.interface import Client
from remuda.kube.errors import ApiError
from remuda.kube.objects import labels_of, name_of
from remuda.lab.sim.provisioning_world import WORKSPACE, ProvisioningWorld
from remuda.provisioning.well_known import NODE_NAME

from .mortal import Mortal
from .provisioned import DEMO, FROM, TO, change, delete, everything, init_nodes, nodes, plans, ready
from .soaking import SOAK, dice

ROLES = ["ec", "ecw", "e", "w"]
Act = Callable[[ProvisioningWorld], Awaitable[None]]


class Refusing(Mortal):
    """Lives on, but one of its writes fails, as when the store is down."""

    def __init__(self, client: Client, number: int) -> None:
        super().__init__(client)
        self._number = number

    def __getattr__(self, name: str) -> Any:
        call = super().__getattr__(name)
        if name not in ("create", "update", "patch", "apply", "delete"):
            return call

        async def refusing(*args: Any, **options: Any) -> Any:
            if self.written + 1 == self._number:
                self.written += 1
                raise ApiError(500, "InternalError", "the store is down")
            return await call(*args, **options)

        return refusing


async def make(world: ProvisioningWorld) -> None:
    drain = {"enabled": True}
    await world.want(DEMO, FROM, upgradeStrategy={"controlPlaneDrainOptions": drain, "workerDrainOptions": drain})
    for number, roles in enumerate(ROLES):
        await world.host(DEMO, f"h{number}", roles)
    await ready(world)


async def upgrade(world: ProvisioningWorld) -> None:
    await change(world, kubernetesVersion=TO)
    await ready(world)


async def shrink(world: ProvisioningWorld) -> None:
    """The first server goes."""
    (first,) = [name_of(each) for each in await world.machines(DEMO) if labels_of(each)[NODE_NAME] == "h0"]
    await world.client.delete(MACHINES, first, WORKSPACE)

    async def gone() -> bool:
        return first not in [name_of(each) for each in await world.machines(DEMO)]

    await world.until("it is gone", gone)
    await ready(world)


ACTS: dict[str, Act] = {"made": make, "upgraded": upgrade, "shrunk": shrink, "deleted": delete}


async def run(act: str, begin: Callable[[ProvisioningWorld], Mortal]) -> tuple[Any, Mortal]:
    """What is there in the end, when the controllers were those of `begin` while it was brought about."""
    async with provisioning() as world:
        if act != "made":
            await make(world)
        await world.settle(30)
        await world.kill()
        mortal = begin(world)
        succeeding = asyncio.create_task(_succeed(world, mortal))
        try:
            await ACTS[act](world)
        finally:
            succeeding.cancel()
            await asyncio.gather(succeeding, return_exceptions=True)
        await world.settle(120)
        return await outcome(world, act), mortal


async def _succeed(world: ProvisioningWorld, mortal: Mortal) -> None:
    """Others take the place of the controllers that died."""
    await mortal.died.wait()
    await world.kill()
    mortal.bury()
    world.begin()


async def outcome(world: ProvisioningWorld, act: str) -> Any:
    built = world.distribution(DEMO)
    assert built.violations == []
    if act == "deleted":
        return sorted(key for key in await everything(world) if "demo" in key or "custom-" in key or "/c-m-" in key)
    (begun,) = await init_nodes(world)
    assert (begun == "h0") == (act != "shrunk")
    first = await plans(world)
    await world.settle(600)
    assert await plans(world) == first, "plans are stable"
    return await nodes(world), [name for name, version in built.starts if version == TO], sorted(first)


def begin_mortal(number: int | None, refused: bool) -> Callable[[ProvisioningWorld], Mortal]:
    def begin(world: ProvisioningWorld) -> Mortal:
        found: list[Mortal] = []

        def through(client: Client) -> Any:
            found.append(Refusing(client, number) if refused and number is not None else Mortal(client, number))
            return found[0]

        world.begin(through)
        return found[0]

    return begin


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, tuple[Any, int]]:
    """What comes of it when nothing goes wrong, and in how many writes."""

    async def once(act: str) -> tuple[Any, int]:
        found, mortal = await run(act, begin_mortal(None, False))
        return found, mortal.written

    return {act: asyncio.run(once(act)) for act in ACTS}


@pytest.mark.soak
@pytest.mark.timeout(0 if SOAK else 600)
@pytest.mark.parametrize("refused", [True, False], ids=["refused", "dead"])
@pytest.mark.parametrize("act", ACTS)
async def test_whichever_write_is_the_last_the_same_comes_of_it(
    act: str, refused: bool, undisturbed: dict[str, tuple[Any, int]]
) -> None:
    wanted, writes = undisturbed[act]
    assert writes > 20
    numbers = range(1, writes + 1)
    for number in numbers if SOAK else dice(f"provisioning {act} {refused}").sample(numbers, 1):
        found, _ = await run(act, begin_mortal(number, refused))
        assert found == wanted, f"write {number} of {writes}"
