"""The ways to a cluster that was provisioned: clusterctl's kubeconfig through the gateway, and its own API with our tokens; and
the way of the server's agent to its host."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from remuda.agent.install import build
from remuda.kube.objects import annotations_of
from remuda.provisioning.well_known import AGENT_UPDATE
from tests.e2e.serving import eventually
from tests.real import need

from .agents import SERVER, AgentHost, of_another_day, told
from .conftest import DEMO, PATIENCE, WORKSPACE, Ranch

pytestmark = [pytest.mark.real, pytest.mark.hosts, pytest.mark.timeout(1800)]

VERSION = "v1.34.1+remuda1"


@pytest.fixture(scope="module")
def up(shared_ranch: Ranch) -> Ranch:
    """A cluster of one host."""
    ranch = shared_ranch
    ranch.want(VERSION)
    ranch.change(localClusterAuthEndpoint={"enabled": True})
    ranch.host("h0")
    ranch.until_ready()
    eventually(lambda: ranch.nodes() == {"h0": VERSION}, PATIENCE)
    return ranch


def test_a_cluster_is_reached_through_the_gateway_and_at_its_own_endpoint(up: Ranch, tmp_path: Path) -> None:
    ranch = up
    _columns(ranch)
    _clusterctl(ranch, tmp_path)
    _administrator(ranch, tmp_path)
    _own_endpoint(ranch, tmp_path)


def test_an_agent_of_another_day_becomes_the_servers_while_kubernetes_runs_on(up: Ranch) -> None:
    """From a file in its plan; one that can't take it says so, and works on."""
    ranch, host = up, AgentHost(up, "h0")
    assert host.archive.read_bytes() == build()
    assert told(ranch) == ("", ""), "a host with the right one is told nothing"
    assert not host.brings_an_agent() and AGENT_UPDATE not in annotations_of(host.secret())
    settled, kubernetes = host.plan(), host.pid(SERVER)

    host.run(of_another_day(takes_successors=True))
    eventually(lambda: host.archive.read_bytes() == build(), PATIENCE, "the agent's file is not replaced")
    eventually(lambda: told(ranch)[0] == "True" and host.is_settled(), PATIENCE, "the file does not leave the plan")
    assert AGENT_UPDATE not in annotations_of(host.secret())

    stubborn = of_another_day(takes_successors=False)
    host.run(stubborn)
    eventually(lambda: told(ranch)[0] == "False", PATIENCE, "nobody says that it does not work")
    assert ranch.machines()["h0"] in told(ranch)[1] and "it does not start: exit status 1" in told(ranch)[1]
    eventually(host.is_settled, PATIENCE, "the file does not leave the plan")
    assert host.archive.read_bytes() == stubborn, "the one before stays"
    ranch.until_ready()
    assert host.plan() == settled, "what is asked of the host is what it was before"
    assert host.pid(SERVER) == kubernetes, "Kubernetes was not restarted"


def run(program: Path, *words: str, home: Path) -> str:
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home),
        # It would ask the Internet for a newer one.
        "CLUSTERCTL_DISABLE_VERSIONCHECK": "true",
        "NO_COLOR": "1",
    }
    done = subprocess.run([str(program), *words], env=environ, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


def _columns(ranch: Ranch) -> None:
    """What people see who look with kubectl."""
    kubectl, home = need.programs("kubernetes")["kubectl"], ranch.directory
    asked = ("--kubeconfig", str(ranch.kubeconfig()), "-n", WORKSPACE, "get")
    heads = {
        "clusters.cluster": "NAME CLUSTERCLASS AVAILABLE CP",
        "rkeclusters.rke.cattle.io": "NAME AGE",
        "rkecontrolplanes.rke.cattle.io": "NAME CLUSTER INITIALIZED API SERVER AVAILABLE AGE VERSION",
        "clusters.provisioning.cattle.io": "NAME VERSION CLUSTER NAME AGE KUBECONFIG READY",
    }
    for kind, head in heads.items():
        first, row = run(kubectl, *asked, kind, home=home).splitlines()
        assert " ".join(first.split()).startswith(head), first
        assert row.split()[0] == DEMO


def _clusterctl(ranch: Ranch, directory: Path) -> None:
    programs = need.programs("clusterctl", "kubernetes")
    asked = ("get", "kubeconfig", DEMO, "-n", WORKSPACE, "--kubeconfig", str(ranch.kubeconfig()))
    path = directory / "demo.kubeconfig"
    path.write_text(run(programs["clusterctl"], *asked, home=directory))
    path.chmod(0o600)
    assert ranch.gateway.url in path.read_text()
    found = run(programs["kubectl"], "--kubeconfig", str(path), "get", "nodes", "-o", "name", home=directory)
    assert found.split() == ["node/h0"]


def _administrator(ranch: Ranch, directory: Path) -> None:
    """Who has the server's own kubeconfig in its data directory gets those of clusters without a login."""
    data = directory / "data"
    data.mkdir()
    (data / "kubeconfig").symlink_to(ranch.kubeconfig())
    path = directory / "without-login.kubeconfig"
    said = ("-m", "remuda", "kubeconfig", DEMO, "--data-dir", str(data), "--output", str(path))
    run(Path(sys.executable), *said, home=directory)
    kubectl = need.programs("kubernetes")["kubectl"]
    found = run(kubectl, "--kubeconfig", str(path), "--context", DEMO, "get", "nodes", "-o", "name", home=directory)
    assert found.split() == ["node/h0"]


def _own_endpoint(ranch: Ranch, directory: Path) -> None:
    """Past the gateway: the API server of the cluster asks `kube-api-auth`, which runs beside it."""
    kubectl, admin = need.programs("kubernetes")["kubectl"], ranch.gateway.administrator()
    path = directory / "own.kubeconfig"
    path.touch(mode=0o600)

    def offered() -> bool:
        answer = admin.request("POST", f"/v3/clusters/{ranch.id()}?action=generateKubeconfig")
        assert answer.status == 200, answer.body
        path.write_text(answer.json["config"])
        return f"{DEMO}-h0" in {each["name"] for each in yaml.safe_load(answer.json["config"])["contexts"]}

    eventually(offered, PATIENCE)
    own = next(each["cluster"] for each in yaml.safe_load(path.read_text())["clusters"] if each["name"] == f"{DEMO}-h0")
    assert own["server"].startswith("https://127.") and own["server"].endswith(":6443")
    asked = [str(kubectl), "--kubeconfig", str(path), "--context", f"{DEMO}-h0", "get", "nodes", "-o", "name"]

    def answered() -> str:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=180, check=False)
        return done.stdout.strip() or done.stderr[-500:]

    # The token has to come to the cluster first, and what its owner may do there.
    eventually(lambda: answered() == "node/h0", PATIENCE, "the cluster does not let its owner in")
    path.write_text(re.sub(r"(token: \"?[^:\s]+:)\w+", rf"\1{'x' * 54}", path.read_text()))

    def is_refused() -> bool:
        said = answered()
        assert said != "node/h0"
        return "Unauthorized" in said or "must be logged in" in said

    eventually(is_refused, PATIENCE, "nobody says that the token is wrong")
