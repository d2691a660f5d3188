"""The life of one service: started, ready, ended, restarted, stopped; as in systemd.service(5).

One task lives as long as the service is wanted. Every wait also waits for a stop request, so that a start never delays a stop.
:mod:`.service_processes` finds the service's processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from remuda.kube.clock import Clock, Entropy

from .. import processes
from . import unitfile
from .journal import Journal, OutputPipe
from .service_processes import Children, Group, NotifySocket
from .unit_catalog import Catalog
from .unitfile import NEVER, Command, Unit, UnitError, environment_of

_POLL = 0.05
# How long a killed process may take to disappear.
_KILLED = 10.0
_NOT_STARTED = 203
_NO_DIRECTORY = 200


class UnitState(StrEnum):
    INACTIVE = "inactive"
    ACTIVATING = "activating"
    ACTIVE = "active"
    DEACTIVATING = "deactivating"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """The things that an init gives its services."""

    catalog: Catalog
    children: Children
    clock: Clock
    entropy: Entropy
    host_id: str
    environment: Mapping[str, str]
    root: Path
    journal_of: Callable[[str], Journal]


@dataclass(frozen=True, slots=True)
class End:
    """The end of one start: `code` is the exit status (negative: a signal), `why` systemd's word for it."""

    code: int = 0
    why: str = "success"
    detail: str = ""

    @property
    def timed_out(self) -> bool:
        return self.why == "timeout"


class _Stopped(Exception):
    """A stop was requested."""


class _Failed(Exception):
    def __init__(self, end: End) -> None:
        super().__init__(end.detail)
        self.end = end


class Service:
    def __init__(self, name: str, around: ServiceContext) -> None:
        self.name = name
        self.state = UnitState.INACTIVE
        self.sub = "dead"
        self.result = "success"
        self.status = ""
        self.main = 0
        self.exit_code = 0
        self.since = around.clock.time()
        self.restarts = 0
        self.unit: Unit | None = None
        self._around = around
        self._journal = around.journal_of(name)
        self._group = Group()
        self._life: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._started: asyncio.Future[str] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._main_ended: asyncio.Future[int] | None = None
        self._starts: deque[float] = deque(maxlen=64)
        self._notify: NotifySocket | None = None
        self._output = OutputPipe(self._journal)

    # --- requests --------------------------------------------------------------------------------------------------------

    async def start(self) -> str:
        """Start it and wait until it is up; the result is the reason why it is not, else ""."""
        if self.state is UnitState.DEACTIVATING and self._life is not None:
            await asyncio.wait([self._life])
        if self.state is UnitState.ACTIVE:
            return ""
        if self._life is None or self._life.done():
            self._stop.clear()
            self._restarts_from_zero()
            self._life = asyncio.create_task(self._live(), name=self.name)
        elif self.sub == "auto-restart":
            self._await_start()
            self._hurry.set()
        assert self._started is not None
        return await asyncio.shield(self._started)

    async def stop(self) -> None:
        """Stop it and wait until it is down. A failed service stays failed."""
        if self._life is not None and not self._life.done():
            self._stop.set()
            await asyncio.wait([self._life])

    async def restart(self) -> str:
        await self.stop()
        return await self.start()

    async def reload(self) -> str:
        unit = self.unit
        if self.state is not UnitState.ACTIVE or unit is None:
            return f"Unit {self.name} is not active, cannot reload."
        if not unit.reload:
            return f"Job type reload is not applicable for unit {self.name}."
        try:
            for command in unit.reload:
                await self._control(unit, command, unit.start_timeout)
        except (_Failed, _Stopped) as reason:
            return f"{self.name} could not be reloaded: {reason}"
        return ""

    def reset(self) -> None:
        """Clear the failed state."""
        if self.state is UnitState.FAILED:
            self._become(UnitState.INACTIVE, "dead")
            self.result = "success"
        self._starts.clear()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all of its processes."""
        self._signal(self._group.members(), number)

    def members(self) -> set[int]:
        return self._group.members()

    def close(self) -> None:
        """Release its resources when the host goes down, after :meth:`stop`."""
        if self._notify is not None:
            self._notify.close()
        self._output.close()

    # --- its life ------------------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        try:
            await self._start_and_start_again()
        except Exception as error:
            # The outermost edge: our bug in one service must not block others, or a waiting caller.
            end = End(1, "resources", f"internal error: {type(error).__name__}: {error}")
            self._journal.note(f"{self.name}: {end.detail}")
            self.result = end.why
            self._become(UnitState.FAILED, "failed")
            self._answer(end)

    async def _start_and_start_again(self) -> None:
        while True:
            end = await self._once()
            self.result, self.exit_code = end.why, end.code
            unit = self.unit
            failed = end.why != "success"
            wanted = unit is not None and unit.wants_restart(end.code, end.timed_out)
            if self._stop.is_set() or not wanted or end.why in ("start-limit-hit", "resources"):
                self._become(UnitState.FAILED if failed else UnitState.INACTIVE, "failed" if failed else "dead")
                self._answer(end)
                return
            assert unit is not None
            self._become(UnitState.ACTIVATING, "auto-restart")
            self._answer(end)
            self._hurry.clear()
            if await self._rest(unit.restart_after):
                self._become(UnitState.FAILED if failed else UnitState.INACTIVE, "failed" if failed else "dead")
                return
            self.restarts += 1

    async def _once(self) -> End:
        """One start, until none of its processes is left that should not be."""
        self._await_start()
        self.status = ""
        try:
            unit = self.unit = self._around.catalog.load(self.name)
            self._count_start(unit)
        except UnitError as error:
            self._journal.note(str(error))
            return End(1, "resources", str(error))
        except _Failed as failed:
            return failed.end
        self._group.begin(self._around.entropy.token_bytes(16).hex())
        was_up = False
        try:
            await self._come_up(unit)
            was_up = True
            end = await self._stay_up(unit)
        except _Stopped:
            end = End()
        except _Failed as failed:
            end = failed.end
            self._journal.note(f"Failed to start {unit.description}: {end.detail or end.why}")
        self._become(UnitState.DEACTIVATING, "stop")
        stopped = await self._come_down(unit, was_up)
        end = stopped if end.why == "success" and stopped.why != "success" else end
        self.main, self._main_ended = 0, None
        self._journal.note(f"Stopped {unit.description}." if end.why == "success" else f"{self.name}: {end.detail or end.why}")
        return end

    async def _come_up(self, unit: Unit) -> None:
        self._become(UnitState.ACTIVATING, "start-pre" if unit.start_pre else "start")
        for command in unit.start_pre:
            await self._control(unit, command, unit.start_timeout)
        self._become(UnitState.ACTIVATING, "start")
        if unit.type == "oneshot":
            for command in unit.start:
                await self._control(unit, command, unit.start_timeout, unit.good_exits)
        else:
            await self._start_main(unit)
        for command in unit.start_post:
            await self._control(unit, command, unit.start_timeout)
        self._become(UnitState.ACTIVE, "running" if self.main else "exited")
        self._journal.note(f"Started {unit.description}.")
        self._answer(End())

    async def _start_main(self, unit: Unit) -> None:
        self._ready = asyncio.get_running_loop().create_future()
        environment = self._environment(unit)
        if unit.type == "notify":
            environment["NOTIFY_SOCKET"] = self._listening().address
        self.main, self._main_ended = self._spawn(unit, unit.start[0], environment)
        if unit.type != "notify":
            return
        if not await self._until({self._ready, self._main_ended}, unit.start_timeout):
            raise _Failed(End(self.exit_code, "timeout", f"it was not ready within {unit.start_timeout:g} s"))
        if not self._ready.done():
            code = self._main_ended.result()
            raise _Failed(End(code, "protocol" if code == 0 else _why(code), f"it ended before it was ready ({_ended(code)})"))

    async def _stay_up(self, unit: Unit) -> End:
        if self._main_ended is None:
            if unit.remains:
                await self._until(set(), NEVER)
            return End()
        await self._until({self._main_ended}, NEVER)
        code = self._main_ended.result()
        return End(code) if unit.ended_well(code) else End(code, _why(code), f"the main process {_ended(code)}")

    async def _come_down(self, unit: Unit, was_up: bool) -> End:
        end = End()
        if was_up:
            for command in unit.stop:
                with contextlib.suppress(_Failed):
                    await self._control(unit, command, unit.stop_timeout, stoppable=False)
        if unit.kill_mode != "none":
            end = await self._end_processes(unit)
        for command in unit.stop_post:
            with contextlib.suppress(_Failed):
                await self._control(unit, command, unit.stop_timeout, stoppable=False)
        return end

    async def _end_processes(self, unit: Unit) -> End:
        """Apply `KillMode=`: terminate the main process, then kill it; the others with it, after it, or not at all."""
        everything = unit.kill_mode == "control-group"
        main = self._main_ended
        asked = self._group.members() if everything else set() if main is None or main.done() else {self.main}
        self._signal(asked, unit.kill_signal)
        gone = await self._await_gone(everything, unit.stop_timeout)
        if not gone:
            self._journal.note(f"{self.name}: still there after {unit.stop_timeout:g} s, killed")
        if not gone or unit.kill_mode == "mixed":
            whole = unit.kill_mode != "process"
            for _ in range(int(_KILLED / _POLL)):
                members = self._group.members() if whole else set() if main is None or main.done() else {self.main}
                if not members:
                    break
                self._signal(members, signal.SIGKILL)
                await self._around.clock.sleep(_POLL)
        if not gone:
            return End(-signal.SIGKILL, "timeout", "it did not stop in time")
        if main is None or not main.done() or unit.ended_well(main.result()):
            return End()
        # A process that ends by the requested signal has ended well.
        code = main.result()
        return End() if code == -unit.kill_signal else End(code, _why(code), f"the main process {_ended(code)}")

    async def _await_gone(self, everything: bool, seconds: float) -> bool:
        clock = self._around.clock
        give_up = clock.monotonic() + seconds
        main = self._main_ended
        while (main is not None and not main.done()) or (everything and self._group.members()):
            if clock.monotonic() >= give_up:
                return False
            await clock.sleep(_POLL)
        return True

    # --- steps ---------------------------------------------------------------------------------------------------------

    async def _control(
        self, unit: Unit, command: Command, seconds: float, good: frozenset[int] = frozenset({0}), stoppable: bool = True
    ) -> None:
        """Run one command to its end; raises _Failed unless it may fail."""
        try:
            pid, ended = self._spawn(unit, command, self._environment(unit))
            if not await self._until({ended}, seconds, stoppable):
                self._signal({pid}, signal.SIGKILL)
                raise _Failed(End(-signal.SIGKILL, "timeout", f"{command.text} took more than {seconds:g} s"))
            code = ended.result()
            if code not in good:
                raise _Failed(End(code, _why(code), f"{command.text} {_ended(code)}"))
        except _Failed as failed:
            if not command.may_fail:
                raise
            self._journal.note(f"{failed.end.detail}, which does not matter")

    def _spawn(self, unit: Unit, command: Command, environment: dict[str, str]) -> tuple[int, asyncio.Future[int]]:
        try:
            found = unitfile.split(command.text)
            argv = found if command.literal else unitfile.expanded(found, environment)
        except unitfile.WordError as error:
            raise _Failed(End(_NOT_STARTED, "exit-code", str(error))) from None
        if not argv:
            raise _Failed(End(_NOT_STARTED, "exit-code", f"{unit.name} has a command line without a command"))
        program = shutil.which(argv[0], path=environment.get("PATH")) or argv[0]
        arguments = argv[1:] if command.renamed and len(argv) > 1 else [program, *argv[1:]]
        try:
            pid, ended = self._around.children.start(
                arguments,
                program=program,
                env=environment,
                directory=self._directory(unit),
                output=self._output.open(),
                umask=unit.umask,
                limits=unit.limits,
            )
        except OSError as error:
            raise _Failed(End(_NOT_STARTED, "exit-code", f"{argv[0]} can't be started: {error.strerror}")) from None
        self._group.add(pid)
        return pid, ended

    def _directory(self, unit: Unit) -> str:
        wanted = unit.directory.removeprefix("-")
        if wanted == "~":
            wanted = self._around.environment.get("HOME", "")
        if not wanted or (unit.directory.startswith("-") and not Path(wanted).is_dir()):
            return str(self._around.root)
        if not Path(wanted).is_dir():
            raise _Failed(End(_NO_DIRECTORY, "exit-code", f"the working directory {wanted} is not there"))
        return wanted

    def _environment(self, unit: Unit) -> dict[str, str]:
        found = {**self._around.environment, "INVOCATION_ID": self._group.mark}
        for assignment in unit.environment:
            key, equals, value = assignment.partition("=")
            if equals:
                found[key] = value
        for name in unit.environment_files:
            path = Path(name.removeprefix("-"))
            try:
                found.update(environment_of(path.read_text(errors="replace")))
            except OSError as error:
                if not name.startswith("-"):
                    raise _Failed(End(1, "resources", f"{path} can't be read: {error.strerror}")) from None
        for name in unit.unset:
            found.pop(name.partition("=")[0], None)
        if self.main:
            found["MAINPID"] = str(self.main)
        return found

    def _count_start(self, unit: Unit) -> None:
        now = self._around.clock.monotonic()
        recent = sum(1 for moment in self._starts if now - moment < unit.start_limit_interval)
        if 0 < unit.start_limit_burst <= recent and unit.start_limit_interval > 0:
            self._journal.note(f"{self.name}: Start request repeated too quickly.")
            raise _Failed(End(1, "start-limit-hit", "it was started too often"))
        self._starts.append(now)

    # --- waiting -------------------------------------------------------------------------------------------------------

    async def _until(self, futures: Iterable[asyncio.Future[Any]], seconds: float, stoppable: bool = True) -> bool:
        """Wait until one of them is done (True) or time is up; raises _Stopped when a stop is requested."""
        loop = asyncio.get_running_loop()
        late: asyncio.Future[None] = loop.create_future()
        timer = (
            None
            if seconds == NEVER
            else self._around.clock.call_later(seconds, lambda: None if late.done() else late.set_result(None))
        )
        stop = asyncio.ensure_future(self._stop.wait()) if stoppable else None
        try:
            await asyncio.wait([*futures, late, *([stop] if stop else ())], return_when=asyncio.FIRST_COMPLETED)
        finally:
            if timer is not None:
                timer.cancel()
            if stop is not None:
                stop.cancel()
        if any(future.done() for future in futures):
            return True
        if stoppable and self._stop.is_set():
            raise _Stopped
        return False

    async def _rest(self, seconds: float) -> bool:
        """The pause between two starts; True if a stop is requested meanwhile."""
        hurry = asyncio.ensure_future(self._hurry.wait())
        try:
            await self._until({hurry}, seconds)
        except _Stopped:
            return True
        finally:
            hurry.cancel()
        return False

    def _await_start(self) -> None:
        if self._started is None or self._started.done():
            self._started = asyncio.get_running_loop().create_future()

    def _answer(self, end: End) -> None:
        if self._started is None or self._started.done():
            return
        if end.why == "success" and self._stop.is_set() and self.state is not UnitState.ACTIVE:
            self._started.set_result(f"Job for {self.name} canceled.")
        else:
            self._started.set_result("" if end.why == "success" else end.detail or end.why)

    def _restarts_from_zero(self) -> None:
        self.restarts = 0
        self._await_start()

    def _become(self, state: UnitState, sub: str) -> None:
        if state is not self.state:
            self.since = self._around.clock.time()
        self.state, self.sub = state, sub

    # --- notifications ---------------------------------------------------------------------------------------------------

    def _listening(self) -> NotifySocket:
        if self._notify is None:
            # Short, since the name of such a socket has room for a hundred characters only.
            name = f"remuda-host/{self._around.host_id}/{self.name[:40]}/{self._around.entropy.token_bytes(4).hex()}"
            self._notify = NotifySocket(name, self._heard)
        return self._notify

    def _heard(self, pid: int, fields: dict[str, str]) -> None:
        if pid != self.main and pid not in processes.descendants(self.main):
            return
        self.status = fields.get("STATUS", self.status)
        if fields.get("READY") == "1" and self._ready is not None and not self._ready.done():
            self._ready.set_result(None)

    def _signal(self, pids: set[int], number: signal.Signals) -> None:
        known, boot = processes.everything(), processes.boot_id()
        for pid in pids & processes.descendants(os.getpid(), known):
            processes.send_to(processes.ProcessIdentity(pid, known[pid].started, boot), number)


def _why(code: int) -> str:
    return "signal" if code < 0 else "exit-code"


def _ended(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
