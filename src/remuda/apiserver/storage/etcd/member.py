"""One member of an etcd cluster, and one connection for all calls to it."""

from __future__ import annotations

import asyncio
import ssl
from typing import Generic, TypeVar
from urllib.parse import urlsplit

from remuda.kube.clock import Clock, deadline

from ..store import StoreError
from . import grpc
from .grpc import Failed
from .rpc import Method, refusal

T = TypeVar("T")

CONNECT_PATIENCE = 1.5


class Member:
    """One endpoint with its connection. `shunned` until a time: it has just failed."""

    def __init__(self, url: str, tls: ssl.SSLContext | None) -> None:
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
        self._rpc: grpc.Connection | None = None
        self._opening: asyncio.Task[grpc.Connection] | None = None
        self._heads: dict[tuple[str, bool], bytes] = {}
        self._retired = False

    # --- calls ----------------------------------------------------------------------------------------------------------

    def head(self, path: str, *, needs_leader: bool = True) -> bytes:
        head = self._heads.get((path, needs_leader))
        if head is None:
            scheme = "http" if self.tls is None else "https"
            head = grpc.head_of(scheme, self._authority, path, needs_leader=needs_leader)
            self._heads[path, needs_leader] = head
        return head

    async def open(self, clock: Clock) -> grpc.Connection:
        try:
            async with deadline(clock, CONNECT_PATIENCE):
                return await grpc.connect(self.host, self.port, self.tls)
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
            self._opening = asyncio.create_task(self.open(clock), name="etcd-connection")
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

    async def call(
        self, clock: Clock, path: str, message: bytes, patience: float, *, needs_leader: bool = True
    ) -> tuple[bytes, grpc.Status]:
        """The one message of the answer, and its status. Raises Failed."""
        connection = self._rpc
        if connection is None or not connection.usable:
            connection = await self._usable(clock)
        call = connection.call(self.head(path, needs_leader=needs_leader), message)
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

    def retire(self) -> None:
        """No further requests; those in progress finish."""
        self._retired = True
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


class Stream(Generic[T]):
    """The messages of a streamed answer, as they come."""

    def __init__(self, member: Member, call: grpc.Call, method: Method[T]) -> None:
        self.member = member
        self._call = call
        self._method = method
        self._waiter: asyncio.Future[None] | None = None
        call.wake = self._wake

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def next(self) -> list[T]:
        """The messages received since; waits for at least one. Raises Failed when it ends."""
        call = self._call
        while not call.messages:
            if isinstance(call.ended, Failed):
                raise call.ended
            if call.ended is not None:
                raise Failed(str(refusal(call.ended.code, call.ended.message or "it ended the stream")), sent=True)
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        messages, call.messages = call.messages, []
        try:
            return [self._method.decode(message) for message in messages]
        except ValueError as error:
            raise Failed(f"it does not stream like etcd: {error}", sent=True) from None
