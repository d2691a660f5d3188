"""The machine-plan Secret: a plan for a host, and the host's answers (docs/reference/plan-secret.md#data-keys,
docs/reference/plan-secret.md#reading-a-plan).

Server and agent write into one Secret, each its own keys. This module reads those keys and makes the server's writes, as pure
functions of the Secret: `decode`, `with_plan`, `with_retry`, `settled`. It supports two kinds of agents: those that follow
`plan-state`, and older ones, which leave it at `pending` for ever and are judged by checksums.

The agent's data comes from a host that may lie. Its size is limited before it is unpacked, and unreadable data is reported as
a problem, not raised: one host must not stop the plans of all others. A closed list limits what it may write at all:
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
# Only these are copied from a plan's machine to its Secret.
_COPIED = re.compile(r"^(rke\.cattle\.io|(machine\.)?cluster\.x-k8s\.io)/")


class PlanSecretError(ValueError):
    """A Secret of another type than a machine's plan, or limits that no plan may have."""


class PlanState(StrEnum):
    """The progress of a plan; `NONE` if it is not recorded, as in the older flow."""

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
    """The output of the last run; times are in Go's UnixDate format, "" for never."""

    name: str
    stdout: bytes = b""
    stderr: bytes = b""
    exit_code: int = 0
    last_success: str = ""
    failures: int = 0
    last_failure: str = ""


@dataclass(frozen=True, slots=True)
class DeliveredPlan:
    """A plan that was given to a machine, and its result.

    in_sync:   the machine has applied the plan.
    failed:    it failed as often as the threshold allows.
    healthy:   none of the plan's probes fails; `probes_usable` when they have all passed once since the plan came.
    asked:     true if the machine's agent has not answered yet since it was last asked (`with_question`).
    problems:  the parts of the machine's data that could not be read.
    """

    data: bytes
    applied_data: bytes = b""
    state: PlanState = PlanState.NONE
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
    """The data of a Secret; records what could not be read."""

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

    def state(self) -> PlanState:
        said = self.text("plan-state")
        try:
            return PlanState(said)
        except ValueError:
            self.problems.append("plan-state is none that there is")
            return PlanState.NONE

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
    """The Secret itself; raises PlanSecretError if it is of another type."""
    if secret.get("type") != PLAN_TYPE:
        raise PlanSecretError(f"a Secret with a machine's plan is of type {PLAN_TYPE}, not {secret.get('type')!r}")
    return secret


def told_state(secret: Obj) -> str:
    """The text of `plan-state`, even if it is no valid :class:`PlanState`."""
    return _Reader(secret).text("plan-state")


def decode(secret: Obj) -> DeliveredPlan | None:
    """The plan given to the machine and its result; None before the first. Raises PlanSecretError for other Secrets."""
    reader = _Reader(checked(secret))
    plan = reader.raw("plan")
    if not plan:
        return None
    applied, state = reader.raw("appliedPlan"), reader.state()
    count, threshold = reader.number("failure-count"), reader.number("failure-threshold")
    failed = state is PlanState.FAILED or (
        count > 0 and reader.text("failed-checksum") == checksum(plan) and not _bearable(reader, count, threshold)
    )
    probes = _probes(reader)
    return DeliveredPlan(
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
        failure_reason=reader.text("failure-reason") if failed or state is PlanState.IN_PROGRESS else "",
        max_failures=reader.number("max-failures", UNLIMITED),
        failure_threshold=threshold,
        last_apply=reader.text("last-apply-time"),
        agent=parse_report(reader.raw("agent")),
        problems=tuple(reader.problems),
    )


def _bearable(reader: _Reader, count: int, threshold: int) -> bool:
    """True if a threshold is set and the failures have not reached it."""
    return bool(reader.raw("failure-threshold")) and (threshold == UNLIMITED or count < threshold)


def _in_sync(reader: _Reader, state: PlanState, plan: bytes, applied: bytes) -> bool:
    if state is PlanState.SUCCEEDED:
        return True
    # An agent that does not know states leaves it pending; then the applied checksum decides, if that plan was applied last: the
    # server may have returned to an old plan while a newer one was half done.
    return state in (PlanState.NONE, PlanState.PENDING) and plan == applied and reader.text("applied-checksum") == checksum(plan)


def _probes(reader: _Reader) -> dict[str, ProbeStatus]:
    """The names are shown in conditions: more or longer ones than a plan could have are rejected."""
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
    """The output of a command; null if it printed nothing."""
    try:
        return base64.b64decode(found, validate=True) if isinstance(found, str) else b""
    except (binascii.Error, ValueError):
        return b""


def packed(value: Any) -> bytes:
    """JSON in the format of stored outputs. The same value gives the same bytes: they contain no time."""
    return gzip.compress(jsonio.dumps_sorted(value), mtime=0)


def unpacked(data: bytes) -> bytes:
    """Raises PlanSecretError if it is no gzip, or too large."""
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
    """The Secret with a new plan, which the agent has not read yet (docs/reference/plan-secret.md#writing-a-plan).

    `labels` and `annotations` are the machine's; those that belong to it are copied. An empty `joined_to` removes the
    annotation, None leaves it.
    """
    _check_limits(max_failures, failure_threshold)
    limits = {"max-failures": max_failures, "failure-threshold": failure_threshold}
    changes: dict[str, bytes | None] = {"plan": plan, "plan-state": PlanState.PENDING.encode(), "probe-statuses": None}
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
    """The Secret with a failed plan set to pending again.

    Agents that follow `plan-state` never retry by themselves, and no other controller asks them to
    (docs/reference/plan-secret.md#retries). The plan stays as it is, and so does the count of its revisions.
    """
    found = decode(secret)
    if found is None or found.state is not PlanState.FAILED:
        return secret
    return _with_data(secret, {"plan-state": PlanState.PENDING.encode(), **_not_applied_yet(secret, found.data)})


def with_question(secret: Obj) -> Obj:
    """The Secret with a question to its agent: a request for a sign of life and current probe results.

    Agents of all kinds write probe results if their bytes differ from the present ones, and read the Secret whenever it changes.
    So a living agent removes trailing white space within moments, and no other writer does; the earlier results stay valid
    meanwhile.
    """
    said = _Reader(checked(secret)).raw("probe-statuses")
    return secret if said.endswith(_QUESTION) else _with_data(secret, {"probe-statuses": (said or b"{}") + _QUESTION})


def _not_applied_yet(secret: Obj, plan: bytes) -> dict[str, bytes | None]:
    """An earlier checksum must not count for a plan that is yet to be applied: neither for an older plan that is used again,
    nor for a failed one, whose checksum the agent leaves as if it had been applied (docs/reference/agent.md#decision)."""
    return {"applied-checksum": None} if _Reader(secret).text("applied-checksum") == checksum(plan) else {}


def settled(secret: Obj, now: float) -> Obj:
    """The Secret after the server has processed the agent's writes; the same one if nothing changes.

    The applied plan is kept, since the next one is compared with it; the first time that all probes pass is recorded; outputs of
    periodic instructions that the plan no longer has are removed (docs/reference/plan-secret.md#answers-of-a-host).
    """
    found = decode(secret)
    if found is None or found.state is PlanState.IN_PROGRESS:
        # A working agent exits if another client changes the Secret that it is about to write
        # (docs/reference/agent.md#conflicts).
        return secret
    reader = _Reader(secret)
    changes: dict[str, bytes | None] = {}
    if reader.text("applied-checksum") == found.checksum and found.applied_data != found.data and not found.failed:
        # For a failed plan this would make a machine that never applied its plan look like one that did.
        changes["appliedPlan"] = found.data
    kept = _still_periodic(found, reader.members("applied-periodic-output", True))
    if kept is not None:
        changes["applied-periodic-output"] = packed(kept) if kept else b""
    after = _with_data(secret, changes)
    if reader.raw("probe-statuses") and found.healthy and not found.probes_usable:
        after = with_metadata(after, annotations={**annotations_of(secret), PROBES_PASSED: rfc3339(now)})
    return after


def _still_periodic(found: DeliveredPlan, outputs: Obj) -> Obj | None:
    """The outputs of instructions that the plan still has; None if those are all."""
    if not outputs:
        return None
    try:
        names = {instruction.name for instruction in found.plan().periodicInstructions}
    except PlanError:
        return None
    kept = {name: said for name, said in outputs.items() if name in names}
    return None if len(kept) == len(outputs) else kept


def has_failed_to_apply(secret: Obj) -> bool:
    """True if a user should look at the host: the plan failed, and is not only waiting for another try."""
    found = decode(secret)
    if found is None:
        return False
    if found.state is PlanState.FAILED:
        return True
    reader = _Reader(secret)
    if reader.text("failed-checksum") != found.checksum:
        return False
    return reader.text("max-failures") == str(UNLIMITED) or (
        bool(reader.raw("max-failures")) and reader.text("failure-count") == reader.text("max-failures")
    )


def is_locked(secret: Obj) -> bool:
    """True if no plan can be written into it any more."""
    return secret.get("immutable") is True


def is_in_use(secret: Obj) -> bool:
    """True if an agent has ever answered in it."""
    reader = _Reader(secret)
    return any(reader.raw(key) for key in ("plan-revision", "applied-checksum", "failed-checksum", "probe-statuses"))


def copied(marks: Mapping[str, str] | None) -> dict[str, str]:
    """The labels or annotations that are copied with a plan."""
    return {key: value for key, value in (marks or {}).items() if _COPIED.match(key)}


def _check_limits(max_failures: int, failure_threshold: int) -> None:
    if UNLIMITED in (max_failures, failure_threshold) or max_failures >= failure_threshold:
        return
    raise PlanSecretError(
        f"a plan may fail {max_failures} times, but counts as failed only after {failure_threshold}: it would never be told"
    )


def _with_data(secret: Obj, changes: Mapping[str, bytes | None]) -> Obj:
    """The Secret with these values set, or removed if None; unknown keys stay."""
    before: Obj = secret.get("data") or {}
    gone = {key for key, value in changes.items() if value is None}
    after = {key: value for key, value in before.items() if key not in gone}
    after.update({key: base64.b64encode(value).decode() for key, value in changes.items() if value is not None})
    return secret if after == before else {**secret, "data": after}
