"""Jobs: pods until enough of them have succeeded, or too many have failed (:func:`progress`).

Left out: indexed completion, and the policies by index or by exit code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from remuda.kube.builtin_resources import JOBS, PODS
from remuda.kube.clock import rfc3339, time_of
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, dig, finalizers_of, find_by, is_being_deleted, metadata, name_of, namespace_of, uid_of
from remuda.kube.owners import has_finalizer
from remuda.kube.selectors import parse_labels
from remuda.runtime import DONE, NORMAL, WARNING, Manager, Result

from ..disruption_counts import is_ready
from .pod_adoption import BURST, OwningController
from .pods import MANAGER, is_active, name_prefix, pod_from

Obj = dict[str, Any]
_JOB_NAME: Final = "batch.kubernetes.io/job-name"


class Jobs(OwningController):
    def __init__(self, manager: Manager) -> None:
        super().__init__(manager, "job", "Job", JOBS, PODS)
        self._events = manager.recorder("job-controller")
        self._client = manager.client

    async def sync(self, found: Obj) -> Result:
        if dig(found, "spec", "managedBy") or dig(found, "spec", "completionMode") == "Indexed":
            return DONE
        pods = await self.made.claimed(found)
        if is_finished(found) or is_being_deleted(found):
            await self._release_pods([pod for pod in pods if not is_active(pod) or is_being_deleted(found)])
            return await self._expire(found) if is_finished(found) else DONE
        step = progress(found, pods, self.clock.time())
        for pod in step.stop:
            await self.made.drop(found, pod)
        template = dig(found, "spec", "template") or {}
        meta = {**(template.get("metadata") or {}), "finalizers": [FINALIZER]}
        pod = pod_from({**template, "metadata": meta}, found, generateName=name_prefix(found))
        made, problem = await self._start(found, pod, step.start)
        after = await self.made.write_status(JOBS, self.owners, found, with_fewer(step.status, step.start - made))
        await self._release_pods(step.counted)
        if problem is not None:
            # Only now: finished pods lose their finalizer even if no others can be made, or their namespace would never go.
            raise problem
        if is_finished(after):
            self._tell(after)
            return await self._expire(after)
        return Result(after=step.after)

    async def _start(self, job: Obj, pod: Obj, count: int) -> tuple[int, ApiError | None]:
        """The number of pods created, and the error that stopped the creation."""
        for number in range(min(count, BURST)):
            try:
                await self.made.make(job, pod)
            except ApiError as error:
                return number, error
        return min(count, BURST), None

    def _tell(self, job: Obj) -> None:
        failed = find_by(dig(job, "status", "conditions") or (), "type", "Failed")
        if failed is not None:
            self._events.event(job, WARNING, failed["reason"], failed["message"])
        else:
            self._events.event(job, NORMAL, "Completed", "Job completed")

    async def _release_pods(self, pods: list[Obj]) -> None:
        for pod in pods:
            if not has_finalizer(pod, FINALIZER):
                continue
            kept = [each for each in finalizers_of(pod) if each != FINALIZER]
            try:
                patch = {"metadata": {"finalizers": kept}}
                await self._client.patch(PODS, name_of(pod), patch, namespace_of(pod), field_manager=MANAGER)
            except ApiError as error:
                if not error.is_not_found:
                    raise

    async def deleted(self, key: Key) -> None:
        """Removes the finalizers of a deleted Job's pods, since no controller will count them."""
        left = [
            pod
            for pod in self.made.informer.select(parse_labels(f"{_JOB_NAME}={key.name}"), key.namespace)
            if has_finalizer(pod, FINALIZER)
        ]
        await self._release_pods(left)

    async def _expire(self, job: Obj) -> Result:
        seconds = dig(job, "spec", "ttlSecondsAfterFinished")
        if seconds is None or is_being_deleted(job):
            return DONE
        ends = [each for each in dig(job, "status", "conditions") or () if each.get("type") in ("Complete", "Failed")]
        since = max((time_of(each.get("lastTransitionTime")) or 0.0 for each in ends), default=0.0)
        if (left := since + seconds - self.clock.time()) > 0:
            return Result(after=left)
        try:
            await self._client.delete(JOBS, name_of(job), namespace_of(job), propagation="Foreground", uid=job["metadata"]["uid"])
        except ApiError as error:
            if not error.is_not_found and not error.is_conflict:
                raise
        return DONE


# --- progress -------------------------------------------------------------------------------------------------------------
#
# A Job's progress, from its status and its pods. Pure.
#
# Pods carry a finalizer until they are counted: those that ended are first noted by uid, then lose the finalizer, and only then
# become numbers. So each is counted once, even if the controller crashes in between or a user deletes the pod.

FINALIZER: Final = "batch.kubernetes.io/job-tracking"
_FIRST_PAUSE, _LONGEST_PAUSE = 10.0, 600.0
_ENDS: Final = {"SuccessCriteriaMet": "Complete", "FailureTarget": "Failed"}


@dataclass(slots=True)
class JobProgress:
    """`counted`: pods whose finalizer may be removed. `status`: the Job's new status. `start`: number of pods to make; `stop`:
    pods to delete. `after`: seconds until the next look."""

    status: Obj
    counted: list[Obj] = field(default_factory=list)
    start: int = 0
    stop: list[Obj] = field(default_factory=list)
    after: float | None = None


def is_finished(job: Obj) -> bool:
    return any(_is(job, kind) for kind in ("Complete", "Failed"))


def progress(job: Obj, pods: Sequence[Obj], now: float) -> JobProgress:
    spec = job.get("spec") or {}
    status = dict(job.get("status") or {})
    found = JobProgress(status)
    if not spec.get("suspend") and not status.get("startTime"):
        status["startTime"] = rfc3339(now)
    uncounted = _count(job, pods, status, found)
    active = [pod for pod in pods if is_active(pod)]
    succeeded, failed = (_number(status, kind) + len(uncounted[kind]) for kind in ("succeeded", "failed"))
    target = _target(job, status, len(active), succeeded, failed, now)
    if target is not None or spec.get("suspend"):
        found.stop = active
    else:
        found.start, found.stop, found.after = _wanted(spec, active, succeeded, failed, pods, now)
    going = len([pod for pod in pods if is_being_deleted(pod) and not _has_ended(pod)]) + len(found.stop)
    living = len(active) - len(found.stop) + found.start
    _say(status, active=living, ready=sum(1 for pod in active if is_ready(pod) and pod not in found.stop), terminating=going)
    conditions = _conditions(job, target, now)
    if target is not None and not living and not going and not any(uncounted.values()):
        end = _ENDS[target["type"]]
        conditions.append({**target, "type": end})
        if end == "Complete":
            status["completionTime"] = rfc3339(now)
    elif (deadline := spec.get("activeDeadlineSeconds")) is not None and (since := time_of(status.get("startTime"))):
        left = since + deadline - now
        found.after = left if found.after is None else min(found.after, left)
    if conditions:
        status["conditions"] = conditions
    return found


def with_fewer(status: Obj, missing: int) -> Obj:
    """The status if so many of the pods could not be created."""
    if not missing:
        return status
    changed = dict(status)
    _say(changed, active=max(_number(status, "active") - missing, 0))
    return changed


def _count(job: Obj, pods: Sequence[Obj], status: Obj, found: JobProgress) -> dict[str, list[str]]:
    """Update the recorded uids, and turn those that need no record any more into numbers."""
    held = {uid_of(pod): pod for pod in pods if FINALIZER in finalizers_of(pod)}
    before = status.get("uncountedTerminatedPods") or {}
    noted: dict[str, list[str]] = {"succeeded": [], "failed": []}
    for kind in noted:
        for uid in before.get(kind) or ():
            if uid in held:
                noted[kind].append(uid)
                found.counted.append(held[uid])
            else:
                status[kind] = _number(status, kind) + 1
    known = {uid for uids in noted.values() for uid in uids}
    replaces_going = dig(job, "spec", "podReplacementPolicy") != "Failed"
    for uid, pod in held.items():
        if uid in known:
            continue
        if dig(pod, "status", "phase") == "Succeeded":
            noted["succeeded"].append(uid)
        elif dig(pod, "status", "phase") == "Failed" or (is_being_deleted(pod) and replaces_going):
            noted["failed"].append(uid)
        else:
            continue
        found.counted.append(pod)
    status["uncountedTerminatedPods"] = {kind: uids for kind, uids in noted.items() if uids}
    return noted


def _target(job: Obj, status: Obj, active: int, succeeded: int, failed: int, now: float) -> Obj | None:
    """The condition for the Job's end, once it is known."""
    for kind in _ENDS:
        if (known := find_by(dig(job, "status", "conditions") or (), "type", kind)) is not None and known["status"] == "True":
            return known
    spec = job.get("spec") or {}
    completions = spec.get("completions")
    done = succeeded >= completions if completions is not None else succeeded > 0 and not active
    time = rfc3339(now)
    stamp = {"status": "True", "lastProbeTime": time, "lastTransitionTime": time}
    if done:
        message = "Reached expected number of succeeded pods"
        return {"type": "SuccessCriteriaMet", **stamp, "reason": "CompletionsReached", "message": message}
    since, deadline = time_of(status.get("startTime")), spec.get("activeDeadlineSeconds")
    if deadline is not None and since is not None and not spec.get("suspend") and now >= since + deadline:
        message = "Job was active longer than specified deadline"
        return {"type": "FailureTarget", **stamp, "reason": "DeadlineExceeded", "message": message}
    if failed > int(spec.get("backoffLimit", 6)):
        message = "Job has reached the specified backoff limit"
        return {"type": "FailureTarget", **stamp, "reason": "BackoffLimitExceeded", "message": message}
    return None


def _wanted(
    spec: Obj, active: list[Obj], succeeded: int, failed: int, pods: Sequence[Obj], now: float
) -> tuple[int, list[Obj], float | None]:
    """The number of pods to start, the pods to stop, and the seconds until the next look."""
    parallelism, completions = int(spec.get("parallelism", 1)), spec.get("completions")
    if completions is None:
        wanted = min(len(active), parallelism) if succeeded else parallelism
    else:
        wanted = min(parallelism, completions - succeeded)
    if spec.get("podReplacementPolicy") == "Failed":
        # A pod that is terminating still counts, until its result is known.
        wanted -= sum(1 for pod in pods if is_being_deleted(pod) and not _has_ended(pod))
    if len(active) > wanted:
        youngest = sorted(active, key=lambda pod: (is_ready(pod), metadata(pod)["creationTimestamp"]))
        return 0, youngest[: len(active) - max(wanted, 0)], None
    missing = wanted - len(active)
    if missing > 0 and failed and (left := _pause_left(pods, failed, now)) > 0:
        return 0, [], left
    return max(missing, 0), [], None


def _pause_left(pods: Sequence[Obj], failed: int, now: float) -> float:
    """The seconds left of the pause after failures; it grows with each failure."""
    ended = [
        time_of(dig(status, "state", "terminated", "finishedAt")) or 0.0
        for pod in pods
        if dig(pod, "status", "phase") == "Failed"
        for status in dig(pod, "status", "containerStatuses") or ()
    ]
    pause: float = min(_FIRST_PAUSE * 2 ** min(failed - 1, 10), _LONGEST_PAUSE)
    return max(ended, default=0.0) + pause - now


def _conditions(job: Obj, target: Obj | None, now: float) -> list[Obj]:
    before = [each for each in dig(job, "status", "conditions") or () if each.get("type") != "Suspended"]
    suspended = bool(dig(job, "spec", "suspend"))
    old: Obj | None = find_by(dig(job, "status", "conditions") or (), "type", "Suspended")
    if old is not None or suspended:
        truth = "True" if suspended else "False"
        reason, message = ("JobSuspended", "Job suspended") if suspended else ("JobResumed", "Job resumed")
        if old is None or old.get("status") != truth:
            time = rfc3339(now)
            stamp = {"lastProbeTime": time, "lastTransitionTime": time}
            old = {"type": "Suspended", "status": truth, **stamp, "reason": reason, "message": message}
        before.append(old)
    if target is not None and find_by(before, "type", target["type"]) is None:
        before.append(target)
    return before


def _say(status: Obj, **numbers: int) -> None:
    for name, number in numbers.items():
        if number or name in ("ready", "terminating"):
            status[name] = number
        else:
            status.pop(name, None)


def _has_ended(pod: Obj) -> bool:
    return dig(pod, "status", "phase") in ("Succeeded", "Failed")


def _number(status: Obj, kind: str) -> int:
    return int(status.get(kind) or 0)


def _is(job: Obj, kind: str) -> bool:
    found = find_by(dig(job, "status", "conditions") or (), "type", kind)
    return found is not None and found.get("status") == "True"
