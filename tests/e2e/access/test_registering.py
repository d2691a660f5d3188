"""Hosts that register at a running server: by the command that people copy, and by everything that somebody might try instead.

On both back ends: our own API, and a real kube-apiserver behind `remuda gateway`.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from remuda.provisioning.bootstrap.service_account_tokens import shown
from remuda.provisioning.well_known import bootstrap_name, plan_name, request_name
from tests.api.harness import Answer
from tests.e2e.serving import eventually

from .fronted import FROM_NOWHERE, fronted
from .harness import CLUSTERS, Cluster, Gateway, Person, until

Obj = dict[str, Any]
FLEET = "fleet-default"
SECRETS = f"/api/v1/namespaces/{FLEET}/secrets"
MACHINES = f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{FLEET}/machines"
pytestmark = pytest.mark.timeout(600)
PATIENCE = 180.0
SUDO = '#!/bin/sh\nexec "$@"\n'


class Everything(Gateway):
    """`remuda serve` with all of its controllers."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, environ=FROM_NOWHERE)

    def command(self) -> list[str]:
        return [word for word in super().command() if not word.startswith("--controllers")]


@contextmanager
def served(directory: Path) -> Iterator[Gateway]:
    with Everything(directory / "server") as started:
        yield started


@pytest.fixture(
    scope="module",
    params=[pytest.param(served, marks=pytest.mark.story), pytest.param(fronted, marks=pytest.mark.real)],
    ids=["embedded", "kubernetes"],
)
def gateway(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with request.param(tmp_path_factory.mktemp("registering")) as started:
        started.announced()
        yield started
        assert started.tracebacks() == [], started.told()[-8000:]


@pytest.fixture(scope="module")
def cluster(gateway: Gateway) -> Cluster:
    return wanted(gateway, "demo")


def wanted(gateway: Gateway, name: str) -> Cluster:
    """A cluster that takes hosts."""
    ask = gateway.endpoint.request
    eventually(lambda: ask("GET", f"/api/v1/namespaces/{FLEET}").status == 200, PATIENCE)
    spec = {"kubernetesVersion": "v1.34.1+k3s1", "rkeConfig": {}}
    gateway.made(CLUSTERS, {"kind": "Cluster", "metadata": {"name": name, "namespace": FLEET}, "spec": spec})

    def identity() -> str:
        return str(ask("GET", f"{CLUSTERS}/{name}").json.get("status", {}).get("clusterName", ""))

    eventually(lambda: bool(identity()), PATIENCE, why="the cluster has got no name")
    found = Cluster(gateway, name, identity())
    eventually(found.is_known, PATIENCE, why="the gateway does not know the cluster's tokens")
    return found


def register(cluster: Cluster, machine_id: str, token: str = "", **said: str) -> Answer:
    headers = {"X_Cattle_Id": machine_id, "X_Cattle_Role_Worker": "true", **said}
    shown = f"Bearer {token or cluster.token('node-token')}"
    return cluster.gateway.nobody().request("GET", "/v3/connect/agent", Authorization=shown, **headers)


def token_in(answer: Answer) -> str:
    assert answer.status == 200, (answer.status, answer.body)
    return str(answer.json["kubeConfig"].rpartition("token: ")[2].strip())


def command_of(gateway: Gateway, cluster: Cluster, field: str = "insecureNodeCommand") -> str:
    found = gateway.endpoint.request("GET", f"/v3/clusterregistrationtokens?clusterId={cluster.id}").json["data"]
    return str(next(each[field] for each in found if each.get(field)))


def data_of(gateway: Gateway, name: str) -> dict[str, str]:
    found = gateway.endpoint.request("GET", f"{SECRETS}/{name}").json.get("data") or {}
    return {key: base64.b64decode(value).decode(errors="replace") for key, value in found.items()}


def bootstrap_token(gateway: Gateway, machine: str) -> str:
    """What is in the script that a driver would give to the machine; nothing as long as its account has none."""
    path = f"/api/v1/namespaces/{FLEET}/serviceaccounts/{bootstrap_name(machine)}"
    marks = gateway.endpoint.request("GET", path).json.get("metadata", {}).get("annotations") or {}
    secret = marks.get("rancher.io/service-account.secret-ref", "").partition("/")[2]
    return data_of(gateway, secret).get("token", "") if secret else ""


# --- as it should be ------------------------------------------------------------------------------------------------------


def host(directory: Path) -> tuple[Path, dict[str, str]]:
    """A host's root, and the environment of a shell in it."""
    root = directory / "host"
    root.mkdir(parents=True)
    for name, text in (("sudo", SUDO), ("systemctl", "#!/bin/sh\n")):
        path = directory / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    env = {"PATH": f"{directory}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}", "CATTLE_HOST_ROOT": str(root)}
    return root, {**env, "CATTLE_HOST_LOOPBACK": "127.8.0.1"}


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl here")
@pytest.mark.parametrize("field", ["insecureNodeCommand", "pinnedNodeCommand"])
def test_the_command_that_people_copy(gateway: Gateway, tmp_path: Path, field: str) -> None:
    root, env = host(tmp_path)
    # A first host for each: others wait for the first.
    cluster = wanted(gateway, field.lower())
    command = f"{command_of(gateway, cluster, field)} --all-roles --node-name first"
    done = subprocess.run(["sh", "-c", command], env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    machine = request_name((root / "etc/rancher/agent/cattle-id").read_text().strip())
    marks = gateway.endpoint.request("GET", f"{MACHINES}/{machine}").json["metadata"]["labels"]
    assert marks["rke.cattle.io/node-name"] == "first" and marks["cattle.io/os"] == "linux"
    assert marks["rke.cattle.io/etcd-role"] == marks["rke.cattle.io/control-plane-role"] == "true"
    agent = follow(root, env)
    try:
        # Each try counts; the first may not be the last.
        until(lambda: int(data_of(gateway, plan_name(machine)).get("plan-revision") or 0) >= 1, PATIENCE, done.stderr)
        # Its installer can't be had here; what comes before it is done, below the host's own root.
        until(lambda: (root / "etc/rancher/k3s/config.yaml.d/50-rancher.yaml").exists(), PATIENCE)
        watched(gateway, machine)
    finally:
        agent.send_signal(signal.SIGTERM)
        said = agent.communicate(timeout=120)[0].decode()
    assert agent.returncode == 0, said


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl here")
@pytest.mark.parametrize("field", ["pinnedNodeCommand", "pinnedCommand"])
def test_a_pinned_command_runs_nothing_of_a_server_with_another_ca(
    gateway: Gateway, cluster: Cluster, tmp_path: Path, field: str
) -> None:
    root, env = host(tmp_path)
    command, expected = command_of(gateway, cluster, field), gateway.ca_checksum()
    assert expected in command
    refused = command.replace(expected, "0" * 64).replace("kubectl apply -f -", "grep .")
    done = subprocess.run(["sh", "-c", refused], env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 1 and done.stdout == "" and "did NOT match" in done.stderr, done
    assert not (root / "etc").exists(), "nothing is installed"


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl here")
def test_the_command_that_imports_fetches_the_manifest(gateway: Gateway, cluster: Cluster) -> None:
    command = command_of(gateway, cluster, "pinnedCommand")
    assert command.endswith(" | kubectl apply -f -")
    fetched = command.removesuffix(" | kubectl apply -f -")
    done = subprocess.run(["sh", "-c", fetched], capture_output=True, timeout=PATIENCE, check=False)
    assert done.stdout == cluster.manifest().raw, done.stderr


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl here")
def test_the_command_says_why_a_host_is_not_let_in(gateway: Gateway, cluster: Cluster, tmp_path: Path) -> None:
    command, token = command_of(gateway, cluster), cluster.token("node-token")
    assert token in command
    taken = register(cluster, "8" * 63, X_Cattle_Node_Name="taken")
    assert taken.status == 200
    for number, (said, why) in enumerate(
        (
            (command.replace(token, "x" * len(token)) + " --worker", "(HTTP 401)"),
            (f"{command} --worker --node-name taken", "(HTTP 403): forbidden: another machine of the cluster"),
            (f"{command} --worker --node-name a_b", "can't be the name of a node"),
        )
    ):
        root, env = host(tmp_path / str(number))
        assert why in refusal(said, env)
        assert not (root / "etc/systemd/system/rancher-system-agent.service").exists()


def refusal(command: str, env: dict[str, str]) -> str:
    """What it says when it is not let in; it would go on trying for hours."""
    process = subprocess.Popen(["sh", "-c", command], env=env, stderr=subprocess.PIPE, text=True, start_new_session=True)
    said: list[str] = []
    try:
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line)
            if "does not register this host" in line:
                return line
        raise AssertionError("".join(said))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


def follow(root: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    """What systemd would do with the unit."""
    lines = (root / "etc/systemd/system/rancher-system-agent.service").read_text().splitlines()
    command = next(line.partition("=")[2] for line in lines if line.startswith("ExecStart="))
    given = dict(line.partition("=")[2].split("=", 1) for line in lines if line.startswith("Environment="))
    return subprocess.Popen(command.split(), env={**env, **given}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def watched(gateway: Gateway, machine: str) -> None:
    """What the host says can be read by who may read its machine, and by nobody else."""
    path = f"/v3/connect/progress?machine={FLEET}/{machine}"
    until(lambda: gateway.endpoint.request("GET", path).json.get("lines"), PATIENCE)
    lines = gateway.endpoint.request("GET", path).json["lines"]
    numbers = [line["number"] for line in lines]
    assert numbers == sorted(set(numbers)) and all(line["text"] for line in lines)
    assert gateway.user(f"onlooker-{machine[-6:]}").request("GET", path).status == 403
    assert gateway.nobody().request("GET", path).status == 401


def test_downloads_of_hosts_are_the_same_for_all_callers(gateway: Gateway) -> None:
    nobody = gateway.nobody()
    script = nobody.request("GET", "/system-agent-install.sh")
    assert script.status == 200 and f"CATTLE_SERVER='{gateway.url}'" in str(script.body)
    assert nobody.request("GET", "/assets/remuda-agent.pyz").status == 200
    for path in ("/assets/x", "/assets/../pki/ca.key", "/assets/%2e%2e/pki/ca.key", "/assets/", "/assets"):
        assert nobody.request("GET", path).status in (400, 404), path
    for path in ("/system-agent-install.sh", "/assets/remuda-agent.pyz", "/v3/connect/agent"):
        assert nobody.request("POST", path, {}).status == 405


# --- as it should not ------------------------------------------------------------------------------------------------------


def worked(host: Person, plan: str) -> bool:
    """Written as an agent does; the planner may write at the same moment."""
    secret = host.request("GET", plan).json
    return host.request("PUT", plan, {**secret, "data": {**(secret.get("data") or {}), "plan-revision": "MQ=="}}).status == 200


def test_one_host_is_not_another(gateway: Gateway, cluster: Cluster) -> None:
    first, second = (token_in(register(cluster, each * 63)) for each in "12")
    one, two = (f"{SECRETS}/{plan_name(request_name(each * 63))}" for each in "12")
    host = Person(gateway, first)
    # A real API server learns of a role a moment after it is made.
    until(lambda: host.request("GET", one).status == 200, PATIENCE)
    assert host.request("GET", two).status == 403
    assert Person(gateway, second).request("GET", one).status == 403
    # It works with its plan; from then on its id alone is nothing.
    until(lambda: worked(host, one), PATIENCE)
    refused = register(cluster, "1" * 63)
    assert refused.status == 403 and "registered already" in str(refused.body)
    assert register(cluster, "1" * 63, X_Cattle_Plan_Token=second).status == 403
    assert register(cluster, "1" * 63, X_Cattle_Plan_Token=first).status == 200


def test_a_host_of_one_cluster_is_none_of_another(gateway: Gateway, cluster: Cluster) -> None:
    token_in(register(cluster, "3" * 63))
    other = wanted(gateway, "other")
    refused = register(other, "3" * 63)
    assert refused.status == 403 and "another cluster" in str(refused.body)


def test_a_token_is_for_what_it_was_made_for(gateway: Gateway, cluster: Cluster) -> None:
    machine = request_name("4" * 63)
    plan = token_in(register(cluster, "4" * 63))
    until(lambda: bootstrap_token(gateway, machine), PATIENCE)
    bootstrap = bootstrap_token(gateway, machine)
    assert register(cluster, "5" * 63, cluster.token()).status == 401, "what opens the tunnel registers no host"
    assert register(cluster, "5" * 63, plan).status == 401
    assert register(cluster, "5" * 63, bootstrap).status == 401, "only what is in the script, not what it was made from"
    assert register(cluster, "5" * 63, shown(bootstrap)).status == 401, "the machine has its host"
    assert Person(gateway, bootstrap).request("GET", f"{SECRETS}/{plan_name(machine)}").status == 403
    assert Person(gateway, cluster.token("node-token")).request("GET", SECRETS).status in (401, 403)
    for path in ("/v3/connect", "/v3/connect/register"):
        node = {"X_API_Tunnel_Token": cluster.token("node-token")}
        refused = gateway.nobody().request("GET", path, Connection="Upgrade", Upgrade="websocket", **node)
        assert refused.status in (400, 401), path


def test_the_token_of_a_machine_that_is_gone_is_dead(gateway: Gateway, cluster: Cluster) -> None:
    machine = request_name("6" * 63)
    host = Person(gateway, token_in(register(cluster, "6" * 63)))
    until(lambda: host.request("GET", f"{SECRETS}/{plan_name(machine)}").status == 200, PATIENCE)
    assert gateway.endpoint.request("DELETE", f"{MACHINES}/{machine}").status == 200
    until(lambda: gateway.endpoint.request("GET", f"{MACHINES}/{machine}").status == 404, PATIENCE, gateway)
    until(lambda: host.request("GET", f"{SECRETS}/{plan_name(machine)}").status == 401, PATIENCE, gateway)
    # 410 as soon as it is known that the machine was deleted, on which its agent stops.
    assert host.request("POST", "/v3/connect/progress", {"lines": ["x"]}).status in (200, 401, 410)
    answers: list[Answer] = []

    def comes_again() -> bool:
        """Whoever judges it may know of the old machine for a moment more."""
        answers.append(register(cluster, "6" * 63))
        return answers[-1].status == 200

    until(comes_again, PATIENCE, gateway)
    assert token_in(answers[-1]) != host.token


def test_bad_words_are_refused(cluster: Cluster) -> None:
    for said, status in (
        ({"X_Cattle_Labels": "rke.cattle.io/etcd-role=true,a"}, 200),
        ({"X_Cattle_Labels": "-=1"}, 403),
        ({"X_Cattle_Taints": "x"}, 403),
        ({"X_Cattle_Node_Name": "a_b"}, 403),
        ({"X_Cattle_Role_Worker": "false"}, 403),
        ({"X_Cattle_Layout": '{"root":"/../etc"}'}, 403),
        ({"X_Cattle_Address": "x" * 300}, 403),
    ):
        found = register(cluster, "7" * 63, **said)
        assert found.status == status, (said, found.status, found.body)
        if status == 200:
            path = f"{MACHINES}/{request_name('7' * 63)}"
            marks = cluster.gateway.endpoint.request("GET", path).json["metadata"]["labels"]
            assert "rke.cattle.io/etcd-role" not in marks


def test_nothing_of_this_is_in_the_audit_log(gateway: Gateway, cluster: Cluster) -> None:
    plan = token_in(register(cluster, "a8" * 31))
    register(cluster, "a8" * 31, "wrong" * 20)

    def results() -> set[str]:
        return {line["result"] for line in gateway.audit() if line.get("path") == "/v3/connect/agent"}

    # A line is written after its answer.
    until(lambda: results() == {"allowed", "refused"})
    told = json.dumps(gateway.audit())
    for secret in (plan, cluster.token(), cluster.token("node-token"), "wrong" * 20):
        assert secret not in told and secret not in gateway.told()
    lines = [line for line in gateway.audit() if line.get("path") == "/v3/connect/agent"]
    assert all(line.get("cluster") for line in lines if line["result"] == "allowed")
