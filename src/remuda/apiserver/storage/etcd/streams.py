"""Answers that go on: what a watch tells, and lines of the gateway."""

from __future__ import annotations

import asyncio

from . import grpc
from .gateway import Answer, Connection, Failed
from .member import Member
from .messages import GatewayError, WatchResult
from .refusals import refusal_of, refused
from .rpc import WATCH


class Watch:
    """What a watch tells, as it comes."""

    def __init__(self, member: Member, call: grpc.Call) -> None:
        self.member = member
        self._call = call
        self._waiter: asyncio.Future[None] | None = None
        call.wake = self._wake

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def next(self) -> list[WatchResult]:
        """What has come since; waits for at least one. Raises Failed when it ends."""
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
        """What has come since; waits for at least one line. Raises Failed when it ends, Refused when it was refused."""
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
