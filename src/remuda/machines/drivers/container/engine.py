"""Podman or Docker by its socket: the few calls that the driver needs, with a variant for each where they differ.

Podman's own API is used, not its Docker-compatible one, since only that has `systemd=false` and a choice of the control group's
namespace.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
from yarl import URL

from remuda.kube.clock import Clock, deadline

from ...errors import DriverError, Reason

Obj = dict[str, Any]

_SECONDS, _LONG_SECONDS = 120.0, 1800.0
# Between two lines of the same step.
_LINE_SECONDS = 5.0
_WIDEST = 200
_LIBPOD, _DOCKER = "/v4.0.0/libpod", "/v1.41"
_PLACES = ("/run/podman/podman.sock", "/var/run/docker.sock")


@dataclass(frozen=True, slots=True)
class ContainerState:
    """A container as the engine has it. `status` is the engine's own word."""

    id: str
    name: str
    labels: Mapping[str, str]
    status: str
    address: str = ""
    created: str = ""


def socket_of(environ: Mapping[str, str]) -> Path:
    """The socket on which the engine listens; raises DriverError."""
    for variable in ("CONTAINER_HOST", "DOCKER_HOST"):
        said = environ.get(variable, "")
        if said.startswith("unix://"):
            return Path(said.removeprefix("unix://"))
        if said:
            raise DriverError(Reason.INVALID, f"{variable} must begin with unix://: containers are made on this machine only")
    own = environ.get("XDG_RUNTIME_DIR", "")
    tried = ((f"{own}/podman/podman.sock",) if own else ()) + _PLACES
    found = next((place for place in tried if Path(place).is_socket()), None)
    if found is None:
        raise DriverError(
            Reason.MISSING_PROGRAM,
            f"neither podman nor Docker listens ({', '.join(tried)}): systemctl enable --now podman.socket",
        )
    return Path(found)


class ProgressLines:
    """A few readable lines of the hundreds that an engine says while it pulls or builds: each step, and what it does every five
    seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next = 0.0
        self.problem = ""

    def of(self, said: Obj) -> str:
        """The line to show for one message; mostly none."""
        if problem := said.get("error"):
            self.problem = " ".join(str(problem).split())
        words = str(said.get("stream") or " ".join(filter(None, map(str, (said.get("status"), said.get("progress"))))))
        text = " ".join(words.split())
        now = self._clock.monotonic()
        is_step = text.lower().startswith("step ")
        if not text or (now < self._next and not is_step):
            return ""
        self._next = now + _LINE_SECONDS
        return text[:_WIDEST]


class Engine:
    """Connects when it is first asked; close it."""

    def __init__(self, socket: Path, clock: Clock) -> None:
        self._socket = socket
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self._podman: bool | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    @property
    def socket(self) -> Path:
        return self._socket

    async def has_image(self, image: str) -> bool:
        podman, name = await self._is_podman(), quote(image, safe="")
        path = f"{_LIBPOD}/images/{name}/exists" if podman else f"{_DOCKER}/images/{name}/json"
        return (await self._ask("GET", path, passing=(404,)))[0] != 404

    async def pull(self, image: str, told: Callable[[str], None]) -> None:
        """`told` gets lines of progress. Raises DriverError."""
        podman = await self._is_podman()
        path, query = (f"{_LIBPOD}/images/pull", {"reference": image}) if podman else (f"{_DOCKER}/images/create", _tagged(image))
        if problem := await self._follow(path, query, told):
            raise DriverError(Reason.NOT_FOUND, f"the image {image} can't be pulled: {problem}", field="image")

    async def build(self, image: str, context: bytes, told: Callable[[str], None]) -> None:
        """`context` is a tar archive with a Containerfile; `told` gets lines of progress. Raises DriverError."""
        query = {"t": image, "dockerfile": "Containerfile", "networkmode": "host", "rm": "true", "forcerm": "true"}
        # Podman serves this part of Docker's API, too.
        if problem := await self._follow(f"{_DOCKER}/build", query, told, context):
            message = f"the image {image} can't be built: {problem}. Name an image of your own, or mend what the text says"
            raise DriverError(Reason.UNAVAILABLE, message, retryable=True, field="image")

    async def _follow(self, path: str, query: Mapping[str, str], told: Callable[[str], None], data: bytes | None = None) -> str:
        """Tell the progress of a long request; return its error, which comes last in an answer that began with 200."""
        lines = ProgressLines(self._clock)
        half = b""
        async with self._answer("POST", path, query, data=data, seconds=_LONG_SECONDS) as answer:
            if answer.status >= 300:
                raise _refused(answer.status, await answer.text(errors="replace"), path)
            async for chunk in answer.content.iter_any():
                *whole, half = (half + chunk).split(b"\n")
                for line in whole:
                    if text := lines.of(_object(line.decode(errors="replace"))):
                        told(text)
        lines.of(_object(half.decode(errors="replace")))
        return lines.problem

    async def create(self, wanted: ContainerSpec) -> bool:
        """False when there is a container of that name already. Raises DriverError."""
        if await self._is_podman():
            status, _ = await self._ask("POST", f"{_LIBPOD}/containers/create", body=libpod_spec(wanted), passing=(409, 500))
            # Podman says 500 for a name that is taken, in some versions.
            if status == 500 and await self.seen(wanted.name) is None:
                await self._ask("POST", f"{_LIBPOD}/containers/create", body=libpod_spec(wanted))
                return True
            return status not in (409, 500)
        status, _ = await self._ask(
            "POST", f"{_DOCKER}/containers/create", {"name": wanted.name}, body=docker_spec(wanted), passing=(409,)
        )
        return status != 409

    async def put(self, name: str, tar: bytes) -> None:
        """Unpack an archive in its root."""
        await self._ask("PUT", await self._of(name, "archive"), {"path": "/"}, data=tar)

    async def start(self, name: str) -> None:
        await self._ask("POST", await self._of(name, "start"), passing=(304,))

    async def remove(self, name: str) -> None:
        """Remove the container with all that it has written, at once; a missing one is no error."""
        how = {"volumes": "true", "timeout": "0"} if await self._is_podman() else {"v": "true"}
        await self._ask("DELETE", await self._of(name, ""), {"force": "true", **how}, passing=(404,))

    async def seen(self, name: str) -> ContainerState | None:
        status, said = await self._ask("GET", await self._of(name, "json"), passing=(404,))
        return None if status == 404 else _seen(_object(said))

    async def labelled(self, label: str) -> list[str]:
        """The names of all containers with this label."""
        base = _LIBPOD if await self._is_podman() else _DOCKER
        filters = json.dumps({"label": [label]})
        _, said = await self._ask("GET", f"{base}/containers/json", {"all": "true", "filters": filters})
        listed = json.loads(said) or []
        return sorted(str((each.get("Names") or [each.get("Id")])[0]).lstrip("/") for each in listed)

    async def noted(self, label: str) -> set[str]:
        """The values of this label, of all containers."""
        base = _LIBPOD if await self._is_podman() else _DOCKER
        _, said = await self._ask("GET", f"{base}/containers/json", {"all": "true", "filters": json.dumps({"label": [label]})})
        return {str((each.get("Labels") or {}).get(label) or "") for each in json.loads(said) or []} - {""}

    async def subnets(self, network: str) -> list[str]:
        """The subnets of a network in which a container can keep its address; else none. Raises DriverError."""
        podman = await self._is_podman()
        if not podman and not network:
            # Docker allows no choice of addresses in its default network.
            return []
        name = quote(network or PODMANS, safe="")
        path = f"{_LIBPOD}/networks/{name}/json" if podman else f"{_DOCKER}/networks/{name}"
        status, said = await self._ask("GET", path, passing=() if network else (404,))
        found = _object(said) if status != 404 else {}
        if podman:
            return [str(each.get("subnet") or "") for each in found.get("subnets") or []]
        return [str(each.get("Subnet") or "") for each in (found.get("IPAM") or {}).get("Config") or []]

    async def _of(self, name: str, what: str) -> str:
        base = _LIBPOD if await self._is_podman() else _DOCKER
        return f"{base}/containers/{quote(name, safe='')}{f'/{what}' if what else ''}"

    async def _is_podman(self) -> bool:
        if self._podman is None:
            status, _ = await self._ask("GET", f"{_LIBPOD}/_ping", passing=(400, 404))
            self._podman = status == 200
        return self._podman

    async def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Obj | None = None,
        data: bytes | None = None,
        passing: tuple[int, ...] = (),
        seconds: float = _SECONDS,
    ) -> tuple[int, str]:
        """Status and answer; raises DriverError for statuses that are neither good nor `passing`."""
        async with self._answer(method, path, query, body, data, seconds) as answer:
            said = await answer.text(errors="replace")
        if answer.status < 300 or answer.status in passing:
            return answer.status, said
        raise _refused(answer.status, said, path)

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Obj | None = None,
        data: bytes | None = None,
        seconds: float = _SECONDS,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer while it is read, which is limited in time, too. Raises DriverError."""
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None)
            self._session = aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(self._socket)), timeout=timeout)
        content = json.dumps(body).encode() if body is not None else data
        kind = "application/json" if body is not None else "application/x-tar"
        url = URL(f"http://engine{path}", encoded=True).update_query(query or {})
        try:
            async with (
                deadline(self._clock, seconds),
                self._session.request(
                    method, url, data=content, headers={"Content-Type": kind} if content is not None else None
                ) as answer,
            ):
                yield answer
        except TimeoutError:
            raise DriverError(Reason.TIMED_OUT, f"the container engine did not answer within {seconds:.0f} s") from None
        except PermissionError:
            raise DriverError(Reason.PERMISSION_DENIED, f"{self._socket} may not be used by this user") from None
        except (aiohttp.ClientError, OSError) as error:
            refused = isinstance(getattr(error, "os_error", None), PermissionError)
            reason = Reason.PERMISSION_DENIED if refused else Reason.UNAVAILABLE
            raise DriverError(reason, f"the container engine at {self._socket} can't be reached: {error}") from None


def _refused(status: int, said: str, path: str) -> DriverError:
    found = _object(said)
    message = " ".join(str(found.get("message") or found.get("cause") or said or status).split())
    if "no such image" in message.lower() or (status == 404 and "/images/" in path):
        return DriverError(Reason.NOT_FOUND, message, field="image")
    if status in (400, 404) and "network" in message.lower():
        return DriverError(Reason.NOT_FOUND, message, field="network")
    reasons = {400: Reason.INVALID, 403: Reason.PERMISSION_DENIED, 404: Reason.NOT_FOUND, 409: Reason.CONFLICT}
    return DriverError(reasons.get(status, Reason.FAILED), f"the container engine refused: {message}")


def _seen(said: Obj) -> ContainerState:
    networks = (said.get("NetworkSettings") or {}).get("Networks") or {}
    addresses = [str((said.get("NetworkSettings") or {}).get("IPAddress") or "")]
    addresses += [str((each or {}).get("IPAddress") or "") for each in networks.values()]
    return ContainerState(
        id=str(said.get("Id") or ""),
        name=str(said.get("Name") or "").lstrip("/"),
        labels=dict((said.get("Config") or {}).get("Labels") or {}),
        status=str((said.get("State") or {}).get("Status") or ""),
        address=next((each for each in addresses if each), ""),
        created=str(said.get("Created") or ""),
    )


def _tagged(image: str) -> dict[str, str]:
    """Docker takes all tags if none is named."""
    last = image.rpartition("/")[2]
    return {"fromImage": image} if ":" in last or "@" in last else {"fromImage": image, "tag": "latest"}


def _object(text: str) -> Obj:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


# --- spec -----------------------------------------------------------------------------------------------------------------
#
# The spec of a container that is a host: systemd as its first process, with all rights, and a control group of its own. Pure.

# The network of podman that containers are in when none is named.
PODMANS = "podman"
# The signal by which systemd halts; podman needs its number.
_HALT, _HALT_NUMBER = "SIGRTMIN+3", 37
_LIMITS = {"nofile": 20000, "nproc": 30000}
# Not on the container's own layers, on which no other layers can be put.
_VOLUMES = ("/var/lib/rancher", "/var/lib/kubelet")
_TEMPORARY = {"/run": "rw,nosuid,nodev,exec,mode=755", "/run/lock": "rw,nosuid,nodev,noexec,mode=755"}


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """`memory` is in bytes, `cpus` in whole processors; 0, an empty network and an empty address mean the engine's default."""

    name: str
    image: str
    hostname: str
    command: tuple[str, ...] = ("/sbin/init",)
    labels: Mapping[str, str] = field(default_factory=dict)
    network: str = ""
    address: str = ""
    memory: int = 0
    cpus: float = 0.0


def libpod_spec(wanted: ContainerSpec) -> Obj:
    """The container's specification for podman's own API."""
    limits: Obj = {}
    if wanted.memory:
        limits["memory"] = {"limit": wanted.memory}
    if wanted.cpus:
        limits["cpu"] = {"period": 100_000, "quota": int(wanted.cpus * 100_000)}
    spec: Obj = {
        "name": wanted.name,
        "image": wanted.image,
        "hostname": wanted.hostname,
        "entrypoint": [],
        "command": list(wanted.command),
        "env": {"container": "podman"},
        "labels": dict(wanted.labels),
        "privileged": True,
        # Its own idea of systemd is one with a control group that is shared.
        "systemd": "false",
        "cgroupns": {"nsmode": "private"},
        "mounts": [
            {"destination": path, "type": "tmpfs", "source": "tmpfs", "options": options.split(",")}
            for path, options in _TEMPORARY.items()
        ],
        "volumes": [{"Name": "", "Dest": path} for path in _VOLUMES],
        "stop_signal": _HALT_NUMBER,
        "r_limits": [{"type": name, "hard": most, "soft": most} for name, most in _LIMITS.items()],
        "restart_policy": "unless-stopped",
        "netns": {"nsmode": "bridge"},
    }
    if wanted.network or wanted.address:
        spec["Networks"] = {wanted.network or PODMANS: {"static_ips": [wanted.address]} if wanted.address else {}}
    if limits:
        spec["resource_limits"] = limits
    return spec


def docker_spec(wanted: ContainerSpec) -> Obj:
    """The container's specification for Docker's API, without the name."""
    endpoint = {wanted.network: {"IPAMConfig": {"IPv4Address": wanted.address}}} if wanted.network and wanted.address else {}
    return {
        "Image": wanted.image,
        "Hostname": wanted.hostname,
        "Entrypoint": [],
        "Cmd": list(wanted.command),
        "Env": ["container=docker"],
        "Labels": dict(wanted.labels),
        "StopSignal": _HALT,
        "Volumes": {path: {} for path in _VOLUMES},
        "NetworkingConfig": {"EndpointsConfig": endpoint},
        "HostConfig": {
            "Privileged": True,
            "CgroupnsMode": "private",
            "Tmpfs": dict(_TEMPORARY),
            "Ulimits": [{"Name": name, "Soft": most, "Hard": most} for name, most in _LIMITS.items()],
            "RestartPolicy": {"Name": "unless-stopped"},
            "NetworkMode": wanted.network or "bridge",
            "Memory": wanted.memory,
            "NanoCpus": int(wanted.cpus * 1_000_000_000),
        },
    }
