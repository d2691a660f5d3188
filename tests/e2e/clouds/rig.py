"""What the tests of every cloud's driver share: a clock that flies, a state that outlives its process, a proxy that misbehaves.

A process that is killed is played by a task that is cancelled: at a call to the provider, before it got through or after it was
carried out, or at a `keep`, before or after it. What was kept by then is all that the next one knows.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, web

from remuda.kube.clock import Entropy, Rng, SystemClock
from remuda.kube.network.outbound import Policy
from remuda.machines.driver import Driver, DriverContext, Keep, Machine, Options

Answer = web.Response
OWNER = "0f6e3a1c-7b0d-4f5e-9d42-3c1f8f9a7e10"


class FlyingClock(SystemClock):
    """Pauses take no time and count as if they did; nothing else counts, however slow the machine is."""

    def __init__(self) -> None:
        self._begun, self._flown = super().time(), 0.0

    def time(self) -> float:
        return self._begun + self._flown

    def monotonic(self) -> float:
        return self._flown

    async def sleep(self, seconds: float) -> None:
        self._flown += seconds
        await asyncio.sleep(0)


class Killed(BaseException):
    """The process is gone."""


@dataclass
class Fault:
    """What happens to calls of a name: the next `times` of them after `skip`."""

    call: str
    # Without one the connection is cut.
    answer: Callable[[], Answer] | None = None
    # All the same, before that.
    carried_out: bool = False
    times: int = 1
    skip: int = 0


@dataclass
class Kill:
    """At the step of this number, counted from 0."""

    step: int
    after: bool


@dataclass
class Way:
    """A proxy in front of a provider at `behind`; `name` says what a request is called."""

    behind: str
    name: Callable[[web.BaseRequest, bytes], str]
    # Sees a request first, and may answer in the provider's place.
    before: Callable[[str, bytes], Awaitable[Answer | None]] | None = None
    # Sees what the provider answered.
    after: Callable[[str, bytes, Answer], None] | None = None
    calls: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    kill: Kill | None = None
    killed: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""
    _steps: int = 0

    @contextlib.asynccontextmanager
    async def open(self, host: str = "127.0.0.1") -> AsyncIterator[Way]:
        server = web.Server(self._handle)
        runner = web.ServerRunner(server, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, host, 0)
        await site.start()
        self.url = f"http://{host}:{runner.addresses[0][1]}"
        async with ClientSession(auto_decompress=False) as self._session:
            try:
                yield self
            finally:
                await runner.cleanup()

    def arm(self, kill: Kill | None) -> None:
        self.kill, self._steps, self.killed = kill, 0, asyncio.Event()

    def struck(self, *, after: bool) -> bool:
        """Whether this step is the last, on this side of it."""
        return self.kill is not None and self.kill.after is after and self.kill.step == self._steps

    def step(self) -> None:
        self._steps += 1

    def fault(self, call: str) -> Fault | None:
        for fault in self.faults:
            if fault.call != call or fault.times == 0:
                continue
            if fault.skip:
                fault.skip -= 1
                continue
            fault.times -= 1
            return fault
        return None

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        call = self.name(request, body)
        self.calls.append(call)
        if self.killed.is_set() or self.struck(after=False):
            self.killed.set()
            return _cut(request)
        fault = self.fault(call)
        if fault is None or fault.carried_out:
            answer = await self._forward(request, call, body)
            if self.struck(after=True):
                self.killed.set()
                return _cut(request)
        self.step()
        if fault is None:
            return answer
        return fault.answer() if fault.answer is not None else _cut(request)

    async def _forward(self, request: web.BaseRequest, call: str, body: bytes) -> Answer:
        if self.before is not None and (early := await self.before(call, body)) is not None:
            return early
        headers = {key: value for key, value in request.headers.items() if key.lower() not in _HOP}
        async with self._session.request(request.method, self.behind + request.path_qs, data=body, headers=headers) as answered:
            content = await answered.read()
            kept = {key: value for key, value in answered.headers.items() if key.lower() not in _HOP}
            answer = Answer(status=answered.status, body=content, headers=kept)
        if self.after is not None:
            self.after(call, body, answer)
        return answer


_HOP = ("host", "connection", "content-length", "transfer-encoding", "keep-alive", "expect")


def _cut(request: web.BaseRequest) -> Answer:
    if request.transport is not None:
        request.transport.abort()
    return Answer(status=500)


@dataclass
class Held:
    """A machine's kept state, and the directory beside it. `machine` is what a new process makes of them."""

    name: str
    options: Options
    directory: Path
    way: Way
    token: str
    owner: str = OWNER
    state: Mapping[str, Any] = field(default_factory=dict)
    keeps: list[Mapping[str, Any]] = field(default_factory=list)

    def machine(self) -> tuple[Machine, Keep]:
        self.directory.mkdir(mode=0o700, exist_ok=True)
        machine = Machine(self.name, self.options, self.directory, self.name, self.token, self.owner, dict(self.state))

        async def keep(changes: Mapping[str, Any]) -> None:
            if self.way.killed.is_set() or self.way.struck(after=False):
                self.way.killed.set()
                raise Killed
            self.state = {**self.state, **changes}
            self.keeps.append(dict(changes))
            machine.state = dict(self.state)
            if self.way.struck(after=True):
                self.way.killed.set()
                raise Killed
            self.way.step()

        return machine, keep

    async def create(self, driver: Driver) -> Machine:
        machine, keep = self.machine()
        await driver.create(machine, keep)
        return machine

    async def remove(self, driver: Driver) -> None:
        machine, keep = self.machine()
        await driver.remove(machine, keep)


async def survives(work: Coroutine[Any, Any, object], way: Way) -> bool:
    """Whether the work ends before its process is killed."""
    task, killed = asyncio.ensure_future(work), asyncio.ensure_future(way.killed.wait())
    await asyncio.wait({task, killed}, return_when=asyncio.FIRST_COMPLETED)
    if not killed.done():
        killed.cancel()
        await task
        return True
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, Killed):
        await task
    return False


def surroundings(**environ: str) -> tuple[DriverContext, list[str]]:
    """And the lines that the driver says."""
    said: list[str] = []
    # The providers' doubles are on this machine.
    return DriverContext(FlyingClock(), Entropy(), Rng(), environ, said.append, Policy.of("allow:127.0.0.0/8")), said
