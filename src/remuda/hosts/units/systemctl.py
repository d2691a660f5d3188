"""`systemctl` as a host's init answers it: the verbs, words and exit codes that installers and their scripts rely on.

Options without a meaning here are accepted and ignored, since scripts pass them by habit.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from remuda.kube.clock import rfc3339

from .service import Service, UnitState
from .service_order import Board
from .unit_catalog import NoSuchUnit, full_name
from .unitfile import UnitError

_NOT_ACTIVE, _NO_SUCH_UNIT, _NOT_INSTALLED = 3, 4, 5
_WITH_VALUE = (
    "-p",
    "--property",
    "-s",
    "--signal",
    "-t",
    "--type",
    "-o",
    "--output",
    "-n",
    "--lines",
    "--job-mode",
    "--kill-whom",
    "--state",
)


class Answer(NamedTuple):
    code: int = 0
    out: str = ""
    err: str = ""


@dataclass
class _Asked:
    verb: str = ""
    names: list[str] = field(default_factory=list)
    quiet: bool = False
    now: bool = False
    block: bool = True
    value_only: bool = False
    properties: list[str] = field(default_factory=list)
    signal: str = "SIGTERM"


def parsed(arguments: list[str]) -> _Asked:
    """The request in the arguments."""
    asked = _Asked()
    words = iter(arguments)
    for word in words:
        option, equals, value = word.partition("=")
        if not word.startswith("-"):
            if asked.verb:
                asked.names.append(full_name(word))
            else:
                asked.verb = word
            continue
        if option in _WITH_VALUE and not equals:
            value = next(words, "")
        if option in ("-q", "--quiet"):
            asked.quiet = True
        elif option == "--now":
            asked.now = True
        elif option == "--no-block":
            asked.block = False
        elif option == "--value":
            asked.value_only = True
        elif option in ("-p", "--property"):
            asked.properties += value.split(",")
        elif option in ("-s", "--signal"):
            asked.signal = value
    return asked


class Systemctl:
    """`power` is called to end the host, or to restart it."""

    def __init__(self, board: Board, power: Callable[[str], None]) -> None:
        self._board = board
        self._power = power
        self._background: set[asyncio.Task[Answer]] = set()

    async def answer(self, arguments: list[str]) -> Answer:
        asked = parsed(arguments)
        verb = _VERBS.get(asked.verb or "list-units")
        if verb is None:
            return Answer(1, err=f"Unknown command verb '{asked.verb}'.")
        try:
            if asked.block or asked.verb not in _JOBS:
                return await verb(self, asked)
            task = asyncio.create_task(verb(self, asked))
            self._background.add(task)
            task.add_done_callback(self._forget)
            return Answer()
        except NoSuchUnit as error:
            return Answer(_NOT_INSTALLED, err=str(error))
        except UnitError as error:
            return Answer(1, err=str(error))

    def _forget(self, task: asyncio.Task[Answer]) -> None:
        self._background.discard(task)
        if not task.cancelled():
            task.exception()

    # --- jobs ----------------------------------------------------------------------------------------------------------

    async def _start(self, asked: _Asked) -> Answer:
        return _all([await self._started(name) for name in asked.names])

    async def _started(self, name: str) -> Answer:
        return _job(name, await self._board.start(name))

    async def _stop(self, asked: _Asked) -> Answer:
        answers = []
        for name in asked.names:
            service = self._board.get(name)
            if service is not None:
                await service.stop()
            elif self._board.catalog.file(name) is None:
                answers.append(Answer(_NOT_INSTALLED, err=f"Failed to stop {name}: Unit {name} not loaded."))
        return _all(answers)

    async def _restart(self, asked: _Asked) -> Answer:
        answers = []
        for name in asked.names:
            self._board.catalog.load(name)
            if service := self._board.get(name):
                await service.stop()
            answers.append(await self._started(name))
        return _all(answers)

    async def _try_restart(self, asked: _Asked) -> Answer:
        running = [name for name in asked.names if (service := self._board.get(name)) and service.state is UnitState.ACTIVE]
        return await self._restart(_Asked("restart", running))

    async def _reload(self, asked: _Asked) -> Answer:
        answers = []
        for name in asked.names:
            self._board.catalog.load(name)
            service = self._board.get(name)
            why = await service.reload() if service is not None else f"Unit {name} is not active, cannot reload."
            answers.append(Answer(1, err=why) if why else Answer())
        return _all(answers)

    async def _reload_or_restart(self, asked: _Asked) -> Answer:
        answers = []
        for name in asked.names:
            can = bool(self._board.catalog.load(name).reload) and (service := self._board.get(name)) is not None
            running = can and service is not None and service.state is UnitState.ACTIVE
            answers.append(await (self._reload if running else self._restart)(_Asked(names=[name])))
        return _all(answers)

    async def _kill(self, asked: _Asked) -> Answer:
        name = asked.signal if asked.signal.startswith("SIG") else f"SIG{asked.signal}"
        number = signal.Signals(int(asked.signal)) if asked.signal.isdigit() else signal.Signals.__members__.get(name)
        if number is None:
            return Answer(1, err=f"Failed to parse signal string {asked.signal}.")
        for service in filter(None, map(self._board.get, asked.names)):
            service.send(number)
        return Answer()

    # --- files ---------------------------------------------------------------------------------------------------------

    async def _enable(self, asked: _Asked) -> Answer:
        told = []
        for name in asked.names:
            try:
                told += [f"Created symlink {link} → {path}." for link, path in self._board.catalog.enable(name)]
            except NoSuchUnit:
                return Answer(1, err=f"Failed to enable unit: Unit file {name} does not exist.")
        done = await self._start(asked) if asked.now else Answer()
        return Answer(done.code, err=_lines("" if asked.quiet else "\n".join(told), done.err))

    async def _disable(self, asked: _Asked) -> Answer:
        told = []
        for name in asked.names:
            links = self._board.catalog.disable(name)
            if not links and self._board.catalog.file(name) is None:
                return Answer(1, err=f"Failed to disable unit: Unit file {name} does not exist.")
            told += [f'Removed "{link}".' for link in links]
        if asked.now:
            await self._stop(asked)
        return Answer(err="" if asked.quiet else "\n".join(told))

    async def _daemon_reload(self, asked: _Asked) -> Answer:
        # Units are read each time they are started; only removed ones must be forgotten.
        self._board.forget_gone()
        return Answer()

    async def _reset_failed(self, asked: _Asked) -> Answer:
        missing = [name for name in asked.names if self._board.get(name) is None]
        for service in self._board.services():
            if not asked.names or service.name in asked.names:
                service.reset()
        if missing:
            return Answer(
                1, err="\n".join(f"Failed to reset failed state of unit {name}: Unit {name} not loaded." for name in missing)
            )
        return Answer()

    async def _cat(self, asked: _Asked) -> Answer:
        shown = []
        for name in asked.names:
            path = self._board.catalog.file(name)
            if path is None:
                return Answer(1, err=f"No files found for {name}.")
            shown.append(f"# {path}\n{path.read_text(errors='replace')}")
        return Answer(out="\n".join(shown))

    # --- questions -----------------------------------------------------------------------------------------------------

    async def _is_active(self, asked: _Asked) -> Answer:
        return self._states(asked, (UnitState.ACTIVE,), _NOT_ACTIVE)

    async def _is_failed(self, asked: _Asked) -> Answer:
        return self._states(asked, (UnitState.FAILED,), 1)

    def _states(self, asked: _Asked, good: tuple[UnitState, ...], otherwise: int) -> Answer:
        found = [service.state if (service := self._board.get(name)) else UnitState.INACTIVE for name in asked.names]
        out = "" if asked.quiet else "\n".join(found)
        return Answer(0 if any(state in good for state in found) else otherwise, out)

    async def _is_enabled(self, asked: _Asked) -> Answer:
        told, code = [], 1
        for name in asked.names:
            if self._board.catalog.file(name) is None:
                return Answer(_NO_SUCH_UNIT, err="" if asked.quiet else f"Failed to get unit file state for {name}: not found")
            enabled = self._board.catalog.is_enabled(name)
            unit = self._board.catalog.load(name)
            told.append("enabled" if enabled else "disabled" if unit.wanted_by or unit.required_by else "static")
            code = 0 if enabled or told[-1] == "static" else code
        return Answer(code, "" if asked.quiet else "\n".join(told))

    async def _status(self, asked: _Asked) -> Answer:
        shown, code = [], 0
        for name in asked.names:
            path = self._board.catalog.file(name)
            service = self._board.get(name)
            if path is None and service is None:
                return Answer(_NO_SUCH_UNIT, err=f"Unit {name} could not be found.")
            shown.append(self._shown(name, service))
            code = max(code, 0 if service is not None and service.state is UnitState.ACTIVE else _NOT_ACTIVE)
        return Answer(code, "\n\n".join(shown))

    def _shown(self, name: str, service: Service | None) -> str:
        path = self._board.catalog.file(name)
        enabled = "enabled" if self._board.catalog.is_enabled(name) else "disabled"
        description = service.unit.description if service is not None and service.unit is not None else name
        lines = [f"● {name} - {description}", f"     Loaded: loaded ({path}; {enabled})"]
        if service is None:
            return "\n".join([*lines, "     Active: inactive (dead)"])
        lines.append(f"     Active: {service.state} ({service.sub}) since {rfc3339(service.since)}")
        if service.main:
            lines.append(f"   Main PID: {service.main}")
        elif service.result != "success":
            lines.append(f"     Result: {service.result} ({service.exit_code})")
        if service.status:
            lines.append(f'     Status: "{service.status}"')
        members = sorted(service.members())
        return "\n".join([*lines, f"      Tasks: {len(members)} ({', '.join(map(str, members)) or 'none'})"])

    async def _show(self, asked: _Asked) -> Answer:
        shown = []
        for name in asked.names:
            values = self._properties(name)
            wanted = asked.properties or list(values)
            shown.append("\n".join(values.get(key, "") if asked.value_only else f"{key}={values.get(key, '')}" for key in wanted))
        return Answer(out="\n\n".join(shown))

    def _properties(self, name: str) -> dict[str, str]:
        service = self._board.get(name)
        path = self._board.catalog.file(name)
        return {
            "Id": name,
            "LoadState": "loaded" if path is not None else "not-found",
            "ActiveState": service.state if service else UnitState.INACTIVE,
            "SubState": service.sub if service else "dead",
            "Result": service.result if service else "success",
            "MainPID": str(service.main if service else 0),
            "ExecMainStatus": str(abs(service.exit_code) if service else 0),
            "NRestarts": str(service.restarts if service else 0),
            "UnitFileState": ("enabled" if self._board.catalog.is_enabled(name) else "disabled") if path else "",
            "FragmentPath": str(path or ""),
            "StatusText": service.status if service else "",
            "ActiveEnterTimestamp": rfc3339(service.since) if service and service.state is UnitState.ACTIVE else "",
            "TasksCurrent": str(len(service.members()) if service else 0),
        }

    async def _list_units(self, asked: _Asked) -> Answer:
        lines = [
            f"{each.name} loaded {each.state} {each.sub} {each.unit.description if each.unit else ''}".rstrip()
            for each in self._board.services()
        ]
        return Answer(out="\n".join(lines))

    async def _list_unit_files(self, asked: _Asked) -> Answer:
        catalog = self._board.catalog
        return Answer(
            out="\n".join(f"{name} {'enabled' if catalog.is_enabled(name) else 'disabled'}" for name in catalog.names())
        )

    async def _is_system_running(self, asked: _Asked) -> Answer:
        failed = any(service.state is UnitState.FAILED for service in self._board.services())
        return Answer(1 if failed else 0, "" if asked.quiet else "degraded" if failed else "running")

    async def _end(self, asked: _Asked) -> Answer:
        self._power("reboot" if asked.verb == "reboot" else "poweroff")
        return Answer()


_Verb = Callable[[Systemctl, _Asked], Coroutine[Any, Any, Answer]]
_JOBS = ("start", "stop", "restart", "try-restart", "reload", "reload-or-restart")
_VERBS: dict[str, _Verb] = {
    "start": Systemctl._start,
    "stop": Systemctl._stop,
    "restart": Systemctl._restart,
    "try-restart": Systemctl._try_restart,
    "reload": Systemctl._reload,
    "reload-or-restart": Systemctl._reload_or_restart,
    "kill": Systemctl._kill,
    "enable": Systemctl._enable,
    "disable": Systemctl._disable,
    "daemon-reload": Systemctl._daemon_reload,
    "daemon-reexec": Systemctl._daemon_reload,
    "reset-failed": Systemctl._reset_failed,
    "cat": Systemctl._cat,
    "is-active": Systemctl._is_active,
    "is-failed": Systemctl._is_failed,
    "is-enabled": Systemctl._is_enabled,
    "is-system-running": Systemctl._is_system_running,
    "status": Systemctl._status,
    "show": Systemctl._show,
    "list-units": Systemctl._list_units,
    "list-unit-files": Systemctl._list_unit_files,
    "poweroff": Systemctl._end,
    "halt": Systemctl._end,
    "reboot": Systemctl._end,
}


def _job(name: str, why: str) -> Answer:
    return (
        Answer(1, err=f'Job for {name} failed: {why}\nSee "systemctl status {name}" and "journalctl -u {name}".')
        if why
        else Answer()
    )


def _all(answers: list[Answer]) -> Answer:
    """One answer for several; the first failure counts."""
    code = next((answer.code for answer in answers if answer.code), 0)
    return Answer(code, _lines(*(answer.out for answer in answers)), _lines(*(answer.err for answer in answers)))


def _lines(*texts: str) -> str:
    return "\n".join(text for text in texts if text)
