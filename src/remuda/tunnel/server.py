"""The server side: accepts clients and dials through them (docs/reference/tunnel.md#transport, docs/reference/tunnel.md#streams).

An authorizer gives the client key of a caller. Several sessions may share a key (replicas of an agent, or one that has
reconnected before its old connection was found dead). A stream uses the oldest session with recent messages, so a session is
avoided as soon as one of its pings is missing, long before it counts as dead, and the next one takes over when a session ends.
Streams of a session end with it; none moves to another connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from aiohttp import web

from remuda.kube.clock import Clock, Rng, deadline

from .errors import NoSession, Refused
from .session import LARGEST_MESSAGE, PING_EVERY, Session, Wire
from .stream import Stream

# A ping may be this late before another session is preferred, if there is one.
FRESH = 1.5 * PING_EVERY
# Three pings may be late or lost before a session has to give way to a new one.
_LATELY = 3 * PING_EVERY
# Replicas of an agent, and their dead connections that are not yet detected.
MOST_SESSIONS = 16

log = logging.getLogger(__name__)

Authorizer = Callable[[web.Request], Awaitable[str | None]]
"""The client key of the caller, None without a credential; raises Refused with the reason for a bad one."""

Admit = Callable[[Session], Awaitable[None]]
"""Checks a session before any other part uses it, for example by dialling through it; raises Refused to end it."""


class SessionListener(Protocol):
    """Notified of every session, also of existing ones when it is added."""

    def session_added(self, key: str, number: int) -> None: ...

    def session_removed(self, key: str, number: int, reason: str) -> None: ...


class TunnelServer:
    """All sessions of this process. `handle` is an aiohttp handler; the gateway mounts it."""

    def __init__(self, authorize: Authorizer, clock: Clock, rng: Rng) -> None:
        self._authorize = authorize
        self._clock = clock
        self._rng = rng
        self._sessions: dict[str, list[Session]] = {}
        self._listeners: list[SessionListener] = []
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._closed = False

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serve one client as long as it is connected."""
        try:
            key = await self._authorize(request)
        except Refused as refusal:
            return web.Response(status=400, text=str(refusal))
        if key is None:
            return web.Response(status=401, text="failed authentication")
        return await self.accept(request, key)

    async def accept(
        self, request: web.BaseRequest, key: str, *, mark: object = None, address: str = "", admit: Admit | None = None
    ) -> web.StreamResponse:
        """Serve a client that the caller has already authorized under this key; `mark` and `address`, the only one that it
        dials, stay on its session."""
        if self._closed:
            return web.Response(status=503, text="shutting down")
        if not self._has_room(key):
            return web.Response(status=503, text="too many sessions of this client")
        socket = web.WebSocketResponse(autoping=False, autoclose=False, compress=False, max_msg_size=LARGEST_MESSAGE)
        if not socket.can_prepare(request):
            return web.Response(status=400, text=f"Error during upgrade for host [{key}]: not a websocket handshake")
        await socket.prepare(request)
        transport = request.transport
        wire = Wire(socket, transport.abort if transport is not None else lambda: None)
        session = Session(wire, self._clock, self._rng, key=key, number=self._rng.below(1 << 63))
        session.mark, session.address = mark, address
        if admit is None:
            await self._serve(session, session.serve())
        else:
            await self._serve_admitted(session, admit)
        return socket

    def _has_room(self, key: str) -> bool:
        """True if one more session may be added; the most silent one is ended for it, if it is silent."""
        live = self.sessions(key)
        if len(live) < MOST_SESSIONS:
            return True
        quietest = min(live, key=lambda session: session.heard_at)
        if quietest.heard_at >= self._clock.monotonic() - _LATELY:
            return False
        quietest.end("another session has replaced it")
        return True

    async def _serve_admitted(self, session: Session, admit: Admit) -> None:
        running = asyncio.ensure_future(session.serve())
        try:
            await admit(session)
            if self._closed:
                session.end("shutting down")
            if session.alive:
                await self._serve(session, running)
        except Refused as refusal:
            log.info("tunnel refused: %s", refusal, extra={"client": session.key, "session": session.number})
            session.end(str(refusal))
        finally:
            session.end("stopped")
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def _serve(self, session: Session, running: Awaitable[str]) -> None:
        self._sessions.setdefault(session.key, []).append(session)
        for waiting in self._waiting.pop(session.key, ()):
            if not waiting.done():
                waiting.set_result(None)
        log.info("tunnel connected", extra={"client": session.key, "session": session.number})
        for listener in list(self._listeners):
            listener.session_added(session.key, session.number)
        try:
            await running
        finally:
            reason = session.reason or "stopped"
            self._remove(session)
            log.info("tunnel ended: %s", reason, extra={"client": session.key, "session": session.number})
            for listener in list(self._listeners):
                listener.session_removed(session.key, session.number, reason)

    def _remove(self, session: Session) -> None:
        rest = [other for other in self._sessions.get(session.key, ()) if other is not session]
        if rest:
            self._sessions[session.key] = rest
        else:
            self._sessions.pop(session.key, None)

    def add_listener(self, listener: SessionListener) -> None:
        self._listeners.append(listener)
        for key, sessions in list(self._sessions.items()):
            for session in sessions:
                listener.session_added(key, session.number)

    def clients(self) -> list[str]:
        """The keys of all connected clients."""
        return [key for key in self._sessions if self.has_session(key)]

    def has_session(self, key: str) -> bool:
        return any(session.alive for session in self._sessions.get(key, ()))

    def sessions(self, key: str) -> list[Session]:
        """The live sessions of a key, the oldest first."""
        return [session for session in self._sessions.get(key, ()) if session.alive]

    async def dial(self, key: str, network: str, address: str, *, within: float = 0.0) -> Stream:
        """Open a stream to an address on the client's side; waits up to `within` seconds for an absent client.

        It does not wait for the dial itself: a failure appears when the stream is read.
        """
        if within and not self.has_session(key):
            await self._session_of(key, within)
        preferred = self.preferred(key, address)
        if not preferred:
            raise NoSession(f"failed to find Session for client {key}")
        return preferred[0].open(network, address)

    def ways(self, key: str, network: str, address: str, most: int) -> list[Callable[[str], Stream]]:
        """Up to `most` clients of a key to dial an address through, the best one first; NoSession without any."""
        preferred = self.preferred(key, address)[:most]
        if not preferred:
            raise NoSession(f"failed to find Session for client {key}")
        return [partial(session.open, network) for session in preferred]

    def preferred(self, key: str, address: str = "") -> list[Session]:
        """The live sessions of a key, the best one first: those with recent messages, oldest first, as in Go; then the silent
        ones, the one heard from last before the others.

        Sessions that dial only another address than `address` are left out, unless there are no others: replicas of an agent may
        each know their own server of the cluster.
        """
        live = self.sessions(key)
        fitting = [session for session in live if not address or session.address in ("", address)]
        since = self._clock.monotonic() - FRESH
        return sorted(fitting or live, key=lambda session: 0.0 if session.heard_at >= since else since - session.heard_at)

    def is_passed_over(self, session: Session) -> bool:
        """True if new streams would go through another session. A connection that is kept for later is of no use then."""
        since = self._clock.monotonic() - FRESH
        others = self.preferred(session.key, session.address)
        return session.heard_at < since and any(other.heard_at >= since for other in others)

    async def _session_of(self, key: str, within: float) -> None:
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, set()).add(waiting)
        try:
            async with deadline(self._clock, within):
                await waiting
        except TimeoutError:
            return
        finally:
            left = self._waiting.get(key, set())
            left.discard(waiting)
            if not left:
                self._waiting.pop(key, None)

    def drop(self, key: str, reason: str) -> int:
        """End every session of a key, for example because its token was revoked; the result is their number."""
        live = self.sessions(key)
        for session in live:
            session.end(reason)
        return len(live)

    def close(self) -> None:
        """Refuse new clients and end every session; their handlers return soon after."""
        self._closed = True
        for key in list(self._sessions):
            self.drop(key, "shutting down")
