"""The simulated providers on a real Kubernetes, with workload clusters that listen: a process of its own, for any core.

`python -m tests.bench.capi.providers KUBECONFIG DIRECTORY` says `ready` when it is, takes a load as a line of JSON, and answers
with one, when all Machines run. It ends with its input.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from pathlib import Path

from remuda.apiserver.keys.pki import Pki
from remuda.cli.programs.event_loop import collect_seldom, loop_factory, raise_file_limit
from remuda.client.https import HttpsClient
from remuda.kube.clock import SYSTEM_CLOCK, Entropy, Rng
from remuda.lab.sim.capi_world import World
from remuda.lab.sim.providers import crds
from remuda.lab.sim.workload_clusters import SimulatedClusters
from tests.bench.capi.load import Load, build


async def play(kubeconfig: Path, directory: Path) -> None:
    clock = SYSTEM_CLOCK
    pki = Pki.ensure(directory, ["127.0.0.1"], clock, Entropy())
    clusters = SimulatedClusters(clock, Rng(), Entropy(), pki=pki)
    async with HttpsClient.from_kubeconfig(kubeconfig) as user, HttpsClient.from_kubeconfig(kubeconfig) as own:
        world = World(user, own, clock, clusters)
        await world.prepare(crds())
        playing = asyncio.create_task(world.manager.run())
        await asyncio.wait_for(world.land.core_machines.synced.wait(), 60)
        print("ready", flush=True)
        try:
            while line := await asyncio.to_thread(sys.stdin.readline):
                started = time.monotonic()
                await build(world, Load(**json.loads(line)))
                print(json.dumps({"wall": time.monotonic() - started}), flush=True)
        finally:
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)
            await clusters.close()


def main(arguments: list[str]) -> None:
    logging.disable(logging.WARNING)
    raise_file_limit()
    collect_seldom()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(play(Path(arguments[0]), Path(arguments[1])))


if __name__ == "__main__":
    main(sys.argv[1:])
