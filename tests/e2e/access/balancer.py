"""A TCP load balancer in a thread: to servers in turn that are ready, as one that checks `/readyz` does it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tests.e2e.cutting import _both, _passed

from .harness import Gateway

CHECK_EVERY = 0.5


class Balancer:
    def __init__(self, servers: Sequence[Gateway]) -> None:
        self._servers = list(servers)
        self._ready: list[Gateway] = []
        self._turns = itertools.count()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.port = 0

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._begun.wait(60)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._ready = [each for each in self._servers if await self._is_ready(each)]
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        checking = asyncio.create_task(self._check())
        self._begun.set()
        await self._stop.wait()
        checking.cancel()
        server.close()
        pending = asyncio.all_tasks() - {asyncio.current_task()}
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    async def _check(self) -> None:
        while True:
            self._ready = [each for each in self._servers if await self._is_ready(each)]
            await asyncio.sleep(CHECK_EVERY)

    async def _is_ready(self, server: Gateway) -> bool:
        def asked() -> bool:
            with contextlib.suppress(Exception):
                return server.nobody().request("GET", "/readyz").status == 200
            return False

        return server.alive and await asyncio.to_thread(asked)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # As balancers do: a server that refuses the connection is passed over.
        for _ in range(len(self._servers)):
            ready = self._ready or self._servers
            server = ready[next(self._turns) % len(ready)]
            with contextlib.suppress(OSError):
                far_reader, far_writer = await asyncio.open_connection(server.host, server.port)
                await _both(_passed(reader, far_writer, None), _passed(far_reader, writer, None), writer, far_writer)
                return
        writer.close()
