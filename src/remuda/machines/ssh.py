"""SSH to a machine whose host key is known: pinned on first contact, and kept in the machine's directory.

The key of a new machine can't be known beforehand; after the first contact any other key is refused. :func:`connect` is for
drivers, for the program in a Job, and for users' shells (`remuda ssh`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from remuda.kube.clock import Clock, deadline
from remuda.kube.network import outbound
from remuda.kube.network.outbound import Policy

from .errors import DriverError, Reason

if TYPE_CHECKING:
    import asyncssh


KNOWN_HOSTS = "known_hosts"
_CONNECT_SECONDS = 15.0
_LAST = 4000


@dataclass(frozen=True, slots=True)
class SshLogin:
    """An SSH destination and user. `known` is the file with the pinned host key, made on first contact; `key` is a private key's
    file."""

    address: str
    user: str
    known: Path
    port: int = 22
    key: Path | None = None


class HostKeyChanged(DriverError):
    """The host shows another key than before."""

    def __init__(self, login: SshLogin, fingerprint: str) -> None:
        super().__init__(
            Reason.CONFLICT,
            f"{login.address} shows another host key ({fingerprint}) than at first contact: it is another host, "
            f"or the connection is intercepted",
        )


class SshShell:
    """A connection on which commands are run."""

    def __init__(self, connection: asyncssh.SSHClientConnection) -> None:
        self._connection = connection

    async def run(self, command: str, stdin: str = "", on_line: Callable[[str], None] | None = None) -> tuple[int, str]:
        """The exit code and the end of the output, of both streams. Raises DriverError when the connection ends first."""
        import asyncssh

        said = ""
        try:
            async with self._connection.create_process(
                command, stderr=asyncssh.STDOUT, encoding="utf-8", errors="replace"
            ) as process:
                if stdin:
                    process.stdin.write(stdin)
                process.stdin.write_eof()
                async for line in process.stdout:
                    said = (said + line)[-_LAST:]
                    if on_line is not None:
                        on_line(line.rstrip("\r\n"))
                await process.wait_closed()
                status = process.exit_status
        except (asyncssh.Error, OSError) as error:
            raise DriverError(Reason.UNAVAILABLE, f"the SSH connection broke: {_why(error)}") from None
        if status is None:
            raise DriverError(Reason.UNAVAILABLE, "the SSH connection ended before the command did")
        return status, said


@asynccontextmanager
async def connect(
    login: SshLogin, clock: Clock, policy: Policy, pinned: Callable[[], Awaitable[None]] | None = None
) -> AsyncIterator[SshShell]:
    """A shell, at an address that `policy` permits. `pinned` is awaited after a first contact, before anything is sent: for
    keeping the key. Raises DriverError."""
    async with connection(login, clock, policy, pinned) as found:
        yield SshShell(found)


@asynccontextmanager
async def connection(
    login: SshLogin, clock: Clock, policy: Policy, pinned: Callable[[], Awaitable[None]] | None = None
) -> AsyncIterator[asyncssh.SSHClientConnection]:
    """The same, as asyncssh has it: for terminals. Raises DriverError."""
    import asyncssh

    expected = _pinned(login.known)
    shown: list[str] = []

    class Pinning(asyncssh.SSHClient):
        def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
            shown[:] = [key.export_public_key("openssh").decode().strip(), key.get_fingerprint()]
            return not expected or shown[0].split()[:2] == expected

    # Only the kind of key that was shown first: another kind could not be compared.
    try:
        keys = asyncssh.load_keypairs([str(login.key)]) if login.key is not None else ()
        async with deadline(clock, _CONNECT_SECONDS):
            # The socket leads to the address that was checked; the name is not looked up again.
            opened = await asyncssh.connect(
                login.address,
                login.port,
                sock=await outbound.connected(policy, login.address, login.port),
                client_factory=Pinning,
                username=login.user,
                client_keys=keys,
                known_hosts=([], [], []),
                server_host_key_algs=_algorithms(expected[0]) if expected else (),
                agent_path=None,
                config=None,
                keepalive_interval=15,
                keepalive_count_max=4,
            )
    except outbound.AddressRefused as error:
        raise DriverError(Reason.INVALID, outbound.told(error, login.address)) from None
    except asyncssh.HostKeyNotVerifiable:
        raise HostKeyChanged(login, shown[1] if shown else "unknown") from None
    except asyncssh.KeyExchangeFailed as error:
        if expected:
            raise HostKeyChanged(login, "of another kind") from None
        raise _unreached(login, error) from None
    except asyncssh.PermissionDenied:
        raise DriverError(Reason.AUTH_FAILED, f"{login.address} does not let {login.user} in with this SSH key") from None
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError, FileNotFoundError) as error:
        raise DriverError(Reason.INVALID, f"the SSH key can't be used: {_why(error)}", field="sshKey") from None
    except (asyncssh.Error, OSError, UnicodeError) as error:
        raise _unreached(login, error) from None
    try:
        if not expected and shown:
            host = login.address if login.port == 22 else f"[{login.address}]:{login.port}"
            login.known.write_text(f"{host} {' '.join(shown[0].split()[:2])}\n")
            login.known.chmod(0o600)
            if pinned is not None:
                await pinned()
        yield opened
    finally:
        opened.close()
        with contextlib.suppress(asyncssh.Error, OSError):
            await opened.wait_closed()


def _pinned(known: Path) -> list[str]:
    """Kind and text of the key in a file of known hosts; nothing before the first contact."""
    lines = known.read_text().splitlines() if known.exists() else []
    return next((words[1:3] for words in map(str.split, lines) if len(words) >= 3), [])


def _algorithms(kind: str) -> list[str]:
    return ["rsa-sha2-256", "rsa-sha2-512", kind] if kind == "ssh-rsa" else [kind]


def _unreached(login: SshLogin, error: BaseException) -> DriverError:
    """The same error for a closed port, a silent host and a server that does not speak SSH: it tells a user nothing of a
    network."""
    return DriverError(Reason.UNAVAILABLE, outbound.told(error, f"{login.address}:{login.port}"))


def _why(error: BaseException) -> str:
    text = getattr(error, "reason", "") or getattr(error, "strerror", "") or str(error)
    return " ".join(str(text).split()) or type(error).__name__


# --- ssh keys -------------------------------------------------------------------------------------------------------------
#
# A machine's key pair, as rancher-machine makes it: RSA 2048, `id_rsa` and `id_rsa.pub` in the machine's directory.
#
# Other keys of ours are elliptic; this one is read by old tools and by the other program.

PRIVATE, PUBLIC = "id_rsa", "id_rsa.pub"


def ensure_key(directory: Path) -> str:
    """The public key as a line for authorized_keys; made if there is none. Not kept before the next `keep`."""
    private = directory / PRIVATE
    if not private.exists():
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        _write(private, pem)
    loaded = serialization.load_pem_private_key(private.read_bytes(), password=None)
    line = loaded.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH) + b"\n"
    _write(directory / PUBLIC, line)
    return line.decode().strip()


def _write(path: Path, content: bytes) -> None:
    half = path.with_name(f".{path.name}.half")
    half.unlink(missing_ok=True)
    with os.fdopen(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(content)
    half.replace(path)
