"""Which pods of a node go, in what order, and how it is said: on plain objects, without any server."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.capi.machine.drain_plan import MIRROR, DrainError, DrainPlan, DrainSnapshot, Remaining, plan, rules_for
from remuda.kube.clock import rfc3339
from remuda.kube.objects import Key

Obj = dict[str, Any]

NOW = 1_800_000_000.0
STARTED = rfc3339(NOW)
MACHINE = {"metadata": {"name": "m1", "namespace": "herd", "labels": {"pool": "workers"}}}
CLUSTER = {"metadata": {"name": "c1", "namespace": "herd", "labels": {"env": "prod"}}}


def pod(name: str, namespace: str = "default", *, owner: str = "ReplicaSet", phase: str = "Running", **meta: Any) -> Obj:
    made: Obj = {"name": name, "namespace": namespace, **meta}
    if owner:
        made["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": owner, "name": "owner", "uid": "1", "controller": True}]
    return {"metadata": made, "spec": {}, "status": {"phase": phase}}


def going(name: str, at: float = NOW, **more: Any) -> Obj:
    return pod(name, deletionTimestamp=rfc3339(at), **more)


def labelled(name: str, value: str, **more: Any) -> Obj:
    return pod(name, labels={"cluster.x-k8s.io/drain": value}, **more)


def rule(name: str, behavior: str, order: int | None = None, **spec: Any) -> Obj:
    drain: Obj = {"behavior": behavior}
    if order is not None:
        drain["order"] = order
    return {"metadata": {"name": name, "namespace": "herd"}, "spec": {"drain": drain, **spec}}


def by_label(key: str, value: str) -> Obj:
    return {"matchLabels": {key: value}}


def planned(*pods: Obj, rules: tuple[Obj, ...] = (), **snapshot: Any) -> DrainPlan:
    return plan(DrainSnapshot(pods, NOW, rules=rules_for(MACHINE, CLUSTER, rules), **snapshot))


def names(pods: tuple[Obj, ...]) -> list[str]:
    return [each["metadata"]["name"] for each in pods]


# --- filters -----------------------------------------------------------------------------------------------------------------


def test_an_empty_node_is_drained() -> None:
    assert planned().done


def test_every_pod_goes_whoever_owns_it_and_wherever_it_keeps_its_data() -> None:
    local = pod("local")
    local["spec"] = {"volumes": [{"name": "cache", "emptyDir": {}}]}
    assert names(planned(pod("managed"), pod("alone", owner=""), local, pod("done", phase="Succeeded")).evict) == [
        "alone",
        "done",
        "local",
        "managed",
    ]


def test_pods_of_a_daemon_set_stay() -> None:
    found = planned(pod("agent", owner="DaemonSet"), daemon_sets={Key("default", "owner")})
    assert found.done
    assert names(found.skipped) == ["agent"]


@pytest.mark.parametrize(
    ("phase", "sets"),
    [
        pytest.param("Succeeded", {Key("default", "owner")}, id="finished"),
        pytest.param("Failed", {Key("default", "owner")}, id="failed"),
        pytest.param("Running", set(), id="its DaemonSet is gone"),
        pytest.param("Running", {Key("other", "owner")}, id="the DaemonSet is another namespace's"),
    ],
)
def test_pods_of_a_daemon_set_go_when_they_are_finished_or_orphaned(phase: str, sets: set[Key]) -> None:
    assert names(planned(pod("agent", owner="DaemonSet", phase=phase), daemon_sets=sets).evict) == ["agent"]


def test_static_pods_stay() -> None:
    assert names(planned(pod("etcd", annotations={MIRROR: "x"})).skipped) == ["etcd"]


def test_pods_that_are_going_are_only_waited_for() -> None:
    found = planned(going("old", NOW - 3600), pod("new"))
    assert (names(found.going), names(found.evict)) == (["old"], ["new"])
    assert not found.done


@pytest.mark.parametrize(("age", "stays"), [(0, False), (1, False), (2, True), (100, True), (-30, False)])
def test_on_an_unreachable_node_pods_that_should_be_gone_are_forgotten(age: float, stays: bool) -> None:
    assert names(planned(going("ghost", NOW - age), unreachable=True).skipped) == (["ghost"] if stays else [])


@pytest.mark.parametrize("value", ["skip", "Skip", "SKIP"])
def test_a_pod_may_ask_to_be_skipped(value: str) -> None:
    assert names(planned(labelled("vm", value)).skipped) == ["vm"]


@pytest.mark.parametrize("value", ["wait-completed", "waitcompleted", "Wait-Completed", "WAITCOMPLETED"])
def test_a_pod_may_ask_to_be_waited_for(value: str) -> None:
    assert names(planned(labelled("job", value)).complete) == ["job"]


@pytest.mark.parametrize("value", ["", "drain", "never", "wait-com-pleted"])
def test_any_other_value_of_the_label_means_nothing(value: str) -> None:
    assert names(planned(labelled("web", value)).evict) == ["web"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_completed_is_not_waited_for_however_long_its_object_stays(phase: str) -> None:
    everything = rule("jobs", "WaitCompleted")
    assert planned(labelled("by-label", "wait-completed", phase=phase), pod("by-rule", phase=phase), rules=(everything,)).done


def test_the_label_beats_rules_and_being_static_beats_the_label() -> None:
    waits = rule("a", "WaitCompleted")
    assert names(planned(labelled("vm", "skip"), rules=(waits,)).skipped) == ["vm"]
    assert names(planned(labelled("etcd", "wait-completed", annotations={MIRROR: "x"})).skipped) == ["etcd"]


def test_a_pod_that_is_waited_for_is_not_evicted_even_when_it_is_going() -> None:
    job = labelled("job", "wait-completed")
    job["metadata"]["deletionTimestamp"] = STARTED
    assert names(planned(job).complete) == ["job"]


# --- rules -------------------------------------------------------------------------------------------------------------------


def test_the_first_rule_by_name_that_applies_decides() -> None:
    rules = (rule("b", "Skip"), rule("a", "Drain", 5, pods=[{"selector": by_label("app", "db")}]))
    found = planned(pod("db", labels={"app": "db"}), pod("web"), rules=rules)
    assert (names(found.evict), names(found.skipped)) == (["db"], ["web"])


@pytest.mark.parametrize(
    ("machines", "applies"),
    [
        (None, True),
        ([{"selector": by_label("pool", "workers")}], True),
        ([{"selector": {}}], True),
        ([{"clusterSelector": by_label("env", "prod")}], True),
        ([{"selector": by_label("pool", "workers"), "clusterSelector": by_label("env", "prod")}], True),
        ([{"selector": by_label("pool", "workers"), "clusterSelector": by_label("env", "test")}], False),
        ([{"selector": by_label("pool", "other"), "clusterSelector": by_label("env", "prod")}], False),
        ([{"selector": by_label("pool", "other")}, {"selector": by_label("pool", "workers")}], True),
    ],
)
def test_a_rule_applies_to_machines_by_their_labels_and_their_clusters(machines: list[Obj] | None, applies: bool) -> None:
    spec = {} if machines is None else {"machines": machines}
    assert bool(rules_for(MACHINE, CLUSTER, [rule("a", "Skip", **spec)])) is applies


def test_rules_of_other_namespaces_do_not_apply() -> None:
    other = rule("a", "Skip")
    other["metadata"]["namespace"] = "elsewhere"
    assert rules_for(MACHINE, CLUSTER, [other]) == []


@pytest.mark.parametrize(
    ("pods", "applies"),
    [
        ([{"selector": by_label("app", "db")}], True),
        ([{"selector": {}}], True),
        ([{"namespaceSelector": by_label("team", "data")}], True),
        ([{"selector": by_label("app", "db"), "namespaceSelector": by_label("team", "data")}], True),
        ([{"selector": by_label("app", "db"), "namespaceSelector": by_label("team", "web")}], False),
        ([{"selector": by_label("app", "web"), "namespaceSelector": by_label("team", "data")}], False),
        ([{"selector": by_label("app", "web")}, {"selector": by_label("app", "db")}], True),
    ],
)
def test_a_rule_applies_to_pods_by_their_labels_and_their_namespaces(pods: list[Obj], applies: bool) -> None:
    namespaces = {"default": {"metadata": {"name": "default", "labels": {"team": "data"}}}}
    found = planned(pod("db", labels={"app": "db"}), rules=(rule("a", "Skip", pods=pods),), namespaces=namespaces)
    assert bool(found.skipped) is applies


def test_a_pod_whose_namespace_is_not_there_stops_the_drain_where_a_rule_asks_for_the_namespace() -> None:
    picky = rule("a", "Skip", pods=[{"namespaceSelector": by_label("team", "data")}])
    with pytest.raises(DrainError, match='Pods with error "Pod Namespace does not exist": default/web'):
        planned(pod("web"), rules=(picky,))


def test_a_rule_with_selectors_that_can_not_be_read_stops_the_drain_and_is_named() -> None:
    wrong = rule("broken", "Skip", pods=[{"selector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}])
    with pytest.raises(DrainError, match="invalid selectors in MachineDrainRule broken: "):
        rules_for(MACHINE, CLUSTER, [wrong])


def test_a_behavior_that_nobody_knows_stops_the_drain_and_is_named() -> None:
    with pytest.raises(DrainError) as caught:
        planned(pod("web"), rules=(rule("new", "Migrate"),))
    assert 'MachineDrainRule \\"new\\" has unknown spec.drain.behavior: \\"Migrate\\"' in str(caught.value)


# --- order -------------------------------------------------------------------------------------------------------------------

ORDERED = (
    rule("first", "Drain", -1, pods=[{"selector": by_label("turn", "first")}]),
    rule("last", "Drain", 9, pods=[{"selector": by_label("turn", "last")}]),
    rule("wait", "WaitCompleted", pods=[{"selector": by_label("turn", "wait")}]),
)


def turn(name: str, when: str, **more: Any) -> Obj:
    return pod(name, labels={"turn": when}, **more)


def test_only_the_lowest_order_has_its_turn() -> None:
    found = planned(turn("a", "last"), turn("b", "first"), turn("c", "none"), turn("d", "wait"), rules=ORDERED)
    assert names(found.evict) == ["b"]
    assert names(found.evict_later) == ["a", "c"]
    assert names(found.complete_later) == ["d"]


def test_the_next_order_waits_until_the_one_before_is_gone() -> None:
    found = planned(turn("b", "first", deletionTimestamp=STARTED), turn("c", "none"), rules=ORDERED)
    assert (names(found.going), names(found.evict), names(found.evict_later)) == (["b"], [], ["c"])


def test_pods_that_are_waited_for_have_order_0() -> None:
    found = planned(turn("a", "last"), turn("c", "none"), turn("d", "wait"), rules=ORDERED)
    assert (names(found.evict), names(found.complete), names(found.evict_later)) == (["c"], ["d"], ["a"])
    found = planned(turn("a", "last"), turn("d", "wait"), rules=ORDERED)
    assert (names(found.evict), names(found.complete), names(found.evict_later)) == ([], ["d"], ["a"])


def test_pods_come_by_namespace_and_name() -> None:
    found = planned(pod("b", "z"), pod("a", "z"), pod("c", "a"))
    assert [str(Key.of(each)) for each in found.evict] == ["a/c", "z/a", "z/b"]


# --- messages ----------------------------------------------------------------------------------------------------------------

PDB = "Cannot evict pod as it would violate the pod's disruption budget. The disruption budget pdb needs 3 healthy pods"


def pods(*found: str) -> tuple[Obj, ...]:
    return tuple(pod(name) for name in found)


def test_a_drain_that_is_done_has_no_message() -> None:
    assert Remaining().message(STARTED) == ""


def test_the_message_says_what_is_left_of_each_sort() -> None:
    left = Remaining(
        going=pods("a"),
        failed={PDB: pods("b"), "some other error": pods("c", "d")},
        evict_later=pods("e"),
        complete=pods("f"),
        complete_later=pods("g"),
    )
    assert left.message(STARTED) == (
        f"Drain not completed yet (started at {STARTED}):\n"
        "* Pod default/a: deletionTimestamp set, but still not removed from the Node\n"
        "* Pod default/b: cannot evict pod as it would violate the pod's disruption budget. The disruption budget pdb needs 3 "
        "healthy pods\n"
        "* Pods default/c, default/d: failed to evict Pod, some other error\n"
        "* Pod default/f: waiting for completion\n"
        "After above Pods have been removed from the Node, the following Pods will be evicted: default/e\n"
        "After above Pods have been removed from the Node, waiting for the following Pods to complete without eviction: default/g"
    )


def test_a_long_message_names_three_pods_of_a_sort_and_five_failures() -> None:
    left = Remaining(
        going=pods("a", "b", "c", "d", "e"),
        failed={f"error {number}": pods("x") for number in range(7)},
        evict_later=pods("1", "2", "3", "4"),
    )
    lines = left.message(STARTED).split("\n")
    assert lines[1] == (
        "* Pods default/a, default/b, default/c, ... (2 more): deletionTimestamp set, but still not removed from the Node"
    )
    assert lines[2:7] == [f"* Pod default/x: failed to evict Pod, error {number}" for number in range(5)]
    assert lines[7] == "* 2 Pods with other issues"
    assert lines[8].endswith("will be evicted: default/1, default/2, default/3, ... (1 more)")


def test_a_single_other_issue_is_one_pod() -> None:
    left = Remaining(failed={f"error {number}": pods("x") for number in range(6)})
    assert left.message(STARTED).endswith("\n* 1 Pod with other issues")
