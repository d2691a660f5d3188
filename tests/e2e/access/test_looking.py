"""Clusters as people see them from the command line of their own machine: before there is a host, with one, and at the end."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.provisioning.well_known import request_name
from tests.e2e.serving import eventually

from .harness import CLUSTERS, Cluster, Gateway, Person
from .test_registering import PATIENCE, gateway, register, token_in, wanted
from .test_users import Home

__all__ = ["gateway"]

pytestmark = pytest.mark.timeout(600)
HOST = "5f" * 31 + "a"
MACHINE = request_name(HOST)


class Onlooker:
    """Somebody who is logged in, at a terminal or in a script."""

    def __init__(self, person: Person, directory: Path) -> None:
        self.home = Home(directory)
        gateway = person.gateway
        self.home.run("login", gateway.url, "--ca-file", str(gateway.ca), "--token", "-", stdin=f"{person.token}\n")

    def run(self, *arguments: str, code: int = 0) -> str:
        return self.home.run(*arguments, code=code)

    def data(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "-o", "json"))

    def state(self) -> str:
        return str(next((each["state"] for each in self.data("cluster", "ls") if each["name"] == "looked-at"), ""))


@pytest.fixture(scope="module")
def cluster(gateway: Gateway) -> Cluster:
    return wanted(gateway, "looked-at")


@pytest.fixture(scope="module")
def admin(gateway: Gateway, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Onlooker:
    return Onlooker(gateway.administrator(), tmp_path_factory.mktemp("admin") / "home")


@pytest.fixture(scope="module")
def watching(admin: Onlooker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A script that follows the cluster all the time."""
    told = tmp_path_factory.mktemp("watching") / "told"
    command = [sys.executable, "-m", "remuda", "cluster", "show", "looked-at", "--watch"]
    with told.open("wb") as file, subprocess.Popen(command, env=admin.home.environment, stdout=file, stderr=file) as process:
        try:
            yield told
        finally:
            process.kill()


def test_a_cluster_waits_for_machines(cluster: Cluster, admin: Onlooker, watching: Path) -> None:
    eventually(lambda: admin.state() == "waiting-for-machines", PATIENCE)
    row = next(line.split() for line in admin.run("cluster", "ls").splitlines() if line.startswith("looked-at"))
    assert row[:5] == ["looked-at", cluster.id, "waiting-for-machines", "v1.34.1+k3s1", "0/0"]
    assert "looked-at" in admin.run("cluster", "ls", "-o", "name", "-n", "fleet-default").splitlines()
    assert admin.run("cluster", "show", cluster.id).startswith("cluster looked-at  waiting-for-machines")
    eventually(lambda: admin.data("explain", "looked-at")["complete"], PATIENCE)
    # Who works on it says what they wait for after they have said how it is.
    eventually(lambda: "Roles, for " in admin.run("explain", "looked-at"), PATIENCE)
    assert "registration-command" in (told := admin.run("explain", "looked-at")), told
    assert admin.run("machine", "ls", "looked-at", "-o", "name") == ""
    assert "not found" in admin.run("explain", "nobody", code=3)
    eventually(lambda: "cluster looked-at: waiting-for-machines" in watching.read_text(), PATIENCE)


def test_the_registration_command_is_what_a_host_runs(cluster: Cluster, admin: Onlooker) -> None:
    options = ["--worker", "--node-name", "n1", "--label", "a=b", "--taint", "c=d:NoSchedule"]
    told = admin.run("cluster", "registration-command", "looked-at", *options)
    assert "--cacert" in told and " --insecure " not in told and told.count("\n") == 1
    assert f"--token {cluster.token('node-token')} " in told
    assert told.endswith(" --worker --node-name n1 --label a=b --taints c=d:NoSchedule\n")
    whole = admin.run("cluster", "registration-command", "looked-at", "--insecure")
    assert "curl --insecure -fL " in whole and whole.endswith(" --etcd --controlplane --worker\n")
    assert "not a label" in admin.run("cluster", "registration-command", "looked-at", "--label", "x", code=2)


def test_a_cluster_that_is_there_already_is_connected_with_kubectl(gateway: Gateway, admin: Onlooker) -> None:
    gateway.cluster("afar")
    assert admin.run("cluster", "registration-command", "afar").endswith("| kubectl apply -f -\n")
    assert admin.run("cluster", "registration-command", "afar", "--insecure").startswith("curl --insecure ")
    assert "can't register hosts" in admin.run("cluster", "registration-command", "afar", "--worker", code=1)
    assert "waiting-for-agent" in admin.run("cluster", "show", "afar")
    eventually(lambda: "its agent has never connected" in admin.run("explain", "afar"), PATIENCE)
    assert "ClusterAgent" in (told := admin.run("explain", "afar")) and "$ remuda cluster registration-command afar" in told


def test_a_host_that_has_come_is_seen_at_work(gateway: Gateway, cluster: Cluster, admin: Onlooker, watching: Path) -> None:
    roles = {"X_Cattle_Role_Etcd": "true", "X_Cattle_Role_Control_Plane": "true"}
    token = token_in(register(cluster, HOST, **roles))
    said = {"lines": ["pulling the installer"]}
    answer = gateway.nobody().request("POST", "/v3/connect/progress", said, Authorization=f"Bearer {token}")
    assert answer.status == 200, answer.body

    def waits_for_it() -> bool:
        found = admin.data("cluster", "show", "looked-at")["machines"]
        return [each["message"] for each in found] == ["waiting for agent to check in and apply initial plan"]

    eventually(waits_for_it, PATIENCE)
    machine = admin.data("cluster", "show", "looked-at")["machines"][0]
    assert (machine["name"], machine["state"]) == (MACHINE, "configuring")
    assert machine["roles"] == ["etcd", "controlplane", "worker"]
    assert machine["lastLine"]["text"] == "pulling the installer"
    shown = admin.run("cluster", "show", "looked-at")
    assert "└─ machines 0/1" in shown and "ago: pulling the installer" in shown
    eventually(lambda: "CheckIn, for " in admin.run("explain", "looked-at"), PATIENCE)
    told = admin.run("explain", "looked-at")
    assert f"Machine {MACHINE}: waiting for agent to check in" in told and "CheckIn, for " in told
    assert "action: you" in told and "plan: pending" in told and "pulling the installer" in told
    assert admin.run("machine", "ls", "looked-at").splitlines()[1].split()[:3] == [
        MACHINE,
        "configuring",
        "etcd,controlplane,worker",
    ]
    assert [MACHINE, "looked-at"] in [line.split()[:2] for line in admin.run("machine", "ls").splitlines()]
    assert "there is no log of" in admin.run("machine", "logs", MACHINE, "--follow", code=3)
    assert "remuda machine ls lists them" in admin.run("machine", "show", "nobody", code=3)
    eventually(lambda: f"host of {MACHINE}: pulling the installer" in watching.read_text(), PATIENCE)


def test_members_see_what_is_theirs_and_strangers_nothing(gateway: Gateway, cluster: Cluster, tmp_path: Path) -> None:
    member, stranger = gateway.user("onlooking"), gateway.user("strange")
    gateway.bind(cluster.id, member, "cluster-member")
    one, other = Onlooker(member, tmp_path / "member"), Onlooker(stranger, tmp_path / "stranger")
    eventually(lambda: "looked-at" in one.run("cluster", "ls", "-o", "name"), PATIENCE)
    eventually(lambda: MACHINE in one.run("machine", "ls", "looked-at", "-o", "name"), PATIENCE)
    assert MACHINE in one.run("explain", "looked-at") and "pulling the installer" in one.run("cluster", "show", "looked-at")
    assert "registration command" in one.run("cluster", "registration-command", "looked-at", code=1)
    assert MACHINE in one.run("machine", "ls", "-o", "name").splitlines()
    assert other.run("cluster", "ls", "-o", "name") == other.run("machine", "ls", "-o", "name") == ""
    for command in (("explain",), ("cluster", "show"), ("machine", "ls"), ("cluster", "registration-command")):
        # As if there were no such cluster: a name of another tenant is not told.
        other.run(*command, "looked-at", code=3)


def test_a_shell_completes_names(cluster: Cluster, admin: Onlooker) -> None:
    environment = {"_REMUDA_COMPLETE": "bash_complete", "COMP_WORDS": "remuda explain look", "COMP_CWORD": "2"}
    command = [sys.executable, "-c", "from remuda.cli import main; main()"]

    def completed() -> str:
        done = subprocess.run(
            command, env={**admin.home.environment, **environment}, capture_output=True, text=True, timeout=60, check=False
        )
        return done.stdout

    # A server that takes its time is not waited for: whoever types presses the key again.
    eventually(lambda: "plain,looked-at" in completed(), PATIENCE)


def test_a_cluster_that_goes_is_watched_to_its_end(gateway: Gateway, admin: Onlooker, watching: Path) -> None:
    # A server that is away meanwhile comes back.
    gateway.kill()
    eventually(lambda: "; trying again\n" in watching.read_text(), PATIENCE)
    gateway.start()
    # What its rules are asked about is refused until they are there to be asked.
    eventually(lambda: gateway.endpoint.request("DELETE", f"{CLUSTERS}/looked-at").status in (200, 202), PATIENCE)
    eventually(lambda: watching.read_text().endswith("cluster looked-at is gone\n"), PATIENCE)
    assert "\x1b" not in watching.read_text()
    assert "not found" in admin.run("cluster", "show", "looked-at", code=3)
