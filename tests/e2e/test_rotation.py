"""Keys and certificates of a running server are replaced under load: no request fails, whoever was killed goes on.

Clients here are of all sorts: with the kubeconfig of before on new connections and on one that they keep, with the one that is in
the data directory now, who write Secrets, and a cluster agent that knows the CA by its checksum.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.gateway.server.serving_certificate import ca_checksum
from remuda.kube.clock import SYSTEM_CLOCK
from remuda.kube.encoding import yamlio
from remuda.provisioning.plans.plan import File, Plan
from remuda.tunnel.clusteragent.server_trust import establish
from remuda.tunnel.clusteragent.settings import Settings
from tests.api.harness import Answer, Endpoint
from tests.real import need
from tests.real.etcd import EtcdCluster
from tests.real.systemagents import NAMESPACE, ORIGINAL, OURS, Agent, Api, asking, both_possible, namespace

from .replicas import Replica, Replicas, running
from .serving import Served, eventually

Obj = dict[str, Any]
# Clients that never stop leave little of a small machine to those who wait.
pytestmark = pytest.mark.timeout(900)

SECRETS = "/api/v1/namespaces/default/secrets"
KINDS = ("encryption-key", "ca", "service-account-key")


class WithGateway(Served):
    def command(self) -> list[str]:
        return [*super().command(), "--controllers=-capi"]


class WithProvisioning(Served):
    def command(self) -> list[str]:
        return [each for each in super().command() if not each.startswith("--controllers")]


@pytest.fixture
def provisioning(tmp_path: Path) -> Iterator[Served]:
    made = WithProvisioning(tmp_path / "server")
    made.start()
    yield made
    made.end()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = WithGateway(tmp_path / "server")
    made.start()
    yield made
    made.end()


def rotate(kubeconfig: Path, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    found = subprocess.run(
        [sys.executable, "-m", "remuda", "rotate", *arguments, "--kubeconfig", str(kubeconfig)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert not check or found.returncode == 0, found.stderr
    return found


def stages(kubeconfig: Path) -> dict[str, str]:
    return {each["kind"]: each["stage"] for each in told(kubeconfig)["keys"]}


def told(kubeconfig: Path) -> Obj:
    found = ask(client(kubeconfig, kubeconfig.with_name("asking")), "GET", "/remuda/rotation")
    assert found.status == 200, found.body
    return dict(found.json)


def client(kubeconfig: Path, where: Path) -> Endpoint:
    """As somebody who has a copy of this kubeconfig."""
    where.mkdir(parents=True, exist_ok=True)
    found: Obj = yamlio.loads(kubeconfig.read_bytes())
    cluster, user = found["clusters"][0]["cluster"], found["users"][0]["user"]
    paths = []
    for name, text in (
        ("ca", cluster["certificate-authority-data"]),
        ("crt", user["client-certificate-data"]),
        ("key", user["client-key-data"]),
    ):
        paths.append(where / name)
        paths[-1].write_bytes(base64.b64decode(text))
    return Endpoint(cluster["server"], *paths)


def ask(endpoint: Endpoint, method: str, path: str, body: Any = None) -> Answer:
    data = None if body is None else json.dumps(body).encode()
    return endpoint.request(method, path, data, {"Content-Type": "application/json"} if data else None, again=False)


def secret(name: str, text: str) -> Obj:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"text": text}}


class Load:
    """Clients that never stop, and never fail. `done` is how much each has done."""

    def __init__(self, served: Served, directory: Path) -> None:
        self._served = served
        self._directory = directory
        self.old = directory / "old.kubeconfig"
        shutil.copy(served.kubeconfig, self.old)
        self.done = [0, 0, 0, 0]
        self.written: dict[str, str] = {}

    def work(self, number: int, stop: threading.Event) -> None:
        place = self._directory / f"client{number}"
        kept = client(self.old, place)
        while not stop.is_set():
            if number == 0:
                # One connection for all of the time.
                found = ask(kept, "GET", SECRETS)
            elif number == 1:
                # Another one each time, by what was true before.
                found = ask(client(self.old, place), "GET", "/api/v1/namespaces")
            elif number == 2:
                # By the kubeconfig that is there now.
                found = ask(client(self._served.kubeconfig, place), "GET", "/api/v1/namespaces")
            else:
                name, text = f"s{self.done[3] % 20}", str(self.done[3])
                method, path = ("PUT", f"{SECRETS}/{name}") if name in self.written else ("POST", SECRETS)
                found = ask(kept, method, path, secret(name, text))
                self.written[name] = text
            assert found.status in (200, 201), (number, found.status, found.body)
            self.done[number] += 1

    def goes_on(self) -> None:
        """Every one of them has done something more."""
        before = list(self.done)
        eventually(lambda: all(now > then for now, then in zip(self.done, before, strict=True)), 240)


def all_is_there(endpoint: Endpoint, written: dict[str, str]) -> None:
    found = {each["metadata"]["name"]: each for each in ask(endpoint, "GET", SECRETS).json["items"]}
    for name, text in written.items():
        assert base64.b64decode(found[name]["data"]["text"]).decode() == text


@pytest.mark.story
def test_no_request_fails_while_all_keys_are_replaced(served: Served, tmp_path: Path) -> None:
    load = Load(served, tmp_path)
    before = (served.directory / "pki" / "ca.crt").read_text()
    url = f"https://127.0.0.1:{served.port}"

    def agent(ca: str) -> bytes:
        """Whom a cluster agent believes that has the checksum of this CA."""
        return asyncio.run(establish(Settings(url, "", ca_checksum(ca), strict=True), SYSTEM_CLOCK, "")).ca

    with contextlib.contextmanager(running)(load.work, len(load.done)):
        load.goes_on()
        for kind in (*KINDS, "serving-certificate"):
            rotate(served.kubeconfig, kind)
            load.goes_on()
        shown = json.loads(rotate(served.kubeconfig, "status", "-o", "json").stdout)
        assert {each["kind"]: each["stage"] for each in shown["keys"]} == dict.fromkeys(KINDS, "keeping")
        both = (served.directory / "pki" / "ca.crt").read_text()
        assert both.count("BEGIN CERTIFICATE") == 2
        # One that was given the old checksum comes by the old CA, and knows both then, as one that is deployed now.
        assert agent(before).decode().strip() == both.strip()
        assert agent(both).decode().strip() == both.strip()
        published = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt"
        new = client(served.kubeconfig, tmp_path / "new")
        eventually(lambda: ask(new, "GET", published).json["data"]["ca.crt"] == both, 180)
        rotate(served.kubeconfig, "encryption-key", "--finish")
        load.goes_on()
    rotate(served.kubeconfig, "ca", "--finish")
    all_is_there(client(served.kubeconfig, tmp_path / "last"), load.written)
    # Who has a certificate of the old CA is nobody any more. Agents that know the old CA only are handed over to the new one.
    assert ask(client(load.old, tmp_path / "late"), "GET", "/api").status == 401
    for checksum_of in (before, both):
        assert agent(checksum_of).decode().strip() == (served.directory / "pki" / "ca.crt").read_text().strip()
    # Unless the old CA is not to be trusted: then its clients don't believe this server any more.
    assert rotate(served.kubeconfig, "ca", "--finish", "--no-handover").stdout.startswith(
        "ca: the current CA is no longer cross-signed"
    )
    eventually(lambda: _is_disbelieved(load.old, tmp_path), 60)
    # On a connection of its own, if it was silent for so long that the server has closed the one that it had.
    assert new.request("GET", "/api/v1/namespaces").status == 200
    assert served.tracebacks() == []
    found = rotate(served.kubeconfig, "ca", "--finish", check=False)
    assert (found.returncode, "no old one to drop" in found.stderr) == (4, True)
    served.end()
    found = rotate(served.kubeconfig, "ca", check=False)
    assert found.returncode == 1
    assert "start it first" in found.stderr


def _is_disbelieved(kubeconfig: Path, directory: Path) -> bool:
    try:
        ask(client(kubeconfig, directory / "late"), "GET", "/api")
    except OSError as error:
        return "CERTIFICATE_VERIFY_FAILED" in str(error)
    return False


def test_the_old_ca_is_kept_while_a_host_needs_it_and_one_that_was_away_follows(provisioning: Served, tmp_path: Path) -> None:
    served = provisioning

    def asks(method: str, path: str, body: Any = None, headers: Any = None) -> tuple[int, Any]:
        return asking(client(served.kubeconfig, tmp_path / "administrator"))(method, path, body, headers)

    api = Api(asks, f"https://127.0.0.1:{served.port}", (served.directory / "pki" / "ca.crt").read_text())
    namespace(api)
    kind = {"apiVersion": "rke.cattle.io/v1", "kind": "RKEBootstrap"}
    bootstrap: Obj = {**kind, "metadata": {"name": "one"}, "spec": {"clusterName": "demo"}}
    path = f"/apis/rke.cattle.io/v1/namespaces/{NAMESPACE}/rkebootstraps"
    eventually(lambda: ask(client(served.kubeconfig, tmp_path / "first"), "POST", path, bootstrap).status == 201, 120)
    plan = api.plan("one", tmp_path / "one")
    agent = Agent.remote(OURS, plan, api)

    def trusts() -> list[str]:
        return list(json.loads(plan.text("agent") or "{}").get("trusts") or [])

    def used() -> str:
        return str(next(each for each in told(served.kubeconfig)["keys"] if each["kind"] == "ca")["used"])

    try:
        plan.give(Plan())
        agent.start()
        agent.until(lambda: trusts() == [used()])
        agent.kill()
        old = used()
        rotate(served.kubeconfig, "ca")
        refused = rotate(served.kubeconfig, "ca", "--finish", check=False)
        assert (refused.returncode, refused.stdout) == (4, "")
        assert f"host {NAMESPACE}/one of demo trusts only the old CA" in refused.stderr
        assert "1 of 1 hosts and cluster agents don't trust the new CA yet" in refused.stderr
        assert f"host {NAMESPACE}/one of demo" in rotate(served.kubeconfig, "status").stdout
        assert stages(served.kubeconfig)["ca"] == "keeping"
        forced = rotate(served.kubeconfig, "ca", "--finish", "--force")
        assert "do not trust the new one" in forced.stderr and f"host {NAMESPACE}/one" in forced.stderr
        assert trusts() == [old]
        agent.start()
        agent.until(lambda: trusts() == [used()])
        assert used() != old
        # The next one is delivered while it is there, and nobody is left behind.
        rotate(served.kubeconfig, "ca", "--until-trusted")
        rotate(served.kubeconfig, "ca", "--finish", "--until-trusted")
        agent.until(lambda: trusts() == [used()])
    finally:
        agent.kill()
    assert served.tracebacks() == []


@pytest.mark.real
def test_ranchers_own_agent_goes_on_by_the_old_ca_after_it_was_dropped(served: Served, tmp_path: Path) -> None:
    """It never learns of another CA: what the old one has signed for the new one is in the server's chain."""
    both_possible()

    def asks(method: str, path: str, body: Any = None, headers: Any = None) -> tuple[int, Any]:
        return asking(client(served.kubeconfig, tmp_path / "administrator"))(method, path, body, headers)

    api = Api(asks, f"https://127.0.0.1:{served.port}", (served.directory / "pki" / "ca.crt").read_text())
    namespace(api)
    plan = api.plan("theirs", tmp_path / "theirs")
    rotate(served.kubeconfig, "ca")
    rotate(served.kubeconfig, "ca", "--finish")
    with Agent.remote(ORIGINAL, plan, api) as agent:
        plan.give(Plan(files=(File.of("{root}/made", "x"),)))
        agent.until(lambda: plan.text("plan-state") == "succeeded")


def test_a_server_that_is_killed_in_between_goes_on(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    served = Served(tmp_path / "server")
    served.start()
    try:
        old = tmp_path / "old.kubeconfig"
        shutil.copy(served.kubeconfig, old)
        written = {f"s{number}": str(number) for number in range(60)}
        for name, text in written.items():
            assert ask(served.endpoint, "POST", SECRETS, secret(name, text)).status == 201
        for kind in ("encryption-key", "ca"):
            asked = ask(client(old, tmp_path / "old"), "POST", f"/remuda/rotation/{kind}", {})
            assert asked.status == 200, asked.body
            time.sleep(chance.uniform(0, 0.6))
            served.kill()
            served.start()
            eventually(lambda kind=kind: stages(served.kubeconfig)[kind] == "keeping", 180)
            all_is_there(client(old, tmp_path / "old"), written)
            all_is_there(client(served.kubeconfig, tmp_path / "new"), written)
        assert (served.directory / "encryption.yaml").read_text().count("secret:") == 2
    finally:
        served.end()
    assert served.tracebacks() == []


# --- several servers on one etcd ------------------------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.replicated
@pytest.mark.timeout(900)
@pytest.mark.parametrize("keys", ["token", "directory"])
def test_servers_on_one_etcd_take_over_together(tmp_path: Path, keys: str) -> None:
    need.programs("etcd")
    with EtcdCluster(members=1) as etcd:
        replicas = Replicas(tmp_path, etcd, keys=keys)
        try:
            one = replicas.add()
            replicas.start(one)
            two = replicas.add()
            replicas.start(two)
            _rotate_together(replicas, tmp_path)
            if keys == "token":
                # One dies, and is not waited for once its record is gone; the other drops the old key.
                one.kill()
            for kind in ("encryption-key", "ca"):
                rotate(two.kubeconfig, kind, "--finish")
            if keys == "token":
                one.start()
            assert _names(one) == _names(two)
            assert (one.directory / "pki" / "ca.crt").read_bytes() == (two.directory / "pki" / "ca.crt").read_bytes()
            for replica in replicas.all:
                assert replica.tracebacks() == [], replica.told()
        finally:
            replicas.end()


def _rotate_together(replicas: Replicas, directory: Path) -> None:
    """With clients at both servers, who write at one and read at the other what was sealed with whichever key."""
    old = [directory / f"old{number}" for number in range(2)]
    for replica, path in zip(replicas.all, old, strict=True):
        shutil.copy(replica.kubeconfig, path)

    def work(number: int, stop: threading.Event) -> None:
        count = 0
        while not stop.wait(0.05):
            name = f"r{number}-{count}"
            found = ask(client(old[number], directory / f"client{number}"), "POST", SECRETS, secret(name, name))
            assert found.status == 201, (number, found.status, found.body)
            found = ask(client(old[1 - number], directory / f"client{number}"), "GET", f"{SECRETS}/{name}")
            assert found.status == 200, (number, found.status, found.body)
            count += 1

    asked = replicas.all[1].kubeconfig
    with contextlib.contextmanager(running)(work, 2):
        for kind in ("encryption-key", "ca"):
            rotate(asked, kind, "--no-wait")
            if replicas.keys == "directory":
                _copy_when_asked(replicas, directory, kind)
            eventually(lambda kind=kind: stages(asked)[kind] == "keeping", 180)
    for replica in replicas.all:
        assert (replica.directory / "pki" / "ca.crt").read_text().count("BEGIN CERTIFICATE") == 2


def _names(replica: Replica) -> set[str]:
    found = ask(client(replica.kubeconfig, replica.directory / "as-now"), "GET", SECRETS)
    return {each["metadata"]["name"] for each in found.json["items"]}


def _copy_when_asked(replicas: Replicas, directory: Path, kind: str) -> None:
    """As the status says: the files of the one that has made the key, to the other."""
    found: Obj = {}

    def asked() -> bool:
        found.update(next(each for each in told(replicas.all[1].kubeconfig)["keys"] if each["kind"] == kind))
        waits = found.get("waitsFor") or []
        return len(waits) == 1 and "copy the files of" in waits[0]

    eventually(asked, 120, every=0.2)
    source = Path(found["waitsFor"][0].rpartition(", ")[2])
    for number in range(2):
        if (target := directory / f"pki{number}") != source:
            for path in source.iterdir():
                shutil.copy(path, target / path.name)
