"""States of a cluster with hosts, one after another on one cluster: the cause, and that what is advised makes it Ready again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from remuda.api.rke_cattle_io import AUTHORIZED
from remuda.provisioning.well_known import ASKED_AT, PLAN_UPDATED
from tests.e2e.provisioning.conftest import DEMO, WORKSPACE, Ranch, _ranch, eventually, served

from .explainer import Cause, Explainer
from .test_without_hosts import is_code, says, webhook

pytestmark = [pytest.mark.real, pytest.mark.hosts, pytest.mark.timeout(2400)]

Obj = dict[str, Any]
VERSION, UNKNOWN = "v1.34.1+remuda1", "v1.34.77+remuda1"
AGENT = "rancher-system-agent"
IDLE = {"name": "idle", "image": "registry.example.com/idle:1"}


class Herd:
    """A cluster, and the user who looks after it."""

    def __init__(self, ranch: Ranch, user: Explainer) -> None:
        self.ranch = ranch
        self.user = user

    def until(self, code: str, what: str, *, actor: str = "user", advice: str) -> Cause:
        return self.user.until(DEMO, is_code(code), what, actor=actor, advice=advice)

    def change(self, **config: Any) -> None:
        self.ranch.change(rkeConfig=config)

    def ready(self) -> None:
        self.ranch.until_ready()
        self.user.gone(DEMO, lambda each: each.code != "WithoutEffect")

    def register(self, name: str, command: str) -> None:
        """Run a registration command as it is printed, on a host."""
        self.ranch.made(name)
        hosts = self.ranch.directory / "hosts"
        self.user.run(f"remuda host exec --data-dir {hosts} {name} -- sh -c {shlex.quote(command)}")

    def kubectl(self, kind: str, name: str, words: str) -> None:
        """A change of an object in the cluster's workspace; `words` is a verb, and what follows the name."""
        verb, _, more = words.partition(" ")
        self.user.run(f"kubectl -n {WORKSPACE} {verb} {kind} {name} {more}")

    def until_silent(self, host: str, what: str) -> Cause:
        """As if the last plan of a host, and the last question to its agent, were of long ago."""
        secret = self.ranch.plan_secret(host).rpartition("/")[2]
        long_ago = " ".join(f"{name}=2026-01-01T00:00:00Z" for name in (PLAN_UPDATED, ASKED_AT))

        def is_told() -> bool:
            self.kubectl("secret", secret, f"annotate --overwrite {long_ago}")
            return any(each.code == "Silent" for each in self.user.causes(DEMO))

        eventually(is_told)
        found = self.until("Silent", what, advice="Start the host if it is off. Else, on it: ")
        assert (found.kind, found.name) == ("Machine", self.ranch.machines()[host])
        assert "its agent does not answer, since 20" in found.message
        return found

    def inside(self, path: str, method: str = "GET", body: Obj | None = None) -> Obj:
        """In the cluster itself."""
        answer = self.ranch.through(path, method, body)
        assert answer.status < 300, (path, answer.status, answer.body)
        found: Obj = answer.json
        return found


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
    found = herd.until("Roles", "servers are missing", advice="Register hosts: run the output of the command on each host")
    assert "(missing: etcd, control plane)" in found.message
    (command,) = herd.user.does(found)
    assert command.rstrip().endswith("--etcd --controlplane")
    herd.register("server", command)
    herd.ready()


def test_a_webhook_that_is_down_stops_a_change_until_it_is_deleted(herd: Herd) -> None:
    herd.user.apply(webhook("plans", "rkecontrolplanes"))
    herd.change(machineGlobalConfig={"cluster-domain": "herd.local"})
    found = herd.until("Failed", "the webhook is down", advice="Start the service of the webhook")
    assert found.on == "ValidatingWebhookConfiguration plans"
    herd.user.does(found)
    herd.ready()


def test_an_agent_that_was_killed_is_silent_until_it_is_started(herd: Herd) -> None:
    host = herd.ranch.on("worker")
    assert host.systemctl("stop", AGENT, seconds=60)[0] == 0
    herd.change(machineGlobalConfig={"cluster-domain": "herd.local", "kubelet-arg": ["v=2"]})
    herd.until_silent("worker", "the agent does not take its plan")
    assert host.systemctl("restart", AGENT, seconds=60)[0] == 0
    herd.ready()


def test_a_plan_that_fails_says_why_in_the_words_of_the_host(herd: Herd) -> None:
    field = "spec.rkeConfig.machineGlobalConfig.write-kubeconfig-mode"
    herd.change(machineGlobalConfig={"cluster-domain": "herd.local", "write-kubeconfig-mode": "rw-------"})
    found = herd.until("PlanFailed", "the service does not start", advice=f"Correct {field} of the cluster, or remove it")
    assert found.kind == "Machine" and f"its host can't use the value of {field}: " in found.message
    assert "write-kubeconfig-mode is like 0600" in found.message, found
    herd.user.does(found)
    herd.ready()


def test_a_version_without_an_image_is_blamed_and_taken_back_by_the_command(herd: Herd) -> None:
    herd.ranch.change(kubernetesVersion=UNKNOWN)
    found = herd.until(
        "Release", "there is no such image", advice="Choose a kubernetesVersion that exists: remuda versions lists"
    )
    assert f"there is no installer image of {UNKNOWN} (known: v1.33.5+remuda1" in found.message
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
    herd.until_silent("server", "its host is off")
    herd.ranch.power_on("server")
    herd.ready()


def test_a_paused_cluster_is_one_line_and_becomes_ready_by_the_command(herd: Herd) -> None:
    herd.user.run(
        f"""kubectl -n {WORKSPACE} patch clusters.cluster.x-k8s.io {DEMO} --type merge -p '{{"spec":{{"paused":true}}}}'"""
    )
    herd.change(machineGlobalConfig={"cluster-domain": "herd.local", "kubelet-arg": ["v=3"]})
    found = herd.user.until(DEMO, says("objects are paused with it"), "it is paused", actor="user", advice="Remove the pause")
    assert (found.code, found.kind) == ("Paused", "Cluster")
    assert [each.code for each in herd.user.causes(DEMO)] == ["Paused"]
    herd.user.does(found)
    herd.ready()


def test_a_machine_that_is_paused_goes_on_by_the_command(herd: Herd) -> None:
    machine = herd.ranch.machines()["worker"]
    herd.kubectl("machines.cluster.x-k8s.io", machine, "annotate cluster.x-k8s.io/paused=true")
    found = herd.until("Paused", "one machine is paused", advice="Remove the pause")
    assert (found.kind, found.name) == ("Machine", machine)
    herd.user.does(found)
    herd.ready()


def test_a_secret_that_the_spec_names_is_missing_until_it_is_made(herd: Herd) -> None:
    source = {"secret": {"name": "motd", "items": [{"key": "text", "path": "/etc/motd"}]}}
    herd.change(machineSelectorFiles=[{"machineLabelSelector": {}, "fileSources": [source]}])
    found = herd.until("Reference", "the Secret is missing", advice="Create the object that is referred to")
    assert found.kind == "Cluster" and found.message == f"there is no Secret {WORKSPACE}/motd" and found.on == "Secret motd"
    herd.user.run(f"kubectl -n {WORKSPACE} create secret generic motd --from-literal=text=hello")
    found = herd.until("Render", "its owner has not allowed it", advice="If the hosts of the cluster may have what is in")
    assert f"Secret {WORKSPACE}/motd is not authorized for the cluster {DEMO}: its annotation {AUTHORIZED}" in found.message
    herd.user.does(found)
    herd.ready()


def test_a_drain_hook_is_answered_by_the_command(herd: Herd) -> None:
    hooks = [{"annotation": "example.com/backup-done"}]
    herd.change(
        machineGlobalConfig={"cluster-domain": "herd.local", "kubelet-arg": ["v=4"]},
        upgradeStrategy={"workerDrainOptions": {"enabled": True, "preDrainHooks": hooks}},
    )
    found = herd.until("Hook", "its hook is asked", actor="other-controller", advice="sets the annotation example.com")
    assert found.kind == "Machine" and "waiting for pre-drain hook example.com/backup-done" in found.message
    herd.user.does(found)
    herd.ready()


def test_a_registry_that_does_not_answer_is_named(herd: Herd) -> None:
    config = {"cluster-domain": "herd.local", "kubelet-arg": ["v=4"]}
    herd.change(machineGlobalConfig={**config, "system-default-registry": "127.0.0.1:9"})
    found = herd.until("Reference", "no image comes from there", advice="Check that the host reaches the registry")
    assert found.kind == "Machine" and "the image can't be fetched from its registry" in found.message
    assert "127.0.0.1:9/" in found.message
    herd.change(machineGlobalConfig={**config, "system-default-registry": None})
    herd.ready()


def test_an_idle_agent_that_was_killed_is_said_and_the_cluster_stays_ready(herd: Herd) -> None:
    host = herd.ranch.on("worker")
    assert host.systemctl("stop", AGENT, seconds=60)[0] == 0
    herd.until_silent("worker", "the agent is gone")
    assert herd.ranch.is_ready() and "does not answer, since" in herd.user.run(f"remuda cluster show {DEMO}")
    row = next(each for each in json.loads(herd.user.run("remuda cluster ls -o json")) if each["name"] == DEMO)
    assert row["state"] == "active" and "does not answer, since" in row["message"]
    assert host.systemctl("restart", AGENT, seconds=60)[0] == 0
    herd.ready()


def test_machines_that_a_health_check_may_not_replace_are_deleted_by_the_commands(herd: Herd) -> None:
    herd.ranch.host("other", "worker")
    herd.ready()
    other = herd.ranch.machines()["other"]
    health = {"unhealthyNodeConditions": [{"type": "Ready", "status": "Unknown", "timeoutSeconds": 1}]}
    herd.user.apply(
        {
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "MachineHealthCheck",
            "metadata": {"name": "workers", "namespace": WORKSPACE},
            "spec": {
                "clusterName": DEMO,
                "selector": {"matchLabels": {"rke.cattle.io/worker-role": "true"}},
                "checks": health,
                "remediation": {"triggerIf": {"unhealthyLessThanOrEqualTo": 0}},
            },
        }
    )
    assert herd.ranch.on("other").systemctl("stop", "remuda-node", seconds=60)[0] == 0
    found = herd.until("Budget", "none may be replaced", advice="Too many machines are unhealthy for an automatic repair")
    assert found.kind == "MachineHealthCheck" and f"unhealthy: {other}" in found.message
    herd.user.does(found)
    eventually(lambda: "other" not in herd.ranch.machines())
    herd.kubectl("machinehealthchecks.cluster.x-k8s.io", "workers", "delete")
    herd.ready()


def test_what_holds_up_a_deletion_is_named_one_after_the_other(herd: Herd) -> None:
    """A PodDisruptionBudget, a hook, and a finalizer of another program."""
    herd.ranch.host("last", "worker")
    herd.ready()
    machine, labels = herd.ranch.machines()["last"], {"app": "precious"}
    pod = {"metadata": {"name": "precious", "labels": labels}, "spec": {"nodeName": "last", "containers": [IDLE]}}
    herd.inside("/api/v1/namespaces/default/pods", "POST", {"apiVersion": "v1", "kind": "Pod", **pod})
    budget = {"metadata": {"name": "precious"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}}}
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    herd.inside(path, "POST", {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", **budget})
    hook, finalizer = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/backup", "example.com/inventory"
    herd.kubectl("machines.cluster.x-k8s.io", machine, f"annotate {hook}=mine")
    add = [{"op": "add", "path": "/metadata/finalizers/-", "value": finalizer}]
    herd.kubectl("machines.cluster.x-k8s.io", machine, f"patch --type json -p '{json.dumps(add)}'")
    herd.kubectl("machines.cluster.x-k8s.io", machine, "delete --wait=false")

    found = herd.until("Drain", "a budget keeps the pod", advice="Look for pods that a PodDisruptionBudget keeps")
    assert found.kind == "Machine" and "default/precious" in found.message
    herd.inside(f"{path}/precious", "DELETE")

    found = herd.until("Hook", "the hook holds the machine", actor="other-controller", advice="remove the hook")
    assert found.kind == "Machine" and hook in found.message
    herd.user.does(found)

    found = herd.until("Finalizers", "another finalizer holds it", actor="other-controller", advice="remove the finalizer")
    assert found.kind == "Machine" and finalizer in found.message
    herd.user.does(found)
    eventually(lambda: "last" not in herd.ranch.machines())
    herd.ready()


def test_the_last_etcd_machine_goes_when_another_has_come(herd: Herd) -> None:
    machine = herd.ranch.machines()["server"]
    delete = f"kubectl -n {WORKSPACE} delete machines.cluster.x-k8s.io {machine}"
    said = herd.user.run(f"{delete} 2>&1 || true")
    assert "it is the only etcd machine of its cluster" in said and "add another etcd machine first" in said
    herd.register("successor", herd.user.run(f"remuda cluster registration-command {DEMO} -n {WORKSPACE} --etcd --controlplane"))
    eventually(lambda: "successor" in herd.ranch.machines())
    herd.ready()
    herd.user.run(f"{delete} --wait=false")
    eventually(lambda: "server" not in herd.ranch.machines())
    herd.ready()
