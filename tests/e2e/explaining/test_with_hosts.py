"""States of a cluster with hosts, one after another on one cluster: the cause, and that what is advised makes it Ready again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.provisioning.conftest import DEMO, WORKSPACE, Ranch, _ranch, eventually, served

from .explainer import Cause, Explainer
from .test_without_hosts import is_code, webhook

pytestmark = [pytest.mark.real, pytest.mark.hosts, pytest.mark.timeout(2400)]

Obj = dict[str, Any]
VERSION, UNKNOWN = "v1.34.1+remuda1", "v1.34.77+remuda1"
AGENT = "rancher-system-agent"


class Herd:
    """A cluster, and the user who looks after it."""

    def __init__(self, ranch: Ranch, user: Explainer) -> None:
        self.ranch = ranch
        self.user = user

    def until(self, code: str, what: str) -> Cause:
        return self.user.until(DEMO, is_code(code), what)

    def change(self, **config: Any) -> None:
        self.ranch.change(rkeConfig=config)

    def ready(self) -> None:
        self.ranch.until_ready()
        self.user.gone(DEMO, lambda each: each.code != "WithoutEffect")


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Herd]:
    directory = tmp_path_factory.mktemp("herd")
    with _ranch(served, directory) as ranch:
        (directory / "user").mkdir()
        yield Herd(ranch, Explainer(ranch.gateway, directory / "user"))


@pytest.fixture
def herd(fresh: Herd) -> Herd:
    """With a Ready cluster, also where a test runs alone."""
    if not fresh.ranch.machines():
        fresh.ranch.want(VERSION)
        fresh.ranch.host("server", "etcd", "controlplane")
        fresh.ranch.host("worker", "worker")
        fresh.ready()
    return fresh


def test_a_missing_role_is_named_and_its_host_makes_the_cluster_ready(fresh: Herd) -> None:
    herd = fresh
    herd.ranch.want(VERSION)
    herd.ranch.host("worker", "worker")
    found = herd.until("Roles", "servers are missing")
    assert found.actor == "user" and "(missing: etcd, control plane)" in found.message
    (command,) = herd.user.does(found)
    assert command.rstrip().endswith("--etcd --controlplane")
    # What the command registers is a host of this machine here.
    herd.ranch.host("server", "etcd", "controlplane")
    herd.ready()


def test_a_webhook_that_is_down_stops_a_change_until_it_is_deleted(herd: Herd) -> None:
    herd.user.apply(webhook("plans", "rkecontrolplanes"))
    herd.change(machineGlobalConfig={"cluster-domain": "herd.local"})
    found = herd.until("Failed", "the webhook is down")
    assert found.actor == "user" and found.on == "ValidatingWebhookConfiguration plans"
    herd.user.does(found)
    herd.ready()


def test_an_agent_that_was_killed_is_silent_until_it_is_started(herd: Herd) -> None:
    host = herd.ranch.on("worker")
    assert host.systemctl("stop", AGENT, seconds=60)[0] == 0
    herd.change(machineGlobalConfig={"cluster-domain": "herd.local", "kubelet-arg": ["v=2"]})
    found = herd.until("Silent", "the agent does not take its plan")
    assert (found.actor, found.kind) == ("user", "Machine") and "its agent does not answer, since 20" in found.message
    assert f"systemctl restart {AGENT}" in found.advice
    assert host.systemctl("restart", AGENT, seconds=60)[0] == 0
    herd.ready()


def test_a_plan_that_fails_says_why_in_the_words_of_the_host(herd: Herd) -> None:
    before = {"cluster-domain": "herd.local", "kubelet-arg": ["v=2"]}
    herd.change(machineGlobalConfig={**before, "write-kubeconfig-mode": "rw-------"})
    try:
        found = herd.until("PlanFailed", "the service does not start")
        assert found.kind == "Machine" and "write-kubeconfig-mode is like 0600" in found.message, found
    finally:
        herd.change(machineGlobalConfig={**before, "write-kubeconfig-mode": "0600"})
    herd.ready()


def test_a_version_without_an_image_is_blamed_and_taken_back_by_the_command(herd: Herd) -> None:
    herd.ranch.change(kubernetesVersion=UNKNOWN)
    found = herd.until("Release", "there is no such image")
    assert found.actor == "user" and f"there is no installer image of {UNKNOWN} (known: v1.33.5+remuda1" in found.message
    assert "remuda versions" in found.advice
    known = json.loads(herd.user.run("remuda versions -o json"))["remuda"]
    assert any(f'"{each}"' in found.commands[0] for each in known)
    herd.user.does(found)
    herd.ready()


def test_the_only_etcd_host_that_is_lost_is_said_to_be_started_again(herd: Herd) -> None:
    herd.ranch.cut_power("server")

    def is_lost() -> bool:
        said = herd.user.explained(DEMO)
        return said["state"] != "active" or bool(said["toDo"])

    eventually(is_lost)
    herd.change(machineGlobalConfig={"cluster-domain": "herd.local"})
    found = herd.user.until(
        DEMO, lambda each: each.actor == "user" and each.code in ("Silent", "Quorum", "Connection", "Probes"), "its host is off"
    )
    assert "server" in json.dumps(herd.user.explained(DEMO)) and found.advice
    herd.ranch.power_on("server")
    herd.ready()


def test_a_paused_cluster_is_one_line_and_becomes_ready_by_the_command(herd: Herd) -> None:
    herd.user.run(
        f"""kubectl -n {WORKSPACE} patch clusters.cluster.x-k8s.io {DEMO} --type merge -p '{{"spec":{{"paused":true}}}}'"""
    )
    herd.change(machineGlobalConfig={"cluster-domain": "herd.local", "kubelet-arg": ["v=3"]})
    found = herd.until("Paused", "it is paused")
    assert (found.actor, found.kind) == ("user", "Cluster") and "objects are paused with it" in found.message
    assert [each.code for each in herd.user.causes(DEMO)] == ["Paused"]
    herd.user.does(found)
    herd.ready()


def test_a_hook_delays_a_deletion_until_its_annotation_goes(herd: Herd) -> None:
    herd.ranch.host("other", "worker")
    herd.ready()
    machine = herd.ranch.machines()["other"]
    hook = "pre-drain.delete.hook.machine.cluster.x-k8s.io/backup"
    herd.user.run(f"kubectl -n {WORKSPACE} annotate machines.cluster.x-k8s.io {machine} {hook}=mine")
    herd.user.run(f"kubectl -n {WORKSPACE} delete machines.cluster.x-k8s.io {machine} --wait=false")
    found = herd.until("Hook", "the hook holds the machine")
    assert (found.actor, found.kind) == ("other-controller", "Machine") and hook in found.message
    herd.user.does(found)
    eventually(lambda: "other" not in herd.ranch.machines())
    herd.ready()
