"""Hosts on this machine: make, start, find, stop and remove them, from any process with the same directory.

This process keeps no state. A host runs when its init holds its lock; a note identifies the init by process number and start
time, so that no unrelated process is ever signalled. The init itself is :mod:`.init`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import select
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from remuda.kube.clock import SYSTEM_CLOCK, Clock, Entropy, rfc3339

from . import HostError, HostExists, NoSuchHost, NotRunning, addresses, control_socket, host_directory, init, processes
from .environment import MARK, environment, write_programs
from .host_directory import HostDirectory, HostRecord

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
# The one file in the directory that belongs to no host.
IDENTITY = ".id"
_IDENTITY_LENGTH = 32
_REMOVED = ".removed-"
_START_TIMEOUT = 60.0
_STOP_TIMEOUT = 120.0
_SWEEPS = 200


@dataclass(frozen=True, slots=True)
class Host:
    """A host and its state; `pid` is that of its init, 0 if it is off."""

    record: HostRecord
    place: HostDirectory
    pid: int = 0

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def running(self) -> bool:
        return self.pid > 0

    def environment(self, caller: Mapping[str, str] | None = None) -> dict[str, str]:
        return environment(self.place, self.record, caller)

    def systemctl(self, *arguments: str, seconds: float | None = None) -> tuple[int, str, str]:
        """Ask its init; raises NotRunning, TimeoutError."""
        return control_socket.ask(self.place.control, list(arguments), seconds)


class Hosts:
    """All hosts in one directory."""

    def __init__(self, directory: Path, clock: Clock = SYSTEM_CLOCK, entropy: Entropy | None = None) -> None:
        self._directory = directory
        self._clock = clock
        self._entropy = entropy or Entropy()

    def identity(self, *, make: bool = False) -> str:
        """A permanent id of this directory, unique among machines. Empty if it has none, unless `make` creates one."""
        if make:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            handle = os.open(self._directory / IDENTITY, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if make else 0), 0o600)
        except FileNotFoundError:
            return ""
        with os.fdopen(handle, "r+") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            found = stream.read()
            if make and len(found) != _IDENTITY_LENGTH:
                # New, or left by a process that was killed before it could return the id.
                found = self._entropy.token_bytes(_IDENTITY_LENGTH // 2).hex()
                stream.seek(0)
                stream.truncate()
                stream.write(found)
                stream.flush()
                os.fsync(stream.fileno())
        return found

    def all(self) -> list[Host]:
        found = sorted(path.parent.name for path in self._directory.glob("*/host.json") if _NAME.fullmatch(path.parent.name))
        hosts = []
        for name in found:
            with contextlib.suppress(NoSuchHost):
                hosts.append(self.get(name))
        return hosts

    def get(self, name: str) -> Host:
        """The host of this name. Raises NoSuchHost."""
        place = self._place(name)
        try:
            record = host_directory.read(place.record)
        except FileNotFoundError:
            raise NoSuchHost(f"there is no host {name}") from None
        return Host(record, place, _init_of(place))

    def create(self, name: str, address: str = "", note: str = "") -> Host:
        """Make a host and start it. Raises HostExists, HostError; then nothing is left behind."""
        place = self._place(name)
        if address:
            addresses.check_loopback(address)
        with self._changing(name):
            if place.record.exists():
                raise HostExists(f"there is a host {name} already")
            self._clear_away(place)
            try:
                return self._make(place, address, note)
            except BaseException:
                self._clear_away(place)
                raise

    def start(self, name: str) -> Host:
        """Start a host and wait until its init answers; a running one stays as it is. Its enabled units start by themselves."""
        with self._changing(name):
            return self._start(self.get(name))

    def stop(self, name: str, seconds: float = _STOP_TIMEOUT) -> Host:
        """Stop a host and wait until none of its processes runs; those that do not end in time are killed."""
        with self._changing(name):
            host = self.get(name)
            self._stop(host, seconds)
            return self.get(name)

    def kill(self, name: str) -> Host:
        """Kill a host, like a power cut: no process in it is asked or told."""
        with self._changing(name):
            self._kill(self.get(name))
            return self.get(name)

    def remove(self, name: str) -> None:
        """Delete a host; its processes are killed without a request, since nothing of it is needed. Raises NoSuchHost."""
        with self._changing(name):
            try:
                host = self.get(name)
            except NoSuchHost:
                # The process that made or removed it was killed halfway.
                self._clear_away(self._place(name))
                raise
            self._kill(host)
            addresses.release(host.place, host.record.address)
            self._clear_away(host.place)

    def _place(self, name: str) -> HostDirectory:
        if not _NAME.fullmatch(name):
            raise HostError(f"{name!r} is no name for a host: lower case letters, digits and dashes, at most 63")
        return HostDirectory(self._directory.absolute() / name)

    def _make(self, place: HostDirectory, address: str, note: str) -> Host:
        place.furnish()
        found = addresses.claim(place, address)
        try:
            record = HostRecord(place.name, self._entropy.token_bytes(16).hex(), found, rfc3339(self._clock.time()), note)
            _write_identity_files(place, record)
            host_directory.write(place.record, record)
            return self._start(Host(record, place))
        except BaseException:
            addresses.release(place, found)
            raise

    def _start(self, host: Host) -> Host:
        if host.running:
            return host
        self._sweep(host)
        place = host.place
        place.furnish()
        addresses.claim(place, host.record.address)
        write_programs(place)
        reader, writer = os.pipe()
        try:
            with place.boot_log.open("ab") as log:
                subprocess.run(
                    [place.programs / "remuda-python", "-P", "-s", "-m", init.__name__, str(place.directory), str(writer)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=host.environment(),
                    cwd=place.root,
                    pass_fds=(writer,),
                    check=True,
                )
            os.close(writer)
            writer = -1
            self._await_ready(place, reader)
        except subprocess.CalledProcessError:
            raise HostError(_why_not(place)) from None
        finally:
            os.close(reader)
            if writer >= 0:
                os.close(writer)
        return self.get(host.name)

    def _await_ready(self, place: HostDirectory, reader: int) -> None:
        said, _, _ = select.select([reader], [], [], _START_TIMEOUT)
        if not said:
            raise HostError(f"the host {place.name} did not come up within {_START_TIMEOUT:g} s, see {place.boot_log}")
        if os.read(reader, len(init.READY)) != init.READY:
            raise HostError(_why_not(place))

    def _stop(self, host: Host, seconds: float) -> None:
        identity = _identity(host.place)
        if identity is not None and processes.is_alive(identity):
            with contextlib.suppress(NotRunning, TimeoutError):
                host.systemctl("poweroff", seconds=seconds)
            if not processes.await_end(identity, seconds):
                self._cut(host, identity)
        self._clean_up(host)

    def _kill(self, host: Host) -> None:
        identity = _identity(host.place)
        if identity is not None and processes.is_alive(identity):
            self._cut(host, identity)
        self._clean_up(host)

    def _clean_up(self, host: Host) -> None:
        self._sweep(host)
        host.place.identity.unlink(missing_ok=True)
        host.place.control.unlink(missing_ok=True)

    def _cut(self, host: Host, identity: processes.ProcessIdentity) -> None:
        for _ in range(_SWEEPS):
            if processes.kill_tree(identity):
                processes.await_end(identity, _START_TIMEOUT)
                return
            _pause()
        raise HostError(f"processes of the host {host.name} can't be killed")

    def _sweep(self, host: Host) -> None:
        """Kill a host's processes that have no init: started by hand in it, or left by an init that was killed."""
        for _ in range(_SWEEPS):
            if not processes.kill_marked(MARK, host.record.id, spare=(os.getpid(),)):
                return
            # There is nothing to wait on: they may be children of any process.
            _pause()
        raise HostError(f"processes of the host {host.name} can't be killed")

    def _clear_away(self, place: HostDirectory) -> None:
        """Delete a host's directory; from the first step on it is no host any more."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if place.directory.exists():
            place.directory.rename(self._directory / f"{_REMOVED}{place.name}-{self._entropy.token_bytes(4).hex()}")
        for left in self._directory.glob(f"{_REMOVED}{place.name}-*"):
            _delete(left)

    @contextlib.contextmanager
    def _changing(self, name: str) -> Iterator[None]:
        """Hold the lock for changes of one host, across processes."""
        place = self._place(name)
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._directory / f".{name}.lock"
        with contextlib.ExitStack() as held:
            while True:
                lock = held.enter_context(path.open("w"))
                fcntl.flock(lock, fcntl.LOCK_EX)
                # The previous holder may have removed the host and this file with it: then other processes lock another file.
                with contextlib.suppress(FileNotFoundError):
                    if path.stat().st_ino == os.fstat(lock.fileno()).st_ino:
                        break
            try:
                yield
            finally:
                if not place.directory.exists():
                    path.unlink(missing_ok=True)


def _pause() -> None:
    select.select([], [], [], 0.05)


def _init_of(place: HostDirectory) -> int:
    identity = _identity(place)
    return identity.pid if identity is not None and processes.is_alive(identity) else 0


def _identity(place: HostDirectory) -> processes.ProcessIdentity | None:
    try:
        said = json.loads(place.identity.read_bytes())
        return processes.ProcessIdentity(int(said["pid"]), int(said["started"]), str(said["boot"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _why_not(place: HostDirectory) -> str:
    lines = place.boot_log.read_text(errors="replace").splitlines() if place.boot_log.exists() else []
    return f"the host {place.name} did not come up: {lines[-1] if lines else 'it printed nothing'}"


def _write_identity_files(place: HostDirectory, record: HostRecord) -> None:
    (place.root / "etc" / "hostname").write_text(f"{record.name}\n")
    (place.root / "etc" / "machine-id").write_text(f"{record.id}\n")
    (place.root / "etc" / "hosts").write_text(f"{record.address}\t{record.name} localhost\n")


def _delete(directory: Path) -> None:
    def let_me(function: object, path: str, error: BaseException) -> None:
        # The write permission of a directory was taken away.
        parent = Path(path).parent
        parent.chmod(stat.S_IMODE(parent.stat().st_mode) | stat.S_IRWXU)
        found = Path(path)
        if found.is_dir() and not found.is_symlink():
            found.chmod(0o700)
            _delete(found)
        else:
            found.unlink(missing_ok=True)

    if directory.exists():
        shutil.rmtree(directory, onerror=lambda function, path, info: let_me(function, path, info[1]))
