"""Retries of failed plans, with growing pauses, recorded in an annotation; and the party that can mend the failure.

An agent that knows `plan-state` gives up at the first failure and waits for a new `pending`; the original never writes one. Here
the plan secret's annotation `remuda.dev/plan-failure` has the number of tries and the time of the next. A try is recognised by
`plan-revision`, which the agent increments with each; the host's own clock plays no part. Agents of the older kind retry
by themselves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from remuda.kube.clock import rfc3339, time_of
from remuda.kube.encoding import jsonio
from remuda.kube.waits import Actor, Code

from .. import well_known
from ..releases.catalog import NO_IMAGE
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
    """`note` is to be written if it is new; `retry` if it is due. `code` and `actor`: what failed, and who can mend it."""

    message: str
    code: Code = Code.PLAN_FAILED
    actor: Actor = Actor.MACHINE
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


@dataclass(frozen=True, slots=True)
class Cause:
    """The cause of a failure. `text` says it in our words; empty where the output says it all."""

    code: Code
    actor: Actor
    text: str = ""


def cause_of(failure: str, tries: int, version: str = "", known: Sequence[str] = ()) -> Cause:
    """The cause in the words of a failure. `known` are other versions if `version` is not a known one."""
    image = _IMAGE.search(failure)
    if image is not None and _NOT_THERE.search(failure):
        if version and known and (image[1] or image[2]).endswith(f":{version.replace('+', '-')}"):
            return Cause(Code.RELEASE, Actor.USER, f"{NO_IMAGE} {version} (known: {', '.join(known)})")
        return Cause(Code.REFERENCE, Actor.USER, waits.IMAGE_MISSING)
    if image is not None:
        return Cause(Code.REFERENCE, Actor.USER, waits.IMAGE_REFUSED)
    if _HOST.search(failure):
        return Cause(Code.PLAN_FAILED, Actor.USER)
    # What fails again is rarely mended by another try.
    return Cause(Code.PLAN_FAILED, Actor.USER if tries > 1 else Actor.MACHINE)


# Words of agents, installers and registries. They only choose between parties that may mend it: a host can't hurt others by them.
_IMAGE = re.compile(r"can't pull ([^\s:]\S*): |failed to pull image (\S+)")
_NOT_THERE = re.compile(r"HTTP 404|MANIFEST_UNKNOWN|NAME_UNKNOWN|manifest unknown|not made for linux/", re.IGNORECASE)
_HOST = re.compile(
    r"no space left|disk quota|read-only file system|must run as root|no systemctl|no python|not enough memory|out of memory",
    re.IGNORECASE,
)


def judge(machine: Machine, node: PlanNode, now: float, version: str = "", known: Sequence[str] = ()) -> Verdict:
    """The verdict on a machine whose plan failed. `known` are other versions if `version` is not a known one."""
    verdict = _judged(machine, node, now)
    note = verdict.note or noted(machine)
    cause = cause_of(node.failure, max(node.failure_count, note.attempts if note else 0), version, known)
    message = f"{verdict.message}: {cause.text}" if cause.text else verdict.message
    said = _telling(node.failure)
    return replace(verdict, message=f"{message}: {said}" if said else message, code=cause.code, actor=cause.actor)


def _judged(machine: Machine, node: PlanNode, now: float) -> Verdict:
    if node.state != "failed":
        return Verdict(_said(f"{node.failure_count} times" if node.failure_count > 1 else "once", "tried again by its agent"))
    # Whole seconds, as it is read back.
    now = float(int(now))
    old = noted(machine)
    if old is None or old.revision != node.revision:
        attempts = (old.attempts if old else 0) + 1
        note = FailureNote(attempts, node.revision, now + pause(attempts))
        return Verdict(_words(note), note=note, revisit_at=note.retry_at)
    # A host must not wait forever if its clock, or ours, was set back.
    due = min(old.retry_at, now + LONGEST_PAUSE)
    if now < due:
        return Verdict(_words(old), revisit_at=due)
    # If the revision stays the same after this try, the next one comes no sooner.
    note = FailureNote(old.attempts, old.revision, now + pause(old.attempts + 1))
    return Verdict(_words(note), note=note, retry=True, revisit_at=note.retry_at)


def _words(note: FailureNote) -> str:
    return _said("once" if note.attempts == 1 else f"{note.attempts} times", f"next try at {rfc3339(note.retry_at)}")


def _said(tried: str, then: str) -> str:
    return f"{waits.PLAN_FAILED} ({tried}, {then})"


def _telling(failure: str) -> str:
    """One line of a failure: our agent's first is a summary; of others' outputs the last one usually has the reason."""
    lines = failure.strip().splitlines()
    if not lines:
        return ""
    return (lines[0] if lines[0].startswith("instruction ") else lines[-1])[:300]
