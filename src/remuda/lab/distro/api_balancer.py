"""A local TCP proxy to any server of the API that answers, for hosts without an API: as k3s' agents have it.

It copies bytes without reading them; TLS is between the client and the server. New connections go to the first server that
accepts, beginning with the last that did; the client reconnects after a failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from urllib.parse import urlsplit

from remuda.kube.clock import Clock, deadline

log = logging.getLogger(__name__)

PORT = 6444
_CONNECT_SECONDS = 3.0
_PIECE = 64 * 1024


class Balancer:
    def __init__(self, host: str, clock: Clock, port: int = PORT) -> None:
        self._host = host
        self._port = port
        self._clock = clock
        self._servers: list[tuple[str, int]] = []
        self._listening: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"https://{self._host}:{self._port}"

    @property
    def is_usable(self) -> bool:
        return bool(self._servers)

    def use(self, urls: Sequence[str]) -> None:
        found = [(parts.hostname or "", parts.port or 443) for parts in map(urlsplit, urls)]
        known = [server for server in self._servers if server in found]
        self._servers = [*known, *(server for server in found if server not in known)]

    async def open(self) -> None:
        self._listening = await asyncio.start_server(self._serve, self._host, self._port, reuse_address=True)

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            theirs = await self._connect()
            if theirs is None:
                return
            try:
                await asyncio.gather(_move(reader, theirs[1]), _move(theirs[0], writer))
            finally:
                theirs[1].close()
        except asyncio.CancelledError:
            # The loop ends; the error needs no report.
            return
        finally:
            writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for server in list(self._servers):
            try:
                async with deadline(self._clock, _CONNECT_SECONDS):
                    made = await asyncio.open_connection(*server)
            except (OSError, TimeoutError):
                continue
            if server in self._servers:
                self._servers.remove(server)
                self._servers.insert(0, server)
            return made
        log.debug("no server of the API accepts connections")
        return None


async def _move(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Copy until one side ends; then end the other."""
    with contextlib.suppress(OSError):
        while piece := await source.read(_PIECE):
            target.write(piece)
            await target.drain()
    with contextlib.suppress(OSError, RuntimeError):
        target.write_eof() if target.can_write_eof() else target.close()
