"""The embedded management server: the API and the controllers it needs, in one process. This is what `remuda serve` runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from remuda import kcm
from remuda.apiserver.server import Config, Server
from remuda.client.inprocess import InProcessClient
from remuda.runtime import Registry


@asynccontextmanager
async def running(config: Config, *, controllers: bool = True, listen: bool = True) -> AsyncIterator[Server]:
    """A server that is up for as long as the block runs; controllers stop before it does.

    The block should wait in :meth:`Server.serve_forever`, which raises when the controllers die.
    """
    server = await Server.open(config)
    try:
        if listen:
            await server.listen()
        task = asyncio.create_task(run_controllers(server), name="the controllers") if controllers else None
        if task is not None:
            server.vital.append(task)
        try:
            yield server
        finally:
            if task is not None:
                task.cancel()
                # What it ended with, if it did so by itself, `serve_forever` has told.
                await asyncio.gather(task, return_exceptions=True)
    finally:
        await server.close()


async def run_controllers(server: Server) -> None:
    """What kube-controller-manager does, for this server's API."""
    client = InProcessClient(server, manager="kube-controller-manager")
    root_ca = "" if server.pki is None else server.pki.ca_pem.decode()
    registry = Registry()
    server.metrics.others.append(registry.text)
    try:
        await kcm.run(client, server.config.clock, server.config.rng, root_ca=root_ca, tokens=server.issuer, registry=registry)
    finally:
        server.metrics.others.remove(registry.text)
