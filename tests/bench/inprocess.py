"""Durable creates through the in-process client: a program of its own, so that nothing else is in its process.

`python -m tests.bench.inprocess DIRECTORY COUNT TASKS` prints one JSON line.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

import uvloop

from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.kube.objects import GroupVersionResource
from tests.bench import objects

CONFIGMAPS = GroupVersionResource("", "v1", "configmaps")
NAMESPACES = GroupVersionResource("", "v1", "namespaces")


async def measure(directory: Path, count: int, tasks: int) -> dict[str, float]:
    server = await Server.open(Config(data_dir=directory))
    try:
        client = InProcessClient(server, manager="bench")
        await client.create(NAMESPACES, objects.namespace(objects.NAMESPACE))
        numbers = iter(range(count))
        text = "x" * 900

        async def work() -> None:
            for number in numbers:
                await client.create(
                    CONFIGMAPS, objects.configmap_object(f"item-{number:06}", str(number), text), objects.NAMESPACE
                )

        started, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(work() for _ in range(tasks)))
        seconds = time.perf_counter() - started
        return {"rate": count / seconds, "cpu_us": (time.process_time() - cpu) * 1e6 / count}
    finally:
        await server.close()


def main(arguments: list[str]) -> None:
    directory, count, tasks = Path(arguments[0]), int(arguments[1]), int(arguments[2])
    print(json.dumps(uvloop.run(measure(directory, count, tasks))))


if __name__ == "__main__":
    main(sys.argv[1:])
