"""Clients of other servers: how a stream reaches a client whose session another server has (docs/reference/tunnel.md#peers).

Each of several servers opens a session to each of the others, and announces its own clients on it. The other side opens a stream
for such a client by the network `CLIENT::NETWORK`; the server that announced it opens one to its client and copies bytes between
the two. It uses only sessions of its own for that, so a stream passes two servers at most, and can't go in a circle.

:class:`RemoteClient` is for :mod:`.server` what a session is. Not here: which servers there are, and how they know each other
(`gateway/peers`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from .errors import NoSession, StreamError
from .frames import RELAY, Kind
from .session import Session
from .stream import Stream

# Another server is near and pings every 5 s: one that is silent for this long is gone, or as good as that.
PEER_DEAF_AFTER = 12.0


class Dialer(Protocol):
    """One way to a client: its own session here, or another server that has one. `address` is the only one that it dials."""

    key: str
    number: int
    address: str

    @property
    def heard_at(self) -> float: ...
    @property
    def alive(self) -> bool: ...
    def open(self, network: str, address: str) -> Stream: ...


class RemoteClient:
    """A client that another server has announced; `session` is the one with that server."""

    # The other server knows what each of its sessions dials, and chooses.
    address = ""

    def __init__(self, session: Session, key: str, number: int) -> None:
        self.key = key
        self.number = number
        self.session = session
        self._withdrawn = False

    def __repr__(self) -> str:
        return f"<RemoteClient {self.key}/{self.number} of {self.session.key}>"

    @property
    def heard_at(self) -> float:
        return self.session.heard_at

    @property
    def alive(self) -> bool:
        return self.session.alive and not self._withdrawn

    def withdraw(self) -> None:
        self._withdrawn = True

    def open(self, network: str, address: str) -> Stream:
        return self.session.open(f"{self.key}{RELAY}{network}", address)


class Announcer:
    """Announces this server's own clients to another one, as long as its session lives: a listener of the tunnel server."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def session_added(self, key: str, number: int) -> None:
        self._session.announce(Kind.ADD_CLIENT, key, number)

    def session_removed(self, key: str, number: int, reason: str) -> None:
        self._session.announce(Kind.REMOVE_CLIENT, key, number)


OwnSessions = Callable[[str, str], Sequence[Session]]
"""This server's own sessions of a client for an address, the best one first."""

Answers = Callable[[str, str], Awaitable[bytes]]
"""This server's answer to a question of another one: what it is about, and its argument. Raises StreamError."""

_LONGEST_ANSWER = 4 << 20


async def ask(session: Session, about: str, argument: str) -> bytes:
    """The answer of the server at the other side, of which :func:`serve_relayed` gives it: a question is a stream to no client.
    Raises TunnelError."""
    stream = session.open(f"{RELAY}{about}", argument)
    found = bytearray()
    try:
        while data := await stream.read():
            found += data
            if len(found) > _LONGEST_ANSWER:
                raise StreamError("the answer is too long")
        return bytes(found)
    finally:
        stream.close()


async def serve_relayed(stream: Stream, own: OwnSessions, answers: Answers) -> None:
    """Serve a stream that another server has opened: for one of this server's clients, or with a question."""
    key, relayed, network = stream.network.partition(RELAY)
    if not relayed:
        raise StreamError("connect not allowed")
    if not key:
        await stream.write(await answers(network, stream.address))
        return
    sessions = own(key, stream.address)
    if not sessions:
        raise NoSession(f"failed to find Session for client {key}")
    await relay(stream, sessions[0].open(network, stream.address))


async def relay(near: Stream, far: Stream) -> None:
    """Copy bytes between two streams until one ends; the other one ends then, in the same way and after the same bytes."""
    pending = {asyncio.ensure_future(_copy(near, far)), asyncio.ensure_future(_copy(far, near))}
    try:
        ended = False
        while pending and not ended:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            ended = any(each.result() for each in done)
    finally:
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        near.close()
        far.close()


async def _copy(source: Stream, target: Stream) -> bool:
    """Copy until one of them ends; True if that was the source, and all of it is on its way."""
    while True:
        try:
            data = await source.read()
        except StreamError as error:
            with contextlib.suppress(StreamError):
                await target.sent()
                target.fail(str(error))
            return True
        if not data:
            return True
        try:
            await target.write(data)
        except StreamError:
            # It may have sent something before its end, which the other direction copies.
            return False
