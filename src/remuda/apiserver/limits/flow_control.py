"""Bounded queues for expensive work, fair between users, so that a flood of one kind can't starve the others.

Gets and live watches are cheap and never wait. Large lists and writes pass a :class:`Gate`: so many at once, so many waiting,
served round-robin by user; requests to a full queue are told to try again (429).

A seat is for our own work: a request that waits for a webhook leaves it meanwhile (:func:`stepped_out`), so that a hanging
webhook keeps no other request from writing.

A large list is then encoded at its reader's pace, which may be zero, so the gate doesn't cover that. Its pieces take
:class:`Turns`: however many lists are being sent, other tasks wait for a few pieces only.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from types import TracebackType

from remuda.kube import errors

from .caller_caps import BodyRoom


class _Seat:
    """One request's seat, which it may leave for a while."""

    def __init__(self, gate: Gate, user: str) -> None:
        self._gate = gate
        self._user = user
        self._taken = True
        self._away = 0

    def step_out(self) -> None:
        self._away += 1
        self.leave()

    async def step_in(self) -> None:
        """Take the seat again, for the last task of this request that left it; a request that was let in is not turned away."""
        self._away -= 1
        if not self._away:
            await self._gate.enter(self._user, patient=True)
            self._taken = True

    def leave(self) -> None:
        if self._taken:
            self._taken = False
            self._gate.leave()


_current: ContextVar[_Seat | None] = ContextVar("seat", default=None)


class _Place:
    """A request's stay at a gate; a class, since each write passes here, and a generator takes three times as long."""

    __slots__ = ("_before", "_gate", "_seat", "_user")

    def __init__(self, gate: Gate, user: str) -> None:
        self._gate = gate
        self._user = user

    async def __aenter__(self) -> None:
        await self._gate.enter(self._user)
        self._seat = _Seat(self._gate, self._user)
        self._before = _current.set(self._seat)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _current.reset(self._before)
        self._seat.leave()


@asynccontextmanager
async def stepped_out() -> AsyncIterator[None]:
    """Leave the seat to another request while waiting."""
    seat = _current.get()
    if seat is None:
        yield
        return
    seat.step_out()
    try:
        yield
    finally:
        await seat.step_in()


class Gate:
    def __init__(self, name: str, seats: int, queue: int) -> None:
        self.name = name
        self._free = seats
        self._queue = queue
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self.waiting = 0
        self.rejected = 0

    def seat(self, user: str) -> _Place:
        """A seat for the length of an `async with`."""
        return _Place(self, user)

    async def enter(self, user: str, patient: bool = False) -> None:
        """`patient` waits, however long the queue is."""
        if self._free > 0:
            self._free -= 1
            return
        if self.waiting >= self._queue and not patient:
            self.rejected += 1
            raise errors.too_many_requests("too many requests, please try again later")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, deque()).append(turn)
        self.waiting += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._give_up(user, turn)
            else:
                self.leave()
            raise

    def _give_up(self, user: str, turn: asyncio.Future[None]) -> None:
        """A request that stops waiting must not keep its place in the queue."""
        turns = self._waiting.get(user)
        if turns is None or turn not in turns:
            return
        turns.remove(turn)
        self.waiting -= 1
        if not turns:
            del self._waiting[user]

    def leave(self) -> None:
        while self._waiting:
            user, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            self.waiting -= 1
            if turns:
                self._waiting[user] = turns
            # Done already if it was cancelled just now, before its task noticed.
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class Turns:
    """Lets a limited number of tasks go on in each round of the event loop, in the order in which they came."""

    def __init__(self, each: int) -> None:
        self._each = each
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._going = False

    async def take(self) -> None:
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        if not self._going:
            self._going = True
            loop.call_soon(self._go, loop)
        await turn

    def _go(self, loop: asyncio.AbstractEventLoop) -> None:
        left = self._each
        while left and self._waiting:
            turn = self._waiting.popleft()
            # Done already when the waiting task was cancelled.
            if not turn.done():
                turn.set_result(None)
                left -= 1
        self._going = bool(self._waiting)
        if self._going:
            loop.call_soon(self._go, loop)


class Flow:
    """The gates of one server, and the limits on request bodies."""

    def __init__(self) -> None:
        self.bodies = BodyRoom()
        self.pieces = Turns(2)
        self.lists = Gate("lists", seats=2, queue=200)
        self.writes = Gate("writes", seats=256, queue=4096)
        # Reads of the distant past are slow; one at a time leaves a reader of the store to other requests.
        self.past = Gate("past", seats=1, queue=100)

    def gates(self) -> tuple[Gate, ...]:
        return self.lists, self.writes, self.past
