"""The result of a Job, and the reason of its failure in words that a user can act on. Pure.

The program's last words are in the status of the Job's newest pod, or, where the Job was a process of this server, in the Job's
own Failed condition. Drivers of ours begin them with a :class:`~..errors.Reason`; rancher-machine's messages are recognised by
their words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile
from typing import Any

import msgspec

from remuda.kube.clock import rfc3339, time_of
from remuda.kube.objects import dig, find_by, metadata

from ..errors import Reason
from .well_known import ATTEMPTS

Obj = dict[str, Any]

LONGEST = 4096
_OWN = re.compile(rf"(?:^|\b)({'|'.join(re.escape(reason.value) for reason in Reason)}): (.+)$")
# Providers' messages through rancher-machine, by the words in them; the first match counts.
_TOLD: tuple[tuple[Reason, re.Pattern[str]], ...] = tuple(
    (reason, re.compile(words, re.IGNORECASE))
    for reason, words in (
        (Reason.MISSING_PROGRAM, r"driver .* not found|no such driver|executable file not found|not installed"),
        (Reason.THROTTLED, r"thrott|rate ?limit|RequestLimitExceeded|too many requests|\b429\b"),
        (Reason.QUOTA_EXCEEDED, r"quota|limit ?exceeded|exceed(s|ed) .*limit|will exceed your .* limit"),
        (Reason.OUT_OF_CAPACITY, r"InsufficientInstanceCapacity|insufficient capacity|out of capacity|not enough resources"),
        (Reason.PERMISSION_DENIED, r"UnauthorizedOperation|not authorized|permission denied|forbidden|AccessDenied|\b403\b"),
        (
            Reason.AUTH_FAILED,
            r"AuthFailure|InvalidClientTokenId|unauthorized|authenticat|invalid token|credential.*(wrong|invalid)|\b401\b",
        ),
        (Reason.TIMED_OUT, r"timed? ?out|deadline exceeded|maximum number of retries"),
        (Reason.UNAVAILABLE, r"no such host|connection refused|unreachable|service unavailable|\b50[0234]\b|temporary failure"),
        (Reason.NOT_FOUND, r"not ?found|does not exist|\b404\b"),
        (Reason.CONFLICT, r"already exists|duplicate"),
        (Reason.INVALID, r"invalid|must be|unknown flag|required|malformed"),
    )
)
_RUNNER, _ENDED = "--- ", "ended with "
_BEGUN = re.compile(r"^--- (?:create|remove), \d{4}-", re.MULTILINE)
# Why a container waits where nothing is wrong.
_STARTING = ("ContainerCreating", "PodInitializing")
_LONGEST_STUCK = 600
# With these the same call may well work later.
_PASSING = frozenset({Reason.THROTTLED, Reason.UNAVAILABLE, Reason.OUT_OF_CAPACITY, Reason.TIMED_OUT, Reason.QUOTA_EXCEEDED})


class JobEnd(StrEnum):
    NOT_YET = "NotYet"
    COMPLETE = "Complete"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class JobFailure:
    reason: Reason
    # The relevant sentence, and all of the program's last output.
    message: str
    text: str = ""

    @property
    def passes(self) -> bool:
        return self.reason in _PASSING


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """`began` and `since` are times; 0 when they are not known. `began` is 0 also for a Job that has not started.

    `stuck` is the reason why the pod of a Job that has not ended does not start.
    """

    ended: JobEnd
    began: float = 0.0
    since: float = 0.0
    failure: JobFailure | None = None
    stuck: str = ""


def outcome_of(job: Obj, pods: Iterable[Obj] = ()) -> JobOutcome:
    """`pods` are those of the Job, if it has any."""
    began = time_of(dig(job, "status", "startTime")) or 0.0
    conditions = [each for each in dig(job, "status", "conditions") or () if each.get("status") == "True"]
    done = find_by(conditions, "type", "Complete")
    if done is not None:
        return JobOutcome(JobEnd.COMPLETE, began, _since(done))
    failed = find_by(conditions, "type", "Failed")
    if failed is None:
        return JobOutcome(JobEnd.NOT_YET, began, stuck=stuck_of(pods))
    text = last_words(pods) or str(failed.get("message") or "").strip()
    return JobOutcome(JobEnd.FAILED, began, _since(failed), failure_of(text))


def _since(condition: Obj) -> float:
    return time_of(condition.get("lastTransitionTime")) or 0.0


def last_words(pods: Iterable[Obj]) -> str:
    """The last message of the newest pod's first failed container, else the pod's own reason (it was evicted, its image is
    missing). Never an older pod's message: that was another try, and perhaps failed for another reason."""
    newest = _newest(pods)
    for container in dig(newest, "status", "containerStatuses") or ():
        ended = dig(container, "state", "terminated") or {}
        if ended.get("exitCode"):
            return str(ended.get("message") or ended.get("reason") or "").strip()
    said = (dig(newest, "status", "reason"), dig(newest, "status", "message"))
    return ": ".join(str(each).strip() for each in said if each)


def stuck_of(pods: Iterable[Obj]) -> str:
    """The reason why the newest pod does not start; empty when it does, or still may."""
    newest = _newest(pods)
    for container in dig(newest, "status", "containerStatuses") or ():
        waits = dig(container, "state", "waiting") or {}
        if waits.get("reason") and waits["reason"] not in _STARTING:
            return _said(waits)
    placed = find_by(dig(newest, "status", "conditions") or (), "type", "PodScheduled") or {}
    return _said(placed) if placed.get("status") == "False" and placed.get("reason") else ""


def _said(found: Obj) -> str:
    return ": ".join(filter(None, (str(found["reason"]), str(found.get("message") or "").strip())))[:_LONGEST_STUCK]


def _newest(pods: Iterable[Obj]) -> Obj:
    return max(pods, key=lambda each: str(metadata(each).get("creationTimestamp") or ""), default={})


def failure_of(text: str) -> JobFailure:
    """The failure in a program's last output. After the runner's line about a further try only the rest counts."""
    text = _of_last_try(text.strip())[-LONGEST:]
    every = [line.strip() for line in text.splitlines() if line.strip()]
    # Without the lines that the runner writes above and below the program's.
    lines = [line for line in every if not line.startswith(_RUNNER)]
    for line in reversed(lines):
        found = _OWN.search(line)
        if found is not None:
            return JobFailure(Reason(found[1]), found[2].strip(), text)
    if not lines:
        ended = every[-1].removeprefix(_RUNNER) if every else ""
        return JobFailure(
            Reason.FAILED, f"it printed nothing, and {ended}" if ended.startswith(_ENDED) else "it printed nothing", text
        )
    for reason, words in _TOLD:
        if any(words.search(line) for line in lines):
            telling = next(line for line in reversed(lines) if words.search(line))
            return JobFailure(reason, telling, text)
    return JobFailure(Reason.FAILED, lines[-1], text)


def _of_last_try(text: str) -> str:
    begun = [match.start() for match in _BEGUN.finditer(text)]
    return text[begun[-1] :] if begun else text


# --- the attempts of a pool ---------------------------------------------------------------------------------------------
#
# One ConfigMap for each pool has the attempts to make and remove its machines, also when the machines are gone. The pool's
# cluster owns it, and it is deleted with the cluster. The newest attempts are last; the oldest are dropped.

KEY = "attempts"
MOST = 50
_REASONS = frozenset(each.value for each in Reason)
_LONGEST_MESSAGE, _LONGEST_TEXT = 1024, 2048
# How often in a row a pool's machines have to fail until the next one waits as long as can be.
_FIRST_PAUSE, _LONGEST_PAUSE = 10.0, 300.0


class JobAttempt(msgspec.Struct, omit_defaults=True, frozen=True):
    """One Job, ended. `action` is create or remove; `result` Complete, Failed or Abandoned."""

    job: str
    machine: str
    kind: str
    action: str
    result: str
    began: str = ""
    ended: str = ""
    reason: str = ""
    message: str = ""
    # The last output of its program.
    text: str = ""


def attempt(job: str, machine: str, kind: str, *, removing: bool, outcome: JobOutcome, abandoned: bool = False) -> JobAttempt:
    """`abandoned`: the machine was released although its removal failed."""
    failure = outcome.failure
    result = "Abandoned" if abandoned else "Complete" if outcome.ended is JobEnd.COMPLETE else "Failed"
    return JobAttempt(
        job=job,
        machine=machine,
        kind=kind,
        action="remove" if removing else "create",
        result=result,
        began=rfc3339(outcome.began) if outcome.began else "",
        ended=rfc3339(outcome.since) if outcome.since else "",
        reason=failure.reason.value if failure else "",
        message=failure.message[:_LONGEST_MESSAGE] if failure else "",
        text=failure.text[-_LONGEST_TEXT:] if failure and failure.text != failure.message else "",
    )


def attempts_of(config_map: Obj | None) -> list[JobAttempt]:
    """The attempts in a ConfigMap; none if it can't be decoded."""
    text = ((config_map or {}).get("data") or {}).get(KEY) or "[]"
    try:
        return msgspec.json.decode(text, type=list[JobAttempt])
    except msgspec.MsgspecError:
        return []


def with_attempt(before: Sequence[JobAttempt], new: JobAttempt) -> list[JobAttempt] | None:
    """The attempts with this one; None when it is there already."""
    if any(each.job == new.job and each.result == new.result for each in before):
        return None
    return [*before, new][-MOST:]


def config_map(name: str, namespace: str, owner: Obj, labels: Obj, attempts: Sequence[JobAttempt]) -> Obj:
    meta = {"name": name, "namespace": namespace, "labels": {**labels, ATTEMPTS: "true"}, "ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {KEY: text_of(attempts)}}


def text_of(attempts: Sequence[JobAttempt]) -> str:
    return msgspec.json.format(msgspec.json.encode(list(attempts)), indent=1).decode()


def pause(attempts: Sequence[JobAttempt]) -> float:
    """The time for which a machine that could not be made stays before another replaces it: zero the first time, then longer with
    each failure in a row. Otherwise a wrong password would be tried ten times a second."""
    failures = 0
    for each in reversed([each for each in attempts if each.action == "create"]):
        if each.result == "Complete":
            break
        failures += 1
    return 0.0 if failures <= 1 else min(_FIRST_PAUSE * 2.0 ** (failures - 2), _LONGEST_PAUSE)


def failures_in_a_row(attempts: Sequence[JobAttempt], removed: str = "") -> tuple[int, JobFailure | None]:
    """The failures of machines of the pool since the last success: their number, and the last one; or, with the name of a
    machine, how often its removal failed."""
    action = "remove" if removed else "create"
    found = (each for each in reversed(attempts) if each.action == action and (not removed or each.machine == removed))
    failed = list(takewhile(lambda each: each.result != "Complete", found))
    told = next((each for each in failed if each.message and each.reason in _REASONS), None)
    return len(failed), None if told is None else JobFailure(Reason(told.reason), told.message)
