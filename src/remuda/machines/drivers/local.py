"""`local`: hosts on this machine, without root (:mod:`remuda.hosts`). For the first steps, for demonstrations and for tests.

A host is a directory below the one in the environment variable REMUDA_HOSTS_DIR, which the runner of the Job sets, never a user's
options. It outlives the Job and the server. After this machine was off, the process that starts the server calls `remuda
provision power-on` once, which starts all hosts that do not run, like the return of a data centre's power. A host that was
stopped before stays off until then. Limits of the Job are lifted where possible, since a host's processes inherit them.

Several servers on one etcd have a directory each, and any of them may lead when a machine is made, looked at or removed. So the
state of a machine says in which directory its host is: a server with another directory knows nothing of the host, and says that.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from remuda.hosts import HostError, HostExists, NoSuchHost
from remuda.hosts.hosts import Host, Hosts

from ..driver import Bootstrapping, Driver, DriverContext, Found, Keep, Machine, Options, State
from ..errors import DriverError, Reason, elsewhere

HOSTS_VARIABLE = "REMUDA_HOSTS_DIR"
_LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE)
_T = TypeVar("_T")


class Local(Driver):
    name = "local"
    title = "Hosts on the server's own machine"
    flags = ()
    bootstrapping = Bootstrapping.DRIVER
    userdata = ""

    async def precreate(self, machine: Machine) -> None:
        hosts = self._hosts()
        with contextlib.suppress(NoSuchHost):
            found = await self._asked(hosts.get, machine.hostname)
            raise _taken(found)

    async def create(self, machine: Machine, keep: Keep) -> None:
        hosts = self._hosts()
        _lift_limits()
        await self._check_here(hosts, machine)
        kept = {"HostsID": await self._asked(lambda: hosts.identity(make=True)), "HostsAt": _here(self.around)}
        await keep({"HostName": machine.hostname, "SSHUser": "", **kept})
        note = _note(machine)
        try:
            host = await self._asked(lambda: hosts.create(machine.hostname, note=note))
        except HostExists:
            host = await self._asked(hosts.get, machine.hostname)
            if host.record.note != note:
                raise _taken(host) from None
            host = await self._asked(hosts.start, machine.hostname)
        await keep({"IPAddress": host.record.address, "HostRoot": str(host.place.root)})

    async def bootstrap(self, machine: Machine, script: str, keep: Keep) -> None:
        hosts = self._hosts()
        if await self._own(hosts, machine) is None:
            raise DriverError(Reason.NOT_FOUND, f"there is no host {_host_name(machine)} any more")
        host = await self._asked(hosts.start, _host_name(machine))
        # Not as the Job's child: a process of the host, found by its mark and ended with it.
        process = await asyncio.create_subprocess_exec(
            "sh",
            "-s",
            cwd=host.place.root,
            env=host.environment(self.around.environ),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        last = ""
        try:
            assert process.stdin is not None and process.stdout is not None
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                process.stdin.write(script.encode())
                await process.stdin.drain()
            process.stdin.close()
            async for raw in process.stdout:
                line = raw.decode(errors="replace").rstrip()
                last = line or last
                self.around.say(line)
            code = await process.wait()
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if code != 0:
            raise DriverError(Reason.BOOTSTRAP_FAILED, f"the bootstrap script failed ({code}): {last or 'it printed nothing'}")

    async def remove(self, machine: Machine, keep: Keep) -> None:
        hosts, name = self._hosts(), _host_name(machine)
        if await self._own(hosts, machine) is not None:
            await self._asked(hosts.remove, name)
            return
        try:
            await self._asked(hosts.get, name)
            self.around.say(f"the host {name} is another's: it stays")
        except NoSuchHost:
            # The rest of it after a kill, if there is any.
            with contextlib.suppress(NoSuchHost):
                await self._asked(hosts.remove, name)

    async def state(self, machine: Machine) -> State:
        host = await self._own(self._hosts(), machine)
        if host is None:
            return State.NOT_FOUND
        return State.RUNNING if host.running else State.STOPPED

    async def _own(self, hosts: Hosts, machine: Machine) -> Host | None:
        """The machine's host; None when there is none. Raises DriverError when only another server can know."""
        with contextlib.suppress(NoSuchHost):
            host = await self._asked(hosts.get, _host_name(machine))
            if host.record.note == _note(machine):
                return host
        await self._check_here(hosts, machine)
        return None

    async def _check_here(self, hosts: Hosts, machine: Machine) -> None:
        """Raise DriverError when the machine's host was made in another directory than this one."""
        known, root = str(machine.state.get("HostsID") or ""), str(machine.state.get("HostRoot") or "")
        if known:
            is_away = known != await self._asked(hosts.identity)
        else:
            # Of a time before directories had names.
            is_away = bool(root) and Path(root).parent.parent != _directory(self.around).absolute()
        if is_away:
            where = machine.state.get("HostsAt") or root
            raise elsewhere(f"the host {_host_name(machine)}", str(where), _here(self.around))

    async def owned(self, options: Options, owner: str) -> list[Found]:
        found = []
        for host in await self._asked(self._hosts().all):
            said = _read_note(host.record.note)
            if said.get("owner") == owner and "machine" in said:
                state = State.RUNNING if host.running else State.STOPPED
                found.append(
                    Found(
                        id=host.name,
                        machine=str(said["machine"]),
                        token=str(said.get("token") or ""),
                        what="host",
                        address=host.record.address,
                        created=host.record.created,
                        state=state,
                    )
                )
        return found

    def _hosts(self) -> Hosts:
        return Hosts(_directory(self.around), self.around.clock, self.around.entropy)

    async def _asked(self, action: Callable[..., _T], *arguments: Any) -> _T:
        try:
            return await asyncio.to_thread(action, *arguments)
        except (NoSuchHost, HostExists):
            raise
        except HostError as error:
            raise DriverError(Reason.FAILED, str(error)) from None
        except OSError as error:
            raise DriverError(Reason.FAILED, f"the hosts' directory can't be used: {error}") from None


def power_on(around: DriverContext) -> list[str]:
    """Start every machine's host that does not run; the names of those that could not be started, which has been logged."""
    _lift_limits()
    hosts = Hosts(_directory(around), around.clock, around.entropy)
    failed = []
    for host in hosts.all():
        if host.running or not _read_note(host.record.note):
            continue
        try:
            hosts.start(host.name)
            around.say(f"the host {host.name} runs again")
        except (HostError, OSError) as error:
            failed.append(host.name)
            around.say(f"the host {host.name} could not be started: {error}")
    return failed


def _directory(around: DriverContext) -> Path:
    named = around.environ.get(HOSTS_VARIABLE, "")
    if not named.startswith("/"):
        raise DriverError(
            Reason.INVALID,
            f"hosts on the server's own machine are made by `remuda serve --job-runner=local`, which sets {HOSTS_VARIABLE}",
        )
    return Path(named)


def _here(around: DriverContext) -> str:
    """The machine, and the directory on it, in words."""
    return f"{os.uname().nodename}:{_directory(around)}"


def _note(machine: Machine) -> str:
    return json.dumps({"machine": machine.name, "owner": machine.owner, "token": machine.token}, sort_keys=True)


def _read_note(note: str) -> dict[str, Any]:
    try:
        said = json.loads(note or "{}")
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _host_name(machine: Machine) -> str:
    return str(machine.state.get("HostName") or machine.hostname)


def _taken(host: Host) -> DriverError:
    whose = _read_note(host.record.note).get("machine", "")
    of = f", of the machine {whose}" if whose else ", which was made by hand: remuda host rm " + host.name
    return DriverError(Reason.CONFLICT, f"there is a host {host.name} already{of}")


def _lift_limits() -> None:
    for limit in _LIMITS:
        with contextlib.suppress(ValueError, OSError):
            _, hard = resource.getrlimit(limit)
            resource.setrlimit(limit, (hard, hard))
