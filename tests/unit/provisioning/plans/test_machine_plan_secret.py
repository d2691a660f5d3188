"""How a plan travels in its Secret, and what is read from what the host wrote there."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest

from remuda.kube.objects import annotations_of
from remuda.provisioning.plans import machine_plan_secret
from remuda.provisioning.plans.machine_plan_secret import (
    PlanSecretError,
    PlanState,
    decode,
    has_failed_to_apply,
    packed,
    settled,
    unpacked,
    with_plan,
    with_question,
    with_retry,
)
from remuda.provisioning.plans.plan import PeriodicInstruction, Plan, checksum, encode
from remuda.provisioning.well_known import JOINED_TO, PLAN_TYPE, PLAN_UPDATED, PROBES_PASSED

Obj = dict[str, Any]
NOW = 1_800_000_000.0
ONE = encode(Plan(periodicInstructions=(PeriodicInstruction(name="etcd-name", command="cat"),)))
TWO = encode(Plan(error="another"))


def secret(annotations: Obj | None = None, **data: bytes | str) -> Obj:
    """Keys are written with _ for -."""
    encoded = {
        key.replace("_", "-"): base64.b64encode(value.encode() if isinstance(value, str) else value).decode()
        for key, value in data.items()
    }
    meta: Obj = {"name": "m-machine-plan", "namespace": "fleet-default"}
    if annotations:
        meta["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "Secret", "type": PLAN_TYPE, "metadata": meta, "data": encoded}


def said(obj: Obj, key: str) -> str | None:
    found = obj["data"].get(key)
    return None if found is None else base64.b64decode(found).decode()


def agent(obj: Obj, **data: bytes | str) -> Obj:
    """What an agent writes."""
    return {**obj, "data": {**obj["data"], **secret(None, **data)["data"]}}


def found(obj: Obj) -> machine_plan_secret.DeliveredPlan:
    delivered = decode(obj)
    assert delivered is not None
    return delivered


# --- reading ------------------------------------------------------------------------------------------------------------


def test_without_a_plan_nothing_was_delivered() -> None:
    assert decode(secret()) is None
    assert decode({"type": PLAN_TYPE}) is None


def test_a_secret_of_another_type_is_none_of_ours() -> None:
    with pytest.raises(PlanSecretError, match="machine-plan"):
        decode({**secret(plan=ONE), "type": "Opaque"})


@pytest.mark.parametrize(
    ("state", "applied", "in_sync", "failed"),
    [
        ("succeeded", b"", True, False),
        ("in-progress", ONE, False, False),
        ("failed", ONE, False, True),
        ("pending", ONE, True, False),
        ("pending", TWO, False, False),
        ("", ONE, True, False),
        ("", b"", False, False),
        ("cancelled", ONE, False, False),
    ],
)
def test_whether_a_plan_is_done_is_told_by_its_state_or_by_what_was_applied(
    state: str, applied: bytes, in_sync: bool, failed: bool
) -> None:
    delivered = found(secret(plan=ONE, appliedPlan=applied, plan_state=state, applied_checksum=checksum(ONE)))
    assert (delivered.in_sync, delivered.failed) == (in_sync, failed)


@pytest.mark.parametrize(
    ("count", "threshold", "failed"), [("1", "", True), ("1", "1", True), ("1", "2", False), ("9", "-1", False), ("0", "", False)]
)
def test_an_older_agents_failures_count_from_the_threshold_on(count: str, threshold: str, failed: bool) -> None:
    obj = secret(plan=ONE, failure_count=count, failed_checksum=checksum(ONE), failure_threshold=threshold)
    assert found(obj).failed is failed
    assert not found(agent(obj, failed_checksum=checksum(TWO))).failed, "another plan's failure"


def test_outputs_are_read_as_agents_write_them() -> None:
    output = gzip.compress(json.dumps({"one": "b3V0MQo=", "two": None}).encode())
    run = {"name": "etcd-name", "stdout": "YQ==", "stderr": "", "exitCode": 1, "failures": 2, "lastSuccessfulRunTime": ""}
    periodic = gzip.compress(json.dumps({"etcd-name": run}).encode())
    delivered = found(secret(plan=ONE, applied_output=output, applied_periodic_output=periodic, plan_revision="7"))
    assert delivered.output == {"one": b"out1\n", "two": b""}
    assert delivered.periodic_output["etcd-name"].stdout == b"a"
    assert (delivered.periodic_output["etcd-name"].exit_code, delivered.periodic_output["etcd-name"].failures) == (1, 2)
    assert delivered.revision == 7 and delivered.problems == ()


def test_packed_output_is_the_same_for_the_same_value() -> None:
    assert packed({"b": 1, "a": 2}) == packed({"a": 2, "b": 1})
    assert json.loads(gzip.decompress(packed({"a": 2}))) == {"a": 2}


def test_a_host_that_writes_nonsense_is_reported_and_stops_no_other() -> None:
    bomb = gzip.compress(b"0" * (64 << 20))
    delivered = found(
        secret(plan=ONE, plan_revision="x", plan_state="great", applied_output=b"?", failed_output=bomb, probe_statuses="[]")
    )
    assert {problem.split()[0] for problem in delivered.problems} == {
        "plan-revision",
        "plan-state",
        "applied-output",
        "failed-output",
        "probe-statuses",
    }
    assert not delivered.healthy, "what can't be read is not good news"
    with pytest.raises(PlanSecretError, match="too early"):
        unpacked(gzip.compress(b"abc")[:-4])


def test_health_is_that_of_all_probes() -> None:
    both = json.dumps({"b": {"healthy": True, "successCount": 1}, "a": {"failureCount": 5}, "c": {}})
    delivered = found(secret(plan=ONE, probe_statuses=both))
    assert not delivered.healthy and delivered.unhealthy == ["a", "c"]
    assert found(secret(plan=ONE)).healthy and found(secret(plan=ONE, probe_statuses="{}")).healthy


# --- writing ------------------------------------------------------------------------------------------------------------


def test_a_new_plan_is_pending_and_knows_no_probes() -> None:
    before = secret({PROBES_PASSED: "2026", "kept": "yes"}, plan=ONE, probe_statuses="{}", other="stays", failure_threshold="5")
    after = with_plan(before, TWO, now=NOW, failure_threshold=0, joined_to="https://10.0.0.1:9345")
    assert said(after, "plan") == TWO.decode() and said(after, "plan-state") == "pending" and said(after, "max-failures") == "-1"
    assert said(after, "probe-statuses") is None and said(after, "failure-threshold") is None and said(after, "other") == "stays"
    assert annotations_of(after) == {
        PROBES_PASSED: "",
        "kept": "yes",
        PLAN_UPDATED: "2027-01-15T08:00:00Z",
        JOINED_TO: "https://10.0.0.1:9345",
    }
    assert JOINED_TO not in annotations_of(with_plan(after, ONE, now=NOW, joined_to=""))
    assert said(before, "plan") == ONE.decode(), "what was given is not changed"


def test_only_a_machines_own_marks_go_with_a_plan() -> None:
    marks = {
        "rke.cattle.io/a": "1",
        "cluster.x-k8s.io/b": "2",
        "machine.cluster.x-k8s.io/c": "3",
        "other.io/d": "4",
        "xrke.cattle.io/e": "",
    }
    after = with_plan(secret(), ONE, now=NOW, labels=marks, annotations=marks)
    assert set(after["metadata"]["labels"]) == {"rke.cattle.io/a", "cluster.x-k8s.io/b", "machine.cluster.x-k8s.io/c"}
    assert "other.io/d" not in annotations_of(after)


@pytest.mark.parametrize(
    ("most", "threshold", "good"), [(-1, 5, True), (5, 5, True), (3, -1, True), (2, 3, False), (0, 1, False)]
)
def test_a_plan_that_stops_before_it_counts_as_failed_is_refused(most: int, threshold: int, good: bool) -> None:
    if good:
        with_plan(secret(), ONE, now=NOW, max_failures=most, failure_threshold=threshold)
        return
    with pytest.raises(PlanSecretError, match="never be told"):
        with_plan(secret(), ONE, now=NOW, max_failures=most, failure_threshold=threshold)


def test_an_applied_plan_is_remembered_and_the_first_passing_of_its_probes_is_noted() -> None:
    applied = secret(plan=ONE, plan_state="succeeded", applied_checksum=checksum(ONE), probe_statuses='{"a":{}}')
    after = settled(applied, NOW)
    assert said(after, "appliedPlan") == ONE.decode() and PROBES_PASSED not in annotations_of(after)
    passed = settled(agent(after, probe_statuses='{"a":{"healthy":true}}'), NOW)
    assert annotations_of(passed)[PROBES_PASSED] == "2027-01-15T08:00:00Z" and found(passed).probes_usable
    assert settled(passed, NOW + 60) is passed, "nothing is written twice"


def test_outputs_of_instructions_that_are_gone_go() -> None:
    obj = secret(plan=ONE, applied_periodic_output=packed({"etcd-name": {"name": "etcd-name"}, "old": {}}))
    assert set(found(settled(obj, NOW)).periodic_output) == {"etcd-name"}
    assert said(settled(secret(plan=TWO, applied_periodic_output=packed({"old": {}})), NOW), "applied-periodic-output") == ""
    assert settled(settled(obj, NOW), NOW) == settled(obj, NOW)


def test_a_plan_that_failed_never_counts_as_applied() -> None:
    """The agent leaves its checksum behind as if it had been."""
    failed = secret(plan=ONE, plan_state="failed", plan_revision="1", applied_checksum=checksum(ONE), failure_count="0")
    assert settled(failed, NOW) is failed and has_failed_to_apply(failed) and found(failed).failed
    again = settled(with_retry(failed), NOW)
    delivered = found(again)
    assert delivered.state is PlanState.PENDING and not delivered.in_sync and not delivered.failed and not delivered.applied_data
    done = settled(agent(again, plan_state="succeeded", applied_checksum=checksum(ONE)), NOW)
    assert found(done).in_sync and found(done).applied_data == ONE


def test_only_what_failed_is_tried_again() -> None:
    for state in ("", "pending", "in-progress", "succeeded"):
        obj = secret(plan=ONE, plan_state=state)
        assert with_retry(obj) is obj


def test_going_back_to_an_older_plan_is_not_done_before_the_agent_did_it() -> None:
    one = settled(secret(plan=ONE, plan_state="succeeded", applied_checksum=checksum(ONE)), NOW)
    half = agent(with_plan(one, TWO, now=NOW), plan_state="in-progress")
    assert said(half, "applied-checksum") == checksum(ONE)
    back = settled(with_plan(half, ONE, now=NOW), NOW)
    assert not found(back).in_sync
    # An older agent applies it for its checksum, and leaves the state as it is.
    assert found(settled(agent(back, applied_checksum=checksum(ONE)), NOW)).in_sync


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"plan_state": "failed"}, True),
        ({"plan_state": "succeeded"}, False),
        ({"failed_checksum": checksum(ONE), "max_failures": "-1"}, True),
        ({"failed_checksum": checksum(ONE), "max_failures": "2", "failure_count": "1"}, False),
        ({"failed_checksum": checksum(ONE), "max_failures": "2", "failure_count": "2"}, True),
        ({"failed_checksum": checksum(ONE)}, False),
        ({"failed_checksum": checksum(TWO), "max_failures": "-1"}, False),
    ],
)
def test_when_a_person_should_look_at_the_host(data: dict[str, str], told: bool) -> None:
    assert has_failed_to_apply(secret(plan=ONE, **data)) is told


def test_a_question_stands_until_the_agent_writes_again() -> None:
    both = '{"a":{"healthy":true,"successCount":1},"b":{"healthy":true,"failureCount":2}}'
    before = secret(plan=ONE, plan_state="succeeded", probe_statuses=both)
    assert not found(before).asked
    after = with_question(before)
    asked = found(after)
    assert asked.asked and asked.healthy and asked.in_sync and asked.probes == found(before).probes
    assert not asked.problems and with_question(after) is after
    assert not found(agent(after, probe_statuses=both)).asked
    # An agent that never said anything can be asked, too; a new plan asks anew.
    assert found(with_question(secret(plan=ONE))).asked and said(with_question(secret(plan=ONE)), "probe-statuses") == "{}\n"
    assert not found(with_plan(after, ONE, now=NOW)).asked
