"""Every scenario on a real kube-apiserver over HTTPS, with our webhooks, by two replicas whose leader is killed now and then."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from remuda.apiserver.keys.pki import Pki
from remuda.client.https import HttpsClient
from remuda.kube.clock import SYSTEM_CLOCK, Entropy, Rng
from remuda.lab.sim.capi_world import World
from remuda.lab.sim.providers import crds as sim_crds
from remuda.lab.sim.workload_clusters import SimulatedClusters
from tests.real import need
from tests.real.cluster import RealCluster
from tests.scenarios.playbill import SCENARIOS

from .replicas import Patient, Replicas

pytestmark = [pytest.mark.real, pytest.mark.replicated, pytest.mark.timeout(1800)]

# How long a leader lives, in seconds.
LIFE = (4.0, 15.0)
# How many scenarios are played at a time: most of each is waiting.
AT_ONCE = 14


class Ended:
    """How the scenarios ended."""

    def __init__(self) -> None:
        self.errors: dict[str, BaseException | None] = {}
        self.seconds: dict[str, float] = {}
        self.kills = 0
        self.logs = ""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ended]:
    need.programs("kubernetes", "etcd")
    seed = int(os.environ.get("REMUDA_SEED") or time.time())
    print(f"REMUDA_SEED={seed}")
    yield asyncio.run(_play_all(Path(tmp_path_factory.mktemp("replicas")), seed))


async def _play_all(directory: Path, seed: int) -> Ended:
    found = Ended()
    with RealCluster(controllers=True, fsync=False) as real:
        replicas = Replicas(Path(real.kubeconfig), directory)
        try:
            await replicas.start()
            async with _world(Path(real.kubeconfig), directory) as world:
                killer = asyncio.create_task(replicas.kill_leaders(Rng(seed), LIFE))
                room = asyncio.Semaphore(AT_ONCE)
                await asyncio.gather(*(_play(world, name, room, found) for name in SCENARIOS))
                if killer.done():
                    killer.result()
                killer.cancel()
                await asyncio.gather(killer, return_exceptions=True)
        finally:
            await replicas.stop()
        found.kills, found.logs = replicas.kills, replicas.logs()
    return found


async def _play(world: World, name: str, room: asyncio.Semaphore, found: Ended) -> None:
    async with room:
        began = SYSTEM_CLOCK.monotonic()
        try:
            await SCENARIOS[name](world)
            found.errors[name] = None
        except Exception as error:
            found.errors[name] = error
        found.seconds[name] = SYSTEM_CLOCK.monotonic() - began


@contextlib.asynccontextmanager
async def _world(kubeconfig: Path, directory: Path) -> AsyncIterator[World]:
    pki = Pki.ensure(directory / "workload-pki", ["127.0.0.1"], SYSTEM_CLOCK, Entropy())
    clusters = SimulatedClusters(SYSTEM_CLOCK, Rng(), Entropy(), pki=pki, pods=True)
    async with HttpsClient.from_kubeconfig(kubeconfig) as user, HttpsClient.from_kubeconfig(kubeconfig) as own:
        world = World(Patient(user), Patient(own), SYSTEM_CLOCK, clusters)
        await world.prepare(sim_crds())
        running = asyncio.create_task(world.manager.run())
        try:
            yield world
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await clusters.close()


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_ends_well_when_any_controller_is_killed(ended: Ended, name: str) -> None:
    error = ended.errors[name]
    if error is not None:
        raise error


def test_killed_leaders_left_no_errors(ended: Ended) -> None:
    assert ended.kills > 1
    assert "Traceback" not in ended.logs
