"""Machines of the remuda distribution on one real one: each a directory, an address of its own, and processes to be killed.

    with Machines(tmp_path) as machines:
        first = machines.add("first").server(**{"cluster-init": True})
        second = machines.add("second").server(server=first.url)

Nothing of a machine outlives the block: processes are killed, and etcd dies with the server that runs it.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from remuda.hosts.addresses import listeners
from tests.api.harness import Answer, Endpoint
from tests.real import need

Obj = dict[str, Any]

TOKEN = "the-token-of-these-tests"
# Elections in fractions of a second; the disk is not waited for.
QUICK = ("heartbeat-interval=50", "election-timeout=500", "unsafe-no-fsync=true")
_PORTS = (9345, 6443, 2379, 2380, 2381, 10248, 10257, 10259)
_numbers = itertools.count(1)


def eventually(true: Callable[[], Any], seconds: float = 240, why: str = "it did not become true in time") -> Any:
    """What `true` gives as soon as that is something; connections that fail meanwhile are part of the waiting."""
    end = time.monotonic() + seconds
    last: BaseException | None = None
    while True:
        try:
            if found := true():
                return found
        except (OSError, http.client.HTTPException, AssertionError, KeyError) as error:
            last = error
        assert time.monotonic() < end, f"{why} ({last})" if last else why
        time.sleep(0.1)


class Ended(Exception):
    """A machine that should run does not."""


class Machine:
    def __init__(self, root: Path, name: str, address: str, etcd: Path) -> None:
        self.root, self.name, self.address = root, name, address
        self._etcd = etcd
        self.role = "server"
        self.process: subprocess.Popen[bytes] | None = None
        self.log = root.with_name(f"{name}.log")
        self.data = root / "var/lib/rancher/remuda"
        self.kubeconfig = root / "etc/rancher/remuda/remuda.yaml"
        self._endpoint: Endpoint | None = None

    # -- life ----------------------------------------------------------------------------------------------------------

    def configure(self, **values: Any) -> Self:
        said = {"node-name": self.name, "node-ip": self.address, "etcd-arg": list(QUICK), **values}
        path = self.root / "etc/rancher/remuda/config.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump({key: value for key, value in said.items() if value is not None}))
        return self

    def server(self, *options: str, token: str | None = TOKEN, **values: Any) -> Self:
        self.role = "server"
        return self.configure(token=token, **values).start(*options)

    def agent(self, *options: str, token: str | None = TOKEN, **values: Any) -> Self:
        self.role = "agent"
        return self.configure(token=token, **values).start(*options)

    def start(self, *options: str) -> Self:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command(self.role, *options), stdout=log, stderr=log, env=self.environment)
        return self

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "remuda", "distro", *words, "--root", str(self.root)]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONUNBUFFERED": "1", "REMUDA_ETCD_BINARY": str(self._etcd)}

    def run(self, *words: str, seconds: float = 180) -> subprocess.CompletedProcess[str]:
        """A command on this machine, to its end."""
        return subprocess.run(
            self.command(*words), capture_output=True, text=True, timeout=seconds, env=self.environment, check=False
        )

    def kill(self) -> None:
        if self.alive:
            assert self.process is not None
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(60)
        # Its etcd dies with it, but on a busy machine a little later: whoever starts it again needs its ports.
        eventually(lambda: self.address not in listeners(), why=f"something of {self.name} outlives it")

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(180)

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def told(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def ended(self, seconds: float = 240) -> str:
        """What it said in the end, when it ends by itself."""
        assert self.process is not None
        self.process.wait(seconds)
        return self.told()

    # -- what it says --------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return f"https://{self.address}:9345"

    @property
    def tls(self) -> Path:
        return self.data / "server/tls"

    def ready(self) -> Self:
        """Wait until it says so itself."""

        def is_ready() -> bool:
            if not self.alive:
                raise Ended(f"{self.name} ended\n{self.told()[-6000:]}")
            return self.supervisor("/readyz").status == 200

        try:
            eventually(is_ready, why=f"{self.name} is not ready")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.told()[-6000:]}") from None
        return self

    def supervisor(
        self, path: str, headers: dict[str, str] | None = None, method: str = "GET", body: bytes | None = None
    ) -> Answer:
        context = ssl.create_default_context(cafile=str(self.tls / "server-ca.crt"))
        connection = http.client.HTTPSConnection(self.address, 9345, context=context, timeout=30)
        try:
            connection.request(method, path, body=body, headers=headers or {})
            response = connection.getresponse()
            return Answer(response.status, dict(response.headers.items()), [], response.read())
        finally:
            connection.close()

    @property
    def endpoint(self) -> Endpoint:
        """Its API, as the administrator sees it."""
        if self._endpoint is None:
            tls = self.tls
            url = f"https://{self.address}:6443"
            self._endpoint = Endpoint(url, tls / "server-ca.crt", tls / "client-admin.crt", tls / "client-admin.key")
        return self._endpoint

    def forget_connection(self) -> None:
        """The certificates are others now."""
        self._endpoint = None

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Answer:
        data = None if body is None else json.dumps(body).encode()
        return self.endpoint.request(method, path, data, {"Content-Type": kind} if data is not None else None)

    def get(self, path: str) -> Any:
        answer = self.ask("GET", path)
        assert answer.status == 200, (path, answer.status, answer.body)
        return answer.json

    def write(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> None:
        """Until it is done: one whose answer was lost with a leader may have been done all the same, and is done once."""
        fine = {"POST": (201, 409), "DELETE": (200, 404)}.get(method, (200,))
        told = f"{method} {path} is not answered as it should be"
        eventually(lambda: self.ask(method, path, body, kind).status in fine, why=told)

    def node(self, name: str) -> Obj:
        return dict(self.get(f"/api/v1/nodes/{name}"))

    def ready_nodes(self) -> set[str]:
        found = set()
        for node in self.get("/api/v1/nodes")["items"]:
            conditions = {each["type"]: each["status"] for each in node["status"].get("conditions", ())}
            if conditions.get("Ready") == "True":
                found.add(node["metadata"]["name"])
        return found

    def members(self) -> list[Obj]:
        answer = self.supervisor("/db/info")
        assert answer.status == 200, answer.body
        return list(answer.json["members"])

    def voters(self) -> set[str]:
        """The addresses of full members."""
        return {
            member["clientURLs"][0].split("/")[2].split(":")[0]
            for member in self.members()
            if member.get("clientURLs") and not member.get("isLearner")
        }

    def memory(self) -> int:
        """Resident bytes of the server without its etcd."""
        assert self.process is not None
        text = Path(f"/proc/{self.process.pid}/statm").read_text()
        return int(text.split()[1]) * os.sysconf("SC_PAGESIZE")


class Machines:
    """All of a test. Addresses are of 127.0.0.0/8, chosen so that other tests of this machine have others."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._etcd = need.programs("etcd")["etcd"]
        self.all: list[Machine] = []

    def add(self, name: str) -> Machine:
        made = Machine(self._directory / name, name, _free_address(), self._etcd)
        self.all.append(made)
        return made

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with ExitStack() as ends:
            for machine in self.all:
                ends.callback(machine.kill)
        if error is not None:
            for machine in self.all:
                print(f"--- {machine.name}\n{machine.told()[-4000:]}")


def _free_address() -> str:
    choice = random.SystemRandom()
    while True:
        address = f"127.{choice.randrange(64, 250)}.{choice.randrange(1, 250)}.{next(_numbers) % 250 + 1}"
        with suppress(OSError):
            for port in _PORTS:
                with socket.socket() as probe:
                    probe.bind((address, port))
            return address
