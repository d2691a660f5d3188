"""`container`: hosts that are containers with systemd, of podman or Docker on the server's own machine.

They have all rights there, so a user who may make such machines is as good as root on it: the driver is available only after an
administrator has activated it. The environment of the Job's runner says where the engine listens, never an option. The engine
itself restarts containers that ran when its machine went down.

Several servers on one etcd have an engine each, so the state of a machine says on which machine its container is: no other server
reports it as missing.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path

from remuda.kube import quantity

from ...driver import Driver, DriverError, Flag, FlagKind, Found, Keep, Machine, Options, Reason, State
from ...errors import elsewhere
from ...ssh import PRIVATE, ensure_key
from . import firstboot, host_image
from .engine import ContainerSpec, ContainerState, Engine, socket_of

_MACHINE, _OWNER, _TOKEN, _ADDRESS = "dev.remuda.machine", "dev.remuda.owner", "dev.remuda.token", "dev.remuda.address"
_STATES = {
    "running": State.RUNNING,
    "created": State.STARTING,
    "initialized": State.STARTING,
    "configured": State.STARTING,
    "restarting": State.STARTING,
    "paused": State.PAUSED,
    "stopping": State.STOPPING,
    "removing": State.STOPPING,
    "exited": State.STOPPED,
    "stopped": State.STOPPED,
    "dead": State.ERROR,
}
# How many addresses are tried.
_TRIES = 8
_ADDRESS_TRIES, _ADDRESS_PAUSE = 20, 0.5
_MACHINE_ID = Path("/etc/machine-id")


class Container(Driver):
    name = "container"
    title = "Containers on the server's own machine"
    flags = (
        Flag(
            "container-image",
            usage="Image with systemd, curl and Python 3.9; one of Debian is built if none is named",
            env="CONTAINER_IMAGE",
        ),
        Flag("container-network", usage="Network of the engine; its default network if none is named"),
        Flag("container-memory", usage="Most memory, such as 4Gi"),
        Flag("container-cpus", usage="Most processors, such as 2 or 1.5"),
        Flag("container-init", default="/sbin/init", usage="Program that is the first process"),
        Flag("container-ssh-user", default="root", usage="SSH user, if the image has an SSH server"),
        Flag("container-ssh-port", FlagKind.INT, 22, usage="SSH port, if the image has an SSH server"),
        Flag("container-userdata", usage="File with user data: a script, or cloud-config"),
    )
    file_fields = {"userdata": "userdata"}
    own_loopback = True
    active = False

    async def precreate(self, machine: Machine) -> None:
        wanted = _wanted(machine)
        await asyncio.to_thread(_first_boot, machine, "")
        async with self._engine() as engine:
            if (seen := await engine.seen(wanted.name)) is not None:
                raise _taken(seen)
            await self._ensure_image(engine, wanted.image)

    async def create(self, machine: Machine, keep: Keep) -> None:
        wanted = _wanted(machine)
        _check_here(machine)
        key = await asyncio.to_thread(ensure_key, machine.directory)
        options = machine.options
        await keep(
            {
                "ContainerName": wanted.name,
                "SSHUser": options.text("ssh-user"),
                "SSHPort": options.number("ssh-port"),
                "SSHKeyPath": str(machine.directory / PRIVATE),
                "EngineID": _here(),
                "EngineAt": os.uname().nodename,
            }
        )
        async with self._engine() as engine:
            await self._ensure_image(engine, wanted.image)
            tried: set[str] = set()
            while not await self._started(engine, machine, wanted, key, keep, tried):
                self.around.say("its address is in use: another one is tried")
            await keep({"IPAddress": await self._address(engine, machine)})

    async def _started(
        self, engine: Engine, machine: Machine, wanted: ContainerSpec, key: str, keep: Keep, tried: set[str]
    ) -> bool:
        """False if its address, which is then in `tried`, turned out to be in use: the container is gone."""
        placed = await _placed(engine, wanted, machine.token, tried)
        await engine.create(placed)
        seen = await _ours(engine, machine)
        if seen is None:
            raise _taken(await engine.seen(wanted.name))
        await keep({"ContainerID": seen.id})
        new = _STATES.get(seen.status) is State.STARTING
        if new:
            await engine.put(wanted.name, await asyncio.to_thread(_first_boot, machine, key))
        try:
            await engine.start(wanted.name)
        except DriverError as error:
            if not new or len(tried) >= _TRIES or not is_taken(error.message):
                raise
            tried |= {seen.labels.get(_ADDRESS, ""), placed.address}
            await engine.remove(wanted.name)
            return False
        return True

    async def remove(self, machine: Machine, keep: Keep) -> None:
        _check_here(machine)
        async with self._engine() as engine:
            if await _ours(engine, machine) is not None:
                await engine.remove(_name(machine))

    async def state(self, machine: Machine) -> State:
        _check_here(machine)
        async with self._engine() as engine:
            seen = await _ours(engine, machine)
        return State.NOT_FOUND if seen is None else _STATES.get(seen.status, State.ERROR)

    async def owned(self, options: Options, owner: str) -> list[Found]:
        found = []
        async with self._engine() as engine:
            for name in await engine.labelled(f"{_OWNER}={owner}"):
                seen = await engine.seen(name)
                if seen is not None:
                    found.append(
                        Found(
                            id=seen.id,
                            machine=seen.labels.get(_MACHINE, ""),
                            token=seen.labels.get(_TOKEN, ""),
                            what="container",
                            address=seen.address,
                            created=seen.created,
                            state=_STATES.get(seen.status, State.ERROR),
                        )
                    )
        return found

    async def _ensure_image(self, engine: Engine, image: str) -> None:
        if image == host_image.NAME:
            await host_image.ensure(engine, self.around)
        elif not await engine.has_image(image):
            self.around.say(f"pulling the image {image}")
            await engine.pull(image, self.around.say)
            self.around.say(f"the image {image} was pulled")

    @asynccontextmanager
    async def _engine(self) -> AsyncIterator[Engine]:
        engine = Engine(socket_of(self.around.environ), self.around.clock)
        try:
            yield engine
        finally:
            await engine.close()

    async def _address(self, engine: Engine, machine: Machine) -> str:
        for _ in range(_ADDRESS_TRIES):
            seen = await _ours(engine, machine)
            if seen is None or _STATES.get(seen.status) in (State.STOPPED, State.ERROR):
                raise DriverError(Reason.FAILED, "the container ended at once: does its image have systemd?", field="image")
            if seen.address:
                return seen.address
            await self.around.clock.sleep(_ADDRESS_PAUSE)
        raise DriverError(
            Reason.INVALID, "the container has no address of its own: name a network of the engine", field="network"
        )


async def _ours(engine: Engine, machine: Machine) -> ContainerState | None:
    """This machine's container; None when there is none, or when one of that name is not ours."""
    seen = await engine.seen(_name(machine))
    return seen if seen is not None and seen.labels.get(_TOKEN) == machine.token else None


async def _placed(engine: Engine, wanted: ContainerSpec, token: str, tried: Collection[str]) -> ContainerSpec:
    """The container's spec with a fixed address, if the engine permits a choice."""
    network = next(filter(None, map(network_of, await engine.subnets(wanted.network))), None)
    if network is None:
        return wanted
    address = chosen(network, token, {*tried, *await engine.noted(_ADDRESS)})
    return replace(wanted, address=address, labels={**wanted.labels, _ADDRESS: address}) if address else wanted


def _here() -> str:
    """The id of this machine, hashed, since the id itself is private; empty if unknown, as in most containers."""
    try:
        found = _MACHINE_ID.read_text().strip()
    except OSError:
        return ""
    return hashlib.sha256(f"remuda {found}".encode()).hexdigest()[:32] if found else ""


def _check_here(machine: Machine) -> None:
    """Raise DriverError when the machine's container was made by another machine's engine."""
    known, here = str(machine.state.get("EngineID") or ""), _here()
    if known and here and known != here:
        where = str(machine.state.get("EngineAt") or "another machine")
        raise elsewhere(f"the container {_name(machine)}", where, os.uname().nodename)


def _name(machine: Machine) -> str:
    return str(machine.state.get("ContainerName") or machine.name)


def _wanted(machine: Machine) -> ContainerSpec:
    options = machine.options
    image = options.text("image") or host_image.NAME
    labels = {_MACHINE: machine.name, _OWNER: machine.owner, _TOKEN: machine.token}
    return ContainerSpec(
        name=machine.name,
        image=image,
        hostname=machine.hostname,
        command=(options.text("init"),),
        labels=labels,
        network=options.text("network"),
        memory=int(_amount(options, "memory")),
        cpus=_amount(options, "cpus"),
    )


def _amount(options: Options, name: str) -> float:
    said = options.text(name)
    if not said:
        return 0.0
    try:
        found = quantity.parse(said)
        amount = found.unscaled * 10.0**found.exponent
    except (ValueError, OverflowError):
        amount = -1.0
    if not 0 < amount < 1e15:
        raise DriverError(Reason.INVALID, f"{said!r} is not an amount such as 4Gi or 1.5", field=options.field(name))
    return amount


def _first_boot(machine: Machine, key: str) -> bytes:
    named = machine.options.text("userdata")
    return firstboot.archive(Path(named).read_text() if named else "", key)


def _taken(seen: ContainerState | None) -> DriverError:
    whose = seen.labels.get(_MACHINE, "") if seen is not None else ""
    what = f"of the machine {whose}" if whose else "which was not made by this driver"
    return DriverError(Reason.CONFLICT, f"there is a container {seen.name if seen else ''} already, {what}")


# --- addresses -------------------------------------------------------------------------------------------------------------
#
# The address of a container, which stays the same after each start, as a host's does: etcd knows its members by it. Pure.
#
# Engines give containers any address when they start, from the lower end on. So ours are in the upper half of the network, at a
# place derived from the machine's token; addresses in use are asked for, and one taken at the same moment is noticed when the
# container starts.

_PLACES_TRIED, _LOOKED_AT = 64, 4096
# Below that there is nothing to choose from.
_SMALLEST = 8
_TAKEN = ("in use", "not available", "already allocated")


def network_of(text: str) -> IPv4Network | None:
    """The network; None unless it is IPv4 and large enough to choose from."""
    try:
        found = IPv4Network(text, strict=False)
    except ValueError:
        return None
    return found if found.num_addresses >= _SMALLEST else None


def chosen(network: IPv4Network, token: str, taken: Collection[str]) -> str:
    """An address that is always the same for the same token while it is free; empty when all seem to be taken."""
    half = network.num_addresses // 2
    for number in range(_PLACES_TRIED):
        digest = hashlib.sha256(f"{token}/{number}".encode()).digest()
        # Not the last one, which is the broadcast address.
        found = str(network.network_address + half + int.from_bytes(digest[:8]) % (half - 1))
        if found not in taken:
            return found
    upper = range(half, min(network.num_addresses - 1, half + _LOOKED_AT))
    return next((each for each in (str(network.network_address + number) for number in upper) if each not in taken), "")


def is_taken(message: str) -> bool:
    """True if an engine says that the address is taken."""
    said = message.lower()
    return "address" in said and any(each in said for each in _TAKEN)
