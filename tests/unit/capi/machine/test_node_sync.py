"""What a Machine says about its Node, as a patch."""

from __future__ import annotations

import re
from typing import Any

import pytest

from remuda.capi.machine.node_sync import is_outdated, managed_annotations, managed_labels, node_patch
from remuda.kube.encoding.mergepatch import apply_merge_patch

Obj = dict[str, Any]

TRACKING = {
    "cluster.x-k8s.io/cluster-name": "c",
    "cluster.x-k8s.io/cluster-namespace": "ns",
    "cluster.x-k8s.io/machine": "m",
    "cluster.x-k8s.io/labels-from-machine": "",
    "cluster.x-k8s.io/annotations-from-machine": "",
    "cluster.x-k8s.io/taints-from-machine": "",
}
ALWAYS, ONCE = "Always", "OnInitialization"


def machine(labels: Obj | None = None, annotations: Obj | None = None, taints: list[Obj] | None = None, **meta: Any) -> Obj:
    return {
        "kind": "Machine",
        "metadata": {"name": "m", "namespace": "ns", "labels": labels or {}, "annotations": annotations or {}, **meta},
        "spec": {"clusterName": "c", "taints": taints or []},
    }


def node(labels: Obj | None = None, annotations: Obj | None = None, taints: list[Obj] | None = None) -> Obj:
    meta = {"name": "n", "resourceVersion": "7", "labels": labels or {}, "annotations": annotations or {}}
    return {"kind": "Node", "metadata": meta, "spec": {"taints": taints or []}}


def synced(before: Obj, said: Obj, **options: Any) -> Obj:
    patch = node_patch(before, said, **options)
    assert patch is not None
    assert patch["metadata"]["resourceVersion"] == "7"
    after = apply_merge_patch(before, patch)
    assert node_patch(after, said, **options) is None, "the second time there is nothing to do"
    return after


def taint(key: str, value: str = "", effect: str = "NoSchedule", propagation: str = "") -> Obj:
    made = {"key": key, "value": value, "effect": effect, "propagation": propagation}
    return {field: text for field, text in made.items() if text}


@pytest.mark.parametrize(
    ("label", "managed"),
    [
        ("node-role.kubernetes.io/worker", True),
        ("node-role.kubernetes.io", True),
        ("sub.node-role.kubernetes.io/worker", False),
        ("node-restriction.kubernetes.io/a", True),
        ("foo.node-restriction.kubernetes.io/a", True),
        ("foonode-restriction.kubernetes.io/a", False),
        ("node.cluster.x-k8s.io/a", True),
        ("foo.node.cluster.x-k8s.io/a", True),
        ("cluster.x-k8s.io/a", False),
        ("plain", False),
        ("extra-plain", True),
    ],
)
def test_labels_go_to_the_node_by_their_domain_or_by_a_pattern(label: str, managed: bool) -> None:
    assert managed_labels(machine({label: "v"}), (re.compile("^extra"),)) == ({label: "v"} if managed else {})


def test_annotations_say_whose_node_it_is() -> None:
    owner = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "name": "s", "uid": "1", "controller": True}
    said = machine(annotations={"node.cluster.x-k8s.io/a": "1", "b": "2"}, ownerReferences=[owner])
    assert managed_annotations(said) == {
        "cluster.x-k8s.io/cluster-name": "c",
        "cluster.x-k8s.io/cluster-namespace": "ns",
        "cluster.x-k8s.io/machine": "m",
        "cluster.x-k8s.io/owner-kind": "MachineSet",
        "cluster.x-k8s.io/owner-name": "s",
        "node.cluster.x-k8s.io/a": "1",
    }


def test_a_fresh_node_gets_everything_and_loses_the_taint_of_the_uninitialized() -> None:
    before = node({"theirs": "x"}, {"a": "b"}, [taint("node.cluster.x-k8s.io/uninitialized"), taint("theirs")])
    after = synced(before, machine({"node-role.kubernetes.io/worker": ""}, {"node.cluster.x-k8s.io/note": "n"}))
    assert after["metadata"]["labels"] == {"theirs": "x", "node-role.kubernetes.io/worker": ""}
    assert after["metadata"]["annotations"] == {
        **TRACKING,
        "a": "b",
        "node.cluster.x-k8s.io/note": "n",
        "cluster.x-k8s.io/labels-from-machine": "node-role.kubernetes.io/worker",
        "cluster.x-k8s.io/annotations-from-machine": "node.cluster.x-k8s.io/note",
    }
    assert after["spec"]["taints"] == [taint("theirs")]


def test_what_came_from_the_machine_goes_with_it_and_nothing_else() -> None:
    former = {
        "cluster.x-k8s.io/labels-from-machine": "node.cluster.x-k8s.io/a,node.cluster.x-k8s.io/b",
        "cluster.x-k8s.io/annotations-from-machine": "node.cluster.x-k8s.io/x",
    }
    labels = {"node.cluster.x-k8s.io/a": "1", "node.cluster.x-k8s.io/b": "1", "node.cluster.x-k8s.io/theirs": "1"}
    before = node(labels, {**TRACKING, **former, "node.cluster.x-k8s.io/x": "1", "theirs": "1"})
    after = synced(before, machine({"node.cluster.x-k8s.io/a": "2"}))
    assert after["metadata"]["labels"] == {"node.cluster.x-k8s.io/a": "2", "node.cluster.x-k8s.io/theirs": "1"}
    tracked = {**TRACKING, "cluster.x-k8s.io/labels-from-machine": "node.cluster.x-k8s.io/a"}
    assert after["metadata"]["annotations"] == {**tracked, "theirs": "1"}


def test_an_owner_that_is_gone_is_taken_from_the_node() -> None:
    before = node(annotations={**TRACKING, "cluster.x-k8s.io/owner-kind": "MachineSet", "cluster.x-k8s.io/owner-name": "s"})
    assert synced(before, machine())["metadata"]["annotations"] == TRACKING


def test_an_interruptible_machines_label_counts_as_the_machines() -> None:
    after = synced(node(), machine(), interruptible=True)
    assert after["metadata"]["labels"] == {"cluster.x-k8s.io/interruptible": ""}
    assert after["metadata"]["annotations"]["cluster.x-k8s.io/labels-from-machine"] == "cluster.x-k8s.io/interruptible"
    assert synced(after, machine())["metadata"]["labels"] == {}


def taints_after(have: list[Obj], tracked: str | None, wanted: list[Obj]) -> tuple[list[Obj], str]:
    annotations = {**TRACKING}
    del annotations["cluster.x-k8s.io/taints-from-machine"]
    if tracked is not None:
        annotations["cluster.x-k8s.io/taints-from-machine"] = tracked
    before = node(annotations=annotations, taints=have)
    patch = node_patch(before, machine(taints=wanted))
    after = before if patch is None else apply_merge_patch(before, patch)
    return after["spec"].get("taints") or [], after["metadata"]["annotations"]["cluster.x-k8s.io/taints-from-machine"]


@pytest.mark.parametrize(
    ("have", "tracked", "wanted", "taints", "then_tracked"),
    [
        pytest.param([], None, [], [], "", id="a node without taints is tracked, too"),
        pytest.param([], None, [taint("a", "1", propagation=ALWAYS)], [taint("a", "1")], "a:NoSchedule", id="always is added"),
        pytest.param([], "", [taint("a", propagation=ALWAYS)], [taint("a")], "a:NoSchedule", id="always is added later, too"),
        pytest.param([], None, [taint("a", propagation=ONCE)], [taint("a")], "", id="once is added at first"),
        pytest.param([], "", [taint("a", propagation=ONCE)], [], "", id="once is not added later"),
        pytest.param(
            [taint("a", "1"), taint("b")],
            "",
            [taint("a", "2", propagation=ALWAYS)],
            [taint("a", "2"), taint("b")],
            "a:NoSchedule",
            id="a value is corrected in place",
        ),
        pytest.param([taint("a")], "a:NoSchedule", [], [], "", id="what was the machine's is taken back"),
        pytest.param([taint("a")], "", [], [taint("a")], "", id="what is somebody else's stays"),
        pytest.param(
            [taint("a")],
            "a:NoSchedule",
            [taint("a", effect="NoExecute", propagation=ALWAYS)],
            [taint("a", effect="NoExecute")],
            "a:NoExecute",
            id="another effect is another taint",
        ),
        pytest.param(
            [taint("a")],
            "a:NoSchedule",
            [taint("a", propagation=ONCE)],
            [taint("a")],
            "",
            id="from always to once it stays, and is the machine's no longer",
        ),
        pytest.param([taint("a")], "nonsense,a:NoSchedule,", [], [], "", id="a broken list is mended"),
    ],
)
def test_taints(have: list[Obj], tracked: str | None, wanted: list[Obj], taints: list[Obj], then_tracked: str) -> None:
    assert taints_after(have, tracked, wanted) == (taints, then_tracked)


def test_a_node_of_an_older_revision_is_marked_and_unmarked() -> None:
    mark = taint("node.cluster.x-k8s.io/outdated-revision", effect="PreferNoSchedule")
    after = synced(node(), machine(), outdated=True)
    assert after["spec"]["taints"] == [mark]
    assert not synced(after, machine())["spec"].get("taints")


@pytest.mark.parametrize(
    ("of_set", "of_deployment", "outdated"),
    [
        ("1", "2", True),
        ("2", "2", False),
        ("3", "2", False),
        (None, "2", True),
        ("1", None, False),
        ("x", "2", True),
        ("10", "9", False),
    ],
)
def test_revisions_are_compared_as_numbers(of_set: str | None, of_deployment: str | None, outdated: bool) -> None:
    def made(revision: str | None) -> Obj:
        found = {"machinedeployment.clusters.x-k8s.io/revision": revision} if revision else {}
        return {"metadata": {"annotations": found}}

    assert is_outdated(made(of_set), made(of_deployment)) is outdated
    assert is_outdated(None, made(of_deployment)) is is_outdated(made(of_set), None) is False
