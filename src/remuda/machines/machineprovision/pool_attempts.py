"""The attempts to make and remove the machines of a pool, kept when the machines are gone: one ConfigMap for each pool. Pure.

The pool's cluster owns it, and it is deleted with the cluster. The newest attempts are last; the oldest are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from remuda.kube.clock import rfc3339

from .job_outcome import Ended, Outcome
from .well_known import ATTEMPTS

Obj = dict[str, Any]

KEY = "attempts"
MOST = 50
_LONGEST_MESSAGE, _LONGEST_TEXT = 1024, 2048
# How often in a row a pool's machines have to fail until the next one waits as long as can be.
_FIRST_PAUSE, _LONGEST_PAUSE = 10.0, 300.0


class Attempt(msgspec.Struct, omit_defaults=True, frozen=True):
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


def attempt(job: str, machine: str, kind: str, *, removing: bool, outcome: Outcome, abandoned: bool = False) -> Attempt:
    """`abandoned`: the machine was released although its removal failed."""
    failure = outcome.failure
    result = "Abandoned" if abandoned else "Complete" if outcome.ended is Ended.COMPLETE else "Failed"
    return Attempt(
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


def attempts_of(config_map: Obj | None) -> list[Attempt]:
    """The attempts in a ConfigMap; none if it can't be decoded."""
    text = ((config_map or {}).get("data") or {}).get(KEY) or "[]"
    try:
        return msgspec.json.decode(text, type=list[Attempt])
    except msgspec.MsgspecError:
        return []


def with_attempt(before: Sequence[Attempt], new: Attempt) -> list[Attempt] | None:
    """The attempts with this one; None when it is there already."""
    if any(each.job == new.job and each.result == new.result for each in before):
        return None
    return [*before, new][-MOST:]


def config_map(name: str, namespace: str, owner: Obj, labels: Obj, attempts: Sequence[Attempt]) -> Obj:
    meta = {"name": name, "namespace": namespace, "labels": {**labels, ATTEMPTS: "true"}, "ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {KEY: text_of(attempts)}}


def text_of(attempts: Sequence[Attempt]) -> str:
    return msgspec.json.format(msgspec.json.encode(list(attempts)), indent=1).decode()


def pause(attempts: Sequence[Attempt]) -> float:
    """The time for which a machine that could not be made stays before another replaces it: zero the first time, then longer with
    each failure in a row. Otherwise a wrong password would be tried ten times a second."""
    failures = 0
    for each in reversed([each for each in attempts if each.action == "create"]):
        if each.result == "Complete":
            break
        failures += 1
    return 0.0 if failures <= 1 else min(_FIRST_PAUSE * 2.0 ** (failures - 2), _LONGEST_PAUSE)
