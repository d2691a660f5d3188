"""The decision about a plan's one-time part, and the Secret's content afterwards (docs/reference/agent.md#attempt-number,
docs/reference/plan-secret.md#data-keys, docs/reference/agent.md#decision). Pure.

Two flows. With ``plan-state`` the server says when: ``pending`` and ``in-progress`` run, everything else does not. Without
it (older servers) checksums and counts say: a plan runs until it was applied, again after each start of the agent, and after
a failure every thirty seconds until ``max-failures``.

One trap of the original is not copied: after a failure with ``plan-state`` its next pass marks the failed plan as applied and
wipes the failed results. Here a plan that is not run leaves its results alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..clock import elapsed, unix_date
from .apply import Result

PLAN = "plan"
STATE = "plan-state"
REVISION = "plan-revision"
MAX_FAILURES = "max-failures"
PROBE_PERIOD = "probe-period-seconds"
APPLIED_CHECKSUM = "applied-checksum"
APPLIED_OUTPUT = "applied-output"
APPLIED_PERIODIC = "applied-periodic-output"
PROBES = "probe-statuses"
FAILED_CHECKSUM = "failed-checksum"
FAILED_OUTPUT = "failed-output"
FAILURE_COUNT = "failure-count"
#: A sentence for users. The original leaves it to its log.
FAILURE_REASON = "failure-reason"
SUCCESS_COUNT = "success-count"
#: Which agent this is, and where it wants to find the next one. Ours alone says so.
AGENT = "agent"
LAST_APPLY = "last-apply-time"

PENDING, IN_PROGRESS, SUCCEEDED, FAILED = "pending", "in-progress", "succeeded", "failed"

#: The keys that an agent may write. After a conflict only these are merged into the server's newer version.
RESULT_KEYS = (
    STATE,
    REVISION,
    APPLIED_CHECKSUM,
    APPLIED_OUTPUT,
    APPLIED_PERIODIC,
    PROBES,
    FAILED_CHECKSUM,
    FAILED_OUTPUT,
    FAILURE_COUNT,
    FAILURE_REASON,
    SUCCESS_COUNT,
    LAST_APPLY,
    AGENT,
)

COOLDOWN = 30.0
DEFAULT_PROBE_PERIOD = 5.0
#: No host needs to report less often.
LONGEST_PROBE_PERIOD = 24 * 3600
#: 64 bits, with their sign.
_LONGEST_NUMBER = 20

Data = Mapping[str, bytes]


class Decision(NamedTuple):
    """The decision about a plan."""

    apply: bool
    attempt: int = 1
    #: Claim the plan (``in-progress``) before anything runs.
    claim: bool = False
    failed_before: bool = False
    #: The first pass of a process in the older flow forgets that the plan was applied.
    forget_applied: bool = False
    #: Which run this is, for the journal: the count changes when a result is reported.
    run: str = ""


def decide(data: Data, checksum: str, uid: str, now: float, first: bool, own_write: bool) -> Decision:
    """``first``: nothing of this Secret was handled yet; ``own_write``: this version is the one we wrote ourselves."""
    if text(data, STATE):
        return _by_state(data, checksum, uid)
    return _by_checksum(data, checksum, uid, now, first, own_write)


def _by_state(data: Data, checksum: str, uid: str) -> Decision:
    state, revision = text(data, STATE), number(data, REVISION)
    if state == PENDING:
        return Decision(True, 1, claim=True, run=f"{uid}/{checksum}/r{revision + 1}")
    if state == IN_PROGRESS:
        return Decision(True, number(data, FAILURE_COUNT) + 1, run=f"{uid}/{checksum}/r{revision}")
    return Decision(False)


def _by_checksum(data: Data, checksum: str, uid: str, now: float, first: bool, own_write: bool) -> Decision:
    failures = number(data, FAILURE_COUNT)
    failed_before = failures != 0 and text(data, FAILED_CHECKSUM) == checksum
    apply = first or text(data, APPLIED_CHECKSUM) != checksum
    if failed_before:
        most = number(data, MAX_FAILURES, -1)
        if (most != -1 and failures >= most) or not elapsed(text(data, LAST_APPLY), COOLDOWN, now):
            apply = False
    elif own_write:
        apply = False
    run = f"{uid}/{checksum}/f{failures}s{number(data, SUCCESS_COUNT)}"
    return Decision(apply, failures + 1, failed_before=failed_before, forget_applied=first, run=run)


def claimed(data: Data) -> dict[str, bytes]:
    """The Secret's data when the plan is claimed. The failure of the try before is removed."""
    old = {FAILURE_REASON: b""} if text(data, FAILURE_REASON) else {}
    return {**data, **old, STATE: IN_PROGRESS.encode(), REVISION: _decimal(number(data, REVISION) + 1)}


def known_output(data: Data, decision: Decision) -> bytes:
    """The outputs a new run starts from."""
    return data.get(FAILED_OUTPUT, b"") if decision.failed_before else data.get(APPLIED_OUTPUT, b"")


def reported(data: Data, checksum: str, decision: Decision, result: Result, statuses: bytes, now: float) -> dict[str, bytes]:
    """The Secret's data after a pass."""
    after = dict(data)
    with_state = bool(text(data, STATE))
    if decision.forget_applied:
        after[APPLIED_CHECKSUM] = b""
    if result.ran and not result.succeeded:
        after[FAILED_CHECKSUM] = checksum.encode()
        after[FAILED_OUTPUT] = result.one_time
        after[FAILURE_COUNT] = _decimal(number(data, FAILURE_COUNT) + 1)
        if result.why or FAILURE_REASON in after:
            after[FAILURE_REASON] = result.why.encode(errors="replace")
        after[SUCCESS_COUNT] = b"0"
        after[LAST_APPLY] = unix_date(now).encode()
        if with_state:
            after[STATE] = FAILED.encode()
    elif result.ran:
        after.update(_success(checksum, result.one_time))
        if FAILURE_REASON in after:
            after[FAILURE_REASON] = b""
        after[LAST_APPLY] = unix_date(now).encode()
        after[SUCCESS_COUNT] = _decimal(number(data, SUCCESS_COUNT) + 1)
        if with_state:
            after[STATE] = SUCCEEDED.encode()
    elif decision.failed_before:
        after[FAILED_CHECKSUM] = checksum.encode()
    elif not with_state:
        after.update(_success(checksum, data.get(APPLIED_OUTPUT, b"")))
    after[APPLIED_PERIODIC] = result.periodic
    after[PROBES] = statuses
    return after


def _success(checksum: str, output: bytes) -> dict[str, bytes]:
    return {
        APPLIED_CHECKSUM: checksum.encode(),
        APPLIED_OUTPUT: output,
        FAILURE_COUNT: b"0",
        FAILED_OUTPUT: b"",
        FAILED_CHECKSUM: b"",
    }


def probe_period(data: Data) -> float:
    """Seconds between passes while nothing changes."""
    seconds = number(data, PROBE_PERIOD)
    return float(min(seconds, LONGEST_PROBE_PERIOD)) if seconds > 0 else DEFAULT_PROBE_PERIOD


def text(data: Data, key: str) -> str:
    return data.get(key, b"").decode(errors="replace").strip()


def number(data: Data, key: str, default: int = 0) -> int:
    """A decimal of the Secret; anything but a number counts as absent."""
    said = text(data, key)
    try:
        return int(said) if len(said) <= _LONGEST_NUMBER else default
    except ValueError:
        return default


def _decimal(value: int) -> bytes:
    return str(value).encode()
