"""SIGKILL to the server while real hosts register and are provisioned for the first time: all machines become Ready.

Hosts of pools come with the token of their script, another one by hand. The server dies right after a write to one of the
objects of registration and first plans, so that its answer is lost; it is started again and dies at once, as often as wanted.
20 times here, 200 times under `make soak`.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from remuda.hosts.hosts import Hosts
from remuda.kube.objects import dig
from tests.e2e.access.harness import Gateway
from tests.e2e.provisioning.conftest import DEMO, WORKSPACE, Ranch, _ranch
from tests.e2e.serving import eventually
from tests.scenarios.soaking import SOAK, dice

from .killing import MortalServer
from .test_pools import FROM, Pools, pool

pytestmark = [pytest.mark.real, pytest.mark.hosts, pytest.mark.soak, pytest.mark.timeout(0 if SOAK else 1800)]

Obj = dict[str, Any]
ROUNDS, KILLS = (10, 20) if SOAK else (1, 20)
# A life in which nothing of this is written ends anyway.
LONGEST_LIFE = 20.0
STEPS = (
    r"(?:secrets|serviceaccounts|roles|rolebindings)/fleet-default/[^/]*-machine-(?:plan|bootstrap)[^/]*$|"
    r"secrets/c-m-[^/]+/custom-[^/]+$|(?:machines|rkebootstraps|custommachines|localmachines)/fleet-default/[^/]+$"
)
CONNECTION = "var/lib/rancher/agent/rancher2_connection_info.json"


@contextmanager
def mortal_server(directory: Path, environ: dict[str, str]) -> Iterator[Gateway]:
    with MortalServer(directory / "server", "--controllers=*", environ=environ) as server:
        yield server


class Killer:
    """Lives of one server, each of which ends after some writes; `killed` are how many did, `slow` by time alone."""

    def __init__(self, server: Gateway) -> None:
        self._server = server
        self._plan = server.directory.parent / "plan.json"
        self.killed = self.slow = 0

    def end_this_life(self, writes: int) -> None:
        """Let the server die right after so many writes, and start it again: not to be waited for, it may die at once."""
        self.killed += 1
        plan = {"run": f"kill-{self.killed}", "victim": "server", "at": writes, "before": False, "steps": STEPS}
        half = self._plan.with_suffix(".half")
        half.write_text(json.dumps(plan))
        half.replace(self._plan)
        if not self._server.alive:
            self._begin()
        end = time.monotonic() + LONGEST_LIFE
        while self._server.alive and time.monotonic() < end:
            time.sleep(0.02)
        if self._server.alive:
            self.slow += 1
            self._server.kill()
        self._plan.unlink(missing_ok=True)

    def _begin(self) -> None:
        try:
            self._server.start()
        except RuntimeError:
            # Dead before it was ready: that is what it was started for.
            assert self._plan.exists()


class ByHand(threading.Thread):
    """A host whose user runs the registration command until the host is let in, whatever happens to the server."""

    def __init__(self, ranch: Ranch, name: str, *roles: str) -> None:
        super().__init__(daemon=True)
        self._ranch, self._name, self._roles = ranch, name, roles
        ranch._run("create", name)
        ranch._hosts.append(name)
        kubeconfig = str(ranch.kubeconfig())
        self._command = ("join", name, DEMO, *(f"--{role}" for role in roles), "--kubeconfig", kubeconfig)
        self.tries = 0

    def run(self) -> None:
        connection = self._ranch.on(self._name).place.root / CONNECTION
        while not connection.exists():
            self.tries += 1
            try:
                self._ranch._run(*self._command)
            except (AssertionError, subprocess.TimeoutExpired):
                # The server was away when the command was asked for.
                time.sleep(1)


def machines(ranch: Ranch) -> list[Obj]:
    found: list[Obj] = ranch.get(f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{WORKSPACE}/machines")["items"]
    return found


def is_ready(machine: Obj) -> bool:
    said = dig(machine, "status", "conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in said)


def all_ready(ranch: Ranch, wanted: int) -> bool:
    try:
        found = machines(ranch)
        return len(found) == wanted and all(map(is_ready, found)) and len(ranch.nodes()) == wanted and ranch.is_ready()
    except (OSError, HTTPException):
        return False


def said(ranch: Ranch, hosts: Hosts) -> str:
    waits = [(each["metadata"]["name"], dig(each, "status", "conditions")) for each in machines(ranch)]
    logs = {
        path.name: path.read_text(errors="replace")[-1500:]
        for host in hosts.all()
        for path in host.place.root.glob("var/log/*.log")
    }
    return f"{ranch.says()}\n{json.dumps(waits)[:4000]}\n{logs}\n{ranch.gateway.told()[-4000:]}"


def test_hosts_are_let_in_however_often_the_server_is_killed(tmp_path: Path) -> None:
    with _ranch(mortal_server, tmp_path) as ranch:
        pools, random, killer = Pools(ranch), dice("registration kills"), Killer(ranch.gateway)
        try:
            for number in range(ROUNDS):
                began = time.monotonic()
                # They belong to the cluster that uses them, and go with it.
                for name in ("servers", "workers"):
                    pools.config(name)
                ranch.want(
                    FROM, machinePools=[pool("servers", 1, "etcd", "controlplane", "worker"), pool("workers", 1, "worker")]
                )
                by_hand = ByHand(ranch, f"h{number}", "worker")
                by_hand.start()
                for _ in range(KILLS):
                    killer.end_this_life(random.randint(1, 8))
                ranch.gateway.start()
                try:
                    eventually(lambda: all_ready(ranch, 3), 600, every=0.5)
                except AssertionError:
                    raise AssertionError(f"after {killer.killed} kills: {said(ranch, pools.hosts)}") from None
                by_hand.join(120)
                seconds = time.monotonic() - began
                print(f"round {number}: {killer.killed} kills ({killer.slow} by time), {by_hand.tries} tries, {seconds:.0f} s")
                ranch.delete()
                ranch._run("rm", ranch._hosts.pop())
                eventually(lambda: pools.hosts.all() == [], 300)
        finally:
            for host in pools.hosts.all():
                pools.hosts.remove(host.name)
