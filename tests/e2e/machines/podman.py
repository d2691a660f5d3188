"""A podman of its own, with its storage in a directory that goes with it, and its API on a socket; hosts are made of Debian."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.e2e.serving import eventually
from tests.real import systemhost

IMAGE = "localhost/remuda-test-host:1"


class Podman:
    """`environ` has what leads a program to it."""

    def __init__(self) -> None:
        # Not below a test's own: the paths of sockets are bounded in length.
        self.directory = Path(tempfile.mkdtemp(prefix="remuda-podman-"))
        self.socket = self.directory / "podman.sock"
        storage, state, scratch = (str(self.directory / each) for each in ("storage", "state", "tmp"))
        places = ["--root", storage, "--runroot", state, "--tmpdir", scratch]
        self._words = ["podman", *places, "--cgroup-manager", "cgroupfs", "--runtime", shutil.which("runc") or "/usr/sbin/runc"]
        self._service: subprocess.Popen[bytes] | None = None

    @property
    def environ(self) -> dict[str, str]:
        return {"CONTAINER_HOST": f"unix://{self.socket}"}

    def run(self, *words: str, seconds: float = 300) -> subprocess.CompletedProcess[str]:
        # With the variable it would ask the service, and take none of these options.
        environ = {name: value for name, value in os.environ.items() if name != "CONTAINER_HOST"}
        return subprocess.run([*self._words, *words], capture_output=True, text=True, timeout=seconds, check=False, env=environ)

    def said(self, *words: str, seconds: float = 300) -> str:
        done = self.run(*words, seconds=seconds)
        assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout.strip()

    def __enter__(self) -> Self:
        try:
            self.said("import", str(systemhost.root_filesystem()), IMAGE)
            with (self.directory / "service.log").open("wb") as log:
                command = [*self._words, "system", "service", "--time=0", f"unix://{self.socket}"]
                self._service = subprocess.Popen(command, stdout=log, stderr=log)
            eventually(self.socket.is_socket, 180)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.run("rm", "-f", "-a", "-t", "0")
        if self._service is not None:
            self._service.terminate()
            try:
                self._service.wait(60)
            except subprocess.TimeoutExpired:
                self._service.kill()
                self._service.wait()
        self.run("rmi", "-f", IMAGE)
        # Podman leaves its storage mounted on itself.
        subprocess.run(["umount", str(self.directory / "storage/overlay")], capture_output=True, check=False)
        shutil.rmtree(self.directory, ignore_errors=True)

    def containers(self) -> list[str]:
        return sorted(self.said("ps", "-a", "--format", "{{.Names}}").split())

    def volumes(self) -> list[str]:
        return self.said("volume", "ls", "-q").split()

    def shell(self, name: str, script: str) -> str:
        return self.run("exec", name, "sh", "-c", script).stdout.strip()

    def up(self, name: str) -> None:
        eventually(lambda: self.shell(name, "systemctl is-system-running") in ("running", "degraded"), 300)
