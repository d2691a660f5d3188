"""When a step of the demo is done, and what it tells on the way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from remuda.cli.demo import cluster
from remuda.cli.demo.tour import facts, program, settled
from remuda.gateway.explain.states import ClusterView
from remuda.kube.objects import with_path
from tests.unit.cli.views.shown_clusters import (
    NOW,
    VERSION,
    ago,
    condition,
    done,
    machine,
    managed,
    plane,
    sight,
    waiting,
    wanted,
)

WANTED = cluster.packaged().with_quantity(cluster.SERVERS, 1).with_quantity(cluster.WORKERS, 1)
READY = condition("Ready", "True")
DONE = sight(
    wanted(READY, ready=True),
    done("s", "etcd,control-plane"),
    done("w"),
    managed=managed(condition("Connected", "True")),
    plane=plane(READY),
)


def test_a_cluster_is_settled_when_all_of_it_is_as_asked_for() -> None:
    assert WANTED.version == VERSION
    assert settled(DONE, WANTED)
    assert settled(DONE, WANTED, gone="x")


def upgraded(found: ClusterView) -> ClusterView:
    newer = with_path(found.machines[1], ("status", "nodeInfo", "kubeletVersion"), "v1.35.0+remuda1")
    return replace(found, machines=(found.machines[0], newer))


@pytest.mark.parametrize(
    "found",
    [
        replace(DONE, wanted=wanted(condition("Ready", "Unknown", "something", "Waiting"))),
        replace(DONE, machines=DONE.machines[:1]),
        replace(DONE, machines=(*DONE.machines, done("x"))),
        replace(DONE, machines=(DONE.machines[0], waiting("w", "its turn"))),
        replace(DONE, machines=(DONE.machines[0], machine("w", node="w", deleting=True))),
        upgraded(DONE),
    ],
    ids=["it waits", "one is missing", "one too many", "one waits", "one goes", "one has another version"],
)
def test_a_cluster_that_is_otherwise_is_not_settled(found: ClusterView) -> None:
    assert not settled(found, WANTED)


def test_it_is_not_settled_before_the_lost_one_is_gone() -> None:
    assert not settled(DONE, WANTED, gone="w")


def test_little_is_told_line_by_line() -> None:
    found = replace(DONE, machines=(DONE.machines[0], waiting("w", "a message that changes all the time")))
    assert facts(found) == {"cluster demo": "active", "machine s": f"ready ({VERSION})", "machine w": "configuring"}


def node(name: str, ready: str, *roles: str, cordoned: bool = False) -> dict[str, object]:
    labels = {f"node-role.kubernetes.io/{role}": "true" for role in roles}
    return {
        "metadata": {"name": name, "labels": labels, "creationTimestamp": ago(90)},
        "spec": {"unschedulable": cordoned},
        "status": {"conditions": [condition("Ready", ready)], "nodeInfo": {"kubeletVersion": VERSION}},
    }


def test_nodes_are_shown_as_kubectl_shows_them() -> None:
    found = [node("demo-a", "True", "etcd", "control-plane"), node("b", "Unknown", cordoned=True)]
    assert cluster.node_table(found, NOW) == [
        "NAME     STATUS                        ROLES                AGE   VERSION",
        f"demo-a   Ready                         control-plane,etcd   90s   {VERSION}",
        f"b        NotReady,SchedulingDisabled   <none>               90s   {VERSION}",
    ]
    assert cluster.nodes_are_ready(found[:1], 1)
    assert not cluster.nodes_are_ready(found[:1], 2) and not cluster.nodes_are_ready(found, 2)


def test_the_program_is_named_as_it_can_be_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bin_ = tmp_path / ".venv" / "bin"
    bin_.mkdir(parents=True)
    (bin_ / "remuda").write_text("#!/bin/sh\n")
    (bin_ / "remuda").chmod(0o755)
    monkeypatch.setattr("sys.executable", str(bin_ / "python"))
    assert program({"PATH": str(bin_)}) == "remuda"
    assert program({"PATH": str(tmp_path)}) == str(bin_ / "remuda")
    monkeypatch.chdir(tmp_path)
    assert program({"PATH": str(tmp_path)}) == ".venv/bin/remuda"
