"""A TCP proxy between a client and one server, which can cut, stall and delay: a network that is not well.

It runs in a thread of its own, so that both blocking tests and those on an event loop can use it, and knows nothing of what it
passes on; TLS goes through it unseen. `etcd.py` has the members it is usually put before.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

HOST = "127.0.0.1"


class Proxy:
    """Start with `with`; `url` is where the client goes instead of `target`. All is well until a method says otherwise."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        assert parts.hostname is not None and parts.port is not None
        self._scheme, self._host, self._port = parts.scheme, parts.hostname, parts.port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._ready = threading.Event()
        self._stopping = asyncio.Event()
        # Set while bytes may pass, for each way.
        self._asking = asyncio.Event()
        self._answering = asyncio.Event()
        self._cut = False
        self._delay = 0.0
        self._open: set[asyncio.StreamWriter] = set()
        self.url = ""
        # How many connections were made to it, for tests that ask whether a client has gone elsewhere.
        self.connections = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    # -- what the network does -----------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Every connection breaks, and new ones do at once, until `heal`."""
        self._do(self._break)

    def stall(self, *, requests: bool = True, answers: bool = True) -> None:
        """Connections stand and are accepted, but nothing passes; what was sent meanwhile arrives after `heal`.

        Only answers stalled: what was asked for is done, and the client never learns of it.
        """
        if requests:
            self._do(self._asking.clear)
        if answers:
            self._do(self._answering.clear)

    def delay(self, seconds: float) -> None:
        """Whatever passes comes so much later, in both ways."""
        self._delay = seconds

    def heal(self) -> None:
        """All is well again. What was cut stays so."""
        self._delay = 0.0
        self._do(self._mend)

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _do(self, what: object) -> None:
        done = threading.Event()

        def run() -> None:
            what()  # type: ignore[operator]
            done.set()

        self._loop.call_soon_threadsafe(run)
        done.wait()

    def _break(self) -> None:
        self._cut = True
        for writer in list(self._open):
            writer.transport.abort()

    def _mend(self) -> None:
        self._cut = False
        self._asking.set()
        self._answering.set()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._mend()
        server = await asyncio.start_server(self._connected, HOST, 0)
        self.url = f"{self._scheme}://{HOST}:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        await self._stopping.wait()
        server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open.add(writer)
        far: asyncio.StreamWriter | None = None
        try:
            if self._cut:
                return
            far_reader, far = await asyncio.open_connection(self._host, self._port)
            self._open.add(far)
            both = [
                asyncio.ensure_future(self._pass(reader, far, self._asking)),
                asyncio.ensure_future(self._pass(far_reader, writer, self._answering)),
            ]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in both:
                    task.cancel()
                await asyncio.gather(*both, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for each in (writer, far):
                if each is not None:
                    self._open.discard(each)
                    each.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: asyncio.Event) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if self._delay:
                    await asyncio.sleep(self._delay)
                await way.wait()
                writer.write(data)
                await writer.drain()
