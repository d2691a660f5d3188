"""A shell on a machine, over SSH with the machine's own key: what a websocket of the gateway leads to.

The host's key is compared with what is kept of it, and kept at first contact (:mod:`.ssh`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from remuda.kube.clock import Clock, deadline
from remuda.kube.network.outbound import Policy

from . import ssh
from .errors import DriverError, Reason
from .machine_access import PRIVATE, MachineAccess, NoAccess

if TYPE_CHECKING:
    import asyncssh

TERM, COLUMNS, ROWS = "xterm", 80, 20
_SESSION_SECONDS = 15.0

# Keeps the line of known_hosts of a host that was seen for the first time.
Pin = Callable[[str], Awaitable[None]]


@asynccontextmanager
async def shell(
    access: MachineAccess, pin: Pin, clock: Clock, policy: Policy, command: str = ""
) -> AsyncIterator[asyncssh.SSHClientProcess[bytes]]:
    """A terminal, or one `command` without. Raises NoAccess, and DriverError when the machine does not let us in."""
    if not access.private:
        raise NoAccess(f"machines of the driver {access.driver} have no SSH key")
    if not access.addresses:
        raise NoAccess("the machine has no address yet")
    async with AsyncExitStack() as stack:
        # asyncssh reads the key while it connects; nothing of it stays.
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
        login = ssh.Login(address, access.user, known, access.port, key)
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
