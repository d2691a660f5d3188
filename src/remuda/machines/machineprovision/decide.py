"""The next step for an infrastructure machine: a pure function of what is known about it
(docs/reference/machines.md#create-and-remove).

It takes one step at a time, and each leaves the machine in a state from which the next can be found again after a crash.
:mod:`.controller` reads the snapshot and takes the step.

It differs from the original so that no machine is left behind and paid for: a machine that may exist at its provider (its state
Secret says so) is removed also when the Job that made it vanished; a removal that failed for a temporary reason is tried again;
and one whose state is empty needs no removal, which could only fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from remuda.access.rancher_conditions import FALSE, TRUE, UNKNOWN, condition_of
from remuda.api import cluster_x_k8s_io as capi
from remuda.capi.phases import is_paused, pause_wait
from remuda.kube.clock import time_of
from remuda.kube.objects import (
    GroupVersion,
    Key,
    annotations_of,
    dig,
    is_being_deleted,
    labels_of,
    name_of,
    owner_references_of,
    uid_of,
)
from remuda.kube.owners import has_finalizer
from remuda.kube.waits import Actor, Code, Ref, Wait

from ..errors import Reason
from .job_objects import is_pods
from .job_outcome import JobEnd, JobFailure, JobOutcome, failure_of
from .machine_status import CREATE_ERROR, CREATE_JOB, DELETE_JOB, reason_of, status_of
from .well_known import CAPI_MACHINE, FINALIZER, FORCE_REMOVE, INFRA_REMOVE, JOB_UID

Obj = dict[str, Any]

# How long a removal that failed rests before it is tried once more.
REMOVAL_PAUSE = 300.0
# After these failures a removal fails, too, and so does each retry: there is nothing to remove, or it may not be touched.
_HOPELESS = frozenset({Reason.AUTH_FAILED, Reason.PERMISSION_DENIED, Reason.INVALID, Reason.MISSING_PROGRAM, Reason.NOT_FOUND})


class ProvisionStep(StrEnum):
    """The step to take now. Everything else follows from the next look."""

    NOTHING = "Nothing"
    MARK = "Mark"  # finalizer and label: from now on it can't be deleted without us
    MAKE_JOB = "MakeJob"
    ADOPT_JOB = "AdoptJob"  # there is a Job of that name that was not recorded: keep it if it is the wanted one
    DROP_JOB = "DropJob"
    TELL = "Tell"  # write down how the Job goes
    INTERRUPTED = "Interrupted"  # write down that the Job went before it ended
    GIVE_UP = "GiveUp"  # the Machine goes, so that another takes its place
    PRUNE = "Prune"  # all that was made for the Job goes
    RELEASE = "Release"  # the same, and the finalizer


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The known state of a machine. `job` has the name of the machine's Job and any creator; `outcome` is its result.

    `state`: the state Secret holds a machine; read only when it matters (`needs_state`).
    `pause`: the least time that a failed machine has to stay. `interruptible`: its program is ours, which may be killed at any
    point: what it has made by then is kept, or found again. `blocked`: the reason why a removal can't begin, computed only when
    a user forces the removal (`is_forced`). `failures` and `last`: how often in a row the making of the pool's machines, or the
    removal of this one, has failed, and the last failure; known while another Job runs.
    """

    infra: Obj
    machine: Obj | None
    cluster: Obj | None
    job: Obj | None
    outcome: JobOutcome | None
    now: float
    state: bool = True
    namespace_ends: bool = False
    pause: float = 0.0
    interruptible: bool = False
    blocked: str = ""
    failures: int = 0
    last: JobFailure | None = None


@dataclass(frozen=True, slots=True)
class ProvisionDecision:
    step: ProvisionStep
    waits: tuple[Wait, ...] = ()
    after: float | None = None
    removing: bool = False
    # Why it is released although its removal failed, or was never tried.
    abandoned: str = ""


def subject_of(infra: Obj) -> Ref:
    return Ref(GroupVersion.parse(infra["apiVersion"]).group, infra["kind"], *Key.of(infra))


def decide(snapshot: Snapshot) -> ProvisionDecision:
    return _removal(snapshot) if is_being_deleted(snapshot.infra) else _creation(snapshot)


def needs_state(snapshot: Snapshot) -> bool:
    """True if the next step depends on the content of the state Secret."""
    infra = snapshot.infra
    if not is_being_deleted(infra) or not has_finalizer(infra, FINALIZER) or status_of(infra, DELETE_JOB):
        return False
    return status_of(infra, CREATE_JOB) in (TRUE, FALSE) or (bool(status_of(infra, CREATE_JOB)) and not is_recorded(snapshot))


def is_recorded(snapshot: Snapshot) -> bool:
    """There is a Job, and it is the one that we made."""
    job = snapshot.job
    return job is not None and bool(uid_of(job)) and annotations_of(snapshot.infra).get(JOB_UID) == uid_of(job)


# --- making -------------------------------------------------------------------------------------------------------------------


def _creation(snapshot: Snapshot) -> ProvisionDecision:
    infra, machine = snapshot.infra, snapshot.machine
    if machine is None:
        return _waits(infra, Code.REFERENCE, Actor.OTHER_CONTROLLER, "no Machine owns it yet")
    if labels_of(infra).get(CAPI_MACHINE) != name_of(machine) or not has_finalizer(infra, FINALIZER):
        return ProvisionDecision(ProvisionStep.MARK)
    made = status_of(infra, CREATE_JOB)
    if made == TRUE:
        done = bool(dig(infra, "spec", "providerID")) and JOB_UID in annotations_of(infra)
        return ProvisionDecision(ProvisionStep.PRUNE if done else ProvisionStep.NOTHING)
    if made == FALSE:
        return _failed(snapshot, machine)
    if snapshot.job is None or not is_recorded(snapshot):
        return _gate(snapshot, machine) or ProvisionDecision(
            ProvisionStep.MAKE_JOB if snapshot.job is None else ProvisionStep.ADOPT_JOB
        )
    if snapshot.outcome is not None and snapshot.outcome.ended is not JobEnd.NOT_YET:
        return ProvisionDecision(ProvisionStep.TELL)
    on = Ref("batch", "Job", *Key.of(snapshot.job))
    return ProvisionDecision(ProvisionStep.TELL, (_running(snapshot, Code.PROVISIONING, on, ""),))


def _running(snapshot: Snapshot, code: Code, on: Ref, more: str) -> Wait:
    """The wait for a Job; if earlier ones failed for a reason that only a user changes, it is for the user."""
    why, last = f"the Job is still running{more}", snapshot.last
    if last is None:
        return Wait(code, subject_of(snapshot.infra), Actor.PROVIDER, on, why)
    tries = "the try before it failed" if snapshot.failures == 1 else f"{snapshot.failures} tries before it failed"
    why = f"{why}; {tries}: {last.reason}: {last.message}"
    if _goes_away(last):
        return Wait(code, subject_of(snapshot.infra), Actor.PROVIDER, on, why)
    return Wait(code, subject_of(snapshot.infra), Actor.USER, None, why)


def _gate(snapshot: Snapshot, machine: Obj) -> ProvisionDecision | None:
    """The first missing precondition, before a machine is paid for; None when all are met."""
    infra, cluster = snapshot.infra, snapshot.cluster
    if is_being_deleted(machine):
        on = Ref(capi.GROUP, "Machine", *Key.of(machine))
        return ProvisionDecision(
            ProvisionStep.NOTHING,
            (Wait(Code.DELETION, subject_of(infra), Actor.OTHER_CONTROLLER, on, "its Machine is being deleted"),),
        )
    if cluster is None:
        return _waits(infra, Code.REFERENCE, Actor.OTHER_CONTROLLER, "its Cluster does not exist")
    on = Ref(capi.GROUP, "Cluster", *Key.of(cluster))
    if is_paused(cluster, infra):
        return ProvisionDecision(ProvisionStep.NOTHING, (pause_wait(subject_of(infra), infra, cluster),))
    if dig(cluster, "status", "initialization", "infrastructureProvisioned") is not True:
        why = "the infrastructure of its cluster is not ready"
        return ProvisionDecision(ProvisionStep.NOTHING, (Wait(Code.PROVISIONING, subject_of(infra), Actor.PROVIDER, on, why),))
    if not dig(machine, "spec", "bootstrap", "dataSecretName"):
        on = Ref(capi.GROUP, "Machine", *Key.of(machine))
        why = "there is no bootstrap data yet"
        return ProvisionDecision(
            ProvisionStep.NOTHING, (Wait(Code.PROVISIONING, subject_of(infra), Actor.OTHER_CONTROLLER, on, why),)
        )
    return None


def _failed(snapshot: Snapshot, machine: Obj) -> ProvisionDecision:
    """It stays for a while, so that a user can inspect it; then its Machine is deleted."""
    if is_being_deleted(machine):
        return ProvisionDecision(ProvisionStep.NOTHING)
    condition = condition_of(snapshot.infra, CREATE_JOB) or {}
    left = (time_of(condition.get("lastTransitionTime")) or 0.0) + snapshot.pause - snapshot.now
    if left <= 0:
        return ProvisionDecision(ProvisionStep.GIVE_UP)
    said = dig(snapshot.infra, "status", "failureMessage")
    failure = failure_of(said) if isinstance(said, str) and said else None
    told = f" ({failure.reason}: {failure.message})" if failure is not None else ""
    why = f"it could not be made{told}; another one replaces it soon"
    actor = Actor.PROVIDER if failure is not None and _goes_away(failure) else Actor.USER
    return ProvisionDecision(
        ProvisionStep.NOTHING, (Wait(Code.PROVISIONING, subject_of(snapshot.infra), actor, None, why),), left
    )


def _goes_away(failure: JobFailure) -> bool:
    """True if another try may succeed without a user; a quota passes only when its user raises it."""
    return failure.passes and failure.reason is not Reason.QUOTA_EXCEEDED


# --- removing -----------------------------------------------------------------------------------------------------------------


def _removal(snapshot: Snapshot) -> ProvisionDecision:
    infra = snapshot.infra
    if not has_finalizer(infra, FINALIZER):
        return ProvisionDecision(ProvisionStep.NOTHING)
    made = status_of(infra, CREATE_JOB)
    if not made:
        # Nothing was ever begun; as a rule it never got a Machine.
        return ProvisionDecision(ProvisionStep.RELEASE)
    if snapshot.namespace_ends:
        return ProvisionDecision(
            ProvisionStep.RELEASE, abandoned="its namespace is being deleted, so no Job can be created there"
        )
    removed = status_of(infra, DELETE_JOB)
    if made == UNKNOWN and not removed:
        return _unfinished(snapshot)
    if snapshot.blocked and removed != TRUE and is_forced(infra, snapshot.machine) and not _has_begun(snapshot):
        # No Job could ever fail, so the removal would wait until a user fixes the cause.
        return ProvisionDecision(
            ProvisionStep.RELEASE, removing=True, abandoned=f"{FORCE_REMOVE} says so, and {snapshot.blocked}"
        )
    if not removed:
        if not snapshot.state:
            return ProvisionDecision(ProvisionStep.RELEASE)
        return (
            ProvisionDecision(ProvisionStep.DROP_JOB)
            if snapshot.job is not None
            else ProvisionDecision(ProvisionStep.MAKE_JOB, removing=True)
        )
    if removed == UNKNOWN:
        return _removing(snapshot)
    if removed == TRUE:
        return ProvisionDecision(ProvisionStep.RELEASE)
    return _not_removed(snapshot)


def _unfinished(snapshot: Snapshot) -> ProvisionDecision:
    """The steps for a machine that is being made. A Job that has not begun, or that can be interrupted, is deleted; otherwise its
    end is awaited, since a program that is killed while it makes a machine may not have recorded it yet."""
    infra, job = snapshot.infra, snapshot.job
    if job is None or not is_recorded(snapshot):
        if job is not None:
            return ProvisionDecision(ProvisionStep.DROP_JOB)
        return ProvisionDecision(ProvisionStep.INTERRUPTED if snapshot.state else ProvisionStep.RELEASE)
    outcome = snapshot.outcome
    if outcome is not None and outcome.ended is not JobEnd.NOT_YET:
        return ProvisionDecision(ProvisionStep.TELL)
    # A pod may run before its Job says so.
    begun = is_pods(job) or _has_begun(snapshot)
    if is_being_deleted(job) or (begun and not snapshot.interruptible):
        why = "it can't be removed before the Job that makes it has ended"
        return ProvisionDecision(
            ProvisionStep.NOTHING,
            (Wait(Code.PROVISIONING, subject_of(infra), Actor.PROVIDER, Ref("batch", "Job", *Key.of(job)), why),),
        )
    return ProvisionDecision(ProvisionStep.DROP_JOB)


def _removing(snapshot: Snapshot) -> ProvisionDecision:
    job = snapshot.job
    if job is None:
        return ProvisionDecision(ProvisionStep.MAKE_JOB, removing=True)
    if not is_recorded(snapshot):
        return ProvisionDecision(ProvisionStep.ADOPT_JOB, removing=True)
    if labels_of(job).get(INFRA_REMOVE) != "true":
        return ProvisionDecision(ProvisionStep.DROP_JOB)
    outcome = snapshot.outcome
    if outcome is not None and outcome.ended is not JobEnd.NOT_YET:
        return ProvisionDecision(ProvisionStep.TELL, removing=True)
    on = Ref("batch", "Job", *Key.of(job))
    tries = int(dig(job, "status", "failed") or 0)
    more = f": {tries} of its tries failed, and it goes on" if tries else ""
    return ProvisionDecision(ProvisionStep.TELL, (_running(snapshot, Code.DELETION, on, more),), removing=True)


def _has_begun(snapshot: Snapshot) -> bool:
    return snapshot.outcome is not None and bool(snapshot.outcome.began)


def _not_removed(snapshot: Snapshot) -> ProvisionDecision:
    infra = snapshot.infra
    if is_forced(infra, snapshot.machine):
        return ProvisionDecision(ProvisionStep.RELEASE, removing=True, abandoned=f"{FORCE_REMOVE} says so")
    failure = snapshot.outcome.failure if snapshot.outcome is not None else None
    if reason_of(infra, CREATE_JOB) == CREATE_ERROR and failure is not None and failure.reason in _HOPELESS:
        return ProvisionDecision(ProvisionStep.RELEASE, removing=True, abandoned="it could not be made, and could not be removed")
    since = time_of((condition_of(infra, DELETE_JOB) or {}).get("lastTransitionTime")) or 0.0
    left = since + REMOVAL_PAUSE - snapshot.now
    if left <= 0:
        return ProvisionDecision(ProvisionStep.DROP_JOB if snapshot.job is not None else ProvisionStep.MAKE_JOB, removing=True)
    why = f"its removal failed ({failure.reason}: {failure.message})" if failure else "its removal failed"
    why += f" and is tried again; {FORCE_REMOVE}=true lets it go without"
    # For a temporary failure the provider is awaited; all others need a user.
    actor = Actor.PROVIDER if failure is not None and failure.passes else Actor.USER
    return ProvisionDecision(
        ProvisionStep.NOTHING, (Wait(Code.DELETION, subject_of(infra), actor, None, why),), left, removing=True
    )


def is_forced(infra: Obj, machine: Obj | None) -> bool:
    """True if a user wants it released, even if something of it may remain at its provider."""
    return any(annotations_of(each or {}).get(FORCE_REMOVE) == "true" for each in (infra, machine))


def _waits(infra: Obj, code: Code, actor: Actor, why: str) -> ProvisionDecision:
    return ProvisionDecision(ProvisionStep.NOTHING, (Wait(code, subject_of(infra), actor, None, why),))


def owning_machine(infra: Obj, machines: Sequence[Obj]) -> Obj | None:
    """The Machine that owns it, by uid; a MachineSet that made it a moment ago does not count."""
    uids = {
        each.get("uid")
        for each in owner_references_of(infra)
        if each.get("kind") == "Machine" and GroupVersion.parse(each.get("apiVersion") or "").group == capi.GROUP
    }
    return next((each for each in machines if uid_of(each) in uids), None)
