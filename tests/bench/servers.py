"""The servers under measurement, started from nothing and stopped by their own process ids.

Remuda is `remuda serve` as a user starts it, controllers included; the peer is kube-apiserver with etcd (fsync on), which
:mod:`tests.real.cluster` starts, without a controller manager. Both can run on an etcd that is there already.
"""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol
from urllib.parse import urlsplit

from tests.real import build
from tests.real.cluster import RealCluster
from tests.real.etcd import EtcdCluster
from tests.real.ports import free_ports

HOST = "127.0.0.1"
REPOSITORY = Path(__file__).resolve().parents[2]
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class ServerError(Exception):
    """A server did not start or stop as it should; the message ends with what it said."""


class Server(Protocol):
    """A running server and how to reach it as its administrator.

    `url` may be several, with commas: clients are spread over them. `pids` are all its processes; `etcd_pids` are those of them
    that are an etcd which was there before, and is told apart from the server.
    """

    name: str
    url: str
    ca: Path
    certificate: Path
    key: Path

    @property
    def pids(self) -> list[int]: ...

    @property
    def etcd_pids(self) -> list[int]: ...

    def __enter__(self) -> Server: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


def request(server: Server, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """One request outside the measurements: status and parsed answer."""
    context = ssl.create_default_context(cafile=str(server.ca))
    context.load_cert_chain(server.certificate, server.key)
    connection = http.client.HTTPSConnection(HOST, urlsplit(server.url).port, context=context, timeout=60)
    try:
        content = None if body is None else json.dumps(body).encode()
        connection.request(method, path, content, {"Content-Type": "application/json", "Accept": "application/json"})
        response = connection.getresponse()
        text = response.read()
    finally:
        connection.close()
    try:
        return response.status, json.loads(text)
    except ValueError:
        return response.status, text.decode(errors="replace")


class Remuda:
    """`remuda serve` on a directory; `start_seconds` is how long the last start took until /readyz said ok.

    etcd:        keep the state there instead of in the directory; `shared` is then where the keys are, for all servers on it.
    port:        listen there, and again after a new start (default: any that is free).
    controllers: those to run; by default the API alone is measured, as the server beside it is.
    options:     more of those of `remuda serve`.
    """

    def __init__(
        self,
        directory: Path,
        name: str = "remuda",
        *,
        etcd: EtcdCluster | None = None,
        shared: Path | None = None,
        port: int | None = None,
        controllers: str = "-capi,-access",
        options: Sequence[str] = (),
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._controllers = controllers
        self._options = list(options)
        self.name = name
        self._etcd = etcd
        self._shared = shared or directory / "shared"
        self._port = port
        self._log = directory / "remuda.log"
        self._bytecode = directory / "bytecode"
        self._data = directory / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self.start_seconds = 0.0
        self.url = ""
        self.ca = self._data / "pki" / "ca.crt"
        self.certificate = self._data / "pki" / "admin.crt"
        self.key = self._data / "pki" / "admin.key"

    @property
    def pids(self) -> list[int]:
        assert self._process is not None
        return [self._process.pid, *self.etcd_pids]

    @property
    def etcd_pids(self) -> list[int]:
        return member_pids(self._etcd)

    def __enter__(self) -> Remuda:
        self.compile()
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()

    def compile(self) -> None:
        """Byte-compile as an installation does, so that no start pays for it."""
        code = "import asyncio, uvloop, remuda.cli.programs.serve, remuda.app.embedded"
        subprocess.run([sys.executable, "-c", code], check=True, cwd=REPOSITORY, env=self._environment())

    def _environment(self) -> dict[str, str]:
        # Compiled files go into the bench's own directory, whatever the caller's habits are.
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {**kept, "PYTHONPYCACHEPREFIX": str(self._bytecode), "PYTHONPATH": str(REPOSITORY / "src")}

    def start(self) -> None:
        port = self._port or free_ports(1)[0]
        self.url = f"https://{HOST}:{port}"
        options = ["--data-dir", str(self._data), "--listen", f"{HOST}:{port}", f"--controllers={self._controllers}"]
        if self._etcd is not None:
            options += ["--etcd", ",".join(self._etcd.urls), "--pki-dir", str(self._shared)]
        command = [sys.executable, "-m", "remuda", "serve", *options, *self._options]
        started = time.monotonic()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment(), preexec_fn=die_with_parent
            )
        while not self._ready(port):
            if self._process.poll() is not None or time.monotonic() > started + 60:
                raise ServerError(f"remuda serve did not become ready:\n{self._log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.01)
        self.start_seconds = time.monotonic() - started

    def stop(self) -> None:
        """End as a service manager does it."""
        self.terminate()
        self.wait()

    def terminate(self) -> None:
        """Tell it to end, and wait for nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def wait(self) -> None:
        """Until it has ended, after it was told to."""
        assert self._process is not None
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            raise ServerError("remuda serve did not end within 30 s of SIGTERM") from None
        self._process = None

    def kill(self) -> None:
        """SIGKILL, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @staticmethod
    def _ready(port: int) -> bool:
        # The certificates may not exist yet; whoever answers on this port is ours. No authorities are loaded for it: that takes
        # longer than the look itself, on the cores that the server starts on.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(HOST, port, context=context, timeout=5)
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        connection.close()
        return False


class Kubernetes:
    """kube-apiserver and etcd; with an `etcd` that is there already, `start_seconds` is kube-apiserver's alone."""

    def __init__(self, directory: Path, name: str = "kubernetes", *, etcd: EtcdCluster | None = None) -> None:
        self.name = name
        self._etcd = etcd
        self._cluster = RealCluster(fsync=True, controllers=False, directory=directory, etcd=etcd)
        self.start_seconds = 0.0
        self.url = ""
        self.ca = self._cluster.ca_pem
        self.certificate = self._cluster.admin_cert
        self.key = self._cluster.admin_key

    @property
    def pids(self) -> list[int]:
        return [*self._cluster.pids.values(), *self.etcd_pids]

    @property
    def etcd_pids(self) -> list[int]:
        return member_pids(self._etcd)

    def __enter__(self) -> Kubernetes:
        build.programs("kubernetes")
        build.programs("etcd")
        started = time.monotonic()
        self._cluster.start()
        self.start_seconds = time.monotonic() - started
        self.url = self._cluster.url
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._cluster.stop()


def member_pids(etcd: EtcdCluster | None) -> list[int]:
    members = [] if etcd is None else etcd.members
    return [member.process.pid for member in members if member.process is not None]


def die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
