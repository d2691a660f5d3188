"""One member of an etcd cluster: one connection for all calls, and a few for its gateway."""

from __future__ import annotations

import asyncio
import ssl
from urllib.parse import urlsplit

import msgspec

from remuda.kube.clock import Clock, deadline

from ..store import StoreError
from . import grpc
from .gateway import Answer, Connection, Failed, connect
from .rpc import WATCH, GatewayError, WatchResult, refusal_of, refused

CONNECT_PATIENCE = 1.5


class Trust(msgspec.Struct, frozen=True):
    """The trusted CAs and our own certificate, for each protocol: HTTP/2 has to be negotiated."""

    gateway: ssl.SSLContext
    rpc: ssl.SSLContext


class Member:
    """One endpoint with its connections. `shunned` until a time: it has just failed."""

    def __init__(self, url: str, tls: Trust | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise StoreError(f"{url!r} is not the address of an etcd member: it must be like https://host:2379")
        self.url = url.rstrip("/")
        self.host = parts.hostname
        self.port = parts.port or 2379
        self.tls = tls if parts.scheme == "https" else None
        self.shunned = 0.0
        self.why = ""
        self._authority = (f"[{self.host}]" if ":" in self.host else self.host) + f":{self.port}"
        self._idle: list[Connection] = []
        self._heads: dict[str, bytes] = {}
        self._rpc: grpc.Connection | None = None
        self._opening: asyncio.Task[grpc.Connection] | None = None
        self._rpc_heads: dict[str, bytes] = {}
        self._retired = False

    def request(self, path: str, body: bytes) -> bytes:
        head = self._heads.get(path)
        if head is None:
            lines = (
                f"POST {path} HTTP/1.1",
                f"Host: {self._authority}",
                "Content-Type: application/json",
                # A member without a leader must end its streams instead of staying silent.
                "Grpc-Metadata-hasleader: true",
                "Content-Length: ",
            )
            head = self._heads[path] = "\r\n".join(lines).encode()
        return b"%b%d\r\n\r\n%b" % (head, len(body), body)

    async def open(self, clock: Clock) -> Connection:
        try:
            async with deadline(clock, CONNECT_PATIENCE):
                return await connect(self.host, self.port, None if self.tls is None else self.tls.gateway)
        except TimeoutError:
            raise Failed("it does not accept connections in time", sent=False) from None

    # --- calls ----------------------------------------------------------------------------------------------------------

    def rpc_head(self, path: str) -> bytes:
        head = self._rpc_heads.get(path)
        if head is None:
            scheme = "http" if self.tls is None else "https"
            head = self._rpc_heads[path] = grpc.head_of(scheme, self._authority, path)
        return head

    async def open_rpc(self, clock: Clock) -> grpc.Connection:
        try:
            async with deadline(clock, CONNECT_PATIENCE):
                return await grpc.connect(self.host, self.port, None if self.tls is None else self.tls.rpc)
        except TimeoutError:
            raise Failed("it does not accept connections in time", sent=False) from None

    async def _usable(self, clock: Clock) -> grpc.Connection:
        """The connection for all calls; callers that come while it is opened wait for the same one."""
        if self._rpc is not None and self._rpc.usable:
            return self._rpc
        if self._retired:
            # A retrying caller must not open a connection that would never be closed.
            raise Failed("it is not asked any more", sent=False)
        if self._opening is None:
            self._opening = asyncio.create_task(self.open_rpc(clock), name="etcd-connection")
            self._opening.add_done_callback(self._opened)
        opening = self._opening
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if opening.cancelled() and task is not None and not task.cancelling():
                # The connection attempt was cancelled, not the waiting caller.
                raise Failed("it is not asked any more", sent=False) from None
            raise

    def _opened(self, task: asyncio.Task[grpc.Connection]) -> None:
        if self._opening is not task:
            # Closed meanwhile.
            if not task.cancelled() and task.exception() is None:
                task.result().close()
            return
        self._opening = None
        if not task.cancelled() and task.exception() is None:
            if self._rpc is not None:
                self._rpc.retire()
            self._rpc = task.result()

    async def call(self, clock: Clock, path: str, message: bytes, patience: float) -> tuple[bytes, grpc.Status]:
        """The one message of the answer, and its status. Raises Failed."""
        connection = self._rpc
        if connection is None or not connection.usable:
            connection = await self._usable(clock)
        call = connection.call(self.rpc_head(path), message)
        over = asyncio.get_running_loop().create_future()
        call.wake = lambda: _done(over, call)
        try:
            async with deadline(clock, patience):
                await over
        except TimeoutError:
            # The member or the path to it may be broken: the next calls use another connection.
            connection.retire()
            raise Failed(f"no answer within {patience:g} s", sent=True) from None
        finally:
            call.cancel()
        assert call.ended is not None
        if isinstance(call.ended, Failed):
            raise call.ended
        if not call.messages and call.ended.code == 0:
            # A message without fields is one, too; taking it for a missing one would report an empty result.
            raise Failed("its answer is empty", sent=True)
        return call.messages[0] if call.messages else b"", call.ended

    # --- the gateway ----------------------------------------------------------------------------------------------------

    async def ask(self, clock: Clock, request: bytes, patience: float) -> Answer:
        while self._idle:
            connection = self._idle.pop()
            if connection.idle:
                break
        else:
            connection = await self.open(clock)
        try:
            async with deadline(clock, patience):
                answer = await connection.send(request)
        except TimeoutError:
            connection.close()
            raise Failed(f"no answer within {patience:g} s", sent=True) from None
        except BaseException:
            connection.close()
            raise
        if self._retired:
            connection.close()
        elif connection.idle:
            self._idle.append(connection)
        return answer

    def retire(self) -> None:
        """No further requests; those in progress finish."""
        self._retired = True
        for connection in self._idle:
            connection.close()
        self._idle.clear()
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
        if self._rpc is not None:
            self._rpc.retire()

    def close(self) -> None:
        self.retire()
        if self._rpc is not None:
            self._rpc.close()


def _done(over: asyncio.Future[None], call: grpc.Call) -> None:
    if call.ended is not None and not over.done():
        over.set_result(None)


# --- streams --------------------------------------------------------------------------------------------------------------
#
# Streamed answers: watch events, and lines of the gateway.


class Watch:
    """The events of a watch, as they come."""

    def __init__(self, member: Member, call: grpc.Call) -> None:
        self.member = member
        self._call = call
        self._waiter: asyncio.Future[None] | None = None
        call.wake = self._wake

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def next(self) -> list[WatchResult]:
        """The events received since; waits for at least one. Raises Failed when it ends."""
        call = self._call
        while not call.messages:
            if isinstance(call.ended, Failed):
                raise call.ended
            if call.ended is not None:
                said = GatewayError(code=call.ended.code, message=call.ended.message or "it ended the watch")
                raise Failed(str(refusal_of(said)), sent=True)
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        messages, call.messages = call.messages, []
        try:
            return [WATCH.decode(message) for message in messages]
        except ValueError as error:
            raise Failed(f"it does not stream like etcd: {error}", sent=True) from None


class Stream:
    """Lines of an answer, as they come."""

    def __init__(self, member: Member, connection: Connection) -> None:
        self.member = member
        self._connection = connection
        self._lines: list[bytes] = []
        self._partial = b""
        self._ended: asyncio.Future[Answer] | None = None
        self._waiter: asyncio.Future[None] | None = None

    def begin(self, request: bytes) -> None:
        self._ended = self._connection.send(request, self._received)
        self._ended.add_done_callback(lambda _: self._wake())

    def _received(self, piece: bytes) -> None:
        *lines, self._partial = (self._partial + piece).split(b"\n") if self._partial else piece.split(b"\n")
        if lines:
            self._lines += lines
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def next(self) -> list[bytes]:
        """The lines received since; waits for at least one. Raises Failed when it ends, Refused when it was refused."""
        assert self._ended is not None
        while not self._lines:
            if self._ended.done():
                answer = self._ended.result()
                if answer.status != 200:
                    raise refused(answer.body)
                raise Failed("it ended the stream", sent=True)
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        lines, self._lines = self._lines, []
        return lines
