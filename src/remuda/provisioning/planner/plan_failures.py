"""Retries of failed plans, with growing pauses, recorded in an annotation.

An agent that knows `plan-state` gives up at the first failure and waits for a new `pending`; the original never writes one. Here
the plan secret's annotation `remuda.dev/plan-failure` has the number of tries and the time of the next. A try is recognised by
`plan-revision`, which the agent increments with each; the host's own clock plays no part. Agents of the older kind retry
by themselves.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from remuda.kube.clock import rfc3339, time_of
from remuda.kube.encoding import jsonio

from .. import well_known
from . import waits
from .snapshot import Machine, PlanNode

FIRST_PAUSE = 10.0
LONGEST_PAUSE = 600.0


@dataclass(frozen=True, slots=True)
class FailureNote:
    attempts: int
    revision: int
    retry_at: float

    def text(self) -> str:
        return json.dumps({"attempts": self.attempts, "retryAt": rfc3339(self.retry_at), "revision": self.revision})


@dataclass(frozen=True, slots=True)
class Verdict:
    """`note` is to be written if it is new; `retry` if it is due."""

    message: str
    note: FailureNote | None = None
    retry: bool = False
    revisit_at: float | None = None


def pause(attempts: int) -> float:
    return min(FIRST_PAUSE * 2.0 ** min(attempts - 1, 16), LONGEST_PAUSE)


def noted(machine: Machine) -> FailureNote | None:
    """The last note; None also if it is malformed."""
    text = machine.plan_annotations.get(well_known.PLAN_FAILURE)
    if not text:
        return None
    try:
        found = jsonio.loads(text)
        attempts, revision, retry_at = int(found["attempts"]), int(found["revision"]), time_of(found["retryAt"])
    except (ValueError, TypeError, KeyError, OverflowError):
        return None
    return None if retry_at is None or attempts < 1 else FailureNote(attempts, revision, retry_at)


def judge(machine: Machine, node: PlanNode, now: float) -> Verdict:
    """The verdict on a machine whose plan failed."""
    if node.state != "failed":
        return Verdict(
            _said(f"{node.failure_count} times" if node.failure_count > 1 else "once", "tried again by its agent", node)
        )
    # Whole seconds, as it is read back.
    now = float(int(now))
    old = noted(machine)
    if old is None or old.revision != node.revision:
        attempts = (old.attempts if old else 0) + 1
        note = FailureNote(attempts, node.revision, now + pause(attempts))
        return Verdict(_words(note, node), note, False, note.retry_at)
    # A host must not wait forever if its clock, or ours, was set back.
    due = min(old.retry_at, now + LONGEST_PAUSE)
    if now < due:
        return Verdict(_words(old, node), None, False, due)
    # If the revision stays the same after this try, the next one comes no sooner.
    note = FailureNote(old.attempts, old.revision, now + pause(old.attempts + 1))
    return Verdict(_words(note, node), note, True, note.retry_at)


def _words(note: FailureNote, node: PlanNode) -> str:
    tried = "once" if note.attempts == 1 else f"{note.attempts} times"
    return _said(tried, f"next try at {rfc3339(note.retry_at)}", node)


def _said(tried: str, then: str, node: PlanNode) -> str:
    last = node.failure.strip().splitlines()[-1:] if node.failure else []
    return f"{waits.PLAN_FAILED} ({tried}, {then})" + (f": {last[0][:300]}" if last else "")
