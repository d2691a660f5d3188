"""What the controllers of workloads decide, without an API: placing, rolling out, counting, tainting, leaving."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kcm.pod_placement import NodeChoice, tolerates, untolerated
from remuda.kcm.workloads.daemonset import node_of, on_node
from remuda.kcm.workloads.deployment import Group, RolloutBounds, first_size, rolling_sizes
from remuda.kcm.workloads.job import FINALIZER, is_finished, progress
from remuda.kcm.workloads.nodelifecycle import unknown_conditions, wanted_taints
from remuda.kcm.workloads.pods import available_in, first_to_go, template_hash
from remuda.kcm.workloads.taint_eviction import leaves_at
from remuda.kube.clock import rfc3339

Obj = dict[str, Any]
NOW = 1_800_000_000.0

# --- placing -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("toleration", "taint", "answer"),
    [
        ({"key": "a", "operator": "Exists"}, {"key": "a", "value": "x", "effect": "NoSchedule"}, True),
        ({"key": "a", "operator": "Exists", "effect": "NoExecute"}, {"key": "a", "effect": "NoSchedule"}, False),
        ({"operator": "Exists"}, {"key": "a", "value": "x", "effect": "NoExecute"}, True),
        ({"key": "a", "value": "x"}, {"key": "a", "value": "x", "effect": "NoSchedule"}, True),
        ({"key": "a", "value": "x"}, {"key": "a", "value": "y", "effect": "NoSchedule"}, False),
        ({"key": "a", "operator": "Equal"}, {"key": "a", "effect": "NoSchedule"}, True),
        ({"key": "b", "operator": "Exists"}, {"key": "a", "effect": "NoSchedule"}, False),
        ({}, {"key": "a", "effect": "NoSchedule"}, False),
    ],
)
def test_tolerating(toleration: Obj, taint: Obj, answer: bool) -> None:
    assert tolerates(toleration, taint) is answer


def test_a_preference_excludes_no_node() -> None:
    assert untolerated([{"key": "a", "effect": "PreferNoSchedule"}], []) is None


def _node(name: str = "n", **labels: str) -> Obj:
    return {"metadata": {"name": name, "labels": labels}}


def _required(*terms: Obj) -> Obj:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


def _term(key: str, operator: str, *values: str) -> Obj:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("spec", "answer"),
    [
        ({}, True),
        ({"nodeSelector": {"zone": "a"}}, True),
        ({"nodeSelector": {"zone": "b"}}, False),
        (_required(_term("zone", "In", "a", "b")), True),
        (_required(_term("zone", "NotIn", "a")), False),
        (_required(_term("zone", "NotIn", "a"), _term("size", "Gt", "3")), True),
        (_required(_term("size", "Lt", "4")), False),
        (_required(_term("other", "DoesNotExist")), True),
        (_required({}), False),
        (_required(), False),
        (_required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}), True),
        (_required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["m"]}]}), False),
    ],
)
def test_nodes_that_a_pod_may_be_on(spec: Obj, answer: bool) -> None:
    assert NodeChoice.of(spec).allows(_node(zone="a", size="4")) is answer


def test_preferences_add_up() -> None:
    path = "preferredDuringSchedulingIgnoredDuringExecution"
    preferred = [{"weight": 5, "preference": _term("zone", "In", "a")}, {"weight": 2, "preference": _term("size", "Exists")}]
    choice = NodeChoice.of({"affinity": {"nodeAffinity": {path: preferred}}})
    assert [choice.likes(_node(zone="a", size="1")), choice.likes(_node(size="1")), choice.likes(_node())] == [7, 2, 0]


def test_a_daemon_knows_its_node_before_it_is_there() -> None:
    template = {"spec": {**_required(_term("zone", "In", "a")), "tolerations": []}}
    placed = on_node(template, "n7")
    assert node_of(placed) == "n7"
    assert NodeChoice.of(placed["spec"]).allows(_node("n7"))
    assert not NodeChoice.of(placed["spec"]).allows(_node("n8", zone="a"))


# --- rolling out -------------------------------------------------------------------------------------------------------------


def test_bounds_are_rounded_so_that_something_can_move() -> None:
    def bounds(replicas: int, surge: Any, unavailable: Any) -> RolloutBounds:
        rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
        return RolloutBounds.of({"spec": {"replicas": replicas, "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling}}})

    assert bounds(10, "25%", "25%") == RolloutBounds(10, 3, 2)
    assert bounds(1, "25%", "25%") == RolloutBounds(1, 1, 0)
    assert bounds(3, 0, "10%") == RolloutBounds(3, 0, 1)
    assert bounds(0, "25%", "25%").unavailable in (0, 1)


@given(
    replicas=st.integers(0, 20),
    surge=st.integers(0, 5),
    unavailable=st.integers(0, 5),
    sizes=st.lists(st.integers(0, 20), min_size=0, max_size=3),
)
def test_every_rollout_ends_within_its_bounds(replicas: int, surge: int, unavailable: int, sizes: list[int]) -> None:
    bounds = RolloutBounds(replicas, surge, min(unavailable, replicas) if surge or unavailable else 1)
    # Old sets never have more together than was allowed before.
    old: list[Group] = []
    for number, size in enumerate(sizes):
        room = replicas + surge - sum(each.wanted for each in old)
        old.append(Group(f"old{number}", min(size, room), min(size, room), str(number)))
    new = Group("new", first_size(bounds, old), 0, "9")
    least = min(bounds.least, sum(each.available for each in old))
    for _ in range(200):
        groups = [new, *old]
        assert sum(each.wanted for each in groups) <= max(replicas + surge, sum(each.wanted for each in old))
        assert sum(min(each.available, each.wanted) for each in groups) >= least or replicas == 0
        changed = rolling_sizes(bounds, new, old)
        if not changed and all(each.available == each.wanted for each in groups):
            break
        # Pods that are wanted become available, pods that are not wanted go.
        new, *old = (
            Group(each.name, changed.get(each.name, each.wanted), changed.get(each.name, each.wanted), each.created)
            for each in groups
        )
        least = max(least, min(bounds.least, sum(each.available for each in (new, *old))))
    assert new.wanted == replicas
    assert all(each.wanted == 0 for each in old)


def test_the_unwell_go_first() -> None:
    bounds = RolloutBounds(4, 0, 1)
    old = [Group("old", 4, 3, "1")]
    assert rolling_sizes(bounds, Group("new", 0, 0, "2"), old) == {"old": 3}


def test_the_same_template_has_the_same_short_name() -> None:
    one, two = {"spec": {"a": 1, "b": 2}}, {"spec": {"b": 2, "a": 1}}
    assert template_hash(one) == template_hash(two) != template_hash({"spec": {}})
    assert len(template_hash(one)) == 10


# --- pods --------------------------------------------------------------------------------------------------------------------


def _pod(name: str = "p", phase: str = "Running", *, ready: bool = True, node: str = "n", since: float = NOW, **meta: Any) -> Obj:
    conditions = [{"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": rfc3339(since)}]
    return {
        "metadata": {"name": name, "uid": name, "creationTimestamp": rfc3339(NOW), **meta},
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": phase, "conditions": conditions},
    }


def test_who_goes_first() -> None:
    unplaced = _pod("unplaced", "Pending", ready=False, node="")
    starting = _pod("starting", "Pending", ready=False)
    unready = _pod("unready", ready=False)
    cheap = _pod("cheap", annotations={"controller.kubernetes.io/pod-deletion-cost": "-5"})
    young, old = _pod("young", since=NOW), _pod("old", since=NOW - 100)
    pods = [old, young, cheap, unready, starting, unplaced]
    assert [pod["metadata"]["name"] for pod in sorted(pods, key=lambda pod: first_to_go(pod, 1))] == [
        "unplaced",
        "starting",
        "unready",
        "cheap",
        "young",
        "old",
    ]


def test_when_a_pod_is_available() -> None:
    assert available_in(_pod(ready=False), 0, NOW) is None
    assert available_in(_pod(), 0, NOW) == 0.0
    assert available_in(_pod(), 30, NOW + 10) == 20.0
    assert available_in(_pod(), 30, NOW + 31) == 0.0


# --- jobs --------------------------------------------------------------------------------------------------------------------


def _task(name: str, phase: str, **meta: Any) -> Obj:
    return _pod(name, phase, ready=False, finalizers=[FINALIZER], **meta)


def _job(status: Obj | None = None, **spec: Any) -> Obj:
    spec = {"completions": 1, "parallelism": 1, "backoffLimit": 6, **spec}
    return {"metadata": {"name": "j"}, "spec": spec, "status": status or {}}


def _advanced(job: Obj, status: Obj) -> Obj:
    return {**job, "status": status}


def test_each_pod_is_counted_once_whenever_the_controller_dies() -> None:
    job = _job(completions=2, parallelism=2)
    pods = [_task("a", "Succeeded"), _task("b", "Running")]
    first = progress(job, pods, NOW)
    assert first.status["uncountedTerminatedPods"] == {"succeeded": ["a"]}
    assert first.status.get("succeeded") is None
    assert [pod["metadata"]["name"] for pod in first.counted] == ["a"]
    assert first.start == 0
    # It died after the status was written: the pod still has its finalizer, and is not noted twice.
    second = progress(_advanced(job, first.status), pods, NOW)
    assert second.status["uncountedTerminatedPods"] == {"succeeded": ["a"]}
    free = {**pods[0], "metadata": {**pods[0]["metadata"], "finalizers": []}}
    third = progress(_advanced(job, first.status), [free, pods[1]], NOW)
    assert (third.status["succeeded"], third.status["uncountedTerminatedPods"]) == (1, {})
    # Somebody deleted it.
    assert progress(_advanced(job, first.status), [pods[1]], NOW).status["succeeded"] == 1


def test_a_job_is_finished_when_everything_is_counted_and_gone() -> None:
    job = _job()
    done = progress(job, [_task("a", "Succeeded")], NOW)
    assert [each["type"] for each in done.status["conditions"]] == ["SuccessCriteriaMet"]
    assert not is_finished(_advanced(job, done.status))
    end = progress(_advanced(job, done.status), [], NOW)
    assert [each["type"] for each in end.status["conditions"]] == ["SuccessCriteriaMet", "Complete"]
    assert end.status["completionTime"] == rfc3339(NOW)
    assert end.start == 0


def test_a_job_pauses_after_a_failure_and_gives_up_after_too_many() -> None:
    failed = _task("a", "Failed")
    failed["status"]["containerStatuses"] = [{"state": {"terminated": {"finishedAt": rfc3339(NOW)}}}]
    step = progress(_job(), [failed], NOW + 1)
    assert (step.start, step.after) == (0, 9.0)
    assert progress(_job(), [failed], NOW + 10).start == 1
    gone = progress(_job(backoffLimit=0), [failed, _task("b", "Running")], NOW + 10)
    assert gone.status["conditions"][0]["reason"] == "BackoffLimitExceeded"
    assert [pod["metadata"]["name"] for pod in gone.stop] == ["b"]


def test_a_job_has_a_deadline() -> None:
    job = _job({"startTime": rfc3339(NOW)}, activeDeadlineSeconds=30)
    running = [_task("a", "Running")]
    assert progress(job, running, NOW + 10).after == 20.0
    late = progress(job, running, NOW + 30)
    assert late.status["conditions"][0]["reason"] == "DeadlineExceeded"
    assert late.stop == running


def test_a_pod_that_is_taken_away_is_replaced_at_once_unless_told_otherwise() -> None:
    going = _task("a", "Running", deletionTimestamp=rfc3339(NOW))
    at_once = progress(_job(), [going], NOW)
    assert at_once.status["uncountedTerminatedPods"] == {"failed": ["a"]}
    assert at_once.start == 1
    assert progress(_job(podReplacementPolicy="Failed"), [going], NOW).start == 0


def test_a_suspended_job_has_no_pods() -> None:
    running = [_task("a", "Running")]
    step = progress(_job(suspend=True), running, NOW)
    assert step.stop == running
    assert [(each["type"], each["status"]) for each in step.status["conditions"]] == [("Suspended", "True")]
    assert "startTime" not in step.status


# --- nodes -------------------------------------------------------------------------------------------------------------------


def _reporting(ready: str, *taints: Obj, **spec: Any) -> Obj:
    return {"spec": {"taints": list(taints), **spec}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}


def _shown(taints: list[Obj]) -> list[tuple[str, str]]:
    return [(taint["key"].removeprefix("node.kubernetes.io/"), taint["effect"]) for taint in taints]


def test_conditions_become_taints() -> None:
    own = {"key": "own", "effect": "NoExecute"}
    assert _shown(wanted_taints(_reporting("True", own), evict=True, now=NOW)) == [("own", "NoExecute")]
    silent = wanted_taints(_reporting("Unknown", own), evict=True, now=NOW)
    assert _shown(silent) == [("own", "NoExecute"), ("unreachable", "NoSchedule"), ("unreachable", "NoExecute")]
    assert silent[-1]["timeAdded"] == rfc3339(NOW)
    # Its time does not begin anew, and it is not taken back when nobody else is well.
    assert wanted_taints(_reporting("Unknown", *silent), evict=False, now=NOW + 99) == silent
    assert _shown(wanted_taints(_reporting("Unknown"), evict=False, now=NOW)) == [("unreachable", "NoSchedule")]
    unwell = wanted_taints(_reporting("False", *silent), evict=True, now=NOW)
    assert _shown(unwell) == [("own", "NoExecute"), ("not-ready", "NoSchedule"), ("not-ready", "NoExecute")]
    assert _shown(wanted_taints(_reporting("True", *unwell, unschedulable=True), evict=True, now=NOW)) == [
        ("own", "NoExecute"),
        ("unschedulable", "NoSchedule"),
    ]


def test_a_node_that_says_nothing_is_unknown_in_everything_it_said() -> None:
    beat = rfc3339(NOW - 60)
    said = {"type": "Ready", "status": "True", "lastHeartbeatTime": beat, "lastTransitionTime": beat}
    node = {"status": {"conditions": [said, {"type": "NetworkUnavailable", "status": "False"}]}}
    found = {each["type"]: each for each in unknown_conditions(node, NOW)}
    assert found["NetworkUnavailable"]["status"] == "False"
    ready = found["Ready"]
    assert (ready["status"], ready["reason"], ready["lastHeartbeatTime"]) == ("Unknown", "NodeStatusUnknown", beat)
    assert found["DiskPressure"]["reason"] == "NodeStatusNeverUpdated"


def test_when_a_pod_leaves_a_tainted_node() -> None:
    taint = {"key": "a", "effect": "NoExecute", "timeAdded": rfc3339(NOW - 10)}
    assert leaves_at([{"key": "a", "effect": "NoSchedule"}], [], NOW) is None
    assert leaves_at([taint], [], NOW) == NOW
    assert leaves_at([taint], [{"key": "a", "operator": "Exists"}], NOW) is None
    limited = {"key": "a", "operator": "Exists", "tolerationSeconds": 300}
    assert leaves_at([taint], [limited], NOW) == NOW + 290
    assert leaves_at([taint], [limited, {**limited, "tolerationSeconds": 30}], NOW) == NOW + 20
    assert leaves_at([taint, {"key": "b", "effect": "NoExecute"}], [limited], NOW) == NOW
