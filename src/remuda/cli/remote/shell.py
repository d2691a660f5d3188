"""A shell on a machine, from this terminal: through the server by a websocket, or with `ssh` and the key that the server gives.

Through the server it works from wherever the server is reached, also where the machine is not.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.kube.objects import name_of, namespace_of

from ..exit_codes import Code, Failure

if TYPE_CHECKING:
    from aiohttp import ClientWebSocketResponse

    from remuda.client.https import HttpsClient
    from remuda.machines.machine_access import MachineAccess

Obj = dict[str, Any]

PROTOCOL = "base64.channel.k8s.io"
_STDIN, _STDOUT, _STDERR, _STATUS, _SIZE = "0", "1", "2", "3", "4"


def path_of(machine: Obj) -> str:
    return f"/v1/cluster.x-k8s.io.machines/{namespace_of(machine)}/{name_of(machine)}"


async def keys_of(client: HttpsClient, machine: Obj) -> MachineAccess:
    """Raises ApiError, and Failure."""
    from remuda.machines.machine_access import NoAccess, unzipped

    data = await client.content(path_of(machine), {"link": "sshkeys"})
    try:
        return unzipped(data)
    except NoAccess as error:
        raise Failure(str(error)) from None


def script_of(command: tuple[str, ...]) -> str:
    """A command line as a shell on the machine reads it: one word is a script (`'a | b'`), several are a program and its
    arguments, which no shell changes. Empty for an interactive shell."""
    return command[0] if len(command) == 1 else shlex.join(command)


# --- through the server -------------------------------------------------------------------------------------------------------


async def through(client: HttpsClient, machine: Obj, command: tuple[str, ...]) -> int:
    """Until the shell ends, or the one command; its exit code. Raises ApiError."""
    query = {"link": "shell", "command": script_of(command)}
    async with client.connection.websocket(path_of(machine), query, PROTOCOL) as socket:
        with _raw_terminal() if not command else contextlib.nullcontext():
            return await _carried(socket, interactive=not command)


async def _carried(socket: ClientWebSocketResponse, *, interactive: bool) -> int:
    loop = asyncio.get_running_loop()
    typed: asyncio.Queue[bytes] = asyncio.Queue()

    def read() -> None:
        try:
            data = os.read(sys.stdin.fileno(), 4096)
        except OSError:
            data = b""
        if not data:
            loop.remove_reader(sys.stdin.fileno())
        typed.put_nowait(data)

    async def send() -> None:
        while True:
            await socket.send_str(_framed(_STDIN, await typed.get()))

    async def resize() -> None:
        width, height = shutil.get_terminal_size()
        await socket.send_str(_framed(_SIZE, json.dumps({"Width": width, "Height": height}).encode()))

    reading = _follow(loop, read)
    sending = asyncio.create_task(send())
    sizing = [asyncio.create_task(resize())] if interactive else []
    if interactive:
        loop.add_signal_handler(signal.SIGWINCH, lambda: sizing.append(asyncio.create_task(resize())))
    try:
        return await _received(socket)
    finally:
        if interactive:
            loop.remove_signal_handler(signal.SIGWINCH)
        if reading:
            loop.remove_reader(sys.stdin.fileno())
        for task in (sending, *sizing):
            task.cancel()
        await asyncio.gather(sending, *sizing, return_exceptions=True)


def _follow(loop: asyncio.AbstractEventLoop, read: Any) -> bool:
    """True if standard input can be followed: a file can't, and need not be."""
    try:
        loop.add_reader(sys.stdin.fileno(), read)
    except (OSError, ValueError, PermissionError):
        return False
    return True


async def _received(socket: ClientWebSocketResponse) -> int:
    code = int(Code.FAILURE)
    async for message in socket:
        if not isinstance(message.data, str) or not message.data:
            continue
        channel, data = message.data[0], base64.b64decode(message.data[1:])
        if channel == _STATUS:
            code = exit_code(data)
        elif channel in (_STDOUT, _STDERR):
            stream = (sys.stdout if channel == _STDOUT else sys.stderr).buffer
            stream.write(data)
            stream.flush()
    return code


def exit_code(status: bytes) -> int:
    """The exit code of a program, from Kubernetes' Status."""
    try:
        said = json.loads(status)
        if said.get("status") == "Success":
            return 0
        causes = said["details"]["causes"]
        return next(int(each["message"]) & 255 for each in causes if each.get("reason") == "ExitCode")
    except (ValueError, KeyError, TypeError, StopIteration):
        return int(Code.FAILURE)


def _framed(channel: str, data: bytes) -> str:
    return channel + base64.b64encode(data).decode()


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin.fileno())
    try:
        tty.setraw(sys.stdin.fileno())
        yield
    finally:
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, before)


# --- directly -----------------------------------------------------------------------------------------------------------------


def direct(access: MachineAccess, command: tuple[str, ...]) -> int:
    """Run the program `ssh` here. The key is on disk while it runs, readable by this user only."""
    program = shutil.which("ssh")
    if program is None:
        raise Failure("the program ssh is not installed here: omit --direct to connect through the server")
    if not access.addresses:
        raise Failure(f"{access.name} has no address yet")
    with tempfile.TemporaryDirectory(prefix="remuda-ssh-") as place:
        script = [script_of(command)] if command else []
        return subprocess.run([program, *ssh_arguments(access, Path(place)), *script], check=False).returncode


def ssh_arguments(access: MachineAccess, place: Path) -> list[str]:
    """Writes what they name."""
    files = write_keys(access, place)
    known = str(place / "known_hosts")
    checking = "yes" if access.host_key else "accept-new"
    options = {"IdentitiesOnly": "yes", "UserKnownHostsFile": known, "StrictHostKeyChecking": checking}
    said = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    return ["-i", str(files[0]), "-p", str(access.port), *said, f"{access.user}@{access.addresses[0]}"]


def write_keys(access: MachineAccess, place: Path) -> list[Path]:
    """The private key first; whatever is there of the same name is replaced."""
    contents = {"id_rsa": access.private, "id_rsa.pub": access.public, "known_hosts": access.known_hosts.encode()}
    written = []
    for name, content in contents.items():
        if content:
            path = place / name
            path.unlink(missing_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
                stream.write(content)
            written.append(path)
    return written
