"""`python -m remuda.hosts.init DIRECTORY`: the first process of a host. It outlives the process that started it.

It starts the enabled units, answers `systemctl` (:mod:`.control_socket`), reaps every process below it, and ends all of them when
it exits. It holds a lock as long as it lives, and a note identifies its process (:mod:`.processes`), so that later processes find
it. If it is killed itself, the kernel kills the processes that it had started; :mod:`.hosts` kills what those may have left.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import socket
import struct
import sys
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from remuda.kube.clock import SYSTEM_CLOCK, Clock, Entropy, deadline

from . import control_socket, host_directory, processes
from .environment import environment
from .host_directory import HostDirectory
from .units.journal import Journal
from .units.service import ServiceContext
from .units.service_order import Board
from .units.service_processes import Children
from .units.systemctl import Answer, Systemctl
from .units.unit_catalog import Catalog

READY = b"ready\n"
_PATIENCE = 5.0
_POLL = 0.05
_PEER = struct.Struct("3i")


class Init:
    """Writes to `ready`, and closes it, when the host answers."""

    def __init__(self, place: HostDirectory, ready: int, clock: Clock = SYSTEM_CLOCK) -> None:
        self._place = place
        self._record = host_directory.read(place.record)
        self._ready = ready
        self._clock = clock
        self._children = Children()
        self._wanted = ""
        self._ending = asyncio.Event()

    async def run(self) -> str:
        """Run until the host is told to go down; the result is `reboot` if it shall start again."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, self._children.reap)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end, "poweroff")
        board = Board(self._surroundings())
        systemctl = Systemctl(board, self._end)
        server = await self._listen(systemctl)
        _say(f"the host {self._record.name} is up, at {self._record.address}")
        os.write(self._ready, READY)
        os.close(self._ready)
        booting = asyncio.create_task(board.boot())
        await self._ending.wait()
        _say(f"the host goes down ({self._wanted})")
        booting.cancel()
        await asyncio.wait([booting])
        if not booting.cancelled() and (problem := booting.exception()):
            _say(f"not everything was started: {type(problem).__name__}: {problem}")
        await board.shut_down()
        await self._end_all()
        server.close()
        self._place.control.unlink(missing_ok=True)
        return self._wanted

    def _surroundings(self) -> ServiceContext:
        place, record = self._place, self._record
        return ServiceContext(
            catalog=Catalog(place.unit_directories(), {"H": record.name, "h": f"{place.root}/root"}),
            children=self._children,
            clock=self._clock,
            entropy=Entropy(),
            host_id=record.id,
            environment=environment(place, record),
            root=place.root,
            journal_of=lambda unit: Journal(place.log_of(unit), self._clock),
        )

    def _end(self, how: str) -> None:
        self._wanted = self._wanted or how
        self._ending.set()

    async def _end_all(self) -> None:
        """End all processes below this one: ask them first, then kill them, until none is left."""
        number = signal.SIGTERM
        give_up = self._clock.monotonic() + _PATIENCE
        while True:
            known, boot = processes.everything(), processes.boot_id()
            left = processes.descendants(os.getpid(), known)
            if not left:
                return
            for pid in left:
                processes.send_to(processes.ProcessIdentity(pid, known[pid].started, boot), number)
            await self._clock.sleep(_POLL)
            number = signal.SIGKILL if self._clock.monotonic() >= give_up else signal.SIGCONT
            self._children.reap()

    async def _listen(self, systemctl: Systemctl) -> asyncio.Server:
        self._place.control.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with control_socket.reachable(self._place.control) as name:
            listening.bind(name)
        self._place.control.chmod(0o600)

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                answer = await self._answer(systemctl, reader, writer)
                writer.write(json.dumps(answer._asdict()).encode())
                await writer.drain()
            except (OSError, TimeoutError):
                pass  # the client has disconnected, or sent no question
            except Exception as error:
                _say(f"a question could not be answered: {type(error).__name__}: {error}")
            finally:
                writer.close()

        return await asyncio.start_unix_server(connected, sock=listening, limit=control_socket.LARGEST)

    async def _answer(self, systemctl: Systemctl, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Answer:
        peer = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        if _PEER.unpack(peer)[1] not in (os.getuid(), 0):
            return Answer(1, err="this host belongs to another user")
        async with deadline(self._clock, _PATIENCE):
            line = await reader.readline()
        arguments = json.loads(line)["arguments"]
        return await systemctl.answer([str(word) for word in arguments])


def main(directory: str, ready: int) -> int:
    """Run in the background: the calling process exits at once."""
    if os.fork() > 0:
        os._exit(0)
    os.setsid()
    place = HostDirectory(Path(directory))
    # Never closed: the kernel releases it with this process, and only then.
    lock = os.open(place.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _say("this host has an init already")
        return 1
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    processes.become_subreaper()
    me = processes.identify(os.getpid())
    assert me is not None
    host_directory.write_json(place.identity, asdict(me))
    how = asyncio.run(Init(place, ready).run())
    place.identity.unlink(missing_ok=True)
    if how == "reboot":
        _again(lock)
    return 0


def _again(lock: int) -> NoReturn:
    """Start again as a new program: no earlier state is left."""
    os.close(lock)
    null_output = os.open(os.devnull, os.O_WRONLY)
    os.set_inheritable(null_output, True)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:-1], str(null_output)])


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - the log of the host itself


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
