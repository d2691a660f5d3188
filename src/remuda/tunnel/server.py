"""The server side: accepts clients and dials through them (docs/reference/tunnel.md#transport, docs/reference/tunnel.md#streams).

An authorizer gives the client key of a caller. Several sessions may share a key (replicas of an agent, or one that has
reconnected before its old connection was found dead). A stream uses the oldest session with recent messages, so a session is
avoided as soon as one of its pings is missing, long before it counts as dead, and the next one takes over when a session ends.
Streams of a session end with it; none moves to another connection.

Other servers are connected, too (:meth:`TunnelServer.accept_server`), and announce their clients. Those can be dialled like the
own ones, which are preferred. Of the same client on several others the latest announcement counts first, because a client that
reconnects may have left its old session behind (:mod:`.peers`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeVar

from aiohttp import web

from remuda.kube.clock import Clock, Rng, deadline

from .errors import NoSession, Refused, TunnelError
from .frames import Kind
from .peers import PEER_DEAF_AFTER, Dialer, RemoteClient, ask
from .session import LARGEST_MESSAGE, PING_EVERY, Session, Wire
from .stream import Stream

# A ping may be this late before another session is preferred, if there is one.
FRESH = 1.5 * PING_EVERY
# Three pings may be late or lost before a session has to give way to a new one.
_LATELY = 3 * PING_EVERY
# Replicas of an agent, and their dead connections that are not yet detected.
MOST_SESSIONS = 16

log = logging.getLogger(__name__)

_Dialer = TypeVar("_Dialer", bound=Dialer)

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
        self._remote: dict[str, list[RemoteClient]] = {}
        self._servers: dict[str, Session] = {}
        self._listeners: list[SessionListener] = []
        self._own_listeners: list[SessionListener] = []
        # New streams take other servers' sessions first: this server's own will end soon.
        self.leaving = False
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
        upgraded = await _upgraded(request, key)
        if isinstance(upgraded, web.Response):
            return upgraded
        socket, wire = upgraded
        session = Session(wire, self._clock, self._rng, key=key, number=self._rng.below(1 << 63))
        session.mark, session.address = mark, address
        if admit is None:
            await self._serve(session, session.serve())
        else:
            await self._serve_admitted(session, admit)
        return socket

    async def accept_server(self, request: web.BaseRequest, name: str) -> web.StreamResponse:
        """Serve another server, which the caller has authenticated. A new session of a server replaces its last one."""
        if self._closed:
            return web.Response(status=503, text="shutting down")
        upgraded = await _upgraded(request, name)
        if isinstance(upgraded, web.Response):
            return upgraded
        socket, wire = upgraded

        def announced(kind: Kind, key: str, number: int) -> None:
            if kind is Kind.ADD_CLIENT:
                self._add_remote(session, key, number)
            else:
                self._remove_remote(session, key, number, "it left the other server")

        session = Session(wire, self._clock, self._rng, key=name, announced=announced, deaf_after=PEER_DEAF_AFTER)
        if (last := self._servers.get(name)) is not None:
            last.end("another session has replaced it")
            self._forget_server(last)
        self._servers[name] = session
        try:
            log.info("another server has connected", extra={"peer": name})
            await session.serve()
        finally:
            log.info("the session of another server ended: %s", session.reason, extra={"peer": name})
            self._forget_server(session)
        return socket

    def _forget_server(self, session: Session) -> None:
        if self._servers.get(session.key) is session:
            del self._servers[session.key]
        for each in [each for known in self._remote.values() for each in known if each.session is session]:
            self._remove_remote(session, each.key, each.number, session.reason or "stopped")

    def _add_remote(self, session: Session, key: str, number: int) -> None:
        if not session.alive or any(each.session is session and each.number == number for each in self._remote.get(key, ())):
            return
        self._remote.setdefault(key, []).insert(0, RemoteClient(session, key, number))
        self._came(key)
        for listener in list(self._listeners):
            listener.session_added(key, number)

    def _remove_remote(self, session: Session, key: str, number: int, reason: str) -> None:
        known = self._remote.get(key, [])
        gone = [each for each in known if each.session is session and each.number == number]
        if not gone:
            return
        for each in gone:
            each.withdraw()
            known.remove(each)
        if not known:
            del self._remote[key]
        for listener in list(self._listeners):
            listener.session_removed(key, number, reason)

    def _came(self, key: str) -> None:
        for waiting in self._waiting.pop(key, ()):
            if not waiting.done():
                waiting.set_result(None)

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
        self._came(session.key)
        log.info("tunnel connected", extra={"client": session.key, "session": session.number})
        for listener in [*self._listeners, *self._own_listeners]:
            listener.session_added(session.key, session.number)
        try:
            await running
        finally:
            reason = session.reason or "stopped"
            self._remove(session)
            log.info("tunnel ended: %s", reason, extra={"client": session.key, "session": session.number})
            for listener in [*self._listeners, *self._own_listeners]:
                listener.session_removed(session.key, session.number, reason)

    def _remove(self, session: Session) -> None:
        rest = [other for other in self._sessions.get(session.key, ()) if other is not session]
        if rest:
            self._sessions[session.key] = rest
        else:
            self._sessions.pop(session.key, None)

    def add_listener(self, listener: SessionListener) -> None:
        """`listener` also hears of the clients of other servers."""
        self._listeners.append(listener)
        known: list[Dialer] = [each for sessions in self._sessions.values() for each in sessions]
        known += [each for remote in self._remote.values() for each in remote]
        for each in known:
            listener.session_added(each.key, each.number)

    def add_own_listener(self, listener: SessionListener) -> Callable[[], None]:
        """`listener` hears of this server's own clients only, until the result is called."""
        self._own_listeners.append(listener)
        for key, sessions in list(self._sessions.items()):
            for session in sessions:
                listener.session_added(key, session.number)
        return lambda: self._own_listeners.remove(listener)

    def clients(self) -> list[str]:
        """The keys of all clients that can be reached, also through other servers."""
        return [key for key in {**self._sessions, **self._remote} if self.has_session(key)]

    def own_clients(self) -> list[str]:
        """The keys of the clients that are connected to this server."""
        return [key for key in self._sessions if self.sessions(key)]

    def servers(self) -> dict[str, int]:
        """The other servers that are connected, and how many clients each has announced."""
        found = dict.fromkeys((name for name, session in self._servers.items() if session.alive), 0)
        for each in (each for known in self._remote.values() for each in known):
            if each.session.key in found:
                found[each.session.key] += 1
        return found

    async def ask_servers(self, about: str, argument: str, within: float) -> list[bytes]:
        """The answers of the other servers to a question, of those that answer in time."""

        async def asked(session: Session) -> bytes | None:
            with contextlib.suppress(TunnelError, TimeoutError, ValueError):
                async with deadline(self._clock, within):
                    return await ask(session, about, argument)
            return None

        found = await asyncio.gather(*(asked(each) for each in self._servers.values()))
        return [each for each in found if each is not None]

    def has_session(self, key: str) -> bool:
        return bool(self.sessions(key)) or any(each.alive for each in self._remote.get(key, ()))

    def sessions(self, key: str) -> list[Session]:
        """This server's own live sessions of a key, the oldest first."""
        return [session for session in self._sessions.get(key, ()) if session.alive]

    def is_elsewhere(self, key: str) -> bool:
        """True if another server has a session of the client."""
        return any(each.alive for each in self._remote.get(key, ()))

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

    def preferred(self, key: str, address: str = "") -> list[Dialer]:
        """The ways to a client, the best one first: those with recent messages, this server's own before those of other servers
        and the oldest of its own first, as in Go; then the silent ones, the one heard from last before the others."""
        own: list[Dialer] = [*self.own(key, address)]
        remote: list[Dialer] = [each for each in self._remote.get(key, ()) if each.alive]
        return self._freshest([*remote, *own] if self.leaving else [*own, *remote])

    def own(self, key: str, address: str = "") -> list[Session]:
        """This server's own live sessions of a key, the best one first.

        Sessions that dial only another address than `address` are left out, unless there are no others: replicas of an agent may
        each know their own server of the cluster.
        """
        live = self.sessions(key)
        return self._freshest([each for each in live if not address or each.address in ("", address)] or live)

    def _freshest(self, dialers: list[_Dialer]) -> list[_Dialer]:
        since = self._clock.monotonic() - FRESH
        return sorted(dialers, key=lambda each: 0.0 if each.heard_at >= since else since - each.heard_at)

    def is_passed_over(self, dialer: Dialer) -> bool:
        """True if new streams would go another way. A connection that is kept for later is of no use then."""
        since = self._clock.monotonic() - FRESH
        others = self.preferred(dialer.key, dialer.address)
        if isinstance(dialer, RemoteClient):
            # The other server is alive, which says nothing about its session with the client.
            return others[:1] != [dialer]
        return dialer.heard_at < since and any(other.heard_at >= since for other in others)

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
        """End every session of a key here, for example because its token was revoked; the result is their number."""
        live = self.sessions(key)
        for session in live:
            session.end(reason)
        return len(live)

    def close(self) -> None:
        """Refuse new clients and end every session; their handlers return soon after."""
        self._closed = True
        for key in list(self._sessions):
            self.drop(key, "shutting down")
        for session in list(self._servers.values()):
            session.end("shutting down")


async def _upgraded(request: web.BaseRequest, key: str) -> tuple[web.WebSocketResponse, Wire] | web.Response:
    """The websocket of a client, or the answer to one that does not ask for it."""
    socket = web.WebSocketResponse(autoping=False, autoclose=False, compress=False, max_msg_size=LARGEST_MESSAGE)
    if not socket.can_prepare(request):
        return web.Response(status=400, text=f"Error during upgrade for host [{key}]: not a websocket handshake")
    await socket.prepare(request)
    transport = request.transport
    return socket, Wire(socket, transport.abort if transport is not None else lambda: None)
