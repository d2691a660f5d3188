"""The machine-plan Secret: a plan on its way to a host, and what that says of it (protocols.md §1.14, §2; capr.md §4.2, §5.1).

Server and agent write into one Secret, each its own keys. Here is how those keys are read and what the server writes, as pure
functions of the Secret: `decode`, `with_plan`, `with_retry`, `settled`. Agents of two kinds are understood: those that follow
`plan-state`, and older ones, which leave it at `pending` for ever and are judged by checksums.

What the agent writes comes from a host that may lie. It is bounded before it is unpacked, and what can't be read is a problem
that is told, not an error: one host must not stop the plans of all others. What it may write at all is a closed list:
:mod:`.host_write_rules`.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from remuda.kube.clock import rfc3339
from remuda.kube.encoding import jsonio
from remuda.kube.objects import annotations_of, labels_of, with_metadata

from ..well_known import JOINED_TO, PLAN_TYPE, PLAN_UPDATED, PROBES_PASSED
from .agent_report import AgentReport
from .agent_report import parse as parse_report
from .plan import Plan, PlanError, checksum
from .plan import decode as decode_plan

Obj = dict[str, Any]

UNLIMITED = -1
# A Secret holds a mebibyte; packed zeros of that size would unpack to a thousand.
_LONGEST_OUTPUT = 16 << 20
_UNREADABLE = "probe-statuses can not be read"
_MOST_PROBES, _LONGEST_PROBE_NAME = 256, 253
_QUESTION = b"\n"
# Only these travel from a plan's machine to its Secret.
_COPIED = re.compile(r"^(rke\.cattle\.io|(machine\.)?cluster\.x-k8s\.io)/")


class PlanSecretError(ValueError):
    """A Secret that is none of a machine's plan, or limits that no plan may have."""


class State(StrEnum):
    """How far a plan is; `NONE` where nobody says so, as in the older flow."""

    NONE = ""
    PENDING = "pending"
    IN_PROGRESS = "in-progress"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class ProbeStatus:
    healthy: bool = False
    successes: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class PeriodicOutput:
    """Of the last run; times are as Go's UnixDate writes them, "" for never."""

    name: str
    stdout: bytes = b""
    stderr: bytes = b""
    exit_code: int = 0
    last_success: str = ""
    failures: int = 0
    last_failure: str = ""


@dataclass(frozen=True, slots=True)
class Delivered:
    """A plan that was given to a machine, and what became of it.

    in_sync:   the machine has done what the plan says.
    failed:    it tried often enough and could not.
    healthy:   none of the plan's probes says otherwise; `probes_usable` when they have all passed once since the plan came.
    asked:     whether the machine's agent has not answered yet since it was last asked (`with_question`).
    problems:  what of the machine's own words could not be read.
    """

    data: bytes
    applied_data: bytes = b""
    state: State = State.NONE
    revision: int = 0
    failed: bool = False
    in_sync: bool = False
    healthy: bool = True
    probes_usable: bool = False
    asked: bool = False
    probes: Mapping[str, ProbeStatus] = field(default_factory=dict)
    output: Mapping[str, bytes] = field(default_factory=dict)
    failed_output: Mapping[str, bytes] = field(default_factory=dict)
    periodic_output: Mapping[str, PeriodicOutput] = field(default_factory=dict)
    failure_count: int = 0
    failure_reason: str = ""
    max_failures: int = UNLIMITED
    failure_threshold: int = 0
    last_apply: str = ""
    agent: AgentReport | None = None
    problems: tuple[str, ...] = ()

    @property
    def checksum(self) -> str:
        return checksum(self.data)

    def plan(self) -> Plan:
        """Raises PlanError."""
        return decode_plan(self.data)

    def applied_plan(self) -> Plan | None:
        """The last plan that was applied; None before the first. Raises PlanError."""
        return decode_plan(self.applied_data) if self.applied_data else None

    @property
    def unhealthy(self) -> list[str]:
        """The names of probes that do not pass, in order."""
        return sorted(name for name, status in self.probes.items() if not status.healthy)


# --- reading ------------------------------------------------------------------------------------------------------------


class _Reader:
    """The data of a Secret; remembers what could not be read."""

    def __init__(self, secret: Obj) -> None:
        found = secret.get("data")
        self._data: Obj = found if isinstance(found, dict) else {}
        self.problems: list[str] = []

    def raw(self, key: str) -> bytes:
        found = self._data.get(key)
        if not isinstance(found, str):
            return b""
        try:
            return base64.b64decode(found, validate=True)
        except (binascii.Error, ValueError):
            self.problems.append(f"{key} is no base64")
            return b""

    def text(self, key: str) -> str:
        return self.raw(key).decode(errors="replace")

    def number(self, key: str, default: int = 0) -> int:
        said = self.text(key)
        if not said:
            return default
        if not re.fullmatch(r"-?[0-9]{1,9}", said):
            self.problems.append(f"{key} is no number")
            return default
        return int(said)

    def state(self) -> State:
        said = self.text("plan-state")
        try:
            return State(said)
        except ValueError:
            self.problems.append("plan-state is none that there is")
            return State.NONE

    def members(self, key: str, packed: bool) -> Obj:
        """The JSON object under a key."""
        data = self.raw(key)
        if not data:
            return {}
        try:
            found = jsonio.loads(unpacked(data) if packed else data)
        except (PlanSecretError, jsonio.JsonError):
            found = None
        if not isinstance(found, dict):
            self.problems.append(f"{key} can not be read")
            return {}
        return found


def checked(secret: Obj) -> Obj:
    """The Secret itself; raises PlanSecretError when it is none of a machine's plan."""
    if secret.get("type") != PLAN_TYPE:
        raise PlanSecretError(f"a Secret with a machine's plan is of type {PLAN_TYPE}, not {secret.get('type')!r}")
    return secret


def told_state(secret: Obj) -> str:
    """The text of `plan-state`, also one that is no :class:`State`."""
    return _Reader(secret).text("plan-state")


def decode(secret: Obj) -> Delivered | None:
    """What was given to the machine; None when nothing was yet. Raises PlanSecretError for a Secret of another type."""
    reader = _Reader(checked(secret))
    plan = reader.raw("plan")
    if not plan:
        return None
    applied, state = reader.raw("appliedPlan"), reader.state()
    count, threshold = reader.number("failure-count"), reader.number("failure-threshold")
    failed = state is State.FAILED or (
        count > 0 and reader.text("failed-checksum") == checksum(plan) and not _bearable(reader, count, threshold)
    )
    probes = _probes(reader)
    return Delivered(
        data=plan,
        applied_data=applied,
        state=state,
        revision=reader.number("plan-revision"),
        failed=failed,
        in_sync=_in_sync(reader, state, plan, applied),
        healthy=_UNREADABLE not in reader.problems and all(status.healthy for status in probes.values()),
        probes_usable=bool(annotations_of(secret).get(PROBES_PASSED)),
        asked=reader.raw("probe-statuses").endswith(_QUESTION),
        probes=probes,
        output=_outputs(reader, "applied-output"),
        failed_output=_outputs(reader, "failed-output"),
        periodic_output=_periodic_outputs(reader),
        failure_count=count,
        failure_reason=reader.text("failure-reason") if failed or state is State.IN_PROGRESS else "",
        max_failures=reader.number("max-failures", UNLIMITED),
        failure_threshold=threshold,
        last_apply=reader.text("last-apply-time"),
        agent=parse_report(reader.raw("agent")),
        problems=tuple(reader.problems),
    )


def _bearable(reader: _Reader, count: int, threshold: int) -> bool:
    """So few failures are none yet, where somebody said how many count."""
    return bool(reader.raw("failure-threshold")) and (threshold == UNLIMITED or count < threshold)


def _in_sync(reader: _Reader, state: State, plan: bytes, applied: bytes) -> bool:
    if state is State.SUCCEEDED:
        return True
    # An agent that knows no states leaves it pending; then what was applied tells, if that was applied last: somebody may have
    # gone back to an old plan while a newer one was half done.
    return state in (State.NONE, State.PENDING) and plan == applied and reader.text("applied-checksum") == checksum(plan)


def _probes(reader: _Reader) -> dict[str, ProbeStatus]:
    """Their names are told in conditions: more or longer ones than a plan could have are not believed."""
    found = reader.members("probe-statuses", False)
    if len(found) > _MOST_PROBES or any(len(name) > _LONGEST_PROBE_NAME or not name.isprintable() for name in found):
        reader.problems.append(_UNREADABLE)
        return {}
    return {name: _probe(said) for name, said in found.items()}


def _probe(found: Any) -> ProbeStatus:
    said = found if isinstance(found, dict) else {}
    return ProbeStatus(said.get("healthy") is True, _whole(said.get("successCount")), _whole(said.get("failureCount")))


def _whole(found: Any) -> int:
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def _outputs(reader: _Reader, key: str) -> dict[str, bytes]:
    return {name: _bytes(found) for name, found in reader.members(key, True).items()}


def _periodic_outputs(reader: _Reader) -> dict[str, PeriodicOutput]:
    found = reader.members("applied-periodic-output", True)
    return {name: _periodic(name, said) for name, said in found.items() if isinstance(said, dict)}


def _periodic(name: str, said: Obj) -> PeriodicOutput:
    return PeriodicOutput(
        name=name,
        stdout=_bytes(said.get("stdout")),
        stderr=_bytes(said.get("stderr")),
        exit_code=_whole(said.get("exitCode")),
        last_success=_text(said.get("lastSuccessfulRunTime")),
        failures=_whole(said.get("failures")),
        last_failure=_text(said.get("lastFailedRunTime")),
    )


def _text(found: Any) -> str:
    return found if isinstance(found, str) else ""


def _bytes(found: Any) -> bytes:
    """What a command printed; null when it printed nothing."""
    try:
        return base64.b64decode(found, validate=True) if isinstance(found, str) else b""
    except (binascii.Error, ValueError):
        return b""


def packed(value: Any) -> bytes:
    """JSON as outputs are stored. The same bytes for the same value: no time is in them."""
    return gzip.compress(jsonio.dumps_sorted(value), mtime=0)


def unpacked(data: bytes) -> bytes:
    """Raises PlanSecretError when it is no gzip, or too much."""
    reader = zlib.decompressobj(wbits=31)
    try:
        found = reader.decompress(data, _LONGEST_OUTPUT)
    except zlib.error as error:
        raise PlanSecretError(f"the output is no gzip: {error}") from None
    if reader.unconsumed_tail:
        raise PlanSecretError(f"the output is longer than {_LONGEST_OUTPUT} bytes")
    if not reader.eof:
        raise PlanSecretError("the output ends too early")
    return found


# --- writing ------------------------------------------------------------------------------------------------------------


def with_plan(
    secret: Obj,
    plan: bytes,
    *,
    now: float,
    max_failures: int = UNLIMITED,
    failure_threshold: int = 1,
    joined_to: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Obj:
    """The Secret with a new plan, which the agent has still to look at (protocols.md §2.2).

    `labels` and `annotations` are the machine's; those that belong to it go with the plan. An empty `joined_to` takes the
    mark away, None leaves it.
    """
    _check_limits(max_failures, failure_threshold)
    limits = {"max-failures": max_failures, "failure-threshold": failure_threshold}
    changes: dict[str, bytes | None] = {"plan": plan, "plan-state": State.PENDING.encode(), "probe-statuses": None}
    for key, limit in limits.items():
        changes[key] = str(limit).encode() if limit > 0 or limit == UNLIMITED else None
    changes |= _not_applied_yet(secret, plan)
    marks = {**annotations_of(secret), **copied(annotations), PLAN_UPDATED: rfc3339(now), PROBES_PASSED: ""}
    if joined_to is not None:
        marks[JOINED_TO] = joined_to
        if not joined_to:
            del marks[JOINED_TO]
    known = {**labels_of(secret), **copied(labels)}
    return with_metadata(_with_data(checked(secret), changes), annotations=marks, labels=known or None)


def with_retry(secret: Obj) -> Obj:
    """The Secret with a plan that failed, to be tried once more.

    Agents that follow `plan-state` never try again by themselves; nobody else would ask them to (capr.md §8.1). The plan stays
    as it is, and so does the count of its revisions.
    """
    found = decode(secret)
    if found is None or found.state is not State.FAILED:
        return secret
    return _with_data(secret, {"plan-state": State.PENDING.encode(), **_not_applied_yet(secret, found.data)})


def with_question(secret: Obj) -> Obj:
    """The Secret with a question to its agent: are you there, and what do your probes say now?

    Agents of all kinds write what their probes say when the bytes are others than those that are there, and look as soon as the
    Secret changes. So white space behind them is asked away within moments by an agent that lives, and by nobody else; what the
    probes said before stands meanwhile.
    """
    said = _Reader(checked(secret)).raw("probe-statuses")
    return secret if said.endswith(_QUESTION) else _with_data(secret, {"probe-statuses": (said or b"{}") + _QUESTION})


def _not_applied_yet(secret: Obj, plan: bytes) -> dict[str, bytes | None]:
    """A checksum from before must not speak for a plan that is to be applied from now on: not for one that was gone back to,
    and not for one that failed, whose checksum the agent leaves behind as if it had been applied (protocols.md §13.1)."""
    return {"applied-checksum": None} if _Reader(secret).text("applied-checksum") == checksum(plan) else {}


def settled(secret: Obj, now: float) -> Obj:
    """The Secret after the server has taken notice of what the agent wrote; the same one when there is nothing to note.

    The applied plan is kept, for what comes next is compared with it; the first time that all probes pass is noted; outputs of
    periodic instructions that the plan no longer has go (protocols.md §2.4).
    """
    found = decode(secret)
    if found is None or found.state is State.IN_PROGRESS:
        # An agent that is at work ends when somebody else writes what it is about to (protocols.md §1.16).
        return secret
    reader = _Reader(secret)
    changes: dict[str, bytes | None] = {}
    if reader.text("applied-checksum") == found.checksum and found.applied_data != found.data and not found.failed:
        # To believe it of a plan that failed would make a machine that never ran its plan look like one that did.
        changes["appliedPlan"] = found.data
    kept = _still_periodic(found, reader.members("applied-periodic-output", True))
    if kept is not None:
        changes["applied-periodic-output"] = packed(kept) if kept else b""
    after = _with_data(secret, changes)
    if reader.raw("probe-statuses") and found.healthy and not found.probes_usable:
        after = with_metadata(after, annotations={**annotations_of(secret), PROBES_PASSED: rfc3339(now)})
    return after


def _still_periodic(found: Delivered, outputs: Obj) -> Obj | None:
    """The outputs of instructions that the plan still has; None when those are all."""
    if not outputs:
        return None
    try:
        names = {instruction.name for instruction in found.plan().periodicInstructions}
    except PlanError:
        return None
    kept = {name: said for name, said in outputs.items() if name in names}
    return None if len(kept) == len(outputs) else kept


def has_failed_to_apply(secret: Obj) -> bool:
    """Whether a person should look at the host: the plan failed, and is not only on its way to another try."""
    found = decode(secret)
    if found is None:
        return False
    if found.state is State.FAILED:
        return True
    reader = _Reader(secret)
    if reader.text("failed-checksum") != found.checksum:
        return False
    return reader.text("max-failures") == str(UNLIMITED) or (
        bool(reader.raw("max-failures")) and reader.text("failure-count") == reader.text("max-failures")
    )


def is_locked(secret: Obj) -> bool:
    """Whether no plan can be written into it any more."""
    return secret.get("immutable") is True


def is_in_use(secret: Obj) -> bool:
    """Whether an agent has ever answered in it."""
    reader = _Reader(secret)
    return any(reader.raw(key) for key in ("plan-revision", "applied-checksum", "failed-checksum", "probe-statuses"))


def waiting_message(delivered: Delivered | None, *, etcd: bool, control_plane: bool) -> str:
    """What a machine is waiting for, in the words that others read (protocols.md §2.5); "" when for nothing.

    A first plan that failed is told as such: the original hides it behind the wait for the agent's check-in.
    """
    if delivered is None:
        if etcd:
            return "waiting for bootstrap etcd to be available"
        return "waiting for etcd to be available" if control_plane else "waiting for control plane to be available"
    if delivered.failed:
        return "failure while applying plan"
    if not delivered.applied_data:
        return "waiting for agent to check in and apply initial plan"
    if not delivered.in_sync:
        return "waiting for plan to be applied"
    return f"waiting for probes: {', '.join(delivered.unhealthy)}" if delivered.unhealthy else ""


def copied(marks: Mapping[str, str] | None) -> dict[str, str]:
    """Those labels or annotations that go with a plan."""
    return {key: value for key, value in (marks or {}).items() if _COPIED.match(key)}


def _check_limits(max_failures: int, failure_threshold: int) -> None:
    if UNLIMITED in (max_failures, failure_threshold) or max_failures >= failure_threshold:
        return
    raise PlanSecretError(
        f"a plan may fail {max_failures} times, but counts as failed only after {failure_threshold}: it would never be told"
    )


def _with_data(secret: Obj, changes: Mapping[str, bytes | None]) -> Obj:
    """The Secret with these values, or without where there is none; keys that nobody here knows stay."""
    before: Obj = secret.get("data") or {}
    gone = {key for key, value in changes.items() if value is None}
    after = {key: value for key, value in before.items() if key not in gone}
    after.update({key: base64.b64encode(value).decode() for key, value in changes.items() if value is not None})
    return secret if after == before else {**secret, "data": after}
