"""A driver: one kind of provider of machines, behind a few verbs. docs/drivers.md shows how to ship one.

A driver is told what to make (:class:`Machine`, with the user's :class:`Options`) and reports what it did through `keep`, which
is durable when it returns. It keeps *before* a step that can't be taken back (which name, which token it will use) and after it
(which identifier came of it), so that a Job that is killed at any point continues where it was or finds its machine by the token;
nothing is made twice or forgotten. The program around it is :mod:`.provisioner`; :mod:`.driver_registry` finds a driver by its
name; a user reads of a failure in the :class:`~.errors.DriverError` that a driver raises.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

from remuda.kube.clock import SYSTEM_CLOCK, Clock, Entropy, Rng
from remuda.kube.network.outbound import Policy

from .errors import DriverError, Reason
from .options import Flag, FlagKind, Options

__all__ = [
    "ASIDE",
    "OWNER_VARIABLE",
    "Bootstrapping",
    "Driver",
    "DriverContext",
    "DriverError",
    "Flag",
    "FlagKind",
    "Found",
    "Keep",
    "Machine",
    "Options",
    "Reason",
    "State",
]

# In a Job's environment: the owner of the machines. One Remuda always has the same: the UID of its namespace kube-system.
OWNER_VARIABLE = "REMUDA_OWNER"
# Begins a line of a Job's output that is for the server's log alone: tenants read the Job's.
ASIDE = "\x1f"


class State(StrEnum):
    """The state of a machine, in rancher-machine's words."""

    STARTING = "Starting"
    RUNNING = "Running"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    PAUSED = "Paused"
    ERROR = "Error"
    NOT_FOUND = "NotFound"


class Bootstrapping(StrEnum):
    """The ways in which the bootstrap script comes to run on a machine."""

    USERDATA = "userdata"  # merged into the user data that the driver's flag `userdata` names: cloud-init runs it
    SSH = "ssh"  # the program runs it, over SSH
    DRIVER = "driver"  # the driver's own `bootstrap` does


@dataclass(frozen=True, slots=True)
class DriverContext:
    """The parts of the outside world that a driver may use; tests replace them. `say` takes a line of progress for the log, which
    tenants read. `outbound` says which addresses it may connect to."""

    clock: Clock = SYSTEM_CLOCK
    entropy: Entropy = field(default_factory=Entropy)
    rng: Rng = field(default_factory=Rng)
    environ: Mapping[str, str] = field(default_factory=dict)
    say: Callable[[str], None] = lambda line: None
    outbound: Policy = field(default_factory=Policy.of)


@dataclass(slots=True)
class Machine:
    """One machine as a driver sees it.

    `state` is what the driver has kept of it so far: the object `Driver` of the machine's config.json, so its keys are those of
    rancher-machine's driver of the same name where there is one (`InstanceId`, `DropletID`, …), and an archive of either program
    is understood by the other. Read it; change it only through `keep`.
    """

    name: str
    options: Options
    # A directory whose files are kept with the state (`id_rsa`, `id_rsa.pub`); only this user can read them.
    directory: Path
    hostname: str = ""
    # Random, kept before `create` is called for the first time, never changed: for client tokens and tags.
    token: str = ""
    # The machine's owner (OWNER_VARIABLE): for tags, and so for `owned`.
    owner: str = ""
    state: Mapping[str, Any] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return str(self.state.get("IPAddress") or self.state.get("IPv6Address") or "")


@dataclass(frozen=True, slots=True)
class Found:
    """A resource at a provider that has an owner's tag. `what` is its kind in the provider's words ("instance", "key pair")."""

    id: str
    machine: str
    token: str = ""
    what: str = "machine"
    address: str = ""
    created: str = ""
    state: State = State.RUNNING


# Changes fields of a machine's `state` (and keeps the files in its directory); durable when it returns.
Keep = Callable[[Mapping[str, Any]], Awaitable[None]]


class Driver(ABC):
    """One kind of provider of machines. Every verb may be called again after a kill at any point of the last call.

    Failures are raised as :class:`DriverError`, with a reason that a user can act on; any other exception is our own fault.
    """

    # As in `create --driver NAME` and in the kinds `<Name>Config`, `<Name>Machine`, `<Name>MachineTemplate`: no dashes.
    name: ClassVar[str]
    # The name on a page.
    title: ClassVar[str] = ""
    # Each name begins with the driver's and a dash.
    flags: ClassVar[tuple[Flag, ...]]
    bootstrapping: ClassVar[Bootstrapping] = Bootstrapping.USERDATA
    # The flag (without the driver's name) that takes a file with user data; one with the script merged in replaces it.
    userdata: ClassVar[str] = "userdata"
    # The pip extra with the driver's dependencies: `pip install remuda[EXTRA]`. Modules of the extra are imported in the verbs.
    extra: ClassVar[str] = ""
    # Fields of its cloud credential, and other inputs of its schemas: names of fields, not of flags (`accessKey`).
    public_fields: ClassVar[tuple[str, ...]] = ()
    private_fields: ClassVar[tuple[str, ...]] = ()
    optional_fields: ClassVar[tuple[str, ...]] = ()
    password_fields: ClassVar[tuple[str, ...]] = ()
    # Fields that hold a file's content, by the field whose flag takes the path of that file: {"userdata": "userdata"}.
    file_fields: ClassVar[Mapping[str, str]] = {}
    # True if its machines are on this machine and have a loopback of their own, on which no server of ours listens.
    own_loopback: ClassVar[bool] = False
    # True if pools may use it at once, False if an administrator has to activate it first.
    active: ClassVar[bool] = True

    def __init__(self, surroundings: DriverContext | None = None) -> None:
        self.around = surroundings or DriverContext()

    def restored(self, state: Mapping[str, Any]) -> Mapping[str, object]:
        """Options, by name without the driver's, as far as they can be read from a state that rancher-machine wrote: for removing
        its machines. Ours are kept beside the state."""
        return {}

    async def precreate(self, machine: Machine) -> None:
        """Check for later failures, without cost. Changes nothing; not called again once `create` has begun."""
        return

    @abstractmethod
    async def create(self, machine: Machine, keep: Keep) -> None:
        """Create the machine, and return when it exists and `IPAddress` (or `IPv6Address`) is kept; with SSH also `SSHUser` and
        `SSHPort`. The program waits afterwards until `state` says Running. When called again it continues from `machine.state`,
        or finds what an interrupted call made by `machine.token`.
        """

    async def bootstrap(self, machine: Machine, script: str, keep: Keep) -> None:
        """Run the bootstrap script, if `bootstrapping` is DRIVER. May be called again."""
        raise DriverError(Reason.INVALID, f"the driver {self.name} can't run a bootstrap script itself")

    @abstractmethod
    async def remove(self, machine: Machine, keep: Keep) -> None:
        """Until nothing is left of the machine at the provider, whether `create` has ended or not; nothing there is no error."""

    @abstractmethod
    async def state(self, machine: Machine) -> State:
        """The machine's state now; NOT_FOUND when there is none."""

    async def owned(self, options: Options, owner: str) -> list[Found]:
        """All resources at the provider (as far as these options reach: a region, a project) that have this owner's tag."""
        return []

    async def verify(self, options: Options) -> None:
        """Ask the provider, cheaply, whether it takes these credentials; raises DriverError(AUTH_FAILED, …, field=…)."""
        return

    async def aclose(self) -> None:
        """Close connections."""
        return
