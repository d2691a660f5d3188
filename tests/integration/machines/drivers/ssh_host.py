"""A host that is reached over SSH: a real SSH server on loopback, whose shell sees a few programs and files of its own first."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import asyncssh

from tests.real.ports import free_port

_SHIMS = {
    "hostname": 'cat "$HOST/name"',
    "hostnamectl": 'echo "$2" >"$HOST/name"',
    "id": 'cat "$HOST/uid"',
    "sudo": '[ -e "$HOST/sudoer" ] || { echo "sudo: a password is needed" >&2; exit 1; }; shift; echo 0 >"$HOST/uid"; exec "$@"',
    "curl": "exit 0",
    "systemctl": "exit 0",
}


class SshHost:
    """`key` is the file of the private key that it takes; `directory` is what it has of its own."""

    def __init__(self, directory: Path, user: str = "root") -> None:
        self.directory = directory
        self.key = directory / "client_key"
        self.user = user
        # Nobody else is given it while the host is away.
        self.port = free_port()
        self.commands: list[str] = []
        # The connection is cut when a command that contains this has said something, as often as it says.
        self.cut: dict[str, int] = {}
        self._server: asyncssh.SSHAcceptor | None = None
        self._host_key = asyncssh.generate_private_key("ssh-ed25519")
        directory.mkdir(parents=True, exist_ok=True)
        key = asyncssh.generate_private_key("ssh-ed25519")
        self.key.write_bytes(key.export_private_key("openssh"))
        self.key.chmod(0o600)
        (directory / "authorized").write_bytes(key.export_public_key("openssh"))
        self.write("name", "fresh\n")
        self.write("uid", "0\n" if user == "root" else "1000\n")
        self.write("hosts", "127.0.0.1 localhost\n")
        (directory / "bin").mkdir()
        for name, script in _SHIMS.items():
            path = directory / "bin" / name
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)

    def write(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text)

    def read(self, name: str) -> str:
        path = self.directory / name
        return path.read_text() if path.exists() else ""

    @property
    def claim(self) -> Path:
        return self.directory / "claim"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    async def start(self) -> None:
        self._server = await asyncssh.listen(
            "127.0.0.1",
            self.port,
            server_host_keys=[self._host_key],
            authorized_client_keys=str(self.directory / "authorized"),
            process_factory=self._serve,
            encoding=None,
        )
        self.port = self._server.get_port()

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    def become_another(self) -> None:
        self._host_key = asyncssh.generate_private_key("ssh-ed25519")

    async def _serve(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        command = (process.command or "").replace("/etc/hosts", str(self.directory / "hosts"))
        self.commands.append(command)
        shell = await asyncio.create_subprocess_exec(
            "sh",
            "-c",
            command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={"PATH": f"{self.directory}/bin:{os.environ['PATH']}", "HOST": str(self.directory)},
        )
        with contextlib.suppress(asyncssh.Error, OSError):
            await asyncio.gather(self._feed(process, shell), self._tell(process, shell, command))
        code = await shell.wait()
        if self.user != "root":
            self.write("uid", "1000\n")
        process.exit(code)

    async def _feed(self, process: asyncssh.SSHServerProcess[bytes], shell: asyncio.subprocess.Process) -> None:
        assert shell.stdin is not None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while data := await process.stdin.read(65536):
                shell.stdin.write(data)
                await shell.stdin.drain()
        shell.stdin.close()

    async def _tell(self, process: asyncssh.SSHServerProcess[bytes], shell: asyncio.subprocess.Process, command: str) -> None:
        assert shell.stdout is not None
        while data := await shell.stdout.read(65536):
            process.stdout.write(data)
            for words, left in self.cut.items():
                if left > 0 and words in data.decode():
                    self.cut[words] -= 1
                    connection: Any = process.get_extra_info("connection")
                    connection.abort()
                    return
