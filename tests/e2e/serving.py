"""A server in a process of its own, and raw connections to it: what the fault tests start, kill and torment."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.api.harness import Answer, Endpoint, RemudaProcess

Obj = dict[str, Any]


class Served(RemudaProcess):
    """`prefix` is put before the command (strace), `environ` into its environment."""

    def __init__(self, directory: Path, prefix: Sequence[str] = (), environ: dict[str, str] | None = None) -> None:
        super().__init__(directory)
        self.prefix = list(prefix)
        self.environ = environ or {}
        self.log = directory.with_name(directory.name + ".log")

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, *self.command()],
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **self.environ},
            )
        end = time.monotonic() + 240
        while not self.ready():
            if not self.alive or time.monotonic() > end:
                self.end()
                raise RuntimeError(f"remuda serve did not start:\n{self.told()}")
            time.sleep(0.01)

    def command(self) -> list[str]:
        listen = f"127.0.0.1:{self.port}"
        options = ["--data-dir", str(self.directory), "--listen", listen, "--controllers=-capi,-access"]
        return [sys.executable, "-m", "remuda", "serve", *options]

    def ready(self) -> bool:
        if not self.kubeconfig.exists():
            return False
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.endpoint.request("GET", "/readyz").status == 200
        return False

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)

    def end(self) -> None:
        """Whatever state it is in: not running afterwards."""
        if self.alive:
            self.kill()

    def told(self) -> str:
        return self.log.read_text(errors="replace")

    def tracebacks(self) -> list[str]:
        """What no log of ours may hold, with the lines that say why."""
        lines = self.told().splitlines()
        return [line for line in lines if "Traceback" in line or "failed\n" in line or "was never retrieved" in line]

    def memory(self) -> int:
        """Resident bytes."""
        text = Path(f"/proc/{self.pid}/statm").read_text()
        return int(text.split()[1]) * os.sysconf("SC_PAGESIZE")

    def connect(self) -> ssl.SSLSocket:
        """A bare TLS connection with the administrator's certificate."""
        raw = socket.create_connection(("127.0.0.1", self.port), timeout=90)
        return self.endpoint.context.wrap_socket(raw, server_hostname="127.0.0.1")

    def run(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """The command to its end, as when it is refused."""
        return subprocess.run(
            [*self.prefix, *self.command(), *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, **self.environ},
            **options,
        )


def config_map(name: str, labels: dict[str, str] | None = None, **data: str) -> Obj:
    metadata: Obj = {"name": name}
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def send(endpoint: Endpoint, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Answer:
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    return endpoint.request(method, path, data, {"Content-Type": content_type} if data is not None else None)


def make_namespace(served: Served, name: str) -> str:
    """The collection of config maps in a new namespace, settled."""
    found = send(served.endpoint, "POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    assert found.status == 201, found.body
    collection = f"/api/v1/namespaces/{name}/configmaps"
    eventually(lambda: served.endpoint.request("GET", f"{collection}/kube-root-ca.crt").status == 200)
    return collection


def eventually(
    true: Callable[[], bool], seconds: float = 90, why: str = "it did not become true in time", every: float = 0.02
) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, why
        time.sleep(every)
