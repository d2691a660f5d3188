"""The controller of docs/controllers.md over HTTPS, on Remuda and on a real kube-apiserver: replicas, and leaders that die."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.client.https import HttpsClient
from remuda.kube.clock import SYSTEM_CLOCK, Rng
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, name_of
from remuda.runtime import Elector, LeaseTerm, Manager
from tests.api.harness import RemudaProcess
from tests.real import need
from tests.real.cluster import RealCluster

Obj = dict[str, Any]
CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")
PAGE = Path(__file__).parents[2] / "docs" / "controllers.md"
QUICK = LeaseTerm(lease_duration=3, renew_deadline=2, retry_period=0.3)


@pytest.fixture(scope="module", params=["remuda", pytest.param("kubernetes", marks=pytest.mark.real)])
def kubeconfig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if request.param == "kubernetes":
        need.programs("kubernetes", "etcd")
        with RealCluster(controllers=True, fsync=False) as cluster:
            yield cluster.kubeconfig
        return
    process = RemudaProcess(tmp_path_factory.mktemp("remuda"))
    process.start()
    yield process.kubeconfig
    assert process.stop() == 0


@contextlib.asynccontextmanager
async def replica(kubeconfig: Path, number: int) -> AsyncIterator[tuple[Elector, asyncio.Event, asyncio.Task[None]]]:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    names: dict[str, Any] = {"__name__": "docs"}
    exec(compile(example, str(PAGE), "exec"), names)
    async with HttpsClient.from_kubeconfig(kubeconfig) as client:
        elector = Elector(
            client, SYSTEM_CLOCK, Rng(), namespace="default", name="mirror", identity=f"replica-{number}", term=QUICK
        )
        manager = Manager(client, SYSTEM_CLOCK, Rng(), elector=elector, grace=5)
        manager.add(names["Mirrors"](manager))
        stop = asyncio.Event()
        running = asyncio.create_task(manager.run(stop))
        try:
            yield elector, stop, running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def until(condition: Callable[[], Awaitable[Any]], seconds: float = 180) -> Any:
    async with asyncio.timeout(seconds):
        while not (found := await condition()):
            await asyncio.sleep(0.05)
    return found


async def mirrored(client: HttpsClient, name: str, value: str) -> None:
    metadata = {"name": name, "namespace": "default", "labels": {"mirror": "yes"}}
    wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"x": value}}
    await client.apply(CONFIG_MAPS, wanted, field_manager="test", force=True)

    async def copied() -> bool:
        with contextlib.suppress(ApiError):
            found = await client.get(CONFIG_MAPS, f"{name}-mirror", "default")
            return bool(found["data"] == {"x": value})
        return False

    await until(copied)


async def test_replicas_hand_over_when_one_stops_and_when_one_dies(kubeconfig: Path) -> None:
    async with HttpsClient.from_kubeconfig(kubeconfig) as client, contextlib.AsyncExitStack() as stack:
        alive = {number: await stack.enter_async_context(replica(kubeconfig, number)) for number in range(3)}

        async def leader() -> tuple[int] | None:
            return next(((number,) for number, (elector, _, _) in alive.items() if elector.leading), None)

        await mirrored(client, "a", "1")
        (first,) = await until(leader)
        # Killed: nothing is given back, the others wait for the lease to run out.
        _, _, running = alive.pop(first)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await mirrored(client, "a", "2")
        (second,) = await until(leader)
        # Stopped: it finishes and gives the lease back.
        _, stop, running = alive.pop(second)
        stop.set()
        await asyncio.wait_for(running, 90)
        await mirrored(client, "b", "3")
        # What somebody breaks is put right by whoever leads now.
        await client.delete(CONFIG_MAPS, "a-mirror", "default")
        await mirrored(client, "a", "2")
        await client.delete(CONFIG_MAPS, "b", "default")

        async def collected() -> bool:
            listed = await client.list(CONFIG_MAPS, "default", labels="mirrored=yes")
            return [name_of(item) for item in listed["items"]] == ["a-mirror"]

        await until(collected)
