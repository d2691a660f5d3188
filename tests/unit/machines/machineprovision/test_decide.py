"""What comes next for a machine, case by case."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from remuda.kube.clock import rfc3339
from remuda.kube.waits import Actor, Code
from remuda.machines.errors import Reason
from remuda.machines.machineprovision.decide import REMOVAL_PAUSE, ProvisionDecision, ProvisionStep, Snapshot, decide, needs_state
from remuda.machines.machineprovision.job_outcome import JobEnd, JobFailure, JobOutcome
from remuda.machines.machineprovision.well_known import CAPI_MACHINE, FINALIZER, FORCE_REMOVE, INFRA_REMOVE, JOB_UID

Obj = dict[str, Any]
NOW = 1_800_000_000.0
MACHINE: Obj = {"metadata": {"name": "m", "namespace": "ns", "uid": "mu"}, "spec": {"bootstrap": {"dataSecretName": "b"}}}
CLUSTER: Obj = {"metadata": {"name": "c", "namespace": "ns"}, "status": {"initialization": {"infrastructureProvisioned": True}}}
RUNNING = JobOutcome(JobEnd.NOT_YET, NOW - 5)
QUEUED = JobOutcome(JobEnd.NOT_YET)
COMPLETE = JobOutcome(JobEnd.COMPLETE, NOW - 5, NOW)


def failed(reason: Reason = Reason.FAILED) -> JobOutcome:
    return JobOutcome(JobEnd.FAILED, NOW - 5, NOW, JobFailure(reason, "why"))


def infra(create: str = "", delete: str = "", *, deleting: bool = False, since: float = NOW, **meta: Any) -> Obj:
    """`create` and `delete`: the status of the conditions, with the reason after a slash."""
    conditions = []
    for kind, said in (("CreateJob", create), ("DeleteJob", delete)):
        status, _, reason = said.partition("/")
        if status:
            conditions.append({"type": kind, "status": status, "reason": reason, "lastTransitionTime": rfc3339(since)})
    found: Obj = {"name": "m", "namespace": "ns", "uid": "iu", "labels": {CAPI_MACHINE: "m"}, "finalizers": [FINALIZER], **meta}
    if deleting:
        found["deletionTimestamp"] = rfc3339(NOW)
    return {
        "apiVersion": "rke-machine.cattle.io/v1",
        "kind": "PodMachine",
        "metadata": found,
        "spec": {},
        "status": {"conditions": conditions},
    }


def job(uid: str = "ju", *, removing: bool = False, **spec: Any) -> Obj:
    labels = {INFRA_REMOVE: "true" if removing else "false"}
    return {"metadata": {"name": "m-machine-provision", "namespace": "ns", "uid": uid, "labels": labels}, "spec": spec}


OURS = {"annotations": {JOB_UID: "ju"}}
LOCAL = {"managedBy": "remuda.dev/job-runner"}


def seen(obj: Obj, job: Obj | None = None, outcome: JobOutcome | None = None, **more: Any) -> Snapshot:
    return replace(Snapshot(obj, MACHINE, CLUSTER, job, outcome if job is not None else None, NOW), **more)


def step(snapshot: Snapshot) -> ProvisionStep:
    return decide(snapshot).step


# --- making -------------------------------------------------------------------------------------------------------------------


def test_a_machine_without_an_owner_waits() -> None:
    found = decide(seen(infra(), machine=None))
    assert found.step is ProvisionStep.NOTHING and "no Machine" in found.waits[0].evidence


@pytest.mark.parametrize("missing", [{"labels": {}}, {"finalizers": []}, {"labels": {CAPI_MACHINE: "other"}}])
def test_it_is_marked_before_anything_is_made(missing: Obj) -> None:
    assert step(seen(infra(**missing))) is ProvisionStep.MARK


@pytest.mark.parametrize(
    ("cluster", "machine", "why"),
    [
        (None, MACHINE, "its Cluster does not exist"),
        ({**CLUSTER, "spec": {"paused": True}}, MACHINE, "Cluster spec.paused is set to true"),
        ({"metadata": CLUSTER["metadata"]}, MACHINE, "the infrastructure of its cluster is not ready"),
        (CLUSTER, {**MACHINE, "spec": {}}, "there is no bootstrap data yet"),
        (
            CLUSTER,
            {**MACHINE, "metadata": {**MACHINE["metadata"], "deletionTimestamp": rfc3339(NOW)}},
            "its Machine is being deleted",
        ),
    ],
    ids=["no-cluster", "paused", "no-infrastructure", "no-bootstrap-data", "going"],
)
def test_nothing_is_paid_for_before_all_is_ready(cluster: Obj | None, machine: Obj, why: str) -> None:
    found = decide(seen(infra(), cluster=cluster, machine=machine))
    assert found.step is ProvisionStep.NOTHING and found.waits[0].evidence == why


def test_the_job_is_made_then_followed_then_its_outcome_told() -> None:
    assert step(seen(infra())) is ProvisionStep.MAKE_JOB
    running = decide(seen(infra("Unknown", **OURS), job(), RUNNING))
    assert running.step is ProvisionStep.TELL and running.waits
    assert decide(seen(infra("Unknown", **OURS), job(), COMPLETE)) == ProvisionDecision(ProvisionStep.TELL)
    assert decide(seen(infra("Unknown", **OURS), job(), failed())) == ProvisionDecision(ProvisionStep.TELL)


def test_an_unrecorded_job_is_looked_at_first() -> None:
    assert step(seen(infra("Unknown"), job(), RUNNING)) is ProvisionStep.ADOPT_JOB
    assert step(seen(infra("Unknown", **OURS), job("other"), COMPLETE)) is ProvisionStep.ADOPT_JOB, "it is not believed either"


def test_a_deleted_job_is_made_again() -> None:
    assert step(seen(infra("Unknown", **OURS))) is ProvisionStep.MAKE_JOB


def test_what_was_made_for_the_job_goes_when_the_node_is_known() -> None:
    done = infra("True", **OURS)
    assert step(seen(done, job(), COMPLETE)) is ProvisionStep.NOTHING
    known = {**done, "spec": {"providerID": "x"}}
    assert step(seen(known, job(), COMPLETE)) is ProvisionStep.PRUNE
    assert step(seen({**infra("True"), "spec": {"providerID": "x"}})) is ProvisionStep.NOTHING


def test_a_machine_that_could_not_be_made_stays_as_long_as_said_and_goes() -> None:
    broken = infra("False/CreateError", **OURS)
    assert step(seen(broken, job(), failed())) is ProvisionStep.GIVE_UP
    waiting = decide(seen(broken, job(), failed(), pause=60.0))
    assert (waiting.step, waiting.after) == (ProvisionStep.NOTHING, 60.0)
    assert waiting.waits[0].evidence == "it could not be made; another one replaces it soon"
    told = {**broken, "status": {**broken["status"], "failureMessage": "AuthFailed: no such token\n--- ended with exit status 3"}}
    (wait,) = decide(seen(told, job(), failed(), pause=60.0)).waits
    assert wait.evidence == "it could not be made (AuthFailed: no such token); another one replaces it soon"
    assert step(seen(broken, job(), failed(), pause=60.0, now=NOW + 61)) is ProvisionStep.GIVE_UP


@pytest.mark.parametrize(
    ("reason", "actor"),
    [
        ("AuthFailed", Actor.USER),
        ("QuotaExceeded", Actor.USER),
        ("Throttled", Actor.PROVIDER),
        ("Unavailable", Actor.PROVIDER),
    ],
)
def test_a_failure_that_passes_is_the_provider_s(reason: str, actor: Actor) -> None:
    broken = infra("False/CreateError", **OURS)
    told = {**broken, "status": {**broken["status"], "failureMessage": f"{reason}: why\n--- ended with exit status 3"}}
    (wait,) = decide(seen(told, job(), failed(), pause=60.0)).waits
    assert wait.actor is actor


# --- removing -----------------------------------------------------------------------------------------------------------------


def gone(*states: str, job: Obj | None = None, outcome: JobOutcome | None = None, **more: Any) -> Snapshot:
    meta = {key: more.pop(key) for key in ("annotations", "since", "finalizers") if key in more}
    return seen(infra(*states, deleting=True, **meta), job, outcome, **more)


def test_what_was_never_begun_is_let_go() -> None:
    assert step(gone()) is ProvisionStep.RELEASE
    assert step(gone(finalizers=["other"])) is ProvisionStep.NOTHING


def test_a_job_that_runs_is_waited_for_and_one_that_waits_is_called_off() -> None:
    waits = decide(gone("Unknown", job=job(**LOCAL), outcome=RUNNING, **OURS))
    assert waits.step is ProvisionStep.NOTHING and "before the Job that makes it has ended" in waits.waits[0].evidence
    assert step(gone("Unknown", job=job(**LOCAL), outcome=QUEUED, **OURS)) is ProvisionStep.DROP_JOB
    assert step(gone("Unknown", job=job(), outcome=QUEUED, **OURS)) is ProvisionStep.NOTHING, (
        "of a pod nobody knows whether it has begun"
    )
    ours = gone("Unknown", job=job(**LOCAL), outcome=RUNNING, interruptible=True, **OURS)
    assert step(ours) is ProvisionStep.DROP_JOB, "a driver of ours can be interrupted at any point"
    stuck = gone("Unknown", job=job(), outcome=RUNNING, interruptible=True, **OURS)
    assert step(stuck) is ProvisionStep.DROP_JOB, "also in a pod, which may be one that never gets its image"
    assert step(gone("Unknown", job=job(), outcome=COMPLETE, **OURS)) is ProvisionStep.TELL
    assert step(gone("Unknown", job=job("other"), outcome=COMPLETE, **OURS)) is ProvisionStep.DROP_JOB


def test_when_the_job_vanished_the_state_says_whether_there_is_a_machine() -> None:
    snapshot = gone("Unknown", **OURS)
    assert needs_state(snapshot)
    assert step(replace(snapshot, state=False)) is ProvisionStep.RELEASE
    assert step(replace(snapshot, state=True)) is ProvisionStep.INTERRUPTED


@pytest.mark.parametrize("made", ["True", "False/CreateError", "False/Interrupted"])
def test_a_machine_is_removed_by_a_job_unless_its_state_is_empty(made: str) -> None:
    assert step(gone(made, job=job(), outcome=COMPLETE, **OURS)) is ProvisionStep.DROP_JOB, "there is one Job at a time"
    assert decide(gone(made, **OURS)) == ProvisionDecision(ProvisionStep.MAKE_JOB, removing=True)
    assert step(gone(made, state=False, job=job(), outcome=failed(), **OURS)) is ProvisionStep.RELEASE


def test_the_removal_is_followed_to_its_end() -> None:
    running = decide(gone("True", "Unknown", job=job(removing=True), outcome=RUNNING, **OURS))
    assert running.step is ProvisionStep.TELL and running.removing and running.waits
    assert decide(gone("True", "Unknown", job=job(removing=True), outcome=COMPLETE, **OURS)) == ProvisionDecision(
        ProvisionStep.TELL, removing=True
    )
    assert decide(gone("True", "Unknown")) == ProvisionDecision(ProvisionStep.MAKE_JOB, removing=True), "somebody deleted it"
    assert step(gone("True", "Unknown", job=job(removing=True), outcome=RUNNING)) is ProvisionStep.ADOPT_JOB
    assert step(gone("True", "Unknown", job=job(removing=False), outcome=COMPLETE, **OURS)) is ProvisionStep.DROP_JOB
    assert step(gone("True", "True", job=job(removing=True), outcome=COMPLETE, **OURS)) is ProvisionStep.RELEASE


def test_a_removal_that_failed_is_tried_again_after_a_while() -> None:
    waiting = decide(gone("True", "False/DeleteError", job=job(removing=True), outcome=failed(Reason.AUTH_FAILED), **OURS))
    assert (waiting.step, waiting.after) == (ProvisionStep.NOTHING, REMOVAL_PAUSE)
    assert "AuthFailed: why" in waiting.waits[0].evidence and FORCE_REMOVE in waiting.waits[0].evidence
    due: dict[str, Any] = {"now": NOW + REMOVAL_PAUSE + 1, **OURS}
    assert step(gone("True", "False/DeleteError", job=job(removing=True), outcome=failed(), **due)) is ProvisionStep.DROP_JOB
    assert decide(gone("True", "False/DeleteError", **due)) == ProvisionDecision(ProvisionStep.MAKE_JOB, removing=True)


@pytest.mark.parametrize("reason", [Reason.AUTH_FAILED, Reason.INVALID, Reason.MISSING_PROGRAM, Reason.PERMISSION_DENIED])
def test_what_could_neither_be_made_nor_removed_is_let_go_and_said_so(reason: Reason) -> None:
    found = decide(gone("False/CreateError", "False/DeleteError", job=job(removing=True), outcome=failed(reason), **OURS))
    assert found.step is ProvisionStep.RELEASE and found.abandoned


def test_what_is_on_another_servers_machine_is_not_given_up_and_a_person_is_told_where_it_is() -> None:
    for made in ("True", "False/CreateError"):
        waiting = decide(gone(made, "False/DeleteError", job=job(removing=True), outcome=failed(Reason.ELSEWHERE), **OURS))
        (wait,) = waiting.waits
        assert (waiting.step, wait.code, wait.actor) == (ProvisionStep.NOTHING, Code.DELETION, Actor.USER)
        assert "Elsewhere: " in wait.evidence


@pytest.mark.parametrize("reason", [Reason.THROTTLED, Reason.UNAVAILABLE, Reason.TIMED_OUT, Reason.FAILED])
def test_but_not_for_a_reason_that_passes(reason: Reason) -> None:
    found = decide(gone("False/CreateError", "False/DeleteError", job=job(removing=True), outcome=failed(reason), **OURS))
    assert found.step is ProvisionStep.NOTHING


@pytest.mark.parametrize("where", ["infra", "machine"])
def test_force_lets_go_of_what_can_not_be_removed(where: str) -> None:
    forced = {FORCE_REMOVE: "true"}
    annotations = {JOB_UID: "ju", **(forced if where == "infra" else {})}
    machine = {**MACHINE, "metadata": {**MACHINE["metadata"], "annotations": forced if where == "machine" else {}}}
    broken = gone("True", "False/DeleteError", job=job(removing=True), outcome=failed(), annotations=annotations, machine=machine)
    assert decide(broken).step is ProvisionStep.RELEASE and decide(broken).abandoned
    running = gone("True", "Unknown", job=job(removing=True), outcome=RUNNING, annotations=annotations, machine=machine)
    assert decide(running).step is ProvisionStep.TELL, "it may well succeed"


def test_a_namespace_that_goes_is_not_held_up() -> None:
    found = decide(gone("True", namespace_ends=True))
    assert found.step is ProvisionStep.RELEASE and found.abandoned


@pytest.mark.parametrize(
    ("reason", "actor"),
    [(Reason.AUTH_FAILED, Actor.USER), (Reason.QUOTA_EXCEEDED, Actor.USER), (Reason.THROTTLED, Actor.PROVIDER)],
)
def test_the_wait_for_a_job_has_the_reason_for_which_the_ones_before_it_failed(reason: Reason, actor: Actor) -> None:
    at_work = seen(infra("Unknown", **OURS), job(), RUNNING, failures=3, last=JobFailure(reason, "no such key"))
    (wait,) = decide(at_work).waits
    assert (wait.code, wait.actor) == (Code.PROVISIONING, actor)
    assert wait.evidence == f"the Job is still running; 3 tries before it failed: {reason}: no such key"
    # A wait for the user is its own end; another one goes on to the Job.
    assert (wait.on is None) == (actor is Actor.USER)
