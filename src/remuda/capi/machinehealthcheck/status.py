"""The results of a health check: the MachineHealthCheck's own status, and conditions on each machine.

Pure functions from object to object. On machines the conditions of the check are its own; `OwnerRemediated` is only started
here, and handed over to the machine's owner.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remuda.kube.conditions import ERROR, FALSE, LEGACY, TRUE, WARNING, get, is_true, with_condition, with_legacy, without
from remuda.kube.objects import with_path, without_path

from .machine_health import HealthState, HealthVerdict, RemediationBudget

Obj = dict[str, Any]

HEALTH_CHECK_SUCCEEDED = "HealthCheckSucceeded"
OWNER_REMEDIATED = "OwnerRemediated"
EXTERNALLY_REMEDIATED = "ExternallyRemediated"
REMEDIATION_ALLOWED = "RemediationAllowed"
_TEMPLATE_AVAILABLE = "ExternalRemediationTemplateAvailable"
_REQUEST_AVAILABLE = "ExternalRemediationRequestAvailable"
_NO_REQUEST = _TEMPLATE_NOT_FOUND, _CREATION_FAILED = "RemediationTemplateNotFound", "RemediationRequestCreationFailed"
# The API's limit of names.
_MOST_TARGETS = 10_000


# --- the check itself ------------------------------------------------------------------------------------------------------


def with_counts(check: Obj, targets: Iterable[str], healthy: int) -> Obj:
    names = sorted(targets)
    found = with_path(check, ("status", "expectedMachines"), len(names))
    found = with_path(found, ("status", "currentHealthy"), healthy)
    if not names:
        return without_path(found, ("status", "targets"))
    return with_path(found, ("status", "targets"), names[:_MOST_TARGETS])


def with_budget(check: Obj, budget: RemediationBudget, now: float) -> Obj:
    found = with_path(check, ("status", "remediationsAllowed"), budget.remaining)
    if budget.allowed:
        found = with_legacy(found, REMEDIATION_ALLOWED, TRUE, now=now)
        return with_condition(found, REMEDIATION_ALLOWED, TRUE, "RemediationAllowed", now=now)
    found = with_legacy(found, REMEDIATION_ALLOWED, FALSE, "TooManyUnhealthy", budget.message, WARNING, now=now)
    return with_condition(found, REMEDIATION_ALLOWED, FALSE, "TooManyUnhealthy", budget.message, now=now)


def with_unusable_budget(check: Obj, why: str, now: float) -> Obj:
    """The budget is invalid, so nothing is remediated; that must not look like an old answer."""
    message = f"error checking if remediation is allowed: {why}"
    found = with_path(check, ("status", "remediationsAllowed"), 0)
    found = with_legacy(found, REMEDIATION_ALLOWED, FALSE, "InvalidTrigger", message, ERROR, now=now)
    return with_condition(found, REMEDIATION_ALLOWED, FALSE, "InvalidTrigger", message, now=now)


def with_template_problem(check: Obj, why: str, now: float) -> Obj:
    return with_legacy(check, _TEMPLATE_AVAILABLE, FALSE, "ExternalRemediationTemplateNotFound", why, ERROR, now=now)


def with_request_problem(check: Obj, why: str, now: float) -> Obj:
    return with_legacy(check, _REQUEST_AVAILABLE, FALSE, "ExternalRemediationRequestCreationFailed", why, ERROR, now=now)


def without_problems(check: Obj) -> Obj:
    return without(without(check, _TEMPLATE_AVAILABLE, LEGACY), _REQUEST_AVAILABLE, LEGACY)


# --- its machines ----------------------------------------------------------------------------------------------------------


def with_verdict(machine: Obj, verdict: HealthVerdict, now: float) -> Obj:
    if verdict.state is HealthState.HEALTHY:
        found = with_legacy(machine, HEALTH_CHECK_SUCCEEDED, TRUE, now=now)
        return with_condition(found, HEALTH_CHECK_SUCCEEDED, TRUE, "HealthCheckSucceeded", now=now)
    found = with_legacy(machine, HEALTH_CHECK_SUCCEEDED, FALSE, verdict.legacy_reason, verdict.legacy_message, WARNING, now=now)
    return with_condition(found, HEALTH_CHECK_SUCCEEDED, FALSE, verdict.reason, verdict.message, now=now)


def with_owner_asked(machine: Obj, now: float) -> Obj:
    """Ask the owner to replace it, unless the owner already does; a completed remediation is replaced by the new one."""
    found = machine
    if get(machine, OWNER_REMEDIATED, LEGACY) is None or is_true(machine, OWNER_REMEDIATED, LEGACY):
        found = with_legacy(found, OWNER_REMEDIATED, FALSE, "WaitingForRemediation", "", WARNING, now=now)
    if get(machine, OWNER_REMEDIATED) is None or is_true(machine, OWNER_REMEDIATED):
        found = with_condition(found, OWNER_REMEDIATED, FALSE, "WaitingForRemediation", "Waiting for remediation", now=now)
    return found


def with_request_made(machine: Obj, now: float) -> Obj:
    return with_condition(machine, EXTERNALLY_REMEDIATED, FALSE, "WaitingForRemediation", now=now)


def with_request_there(machine: Obj, now: float) -> Obj:
    """The provider of the request reports its progress; we only make sure that it doesn't look as if there were none."""
    said = get(machine, EXTERNALLY_REMEDIATED)
    return with_request_made(machine, now) if said is None or said.get("reason") in _NO_REQUEST else machine


def with_template_missing(machine: Obj, template: str, now: float) -> Obj:
    message = f"Error retrieving remediation template {template}"
    return with_condition(machine, EXTERNALLY_REMEDIATED, FALSE, _TEMPLATE_NOT_FOUND, message, now=now)


def with_request_failed(machine: Obj, now: float) -> Obj:
    message = "Please check controller logs for errors"
    return with_condition(machine, EXTERNALLY_REMEDIATED, FALSE, _CREATION_FAILED, message, now=now)
