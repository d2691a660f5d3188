"""Retries of failed plans, with growing pauses, recorded in an annotation; and the party that can mend the failure.

An agent that knows `plan-state` gives up at the first failure and waits for a new `pending`; the original never writes one. Here
the plan secret's annotation `remuda.dev/plan-failure` has the number of tries and the time of the next. A try is recognised by
`plan-revision`, which the agent increments with each; the host's own clock plays no part. Agents of the older kind retry
by themselves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from remuda.kube import selectors
from remuda.kube.clock import rfc3339, time_of
from remuda.kube.encoding import jsonio
from remuda.kube.waits import Actor, Code

from .. import well_known
from ..releases.catalog import NO_IMAGE
from . import waits
from .snapshot import ControlPlane, Machine, PlanNode

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
class FailureVerdict:
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
class FailureCause:
    """The cause of a failure. `text` says it in our words; empty where the output says it all."""

    code: Code
    actor: Actor
    text: str = ""


def cause_of(failure: str, tries: int, version: str = "", known: Sequence[str] = (), field: str = "") -> FailureCause:
    """The cause in the words of a failure. `known` are other versions if `version` is not a known one; `field` of the spec has
    the value that the host refuses."""
    image = _IMAGE.search(failure)
    if image is not None and _NOT_THERE.search(failure):
        if version and known and (image[1] or image[2]).endswith(f":{version.replace('+', '-')}"):
            return FailureCause(Code.RELEASE, Actor.USER, f"{NO_IMAGE} {version} (known: {', '.join(known)})")
        return FailureCause(Code.REFERENCE, Actor.USER, waits.IMAGE_MISSING)
    if image is not None:
        return FailureCause(Code.REFERENCE, Actor.USER, waits.IMAGE_REFUSED)
    if field:
        return FailureCause(Code.PLAN_FAILED, Actor.USER, f"{waits.VALUE_REFUSED} {field}")
    if _HOST.search(failure):
        return FailureCause(Code.PLAN_FAILED, Actor.USER)
    # What fails again is rarely mended by another try.
    return FailureCause(Code.PLAN_FAILED, Actor.USER if tries > 1 else Actor.MACHINE)


# Words of agents, installers and registries. They only choose between parties that may mend it: a host can't hurt others by them.
_IMAGE = re.compile(r"can't pull ([^\s:]\S*): |failed to pull image (\S+)")
_NOT_THERE = re.compile(r"HTTP 404|MANIFEST_UNKNOWN|NAME_UNKNOWN|manifest unknown|not made for linux/", re.IGNORECASE)
_ANSWERED = re.compile(r"HTTP 4\d\d|_UNKNOWN|unknown|denied|unauthorized|not made for linux/", re.IGNORECASE)
_HOST = re.compile(
    r"no space left|disk quota|read-only file system|must run as root|no systemctl|no python|not enough memory|out of memory",
    re.IGNORECASE,
)


def is_out_of_reach(failure: str) -> bool:
    """True if an image was not fetched because its registry did not answer: it may be a server that is just starting."""
    return _IMAGE.search(failure) is not None and _ANSWERED.search(failure) is None


# --- arguments that a program refuses -------------------------------------------------------------------------------------

# Lines in which a program refuses one of its arguments, and the arguments that such a line names: as flags, as the subject of
# the sentence, or as words that only arguments are.
_REFUSAL = re.compile(
    r"not defined|unknown (?:flag|option|argument|shorthand)|unrecognized|invalid|illegal|unsupported|not a valid|parse error"
    r"|parsing|must be|is like|is a number, not|is true or false, not|is an address, not|there is no option|needs a value",
    re.IGNORECASE,
)
_NAMED = re.compile(
    r"(?<![\w-])-{1,2}([a-z][a-z0-9-]*)|(?:^|: )([a-z][a-z0-9]*) (?:is|must|needs)\b|(?<![\w./=-])([a-z][a-z0-9]*(?:-[a-z0-9]+)+)"
)


def field_of(failure: str, machine: Machine, spec: Mapping[str, Any]) -> str:
    """The field of the cluster whose value a program on the host refuses, by its words; empty if none is named."""
    configs = list(_configs(machine, spec))
    refusals = (line for line in failure.splitlines() if _REFUSAL.search(line))
    named = (next(filter(None, found)) for line in refusals for found in _NAMED.findall(line))
    return next((field for name in named for path, config in configs for field in _fields(path, config, name)), "")


def _configs(machine: Machine, spec: Mapping[str, Any]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """The arguments of a machine in the spec of its cluster, with their paths; those that count come first."""
    selected = spec.get("machineSelectorConfig")
    for at, entry in reversed(list(enumerate(selected if isinstance(selected, list) else ()))):
        if _selects(entry, machine) and isinstance(entry.get("config"), dict):
            yield f"spec.rkeConfig.machineSelectorConfig[{at}].config", entry["config"]
    own = spec.get("machineGlobalConfig")
    if isinstance(own, dict):
        yield "spec.rkeConfig.machineGlobalConfig", own


def _selects(entry: Any, machine: Machine) -> bool:
    if not isinstance(entry, dict):
        return False
    try:
        return selectors.from_structure(entry.get("machineLabelSelector") or {}).matches(machine.labels)
    except selectors.SelectorError:
        return False


def _fields(path: str, config: Mapping[str, Any], name: str) -> Iterable[str]:
    """The field of that name; else the items of that name among arguments that are passed on to components."""
    if name in config:
        yield f"{path}.{name}"
    for key, items in config.items():
        if key.endswith("-arg"):
            listed = items if isinstance(items, list) else []
            yield from (f"{path}.{key}[{at}]" for at, each in enumerate(listed) if _argument(each) == name)


def _argument(item: Any) -> str:
    return str(item).partition("=")[0].lstrip("-")


# --- the verdict ----------------------------------------------------------------------------------------------------------


def judge(
    machine: Machine, node: PlanNode, now: float, plane: ControlPlane | None = None, known: Sequence[str] = ()
) -> FailureVerdict:
    """The verdict on a machine whose plan failed. `known` are other versions if the one of `plane` is not a known one."""
    verdict = _judged(machine, node, now)
    note = verdict.note or noted(machine)
    field = field_of(node.failure, machine, plane.spec) if plane else ""
    tries = max(node.failure_count, note.attempts if note else 0)
    cause = cause_of(node.failure, tries, plane.version if plane else "", known, field)
    message = f"{verdict.message}: {cause.text}" if cause.text else verdict.message
    said = _telling(node.failure)
    return replace(verdict, message=f"{message}: {said}" if said else message, code=cause.code, actor=cause.actor)


def _judged(machine: Machine, node: PlanNode, now: float) -> FailureVerdict:
    if node.state != "failed":
        return FailureVerdict(
            _said(f"{node.failure_count} times" if node.failure_count > 1 else "once", "tried again by its agent")
        )
    # Whole seconds, as it is read back.
    now = float(int(now))
    old = noted(machine)
    if old is None or old.revision != node.revision:
        attempts = (old.attempts if old else 0) + 1
        note = FailureNote(attempts, node.revision, now + pause(attempts))
        return FailureVerdict(_words(note), note=note, revisit_at=note.retry_at)
    # A host must not wait forever if its clock, or ours, was set back.
    due = min(old.retry_at, now + LONGEST_PAUSE)
    if now < due:
        return FailureVerdict(_words(old), revisit_at=due)
    # If the revision stays the same after this try, the next one comes no sooner.
    note = FailureNote(old.attempts, old.revision, now + pause(old.attempts + 1))
    return FailureVerdict(_words(note), note=note, retry=True, revisit_at=note.retry_at)


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
