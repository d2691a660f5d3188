"""Plans for callers of a server (`/v1-remuda/plan`, :mod:`remuda.gateway.server.change_plans`).

Clusters are read in this process, as the caller; the rehearsal is another process (:mod:`.worker`), because it takes seconds of a
processor and the memory of the copied clusters. It ends with the request.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from remuda.access.settings.settings import ENVIRONMENT, SETTINGS
from remuda.client.interface import Client
from remuda.gateway.server.dependencies import Services
from remuda.kube.authorization.actions import forbidden_action
from remuda.kube.authorization.users import User
from remuda.kube.clock import SYSTEM_CLOCK, Clock, deadline
from remuda.kube.errors import ApiError, bad_request, internal, timeout

from .limits import BESIDE_A_SERVER, Limits

# The rehearsal's modules are imported by its process, and here with the first plan.
if TYPE_CHECKING:
    from .cluster_copy import ClusterCopy
    from .engine import Request
    from .requested import Requested

Obj = dict[str, Any]
Told = Callable[[str], None]

PROGRAM = (sys.executable, "-P", "-m", "remuda.app.changeplan.worker")
# The longest line is the plan.
_LONGEST_LINE = 64 << 20
_SHOWN = 2000


class ServedPlans:
    """`clock` is the one by which the process of a rehearsal is given up after `seconds`."""

    def __init__(
        self, services: Services, limits: Limits = BESIDE_A_SERVER, seconds: float = 600.0, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._services = services
        self._limits = limits
        self._seconds = seconds
        self._clock = clock

    async def plan(self, client: Client, caller: User, body: bytes, told: Told) -> Obj:
        """As `remuda plan -o json` prints it. Raises ApiError."""
        from . import cluster_copy, engine, requested

        request = await self._request(client, caller, requested.read(body))
        told("reading the clusters")
        try:
            copy = await engine.read(client, request)
        except cluster_copy.NothingAffected as error:
            raise ApiError(404, "NotFound", str(error)) from None
        return await self._rehearsed(copy, request, told)

    async def apply(self, client: Client, caller: User, body: bytes) -> Obj:
        """As `remuda apply --plan`. Raises ApiError, 409 if the plan does not hold any more."""
        from . import cluster_copy, engine, requested

        wanted = requested.read(body)
        if not wanted.plan:
            raise bad_request("plan is required: the id of the plan")
        request = await self._request(client, caller, wanted)
        try:
            await engine.apply(client, request, wanted.plan)
        except engine.Moved as error:
            raise ApiError(409, "Conflict", f"{error}; make a new plan") from None
        except cluster_copy.NothingAffected as error:
            raise ApiError(404, "NotFound", str(error)) from None
        applied = [{"resource": str(each.resource.group_resource), **each.key._asdict()} for each in request.changes]
        return {"plan": wanted.plan, "applied": applied}

    async def _request(self, client: Client, caller: User, wanted: Requested) -> Request:
        from remuda.lab.sim.provisioning_world import Surroundings

        from . import requested
        from .engine import Request

        changes = await requested.changes_of(client, wanted)
        for action in requested.actions(changes, caller):
            if not await self._services.access.allowed(action):
                raise forbidden_action(action)
        return Request(changes, caller, surroundings=Surroundings(self._services.authority.ca, self._environment()))

    def _environment(self) -> dict[str, str]:
        """The variables that set settings, and no others."""
        settings = self._services.settings()
        return {
            known.variables[0]: settings.text(name)
            for name, known in SETTINGS.items()
            if known.variables and settings.effective(name).source == ENVIRONMENT
        }

    async def _rehearsed(self, copy: ClusterCopy, request: Request, told: Told) -> Obj:
        from .worker import Task

        task = Task(copy, request, self._services.clock.time(), self._limits)
        content = await asyncio.to_thread(msgspec.json.encode, task)
        environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *PROGRAM, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, cwd="/", limit=_LONGEST_LINE
        )
        try:
            async with deadline(self._clock, self._seconds):
                return await _answer(process, content, told)
        except TimeoutError:
            raise timeout(f"the rehearsal took more than {self._seconds:.0f}s and was ended") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _answer(process: asyncio.subprocess.Process, content: bytes, told: Told) -> Obj:
    from .worker import Line

    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    complaints = asyncio.create_task(process.stderr.read())
    try:
        with contextlib.suppress(ConnectionError):
            process.stdin.write(content)
            await process.stdin.drain()
        process.stdin.close()
        async for text in process.stdout:
            line = msgspec.json.decode(text, type=Line)
            if line.refused is not None:
                raise ApiError.from_status(line.refused)
            if line.plan is not None:
                return line.plan
            told(line.step)
        raise internal(f"the rehearsal failed: {_why(await process.wait(), await complaints)}")
    finally:
        complaints.cancel()


def _why(code: int, complaints: bytes) -> str:
    """Why the process ended; of a traceback only the error's name, since its text may quote an object."""
    if code < 0 or b"MemoryError" in complaints:
        return "it needs more memory or processor time than it may use"
    last = complaints[-_SHOWN:].decode(errors="replace").strip().rpartition("\n")[2]
    return last.partition(":")[0] or f"its process ended with {code}"
