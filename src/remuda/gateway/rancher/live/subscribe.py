"""`/v1/subscribe`: the websocket on which Rancher's pages follow changes of objects.

A client starts and stops watches (:mod:`.watch_requests`), each with the caller's permissions (:mod:`.object_watch`). Messages
wait for a slow client in its own :class:`~.outbox.Outbox`: a watch whose events don't fit is ended, and the client lists again.
The connection ends with its session, as every long request does (:mod:`...auth.session_revocation`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import WSMsgType, web

from remuda.apiserver.limits.caller_caps import ConnectionCaps, Seat
from remuda.client.interface import Client
from remuda.kube.authorization.rbac import Rbac
from remuda.kube.clock import Clock, deadline
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError, bad_request, too_many_requests
from remuda.kube.objects import Key

from ...server.routing import RequestContext
from ..kinds import Kind, Kinds
from ..query import Path
from ..resources import Shape, States
from ..schemas import VIRTUAL, Permissions
from .object_watch import NotAllowed, ObjectWatch, TooSlow
from .outbox import Outbox
from .watch_requests import (
    CHANGES,
    ERROR,
    NO_SCHEMA,
    NOT_ALLOWED,
    START,
    STOP,
    TOO_OLD,
    Notices,
    WatchName,
    WatchRequest,
    parse,
    ping,
)

log = logging.getLogger(__name__)
Obj = dict[str, Any]
Links = Callable[[RequestContext, Obj], Awaitable[Iterable[str]]]

# Clients give up a connection that is silent for 35 seconds.
PING_SECONDS: Final = 25.0
SOCKETS_OF_A_USER: Final = 64
WATCHES_OF_A_USER: Final = 2_000
_SOCKETS, _WATCHES = 10_000, 100_000
# A client that takes nothing for so long is cut off.
STALLED_SECONDS: Final = 60.0
_LONGEST_MESSAGE: Final = 64 << 10
_HEARTBEAT: Final = 30.0
_CLOSE_SECONDS: Final = 2.0
# Changes of roles come in groups: a cluster brings a dozen.
_ROLES_SECONDS: Final = 0.1
_NOT_SENT: Final[tuple[Path, ...]] = (("metadata", "managedFields"),)


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A caller, and what the messages to it are made with."""

    asked: RequestContext
    base: str
    client: Client
    permissions: Permissions


class Subscriptions:
    """All connections. `kinds` gives the present kinds, `more_links` the links that only a type's own module knows."""

    def __init__(
        self, clock: Clock, kinds: Callable[[], Awaitable[Kinds]], states: States, more_links: dict[str, Links], version: str
    ) -> None:
        self.clock = clock
        self.kinds = kinds
        self.states = states
        self.more_links = more_links
        self.version = version
        # Counts the changes of roles.
        self.role_changes = 0
        self.watches = ConnectionCaps(WATCHES_OF_A_USER, _WATCHES)
        self._caps = ConnectionCaps(SOCKETS_OF_A_USER, _SOCKETS)
        self._open: set[_Socket] = set()
        self._rbac: Rbac | None = None
        self._due = False

    def __len__(self) -> int:
        return len(self._open)

    async def answer(self, subscriber: Subscriber) -> web.StreamResponse:
        asked = subscriber.asked
        response = web.WebSocketResponse(
            compress=False, max_msg_size=_LONGEST_MESSAGE, heartbeat=_HEARTBEAT, timeout=_CLOSE_SECONDS
        )
        if not response.can_prepare(asked.request):
            raise bad_request("a subscription is a websocket")
        self._listen(subscriber.permissions.rbac)
        seat = self._caps.enter(asked.user.name)
        if seat is None:
            raise too_many_requests(f"the user has more than {SOCKETS_OF_A_USER} subscriptions")
        with seat:
            await response.prepare(asked.request)
            socket = _Socket(self, subscriber, response)
            self._open.add(socket)
            try:
                await socket.run()
            finally:
                self._open.discard(socket)
        return response

    async def keep_alive(self) -> None:
        """Let every client know that its connection lives, until cancelled."""
        try:
            while True:
                await self.clock.sleep(PING_SECONDS)
                for socket in list(self._open):
                    socket.ping()
        finally:
            # The server stops, and its clients go to another one.
            for socket in list(self._open):
                socket.end()

    def _listen(self, rbac: Rbac) -> None:
        if self._rbac is not rbac:
            self._rbac = rbac
            rbac.listeners.append(self._roles_changed)

    def _roles_changed(self) -> None:
        self.role_changes += 1
        if self._open and not self._due:
            self._due = True
            self.clock.call_later(_ROLES_SECONDS, self._look)

    def _look(self) -> None:
        self._due = False
        for socket in self._open:
            socket.roles_changed()


class _Socket:
    """One connection and its watches."""

    def __init__(self, hub: Subscriptions, subscriber: Subscriber, response: web.WebSocketResponse) -> None:
        self._hub = hub
        self._who = subscriber
        self._response = response
        self._outbox = Outbox()
        self._stopped = asyncio.Event()
        self._watches: dict[WatchName, tuple[asyncio.Task[None], asyncio.Event]] = {}

    def ping(self) -> None:
        if not len(self._outbox):
            self._tell(ping(self._hub.version))

    def end(self) -> None:
        self._stopped.set()

    def roles_changed(self) -> None:
        for _, changed in self._watches.values():
            changed.set()

    def _tell(self, message: Obj) -> None:
        self._outbox.put(jsonio.dumps_text(message))

    async def run(self) -> None:
        self.ping()
        sending = asyncio.create_task(self._outbox.send(self._write), name="messages of a subscription")
        reading = asyncio.create_task(self._read(), name="requests of a subscription")
        stopped = asyncio.create_task(self._stopped.wait(), name="the end of a subscription")
        try:
            done, _ = await asyncio.wait((sending, reading, stopped), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                self._report(task.exception())
        finally:
            watches = [task for task, _ in self._watches.values()]
            for task in (sending, reading, stopped, *watches):
                task.cancel()
            await asyncio.gather(sending, reading, stopped, *watches, return_exceptions=True)
            await self._response.close()

    async def _write(self, text: str) -> None:
        async with deadline(self._hub.clock, STALLED_SECONDS):
            await self._response.send_str(text)

    def _report(self, error: BaseException | None) -> None:
        if isinstance(error, TimeoutError) or self._outbox.is_flooded:
            # A clean end would wait for the client as well.
            self._who.asked.why = "the client did not read"
            if (transport := self._who.asked.request.transport) is not None:
                transport.abort()
        elif error is not None and not isinstance(error, ConnectionError):
            log.error("a subscription failed", exc_info=error)

    async def _read(self) -> None:
        while not self._outbox.is_flooded:
            message = await self._response.receive()
            if message.type is WSMsgType.TEXT:
                await self._take(message.data)
            elif message.type is not WSMsgType.BINARY:
                return

    async def _take(self, text: str) -> None:
        try:
            request = parse(text)
        except ApiError as error:
            self._tell({"name": ERROR, "data": {"error": error.message}})
            return
        found = self._watches.get(request.name)
        if request.stop:
            if found is not None:
                found[0].cancel()
                await asyncio.gather(found[0], return_exceptions=True)
                self._tell(request.name.message(STOP))
        elif found is None:
            self._start(request)

    # --- watches ---------------------------------------------------------------------------------------------------------

    def _start(self, request: WatchRequest) -> None:
        name = request.name
        seat = self._hub.watches.enter(self._who.asked.user.name)
        if seat is None:
            self._fail(name, f"the user has more than {WATCHES_OF_A_USER} watches")
            return
        changed = asyncio.Event()
        task = asyncio.create_task(self._watch(request, changed), name=f"watch {name.resource_type}")
        self._watches[name] = task, changed
        task.add_done_callback(lambda _: self._ended(name, seat))

    def _ended(self, name: WatchName, seat: Seat) -> None:
        self._watches.pop(name, None)
        seat.leave()

    def _fail(self, name: WatchName, error: str, **more: Any) -> None:
        self._tell(name.message(ERROR, data={"error": error}))
        self._tell(name.message(STOP, **more))

    async def _watch(self, request: WatchRequest, changed: asyncio.Event) -> None:
        name = request.name
        try:
            await self._follow(request, changed)
        except NotAllowed:
            self._fail(name, NOT_ALLOWED)
        except TooSlow:
            self._fail(name, f"{TOO_OLD}: the client reads too slowly", data={"reason": "slow"})
        except ApiError as error:
            message = error.message if error.code != 410 or TOO_OLD in error.message else f"{TOO_OLD}: {error.message}"
            self._fail(name, NOT_ALLOWED if error.code == 403 else message)
        except OSError as error:
            log.info("a watch of %s ended: %s", name.resource_type, error)
            self._tell(name.message(STOP))
        except Exception:
            log.exception("a watch of %s failed", name.resource_type)
            self._fail(name, "an internal error occurred; the server's log has the details")
        else:
            self._tell(name.message(STOP))

    async def _follow(self, request: WatchRequest, changed: asyncio.Event) -> None:
        kinds = await self._hub.kinds()
        kind = kinds.find(request.name.resource_type)
        if kind is None:
            if request.name.resource_type.lower() not in VIRTUAL:
                raise ApiError(404, "NotFound", f"{NO_SCHEMA}: {request.name.resource_type[:128]}")
            self._tell(request.name.message(START))
            await asyncio.get_running_loop().create_future()
            return

        async def offer(event: str, obj: Obj) -> bool:
            return await self._offer(request.name, kinds, kind, event, obj)

        def tell(revision: str) -> None:
            try:
                watch.check()
            except (NotAllowed, ApiError):
                # The watch finds the same, and ends.
                return
            self._tell(request.name.message(CHANGES, revision=revision))

        watch = ObjectWatch(
            request,
            kind,
            self._who.client,
            self._who.permissions,
            offer,
            Notices(self._hub.clock, request.pause, tell),
            self._outbox.room,
            lambda: self._hub.role_changes,
        )
        watch.begin()
        self._tell(request.name.message(START))
        await watch.follow(changed)

    async def _offer(self, name: WatchName, kinds: Kinds, kind: Kind, event: str, obj: Obj) -> bool:
        links = self._hub.more_links.get(kind.id)
        more = {str(Key.of(obj)): await links(self._who.asked, obj)} if links is not None else {}
        shape = Shape(self._who.base, kinds, self._who.permissions, self._hub.states, self._hub.clock.time(), _NOT_SENT, (), more)
        return self._outbox.offer(jsonio.dumps_text(name.message(event, data=shape.shown(kind, obj))))
