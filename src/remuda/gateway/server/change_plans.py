"""`/v1-remuda/plan` and `/v1-remuda/apply`: the plan of a change, and exactly that change (docs/plan.md#over-http).

This module decides who may call and how many at once, and sends an answer that takes a while; a :class:`Planner` does the work.
Each user has one plan at a time and few that wait, and few run at once in all: a rehearsal takes a processor for seconds. A plan
ends when its caller goes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol, TypeVar

from aiohttp import web

from remuda.apiserver.http.listener import Connection
from remuda.apiserver.limits.flow_control import Gate
from remuda.client.interface import Client
from remuda.kube.authorization.users import User
from remuda.kube.clock import deadline
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError, unavailable

from . import norman
from .dependencies import Services
from .routing import Access, RequestContext

Obj = dict[str, Any]
Told = Callable[[str], None]
T = TypeVar("T")

PLAN: Final = "/v1-remuda/plan"
APPLY: Final = "/v1-remuda/apply"
LINES: Final = "application/x-ndjson"

_LARGEST: Final = 4 << 20
_AT_ONCE, _WAITING = 2, 16
_OF_A_USER, _WAITING_OF_A_USER = 1, 2
# A line at least this often, so that nothing in between takes the connection for dead.
_BEAT_SECONDS: Final = 5.0
_QUEUED: Final = "waiting for other plans"


class Planner(Protocol):
    """`client` acts as the caller. Both raise ApiError."""

    async def plan(self, client: Client, caller: User, body: bytes, told: Told) -> Obj:
        """The plan; `told` gets each step when it begins."""
        ...

    async def apply(self, client: Client, caller: User, body: bytes) -> Obj: ...


class ChangePlans:
    def __init__(self, services: Services, planner: Planner) -> None:
        self._services = services
        self._planner = planner
        self._turns = Turns()
        services.routes.add("POST", PLAN, self.plan, Access.USER, largest=_LARGEST)
        services.routes.add("POST", APPLY, self.apply, Access.USER, largest=_LARGEST)

    async def plan(self, asked: RequestContext) -> web.StreamResponse:
        """The plan as JSON when it is there; with `Accept: application/x-ndjson` a line for each step before."""
        client, caller, body = self._client(asked), asked.user, await asked.request.read()

        async def planned(told: Told) -> Obj:
            told(_QUEUED)
            async with self._turns.turn(caller.name):
                return await self._planner.plan(client, caller, body, told)

        if LINES in asked.request.headers.get("Accept", ""):
            return await self._in_lines(asked, planned)
        return norman.shown(await _while_connected(asked, planned(lambda step: None)))

    async def apply(self, asked: RequestContext) -> web.StreamResponse:
        client, caller, body = self._client(asked), asked.user, await asked.request.read()
        async with self._turns.turn(caller.name):
            return norman.shown(await self._planner.apply(client, caller, body))

    def _client(self, asked: RequestContext) -> Client:
        acting = self._services.acting
        if acting is None or acting.rbac is None:
            raise unavailable("the server has just started and does not know its roles yet: try again", 1)
        return acting.client(asked.user)

    async def _in_lines(self, asked: RequestContext, planned: Callable[[Told], Coroutine[Any, Any, Obj]]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": LINES, "Cache-Control": "no-store"})
        await response.prepare(asked.request)
        steps: asyncio.Queue[str] = asyncio.Queue()
        clock, begun, step = self._services.clock, self._services.clock.monotonic(), ""

        async def followed() -> Obj:
            try:
                return await planned(steps.put_nowait)
            finally:
                steps.put_nowait("")

        async def sent(line: Obj) -> None:
            await response.write(jsonio.dumps({**line, "seconds": round(clock.monotonic() - begun, 1)}) + b"\n")

        async with _task(asked, followed()) as task:
            while not task.done():
                try:
                    async with deadline(clock, _BEAT_SECONDS):
                        step = await steps.get() or step
                except TimeoutError:
                    pass
                await sent({"step": step})
            try:
                await sent({"plan": await task})
            except ApiError as error:
                asked.why = error.message
                await sent({"error": error.status()})
        await response.write_eof()
        return response


async def _while_connected(asked: RequestContext, work: Coroutine[Any, Any, T]) -> T:
    async with _task(asked, work) as task:
        return await task


@asynccontextmanager
async def _task(asked: RequestContext, work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """The work as a task that ends with the block, and when the caller's connection is lost."""
    task = asyncio.create_task(work, name="a plan")
    connection = asked.request.protocol

    def cut() -> None:
        task.cancel()

    if isinstance(connection, Connection):
        connection.on_lost[cut] = None
    try:
        yield task
    finally:
        if isinstance(connection, Connection):
            connection.on_lost.pop(cut, None)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Turns:
    """A few plans at once, one for each user; 429 where too many wait."""

    def __init__(self) -> None:
        self._all = Gate("plans of changes", _AT_ONCE, _WAITING)
        self._of_users: dict[str, Gate] = {}
        self._present: Counter[str] = Counter()

    @asynccontextmanager
    async def turn(self, user: str) -> AsyncIterator[None]:
        own = self._of_users.setdefault(user, Gate("plans of a user", _OF_A_USER, _WAITING_OF_A_USER))
        self._present[user] += 1
        try:
            async with own.seat(user), self._all.seat(user):
                yield
        finally:
            self._present[user] -= 1
            if not self._present[user]:
                del self._present[user], self._of_users[user]
