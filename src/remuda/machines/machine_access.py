"""Access to a machine: address, user and key from its state Secret, and the zip in which a user gets them. Pure.

The state was written by our program or by rancher-machine (:mod:`.machine_state`). The zip is Rancher's
(docs/reference/proxy.md#ssh-keys-and-shells-of-machines), and also has the host's keys, where they are known.
"""

from __future__ import annotations

import base64
import io
import json
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from remuda.kube.clock import Clock, deadline
from remuda.kube.encoding import jsonio
from remuda.kube.network.outbound import Policy
from remuda.kube.objects import dig
from remuda.provisioning.well_known import MACHINE_GROUP

from . import machine_state, ssh
from .errors import DriverError, Reason
from .machine_state import CONFIG, KNOWN_HOSTS

if TYPE_CHECKING:
    import asyncssh


Obj = dict[str, Any]

# Beside the archive, in the same Secret: the host key that was seen on the first connection through the server.
PINNED = "knownHosts"
PRIVATE, PUBLIC = "id_rsa", "id_rsa.pub"
_EARLIEST = (1980, 1, 1, 0, 0, 0)
_READ_ONLY = 0o100400


# Its machines are directories and processes of the server's own machine, and run as the server's user.
_BESIDE_THE_SERVER = "LocalMachine"


class NoAccess(Exception):
    """The machine can't be accessed; the text says why."""


def is_beside_the_server(machine: Obj) -> bool:
    """True if a Machine is one of the driver `local`, which can't be accessed through the server: a shell there would be one on
    the server's own machine, as the server's own user, with its keys and all credentials at hand. A user who may do that logs in
    there, under an account of that machine."""
    ref = dig(machine, "spec", "infrastructureRef") or {}
    return ref.get("apiGroup") == MACHINE_GROUP and ref.get("kind") == _BESIDE_THE_SERVER


def refusal(name: str) -> str:
    """The reason why such a machine can't be accessed from elsewhere, and what to do instead."""
    return (
        f"{name} is a machine of the driver local, on the server's own machine: a shell in it would be one as the server's user, "
        f"so none is given from elsewhere. Log in there as that user, and run: remuda ssh {name}"
    )


@dataclass(frozen=True, slots=True)
class MachineAccess:
    name: str
    driver: str
    user: str
    port: int
    address: str
    address6: str
    private: bytes = field(default=b"", repr=False)
    public: bytes = b""
    # Kind and key, as :mod:`.ssh` pins it; empty before the first connection.
    host_key: str = ""

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(each for each in (self.address, self.address6) if each)

    @property
    def known_hosts(self) -> str:
        """The host's key as the file that `ssh` reads."""
        shown = [each if self.port == 22 else f"[{each}]:{self.port}" for each in self.addresses]
        return "".join(f"{each} {self.host_key}\n" for each in shown) if self.host_key else ""


def access_of(secret: Obj) -> MachineAccess:
    """The access that a state Secret describes; raises NoAccess."""
    data = _data(secret)
    packed = data.get(machine_state.KEY, b"")
    if not packed:
        raise NoAccess("nothing is known of the machine yet: it is still being made")
    try:
        names = machine_state.machines(packed)
        files = machine_state.read(packed, names[0])[1] if names else {}
        config = jsonio.loads(files[CONFIG]) if CONFIG in files else None
    except (machine_state.ArchiveError, ValueError) as error:
        raise NoAccess(f"what is kept of the machine can't be read: {error}") from None
    if not names:
        raise NoAccess("the machine has been removed")
    driver = config.get("Driver") if isinstance(config, dict) else None
    if not isinstance(config, dict) or not isinstance(driver, dict):
        raise NoAccess("nothing is known of the machine yet: it is still being made")
    return MachineAccess(
        name=str(driver.get("MachineName") or names[0]),
        driver=str(config.get("DriverName") or ""),
        user=str(driver.get("SSHUser") or "root"),
        port=_port(driver.get("SSHPort")),
        address=str(driver.get("IPAddress") or ""),
        address6=str(driver.get("IPv6Address") or ""),
        private=files.get(PRIVATE, b""),
        public=files.get(PUBLIC, b""),
        host_key=_host_key(files.get(KNOWN_HOSTS, b"") or data.get(PINNED, b"")),
    )


def zipped(access: MachineAccess) -> bytes:
    """The keys as a user downloads them; raises NoAccess when there are none."""
    if not access.private:
        raise NoAccess(f"machines of the driver {access.driver} have no SSH key")
    config = {
        "IPAddress": access.address,
        "IPv6Address": access.address6,
        "SSHUser": access.user,
        "SSHPort": access.port,
        "MachineName": access.name,
    }
    files = {PRIVATE: access.private, PUBLIC: access.public, CONFIG: json.dumps(config).encode()}
    files[KNOWN_HOSTS] = access.known_hosts.encode()
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as target:
        for name, content in files.items():
            if content:
                entry = zipfile.ZipInfo(f"{access.name}/{name}", _EARLIEST)
                entry.external_attr = _READ_ONLY << 16
                target.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return made.getvalue()


def unzipped(data: bytes) -> MachineAccess:
    """The access in a zip made by :func:`zipped`; raises NoAccess."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as source:
            files = {entry.filename.rpartition("/")[2]: source.read(entry) for entry in source.infolist() if not entry.is_dir()}
        said: Mapping[str, Any] = jsonio.loads(files[CONFIG])
        return MachineAccess(
            name=str(said["MachineName"]),
            driver="",
            user=str(said["SSHUser"]),
            port=_port(said.get("SSHPort")),
            address=str(said.get("IPAddress") or ""),
            address6=str(said.get("IPv6Address") or ""),
            private=files[PRIVATE],
            public=files.get(PUBLIC, b""),
            host_key=_host_key(files.get(KNOWN_HOSTS, b"")),
        )
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise NoAccess(f"the server sent no keys: {error!r}") from None


def _host_key(text: bytes) -> str:
    """The first line's key, without the host's address."""
    words = text.decode(errors="replace").partition("\n")[0].split()
    return " ".join(words[1:3])


def _port(value: Any) -> int:
    return value if isinstance(value, int) and 0 < value < 65536 else 22


def _data(secret: Obj) -> dict[str, bytes]:
    try:
        return {key: base64.b64decode(value) for key, value in (secret.get("data") or {}).items()}
    except ValueError:
        return {}


# --- ssh shell ------------------------------------------------------------------------------------------------------------
#
# A shell on a machine, over SSH with the machine's own key: the other end of a websocket of the gateway.
#
# The host's key is compared with the kept one, and kept at first contact (:mod:`.ssh`).

TERM, COLUMNS, ROWS = "xterm", 80, 20
_SESSION_SECONDS = 15.0

# Keeps the line of known_hosts of a host that was seen for the first time.
Pin = Callable[[str], Awaitable[None]]


@asynccontextmanager
async def shell(
    access: MachineAccess, pin: Pin, clock: Clock, policy: Policy, command: str = ""
) -> AsyncIterator[asyncssh.SSHClientProcess[bytes]]:
    """A terminal, or one `command` without. Raises NoAccess, and DriverError when the machine refuses the login."""
    if not access.private:
        raise NoAccess(f"machines of the driver {access.driver} have no SSH key")
    if not access.addresses:
        raise NoAccess("the machine has no address yet")
    async with AsyncExitStack() as stack:
        # asyncssh reads the key while it connects; it does not stay on disk.
        with TemporaryDirectory(prefix="remuda-shell-") as place:
            opened = await _connected(stack, access, Path(place), pin, clock, policy)
        yield await _begun(opened, clock, command)


async def _connected(
    stack: AsyncExitStack, access: MachineAccess, place: Path, pin: Pin, clock: Clock, policy: Policy
) -> asyncssh.SSHClientConnection:
    key, known = place / PRIVATE, place / ssh.KNOWN_HOSTS
    key.touch(mode=0o600)
    key.write_bytes(access.private)
    if access.host_key:
        known.write_text(access.known_hosts)

    async def pinned() -> None:
        await pin(known.read_text())

    failure = DriverError(Reason.UNAVAILABLE, "the machine has no address")
    for address in access.addresses:
        login = ssh.SshLogin(address, access.user, known, access.port, key)
        try:
            return await stack.enter_async_context(ssh.connection(login, clock, policy, pinned))
        except DriverError as error:
            failure = error
    raise failure


async def _begun(opened: asyncssh.SSHClientConnection, clock: Clock, command: str) -> asyncssh.SSHClientProcess[bytes]:
    import asyncssh

    terminal: dict[str, Any] = {} if command else {"term_type": TERM, "term_size": (COLUMNS, ROWS)}
    try:
        async with deadline(clock, _SESSION_SECONDS):
            return await opened.create_process(command or None, encoding=None, **terminal)
    except (asyncssh.Error, OSError, TimeoutError) as error:
        raise DriverError(Reason.UNAVAILABLE, f"the machine opens no session: {str(error) or 'it takes too long'}") from None
