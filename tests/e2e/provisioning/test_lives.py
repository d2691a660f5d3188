"""Long lives of clusters on a real kube-apiserver, with hosts that are processes of this machine: what the stories of
`tests/scenarios` tell on our own API with hosts in memory."""

from __future__ import annotations

import http.client
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from remuda.kube.objects import annotations_of
from remuda.provisioning.well_known import PRE_DRAIN
from tests.e2e.access.fronted import Fronted

from .conftest import PATIENCE, Ranch, eventually
from .test_whole_way import FROM, TO

pytestmark = [pytest.mark.real, pytest.mark.hosts, pytest.mark.timeout(3600)]

MANIFEST = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: brought, namespace: default}\ndata: {by: the plan}\n"
HOOK = "hooks.example.com/pre"
DRAIN = {"enabled": True, "force": True, "ignoreDaemonSets": True, "deleteEmptyDirData": True, "timeout": 300}
HOOKED = {**DRAIN, "preDrainHooks": [{"annotation": HOOK}]}
POD = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "web"}]}}
# For what several hosts do one after the other.
LONG = 4 * PATIENCE
# Long enough for everybody to lose what they hold by a Lease.
AWAY_SECONDS = 40.0


def waiting(ranch: Ranch, *hosts: str) -> dict[str, str]:
    """What the hooks of hosts are asked that have not answered."""
    notes = {host: annotations_of(ranch.get(ranch.plan_secret(host))) for host in hosts}
    return {host: said[PRE_DRAIN] for host, said in notes.items() if PRE_DRAIN in said and said.get(HOOK) != said[PRE_DRAIN]}


def until_asked(ranch: Ranch, *hosts: str, of: int = 1) -> dict[str, str]:
    """So many of the hosts at the same time."""
    # The others' turn may be before theirs.
    eventually(lambda: len(waiting(ranch, *hosts)) >= of, LONG, "their hooks are not asked")
    return waiting(ranch, *hosts)


def answer(ranch: Ranch, asked: dict[str, str]) -> None:
    for host, text in asked.items():
        answered = {"metadata": {"annotations": {HOOK: text}}}
        assert ranch.ask("PATCH", ranch.plan_secret(host), answered, "application/merge-patch+json").status == 200


def until_begun(ranch: Ranch, host: str, after: int) -> None:
    eventually(lambda: ranch.begun(host) > after, PATIENCE, f"{host} does not begin: {ranch.says()}")


@contextmanager
def away(ranch: Ranch) -> Iterator[None]:
    """The API neither answers nor hangs up."""
    assert isinstance(ranch.gateway, Fronted)
    api = ranch.gateway.real.pids["kube-apiserver"]
    os.kill(api, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(api, signal.SIGCONT)


# Such troubles are also those of tests/scenarios, and roles of their own those of tests/e2e/distro.
@pytest.mark.variant
def test_roles_of_their_own_with_trouble_in_the_middle(their_ranch: Ranch) -> None:
    """One host for etcd, one for the control plane, one for work; a change that restarts nobody and one that restarts all; a hook
    that takes its time, an API that is away, an agent that is killed, a host whose power is cut and one that comes while all of
    them are upgraded."""
    ranch = their_ranch
    ranch.want(FROM, upgradeStrategy={"workerDrainOptions": HOOKED})
    ranch.host("e0", "etcd")
    ranch.host("c0", "controlplane")
    eventually(lambda: "to be registered" in ranch.says(), PATIENCE)
    ranch.host("w0", "worker")
    ranch.until_ready()
    eventually(lambda: ranch.nodes() == dict.fromkeys(("e0", "c0", "w0"), FROM), PATIENCE)
    assert ranch.init_node() == ["e0"]

    running = {"e0": "remuda-server", "c0": "remuda-server", "w0": "remuda-node"}
    before = {host: ranch.pid(host, unit) for host, unit in running.items()}
    ranch.change(rkeConfig={"additionalManifest": MANIFEST})
    eventually(lambda: ranch.through("/api/v1/namespaces/default/configmaps/brought").status == 200, PATIENCE)
    ranch.until_ready()
    assert {host: ranch.pid(host, unit) for host, unit in running.items()} == before, "nobody is restarted"

    begun = {host: ranch.begun(host) for host in running}
    ranch.change(kubernetesVersion=TO, rkeConfig={"machineGlobalConfig": {"kubelet-arg": ["max-pods=99"]}})
    until_begun(ranch, "c0", begun["c0"])
    ranch.kill_agent("c0")
    asked = until_asked(ranch, "w0")
    ranch.host("w1", "worker")
    with away(ranch):
        time.sleep(AWAY_SECONDS)
    eventually(lambda: ranch.nodes().get("w0") == FROM, PATIENCE, "nothing happens before the hook has answered")
    assert ranch.begun("w0") == begun["w0"]
    answer(ranch, asked)
    until_begun(ranch, "w0", begun["w0"])
    ranch.cut_power("w0")
    ranch.power_on("w0")
    eventually(lambda: ranch.nodes() == dict.fromkeys(("e0", "c0", "w0", "w1"), TO), LONG, f"not there: {ranch.says()}")
    ranch.until_ready()
    after = {host: ranch.pid(host, unit) for host, unit in running.items()}
    assert all(after[host] != before[host] for host in running), "all were restarted"
    assert ranch.init_node() == ["e0"]


@contextmanager
def cordoned_by_name(ranch: Ranch) -> Iterator[list[frozenset[str]]]:
    """Which nodes took no pods at the same time, as often as one looks."""
    seen: list[frozenset[str]] = []
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(1.0):
            with suppress(OSError, http.client.HTTPException):
                answer = ranch.through("/api/v1/nodes")
                listed = answer.json["items"] if answer.status == 200 else []
                seen.append(frozenset(each["metadata"]["name"] for each in listed if each["spec"].get("unschedulable")))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield seen
    finally:
        stop.set()
        looking.join()


def test_servers_and_workers_are_drained_and_upgraded_and_servers_come_and_go(their_ranch: Ranch) -> None:
    """Three servers and two workers, with pods that move out of the way. Then etcd shrinks to one, its first member included,
    and grows again."""
    ranch = their_ranch
    strategy = {"controlPlaneDrainOptions": DRAIN, "workerDrainOptions": HOOKED, "workerConcurrency": "50%"}
    ranch.want(FROM, upgradeStrategy=strategy)
    servers, workers = ("h0", "h1", "h2"), ("w0", "w1")
    for name in servers:
        ranch.host(name, "etcd", "controlplane")
    for name in workers:
        ranch.host(name, "worker")
    ranch.until_ready()
    eventually(lambda: set(ranch.nodes()) == {*servers, *workers}, PATIENCE)
    upgraded_one_by_one(ranch, servers, workers)
    for concurrency, pods in (("2", 98), ("0", 97)):
        both_at_once(ranch, workers, concurrency, pods)
    shrinks_and_grows(ranch, servers, workers)


def upgraded_one_by_one(ranch: Ranch, servers: tuple[str, ...], workers: tuple[str, ...]) -> None:
    deployment = {
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": POD},
    }
    assert ranch.through("/apis/apps/v1/namespaces/default/deployments", "POST", deployment).status == 201
    eventually(lambda: len(pods(ranch)) == 2, PATIENCE)
    before = pods(ranch)
    with cordoned_by_name(ranch) as seen:
        ranch.change(kubernetesVersion=TO)
        for _ in workers:
            asked = until_asked(ranch, *workers)
            assert len(asked) == 1, asked
            answer(ranch, asked)
        eventually(lambda: ranch.nodes() == dict.fromkeys((*servers, *workers), TO), LONG, f"not there: {ranch.says()}")
        ranch.until_ready()
    assert all(len(each) <= 1 for each in seen), seen
    eventually(lambda: len(pods(ranch)) == 2, PATIENCE)
    assert not set(pods(ranch)) & set(before), "all pods had to move, for every worker was drained"


def both_at_once(ranch: Ranch, workers: tuple[str, ...], concurrency: str, pods: int) -> None:
    """Neither hook is answered before both are asked."""
    selector = {"matchLabels": {"rke.cattle.io/worker-role": "true"}}
    config = [{"machineLabelSelector": selector, "config": {"kubelet-arg": [f"max-pods={pods}"]}}]
    ranch.change(rkeConfig={"upgradeStrategy": {"workerConcurrency": concurrency}, "machineSelectorConfig": config})
    answer(ranch, until_asked(ranch, *workers, of=len(workers)))
    ranch.until_ready()


def shrinks_and_grows(ranch: Ranch, servers: tuple[str, ...], workers: tuple[str, ...]) -> None:
    left = set(servers)
    for _ in range(2):
        (first,) = ranch.init_node()
        ranch.remove_machine(first)
        left.remove(first)
        ranch.until_ready()
        eventually(lambda: set(ranch.nodes()) == {*left, *workers}, PATIENCE, f"{first} is still there: {ranch.says()}")
        eventually(lambda: set(ranch.init_node()) <= left and len(ranch.init_node()) == 1, PATIENCE)
    assert ranch.init_node() == list(left)
    for name in ("h3", "h4"):
        ranch.host(name, "etcd", "controlplane")
    eventually(lambda: set(ranch.nodes()) == {*left, "h3", "h4", *workers}, LONG, f"nobody comes: {ranch.says()}")
    ranch.until_ready()
    assert ranch.init_node() == list(left)


def pods(ranch: Ranch) -> dict[str, str]:
    """Those that run, and where."""
    answer = ranch.through("/api/v1/namespaces/default/pods")
    found = answer.json["items"] if answer.status == 200 else []
    return {each["metadata"]["uid"]: each["spec"]["nodeName"] for each in found if each["status"].get("phase") == "Running"}
