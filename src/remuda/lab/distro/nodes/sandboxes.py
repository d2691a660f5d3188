"""The pods of a node that are processes: their files are written below the node's root, then they run until they are deleted.

Everything here ends with the node's own process. A container is one process: started, watched, restarted with growing pauses,
stopped with all of its children. Its output goes straight into a file, so that nothing is lost in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import re
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from remuda.client.interface import Client
from remuda.hosts.environment import MARK
from remuda.hosts.processes import die_with_parent
from remuda.kcm.workloads.pods import has_ended
from remuda.kube.clock import Clock, deadline, rfc3339
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, dig, is_being_deleted, metadata, name_of, namespace_of, uid_of
from remuda.runtime import DONE, NORMAL, WARNING, Recorder, Result

from .builtin_programs import BuiltinProgram, program_of
from .config import NodeConfig
from .heartbeat import MANAGER
from .pod_status import assembled, container_status
from .pod_volumes import PODS, Sources, VolumeError, Volumes, place_in, pod_field

LONGEST_PAUSE: Final = 300.0
# A process that has run for this long begins with short pauses again.
STEADY_SECONDS: Final = 600.0
LONGEST_LOG: Final = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    started: float
    finished: float


class Process:
    """`restarts` continues the count of earlier runs of the node; `first_pause` is the pause before the first restart."""

    def __init__(
        self,
        directory: Path,
        logs: Path,
        clock: Clock,
        ended: Callable[[], None],
        *,
        restarts: int = 0,
        first_pause: float = 10.0,
    ) -> None:
        self._directory = directory
        self._logs = logs
        self._clock = clock
        self._ended = ended
        self._process: asyncio.subprocess.Process | None = None
        self._watching: asyncio.Task[None] | None = None
        self._first_pause = first_pause
        self._pause = 0.0
        self._again_at = 0.0
        self.restarts = restarts
        self.started = 0.0
        self.last: Ended | None = None

    @property
    def runs(self) -> bool:
        return self._process is not None

    @property
    def pause(self) -> float:
        """The current pause before a restart."""
        return self._pause

    def rest_left(self) -> float:
        """Seconds until it may be restarted."""
        return max(self._again_at - self._clock.monotonic(), 0.0)

    async def start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Raises OSError when it can't be started."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._logs.mkdir(parents=True, exist_ok=True)
        if self.last is not None:
            self.restarts += 1
        with (self._logs / "0.log").open("ab") as out:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                env=dict(environment),
                cwd=self._directory,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        self.started = self._clock.time()
        self._watching = asyncio.create_task(self._watch(self._process))

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        # Its remaining children are killed, as in a container.
        kill_group(process.pid, signal.SIGKILL)
        now = self._clock.time()
        steady = now - self.started >= STEADY_SECONDS
        self._pause = self._first_pause if steady or not self._pause else min(self._pause * 2, LONGEST_PAUSE)
        self._again_at = self._clock.monotonic() + self._pause
        self.last = Ended(128 - code if code < 0 else code, self.started, now)
        self._process = None
        self._ended()

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            kill_group(self._process.pid, number)

    async def gone(self) -> None:
        """Wait until it has ended."""
        if self._watching is not None:
            await asyncio.shield(self._watching)

    def trim_log(self) -> None:
        """Limit the size of its log file: the content moves to the former log."""
        path = self._logs / "0.log"
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size > LONGEST_LOG:
                shutil.copyfile(path, self._logs / "0.log.former")
                os.truncate(path, 0)


def kill_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


Obj = dict[str, Any]

# The interval of comparing mounted files with their sources.
_REFRESH: Final = 60.0
_CLOSING: Final = 10.0


class Sandbox:
    """One pod."""

    def __init__(self, pod: Obj, processes: dict[str, Process], directory: Path) -> None:
        self.uid = uid_of(pod)
        self.processes = processes
        self.directory = directory
        self.variables: dict[str, dict[str, str]] = {}
        self.condemned: float | None = None

    @property
    def volumes(self) -> Path:
        return self.directory / "volumes"

    @property
    def runs(self) -> bool:
        return any(process.runs for process in self.processes.values())


class Sandboxes:
    def __init__(
        self, config: NodeConfig, root: Path, client: Client, clock: Clock, events: Recorder, wake: Callable[[Key], None]
    ) -> None:
        """`wake` gets the key of a pod to reconcile again."""
        self.node = config.name
        self._config = config
        self._client = client
        self._clock = clock
        self._events = events
        self._wake = wake
        self._pods = root / "var/lib/kubelet/pods"
        self._logs = root / "var/log/pods"
        self._facts: Obj = {"spec.nodeName": config.name, "status.hostIP": config.internal_ip, "status.podIP": config.internal_ip}
        # Each of several hosts on one machine has an address of its own.
        loopback = ipaddress.ip_address(config.internal_ip).is_loopback
        self._own_address = config.internal_ip if loopback else "127.0.0.1"
        self._sources = Sources(client, clock)
        self._volumes = Volumes(self._sources, self._facts)
        self._sandboxes: dict[Key, Sandbox] = {}

    def runs(self, pod: Obj) -> bool:
        """Tells whether all containers of the pod are programs that we have."""
        if dig(pod, "spec", "initContainers"):
            return False
        return all(self._program(container) is not None for container in dig(pod, "spec", "containers") or ())

    def _program(self, container: Obj) -> BuiltinProgram | None:
        return program_of(container, self._config.programs)

    async def close(self) -> None:
        """End all processes when the node ends."""
        found = [process for sandbox in self._sandboxes.values() for process in sandbox.processes.values()]
        for process in found:
            process.signal(signal.SIGTERM)
        try:
            async with deadline(self._clock, _CLOSING):
                await asyncio.gather(*(process.gone() for process in found))
        except TimeoutError:
            for process in found:
                process.signal(signal.SIGKILL)
            await asyncio.gather(*(process.gone() for process in found))

    # --- starting a pod ---------------------------------------------------------------------------------------------------

    async def reconcile(self, key: Key, pod: Obj) -> Result:
        found = self._sandboxes.get(key)
        if found is not None and found.uid != uid_of(pod):
            await self.forget(key)
            found = None
        if has_ended(pod):
            return DONE
        if found is None:
            found = self._sandboxes[key] = self._sandbox(key, pod)
        try:
            await self._prepare(pod, found)
            again = await self._run(pod, found)
        except (VolumeError, OSError) as error:
            self._events.event(pod, WARNING, "Failed", f"Error: {error}")
            await self._say(key, pod, self._status(pod, found, str(error)))
            return Result(after=self._config.pace.retry)
        await self._say(key, pod, self._status(pod, found))
        return Result(after=again)

    def _sandbox(self, key: Key, pod: Obj) -> Sandbox:
        directory = self._pods / uid_of(pod)
        said = {each["name"]: each for each in dig(pod, "status", "containerStatuses") or ()}
        processes: dict[str, Process] = {}
        for container in dig(pod, "spec", "containers") or ():
            name = container["name"]
            logs = self._logs / f"{namespace_of(pod)}_{name_of(pod)}_{uid_of(pod)}" / name
            before = said.get(name)
            # A container that ran when the node ended is restarted now.
            restarts = int(before["restartCount"]) + 1 if before is not None and before.get("containerID") else 0
            processes[name] = Process(
                directory / name,
                logs,
                self._clock,
                lambda: self._wake(key),
                restarts=restarts,
                first_pause=self._config.pace.restart,
            )
        return Sandbox(pod, processes, directory)

    async def _prepare(self, pod: Obj, found: Sandbox) -> None:
        """Write current files and variables; while the API does not answer, keep the former ones."""
        try:
            await self._volumes.write(pod, found.volumes)
            for container in dig(pod, "spec", "containers") or ():
                if not found.processes[container["name"]].runs:
                    wanted = await environment(pod, container, self._sources, self._facts, self._given(pod))
                    found.variables[container["name"]] = wanted
        except ApiError:
            if len(found.variables) < len(found.processes):
                raise

    async def _run(self, pod: Obj, found: Sandbox) -> float:
        """Start the processes that should run and do not; the seconds until the next check."""
        again = _REFRESH
        for container in dig(pod, "spec", "containers") or ():
            process = found.processes[container["name"]]
            process.trim_log()
            if process.runs or not _starts(pod, process):
                continue
            if (left := process.rest_left()) > 0:
                why = f"Back-off restarting failed container {container['name']} in pod {name_of(pod)}"
                self._events.event(pod, WARNING, "BackOff", why)
                again = min(again, left)
                continue
            program = self._program(container)
            assert program is not None
            own = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(found.directory / container["name"])}
            if MARK in os.environ:
                # It identifies the host's processes when the host is removed.
                own[MARK] = os.environ[MARK]
            wanted = program.environment(found.variables[container["name"]])
            await process.start(program.command(place_in(container, found.volumes), self._own_address), wanted | own)
            self._events.event(pod, NORMAL, "Started", f"Started container {container['name']}")
        return again

    def _given(self, pod: Obj) -> dict[str, str]:
        """Variables of every container. The service's address does not work on a simulated node: the server's own does."""
        given = {"HOSTNAME": name_of(pod)}
        server = urlsplit(self._config.api_server)
        if server.hostname:
            given |= {"KUBERNETES_SERVICE_HOST": server.hostname, "KUBERNETES_SERVICE_PORT": str(server.port or 443)}
        return given

    # --- stopping a pod ---------------------------------------------------------------------------------------------------

    def stop(self, key: Key, pod: Obj) -> float | None:
        """Terminate the pod, then kill it; seconds to wait, or None when nothing of it is left."""
        found = self._sandboxes.get(key)
        if found is None or found.uid != uid_of(pod):
            self._remove(self._pods / uid_of(pod), uid_of(pod))
            return None
        if not found.runs:
            del self._sandboxes[key]
            self._remove(found.directory, found.uid)
            return None
        now = self._clock.monotonic()
        if found.condemned is None:
            found.condemned = now
            for name, process in found.processes.items():
                process.signal(signal.SIGTERM)
                self._events.event(pod, NORMAL, "Killing", f"Stopping container {name}")
        left = found.condemned + float(metadata(pod).get("deletionGracePeriodSeconds") or 0) - now
        if left <= 0:
            for process in found.processes.values():
                process.signal(signal.SIGKILL)
            # A killed process ends in a moment, and its end wakes us.
            return 1.0
        return left

    async def forget(self, key: Key) -> None:
        """Kill a pod at once that is deleted from the API."""
        found = self._sandboxes.pop(key, None)
        if found is None:
            return
        for process in found.processes.values():
            process.signal(signal.SIGKILL)
            await process.gone()
        self._remove(found.directory, found.uid)

    def _remove(self, directory: Path, uid: str) -> None:
        self._sources.forget(uid)
        shutil.rmtree(directory, ignore_errors=True)

    # --- the pod's status -------------------------------------------------------------------------------------------------

    def _status(self, pod: Obj, found: Sandbox, problem: str = "") -> Obj:
        now, address = self._clock.time(), self._config.internal_ip
        containers = [
            self._container(pod, each, found.processes[each["name"]], problem) for each in dig(pod, "spec", "containers") or ()
        ]
        states = [each["state"] for each in containers]
        if all("terminated" in state for state in states):
            phase = "Failed" if any(state["terminated"]["exitCode"] for state in states) else "Succeeded"
        else:
            begun = any("waiting" not in state or each["lastState"] for state, each in zip(states, containers, strict=True))
            phase = "Running" if begun else "Pending"
        return assembled(pod, phase, containers, address, address, now)

    def _container(self, pod: Obj, container: Obj, process: Process, problem: str) -> Obj:
        last = _terminated(process)
        if process.runs:
            state: Obj = {"running": {"startedAt": rfc3339(process.started)}}
        elif not _starts(pod, process) and last:
            state, last = last, {}
        elif problem:
            state = {"waiting": {"reason": "CreateContainerConfigError", "message": problem}}
        elif last:
            message = f"back-off {process.pause:.0f}s restarting failed container={container['name']}"
            state = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
        else:
            state = {"waiting": {"reason": "ContainerCreating"}}
        made = container_status(pod, container, state, ready=process.runs, restarts=process.restarts)
        return {**made, "lastState": last}

    async def _say(self, key: Key, pod: Obj, status: Obj) -> None:
        said = pod.get("status") or {}
        if is_being_deleted(pod) or all(said.get(field) == value for field, value in status.items()):
            return
        await self._client.patch(PODS, key.name, {"status": status}, key.namespace, subresource="status", field_manager=MANAGER)


def _starts(pod: Obj, process: Process) -> bool:
    """Tells whether to start it, also again after it has ended."""
    policy = dig(pod, "spec", "restartPolicy") or "Always"
    if process.last is None or policy == "Always":
        return True
    return policy == "OnFailure" and process.last.code != 0


def _terminated(process: Process) -> Obj:
    if (last := process.last) is None:
        return {}
    return {
        "terminated": {
            "exitCode": last.code,
            "reason": "Completed" if last.code == 0 else "Error",
            "startedAt": rfc3339(last.started),
            "finishedAt": rfc3339(last.finished),
        }
    }


# --- pod environment ------------------------------------------------------------------------------------------------------
#
# The environment of a container: the pod's own values, and those from Secrets, ConfigMaps and the pod's fields.

# `$(NAME)` is a reference; `$$(NAME)` is the text `$(NAME)`.
_REFERENCE = re.compile(r"\$(\$|\(([-._a-zA-Z][-._a-zA-Z0-9]*)\))")


def expanded(text: str, known: dict[str, str]) -> str:
    def replaced(found: re.Match[str]) -> str:
        if found[1] == "$":
            return "$"
        return known.get(found[2], found[0])

    return _REFERENCE.sub(replaced, text)


async def environment(pod: Obj, container: Obj, sources: Sources, node: Obj, given: dict[str, str]) -> dict[str, str]:
    """All variables; later ones may refer to earlier ones. Raises VolumeError."""
    namespace = namespace_of(pod)
    found = dict(given)
    for source in container.get("envFrom") or ():
        found |= await _from(source, namespace, sources)
    for variable in container.get("env") or ():
        if (origin := variable.get("valueFrom")) is None:
            found[variable["name"]] = expanded(variable.get("value") or "", found)
        elif (value := await _value(pod, origin, sources, node)) is not None:
            found[variable["name"]] = value
    return found


async def _from(source: Obj, namespace: str, sources: Sources) -> dict[str, str]:
    prefix = source.get("prefix") or ""
    values: dict[str, bytes] = {}
    if (reference := source.get("secretRef")) is not None:
        values = await sources.secret(Key(namespace, reference.get("name") or ""), bool(reference.get("optional")))
    elif (reference := source.get("configMapRef")) is not None:
        values = await sources.config_map(Key(namespace, reference.get("name") or ""), bool(reference.get("optional")))
    return {prefix + name: value.decode(errors="replace") for name, value in values.items()}


async def _value(pod: Obj, origin: Obj, sources: Sources, node: Obj) -> str | None:
    if (field := dig(origin, "fieldRef", "fieldPath")) is not None:
        return pod_field(pod, field, node)
    for kind, read in (("secretKeyRef", sources.secret), ("configMapKeyRef", sources.config_map)):
        if (reference := origin.get(kind)) is None:
            continue
        optional = bool(reference.get("optional"))
        values = await read(Key(namespace_of(pod), reference.get("name") or ""), optional)
        if reference["key"] in values:
            return values[reference["key"]].decode(errors="replace")
        if not optional:
            raise VolumeError(f"couldn't find key {reference['key']} in {reference.get('name')}")
    return None
