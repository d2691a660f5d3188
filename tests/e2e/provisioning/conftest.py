"""A server that provisions, with everything real behind it: hosts of this machine, their agents, etcd, tunnels."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from remuda.hosts.hosts import Host, Hosts
from remuda.kube.objects import dig
from remuda.provisioning.well_known import plan_name
from tests.api.harness import Answer
from tests.e2e import serving
from tests.e2e.access.fronted import fronted
from tests.e2e.access.harness import Gateway
from tests.e2e.upstream_capi import Manager
from tests.real import need

Obj = dict[str, Any]

WORKSPACE, DEMO = "fleet-default", "demo"
_CLUSTERS = f"/apis/provisioning.cattle.io/v1/namespaces/{WORKSPACE}/clusters"
# A machine that others use, too, takes its time.
PATIENCE = 300.0
_MERGE = "application/merge-patch+json"


def eventually(true: Callable[[], bool], seconds: float = PATIENCE, why: str = "it did not become true in time") -> None:
    """Who waits for hosts may look seldom: every look costs the API that they need."""
    serving.eventually(true, seconds, why, every=0.3)


class Ranch:
    """What a user does, with kubectl and `remuda host`."""

    def __init__(self, gateway: Gateway, directory: Path) -> None:
        self.gateway = gateway
        self.directory = directory
        self._hosts: list[str] = []
        self._id = ""

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Answer:
        sent = None if body is None else json.dumps(body).encode()
        return self.gateway.endpoint.request(method, path, sent, {"Content-Type": kind})

    def get(self, path: str) -> Obj:
        answer = self._asked_again("GET", path)
        assert answer.status == 200, (path, answer.status, answer.body)
        found: Obj = answer.json
        return found

    # --- the cluster ------------------------------------------------------------------------------------------------------

    def want(self, version: str, **config: Any) -> None:
        made = {
            "apiVersion": "provisioning.cattle.io/v1",
            "kind": "Cluster",
            "metadata": {"name": DEMO, "namespace": WORKSPACE},
            "spec": {"kubernetesVersion": version, "rkeConfig": config},
        }
        eventually(lambda: self.ask("GET", f"/api/v1/namespaces/{WORKSPACE}").status == 200, PATIENCE)
        answer = self.gateway.posted(_CLUSTERS, made)
        assert answer.status == 201, answer.body
        eventually(lambda: bool(self.id()) and self._can_be_joined(), PATIENCE)

    def _can_be_joined(self) -> bool:
        secret = self.ask("GET", f"/api/v1/namespaces/{self.id()}/secrets/crt-token-node-token")
        return secret.status == 200

    def change(self, **spec: Any) -> None:
        answer = self._asked_again("PATCH", f"{_CLUSTERS}/{DEMO}", {"spec": spec}, _MERGE)
        assert answer.status == 200, answer.body

    def _asked_again(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Answer:
        """Whenever that is what the answer says: who has just started does not know yet what to allow."""
        answers: list[Answer] = []

        def settled() -> bool:
            answers.append(self.ask(method, path, body, kind))
            return not (answers[-1].status == 503 and answers[-1].json.get("details", {}).get("retryAfterSeconds"))

        eventually(settled)
        return answers[-1]

    def id(self) -> str:
        """Looked up once, for it stays: also whoever looks on from a thread of their own can ask."""
        if not self._id:
            self._id = str(dig(self.get(f"{_CLUSTERS}/{DEMO}"), "status", "clusterName") or "")
        return self._id

    def plane(self) -> Obj:
        """Empty as long as it is not there."""
        answer = self.ask("GET", f"/apis/rke.cattle.io/v1/namespaces/{WORKSPACE}/rkecontrolplanes/{DEMO}")
        found: Obj = answer.json if answer.status == 200 else {}
        return found

    def says(self) -> str:
        """What is waited for."""
        said = dig(self.plane(), "status", "conditions") or []
        return next((f"{each['status']} {each.get('message', '')}" for each in said if each["type"] == "Ready"), "")

    def is_ready(self) -> bool:
        wanted, plane = self.get(f"{_CLUSTERS}/{DEMO}"), self.plane()
        version = wanted["spec"]["kubernetesVersion"]
        if not plane or dig(plane, "status", "appliedSpec") != plane["spec"] or plane["spec"]["kubernetesVersion"] != version:
            return False
        return self.says().startswith("True")

    def until_ready(self, seconds: float = 900) -> None:
        try:
            eventually(self.is_ready, seconds)
        except AssertionError:
            raise AssertionError(f"not ready: {self.says()}\n{self.gateway.told()[-6000:]}") from None

    def through(self, path: str, method: str = "GET", body: Any = None) -> Answer:
        """The cluster's own API, through the proxy."""
        return self.gateway.administrator().request(method, f"/k8s/clusters/{self.id()}{path}", body)

    def nodes(self) -> dict[str, str]:
        """Through the proxy: the nodes and their versions; none while the cluster can't be reached."""
        answer = self.through("/api/v1/nodes")
        if answer.status != 200:
            return {}
        return {each["metadata"]["name"]: each["status"]["nodeInfo"]["kubeletVersion"] for each in answer.json["items"]}

    def machines(self) -> dict[str, str]:
        """The names of Machines by those of their hosts, which in pools are the same."""
        listed = self.get(f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{WORKSPACE}/machines")["items"]
        named = [(each["metadata"]["name"], each["metadata"]["labels"]) for each in listed]
        return {labels.get("rke.cattle.io/node-name", name): name for name, labels in named}

    def remove_machine(self, host: str) -> None:
        path = f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{WORKSPACE}/machines/{self.machines()[host]}"
        assert self.ask("DELETE", path).status in (200, 202)
        eventually(lambda: host not in self.machines(), PATIENCE, f"{host} does not go: {self.says()}")

    def init_node(self) -> list[str]:
        labels = "rke.cattle.io/init-node%3Dtrue"
        listed = self.get(f"/api/v1/namespaces/{WORKSPACE}/secrets?labelSelector={labels}")["items"]
        return [each["metadata"]["labels"]["rke.cattle.io/node-name"] for each in listed]

    def delete(self, uninstall: bool = False) -> None:
        """With its hosts' software, as a user does that."""
        if uninstall:
            self.command("cluster", "delete", DEMO, "--uninstall", "--kubeconfig", str(self.kubeconfig()))
        else:
            assert self._asked_again("DELETE", f"{_CLUSTERS}/{DEMO}").status in (200, 202)
        eventually(lambda: self.ask("GET", f"{_CLUSTERS}/{DEMO}").status == 404, PATIENCE)
        self._id = ""

    # --- hosts ------------------------------------------------------------------------------------------------------------

    def made(self, name: str) -> None:
        """A host that has not joined yet."""
        self._run("create", name)
        self._hosts.append(name)

    def host(self, name: str, *roles: str) -> None:
        self.made(name)
        flags = [f"--{role}" for role in roles]
        self._run("join", name, DEMO, *flags, "--kubeconfig", str(self.kubeconfig()))

    def kubeconfig(self) -> Path:
        return self.gateway.administrator().kubeconfig(self.directory)

    def _run(self, *words: str) -> None:
        self.command("host", *words, "--data-dir", str(self.directory / "hosts"))

    def command(self, *words: str) -> str:
        """What `remuda` says."""
        command = [sys.executable, "-m", "remuda", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout

    def on(self, name: str) -> Host:
        return self._park().get(name)

    def _park(self) -> Hosts:
        return Hosts(self.directory / "hosts/hosts")

    def pid(self, name: str, unit: str) -> int:
        return int(self.on(name).systemctl("show", "-p", "MainPID", "--value", unit, seconds=60)[1])

    def kill_agent(self, name: str) -> None:
        """Alone, and not what it runs; its unit starts it again."""
        # There is none for a moment when it has just ended; and to signal 0 would be to signal ourselves.
        found: list[int] = []

        def runs() -> bool:
            found.append(self.pid(name, "rancher-system-agent"))
            return found[-1] > 0

        eventually(runs)
        os.kill(found[-1], signal.SIGKILL)

    def cut_power(self, name: str) -> None:
        self._park().kill(name)

    def power_on(self, name: str) -> None:
        self._park().start(name)

    def lose(self, *names: str) -> None:
        """Hosts go without a word, with their disks."""
        for name in names:
            self.cut_power(name)
        self._run("rm", *names)
        self._hosts = [each for each in self._hosts if each not in names]

    def plan_secret(self, name: str) -> str:
        """The path of the Secret with a host's plan."""
        return f"/api/v1/namespaces/{WORKSPACE}/secrets/{plan_name(self.machines()[name])}"

    def begun(self, name: str) -> int:
        """How many plans its agent has begun with."""
        return int(base64.b64decode(dig(self.get(self.plan_secret(name)), "data", "plan-revision") or "") or 0)

    def close(self) -> None:
        if self._hosts:
            self._run("rm", *self._hosts)


@contextmanager
def served(directory: Path, environ: dict[str, str]) -> Iterator[Gateway]:
    with Gateway(directory / "server", "--controllers=*", environ=environ) as gateway:
        yield gateway


@contextmanager
def with_upstreams_core(directory: Path, environ: dict[str, str]) -> Iterator[Gateway]:
    need.programs("capi")
    with Gateway(directory / "server", "--controllers=*,-capi", environ=environ) as gateway:
        core = Manager("upstream", gateway.endpoint, gateway.kubeconfig, directory)
        try:
            core.start()
            path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/remuda-providers"
            gateway.there(path)
            role = gateway.endpoint.request("GET", path).json
            assert role["metadata"]["labels"] == {"cluster.x-k8s.io/aggregate-to-manager": "true"}
            yield gateway
        finally:
            core.stop()


BACK_ENDS = {"embedded": served, "kubernetes": fronted, "upstream's core": with_upstreams_core}


@pytest.fixture(params=list(BACK_ENDS.values()), ids=list(BACK_ENDS))
def ranch(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ranch]:
    """On our own API, on a real kube-apiserver behind `remuda gateway`, and with upstream's manager in the place of our core."""
    with _ranch(request.param, tmp_path) as made:
        yield made


@pytest.fixture(params=[served, pytest.param(fronted, marks=pytest.mark.variant)], ids=["embedded", "kubernetes"])
def either_ranch(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ranch]:
    """On our own API, and on a real kube-apiserver."""
    with _ranch(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def own_ranch(tmp_path: Path) -> Iterator[Ranch]:
    """On our own API alone: for what is about hosts and takes many of them."""
    with _ranch(served, tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def shared_ranch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranch]:
    """On our own API alone, for all tests of a module."""
    with _ranch(served, tmp_path_factory.mktemp("ranch")) as made:
        yield made


@pytest.fixture
def their_ranch(tmp_path: Path) -> Iterator[Ranch]:
    """On a real kube-apiserver alone."""
    with _ranch(fronted, tmp_path) as made:
        yield made


@contextmanager
def _ranch(back_end: Callable[..., AbstractContextManager[Gateway]], tmp_path: Path) -> Iterator[Ranch]:
    environ = {"REMUDA_ETCD_BINARY": str(need.programs("etcd")["etcd"]), "REMUDA_IMAGES": str(tmp_path / "images")}
    with back_end(tmp_path, environ) as gateway:
        gateway.announced()
        made = Ranch(gateway, tmp_path)
        try:
            yield made
            assert gateway.tracebacks() == [], gateway.told()[-8000:]
        finally:
            made.close()
