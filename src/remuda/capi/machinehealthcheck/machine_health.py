"""The health of one machine: a pure function of the machine, its node, its cluster and the present moment.

Four answers: healthy; unhealthy, with the reason; not yet unhealthy, but to be looked at again in so many seconds; and not
to be judged at all, since it has no node yet while the cluster isn't up, or is being deleted. The remediation budget, which
follows from many answers, is at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from remuda.kube import conditions
from remuda.kube.clock import time_of
from remuda.kube.duration import go_duration
from remuda.kube.encoding.go_format import IntegerError, atoi
from remuda.kube.errors import go_quote
from remuda.kube.objects import annotations_of, dig, find_by, is_being_deleted, labels_of, metadata

from ..well_known import CONTROL_PLANE, PAUSED, REMEDIATE_MACHINE, SKIP_REMEDIATION

Obj = dict[str, Any]

DEFAULT_STARTUP_SECONDS = 600
# Conditions' times are whole seconds, so a timeout has passed only a second later.
_GRACE = 1.0
_EVER = float("-inf")


@dataclass(frozen=True, slots=True)
class ConditionCheck:
    """A condition that makes a machine unhealthy when it has this status for longer than this."""

    type: str
    status: str
    seconds: int


@dataclass(frozen=True, slots=True)
class HealthChecks:
    """The checks of a MachineHealthCheck. `startup_seconds` 0: there is no limit for a machine to get a node."""

    startup_seconds: int = DEFAULT_STARTUP_SECONDS
    node: tuple[ConditionCheck, ...] = ()
    machine: tuple[ConditionCheck, ...] = ()

    @classmethod
    def of(cls, health_check: Obj) -> HealthChecks:
        found = dig(health_check, "spec", "checks")
        startup = dig(found, "nodeStartupTimeoutSeconds")
        return cls(
            DEFAULT_STARTUP_SECONDS if startup is None else startup,
            tuple(_checks(dig(found, "unhealthyNodeConditions"))),
            tuple(_checks(dig(found, "unhealthyMachineConditions"))),
        )


def _checks(found: Sequence[Obj] | None) -> Iterable[ConditionCheck]:
    for each in found or ():
        yield ConditionCheck(each.get("type") or "", each.get("status") or "", each.get("timeoutSeconds") or 0)


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The state of a Cluster that decides whether its machines can be judged; times are since the epoch, None while untrue."""

    infrastructure_ready: float | None = None
    initialized: float | None = None

    @classmethod
    def of(cls, cluster: Obj) -> ClusterState:
        return cls(true_since(cluster, "InfrastructureReady"), true_since(cluster, "ControlPlaneInitialized"))


@dataclass(frozen=True, slots=True)
class HealthCheckTarget:
    """A machine and its node. `node_gone`: the machine had a node that doesn't exist any more."""

    machine: Obj
    node: Obj | None = None
    node_gone: bool = False


class HealthState(Enum):
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    LATER = "later"  # it would become unhealthy by waiting
    UNJUDGED = "unjudged"


@dataclass(frozen=True, slots=True)
class HealthVerdict:
    """`reason` and `message` are for the condition of an unhealthy machine, the `legacy` ones for the older set; `after`: seconds
    until the next look."""

    state: HealthState
    reason: str = ""
    message: str = ""
    legacy_reason: str = ""
    legacy_message: str = ""
    after: float = 0.0


HEALTHY = HealthVerdict(HealthState.HEALTHY)
UNJUDGED = HealthVerdict(HealthState.UNJUDGED)
_BY_ANNOTATION = HealthVerdict(
    HealthState.UNHEALTHY,
    "HasRemediateAnnotation",
    f"Health check failed: marked for remediation via {REMEDIATE_MACHINE} annotation",
    "HasRemediateMachineAnnotation",
    "Marked for remediation via remediate-machine annotation",
)


def is_checked(machine: Obj) -> bool:
    """True unless a user paused the machine or took it out of remediation; such machines are not counted."""
    annotations = annotations_of(machine)
    return PAUSED not in annotations and SKIP_REMEDIATION not in annotations


def examine(target: HealthCheckTarget, cluster: ClusterState, checks: HealthChecks, now: float) -> HealthVerdict:
    """The health of a machine at `now`."""
    machine = target.machine
    if REMEDIATE_MACHINE in annotations_of(machine):
        return _BY_ANNOTATION
    # The first machine of a control plane must be replaceable before the control plane is initialized.
    if cluster.initialized is None and CONTROL_PLANE not in labels_of(machine):
        return _unless_it_runs(target)
    # The condition is also false for infrastructure that was ready before: a machine with a node counts as healthy all the same,
    # else the whole cluster would use up the budget of its check.
    if cluster.infrastructure_ready is None:
        return _unless_it_runs(target)
    of_machine = _machine_findings(machine, checks, now)
    of_node = _node_findings(target, cluster, checks, now)
    if of_machine.messages or of_node.messages:
        return _unhealthy(of_machine, of_node)
    after = [found.after for found in (of_machine, of_node) if found.after > 0]
    if after:
        return HealthVerdict(HealthState.LATER, after=min(after))
    return _unless_it_runs(target)


def _unless_it_runs(target: HealthCheckTarget) -> HealthVerdict:
    """Without checks: healthy if it has a node and is not being deleted."""
    return UNJUDGED if is_being_deleted(target.machine) or target.node is None else HEALTHY


@dataclass(frozen=True, slots=True)
class _Findings:
    reason: str = ""
    legacy_reason: str = ""
    messages: tuple[str, ...] = ()
    after: float = 0.0


def _unhealthy(of_machine: _Findings, of_node: _Findings) -> HealthVerdict:
    """The verdict with the machine's own failures as its reason, or else the node's; the message has all of them."""
    main = of_machine if of_machine.messages else of_node
    messages = of_machine.messages + of_node.messages
    message = "Health check failed:\n" + "\n".join(f"  * {each}" for each in messages)
    legacy = "" if main.legacy_reason == "NodeNotFound" else "; ".join(messages)
    return HealthVerdict(HealthState.UNHEALTHY, main.reason, message, main.legacy_reason, legacy)


def _machine_findings(machine: Obj, checks: HealthChecks, now: float) -> _Findings:
    messages, after = _overdue(conditions.conditions_of(machine), checks.machine, "Machine", now)
    return _Findings("UnhealthyMachine", "UnhealthyMachine", messages, after)


def _node_findings(target: HealthCheckTarget, cluster: ClusterState, checks: HealthChecks, now: float) -> _Findings:
    if target.node_gone:
        name = dig(target.machine, "status", "nodeRef", "name")
        return _Findings("NodeDeleted", "NodeNotFound", (f"Node {name} has been deleted",))
    if target.node is None:
        return _startup_findings(target.machine, cluster, checks.startup_seconds, now)
    messages, after = _overdue(dig(target.node, "status", "conditions") or (), checks.node, "Node", now)
    return _Findings("UnhealthyNode", "UnhealthyNode", messages, after)


def _startup_findings(machine: Obj, cluster: ClusterState, seconds: int, now: float) -> _Findings:
    """The startup timeout of a machine without a node starts with the last prerequisite that it had to wait for."""
    if not seconds:
        return _Findings()
    starts = (
        _time(metadata(machine).get("creationTimestamp")),
        cluster.initialized,
        cluster.infrastructure_ready,
        true_since(machine, "InfrastructureReady"),
    )
    since = max(start for start in starts if start is not None)
    if since + seconds < now:
        message = f"Node failed to report startup in {go_duration(seconds)}"
        return _Findings("NodeStartupTimeout", "NodeStartupTimeout", (message,))
    return _Findings(after=since + seconds - now + _GRACE)


def _overdue(found: Sequence[Obj], checks: Sequence[ConditionCheck], kind: str, now: float) -> tuple[tuple[str, ...], float]:
    """Messages about conditions that have been bad for too long; or else the seconds until the first of them will be."""
    messages, after = [], []
    for check in checks:
        condition = find_by(found, "type", check.type)
        if condition is None or condition.get("status") != check.status:
            continue
        left = _time(condition.get("lastTransitionTime")) + check.seconds - now
        if left < 0:
            messages.append(
                f"Condition {check.type} on {kind} is reporting status {check.status} with reason "
                f"{condition.get('reason') or ''} for more than {go_duration(check.seconds)}"
            )
        else:
            after.append(left + _GRACE)
    return tuple(messages), 0.0 if messages else min(after, default=0.0)


def true_since(obj: Obj, kind: str) -> float | None:
    """The time since which a condition is true; None when it isn't."""
    found = conditions.get(obj, kind)
    return _time(found.get("lastTransitionTime")) if found is not None and found.get("status") == conditions.TRUE else None


def _time(text: Any) -> float:
    """A condition that does not say since when has always been so."""
    found = time_of(text)
    return _EVER if found is None else found


# --- remediation budget ---------------------------------------------------------------------------------------------------
#
# The budget of unhealthy machines before remediation stops: pure arithmetic.
#
# If half of a cluster looks dead, another cause is more likely, and replacing machines would make it worse.
# All machines that are not proven healthy count against the budget, also those that are just starting.

_EVERYTHING = "100%"
_RANGE = re.compile(r"\[([0-9]+)-([0-9]+)\]")


class TriggerError(ValueError):
    """An invalid `spec.remediation.triggerIf`."""


@dataclass(frozen=True, slots=True)
class RemediationBudget:
    """`remaining`: the number of machines that may still become unhealthy. `message`: the reason of a refusal."""

    allowed: bool
    remaining: int
    message: str = ""


def budget(health_check: Obj, *, total: int, healthy: int, unhealthy: int) -> RemediationBudget:
    """`unhealthy` machines are known to be; other machines that are not healthy are starting, or can't be judged yet.

    Raises BudgetError.
    """
    trigger = dig(health_check, "spec", "remediation", "triggerIf") or {}
    missing = total - healthy
    between = trigger.get("unhealthyInRange")
    if between:
        lowest, highest = _range(between)
        if lowest <= missing <= highest:
            return RemediationBudget(True, highest - missing)
        why = f"does not fall within the range (total: {total}, unhealthy: {unhealthy}, unhealthyRange: {between})"
    else:
        wanted = trigger.get("unhealthyLessThanOrEqualTo")
        most = _EVERYTHING if wanted is None else wanted
        limit = _scaled(most, total)
        if missing <= limit:
            return RemediationBudget(True, limit - missing)
        why = f"exceeds maxUnhealthy (total: {total}, unhealthy: {unhealthy}, maxUnhealthy: {most})"
    return RemediationBudget(False, 0, f"Remediation is not allowed, the number of not started or unhealthy machines {why}")


def _range(text: str) -> tuple[int, int]:
    found = _RANGE.fullmatch(text)
    if found is None:
        raise TriggerError(f"{go_quote(text)} is not a range of machines such as [1-3]")
    lowest, highest = int(found[1]), int(found[2])
    if highest < lowest:
        raise TriggerError(f"max value {highest} cannot be less than min value {lowest} for unhealthyRange")
    return lowest, highest


def _scaled(value: Any, total: int) -> int:
    """A number, or a percentage rounded down: a budget never exceeds its setting."""
    if isinstance(value, int):
        return value
    if not isinstance(value, str) or not value.endswith("%"):
        raise TriggerError("invalid value for IntOrString: invalid type: string is not a percentage")
    try:
        return atoi(value[:-1]) * total // 100
    except IntegerError as error:
        raise TriggerError(f"invalid value for IntOrString: invalid value {go_quote(value)}: {error}") from None
