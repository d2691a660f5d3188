"""A Machine ends up the same whatever comes first, and whichever write fails or is never answered."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from remuda.api.cluster_x_k8s_io import MACHINES
from remuda.capi.machine import Machines
from remuda.kube.builtin_resources import NODES
from remuda.kube.errors import ApiError
from remuda.kube.objects import annotations_of, labels_of, owner_references_of
from tests.unit.capi.memory_clusters import TEST_CONFIGS, TEST_MACHINES, World, world

from .nodes import initialized, node

Obj = dict[str, Any]
STEPS = ("infrastructure", "bootstrap", "cluster", "node")
TIMES = ("lastTransitionTime", "lastUpdated")


async def do(made: World, step: str) -> None:
    if step == "infrastructure":
        await made.provision("m1")
    elif step == "bootstrap":
        await made.bootstrap("m1")
    elif step == "cluster":
        await initialized(made)
    else:
        workload = await made.workloads.connect("c1")
        await workload.client.create(NODES, node("n", "test:///m1"))


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: timeless(each) for key, each in value.items() if key not in TIMES}
    return [timeless(each) for each in value] if isinstance(value, list) else value


async def outcome(made: World) -> Obj:
    machine, infra, config = [await made.get(resource, "m1") for resource in (MACHINES, TEST_MACHINES, TEST_CONFIGS)]
    found = await made.workloads.clusters[("herd", "c1")].client.get(NODES, "n")  # type: ignore[index]
    owned = [[(owner["kind"], owner["name"]) for owner in owner_references_of(obj)] for obj in (machine, infra, config)]
    said = (labels_of(found), annotations_of(found))
    return {"status": timeless(machine["status"]), "spec": machine["spec"], "owners": owned, "node": said}


async def run(made: World, steps: tuple[str, ...]) -> Obj:
    await made.cluster()
    await made.machine("m1")
    for step in steps:
        await made.settle(0.5)
        await do(made, step)
    await made.settle(120)
    return await outcome(made)


@pytest.fixture(scope="module")
def undisturbed() -> Obj:
    async def one_by_one() -> Obj:
        async with world(Machines) as made:
            return await run(made, STEPS)

    found = asyncio.run(one_by_one())
    assert found["status"]["phase"] == "Running"
    return found


@pytest.mark.parametrize("steps", list(itertools.permutations(STEPS))[1::3], ids="-".join)
async def test_the_order_of_things_does_not_matter(steps: tuple[str, ...], undisturbed: Obj) -> None:
    async with world(Machines) as made:
        assert await run(made, steps) == undisturbed


@pytest.mark.parametrize("answered_never", [False, True], ids=["refused", "done but not answered"])
@pytest.mark.parametrize("number", range(10))
async def test_any_write_may_fail(number: int, answered_never: bool, undisturbed: Obj) -> None:
    async with world(Machines) as made:
        patch, count = made.core.client.patch, itertools.count()

        async def flaky(*args: Any, **options: Any) -> Obj:
            failing = next(count) == number
            if failing and not answered_never:
                raise ApiError(500, "InternalError", "etcd is down")
            found = await patch(*args, **options)
            if failing:
                raise ApiError(504, "Timeout", "no answer")
            return found

        made.core.client.patch = flaky  # type: ignore[method-assign]
        assert await run(made, STEPS) == undisturbed
        assert next(count) > number or number >= 9, "so many writes there are"
