"""The choice of unhealthy machines that a set replaces now, later, or never.

A machine is to be remediated when a health check failed (HealthCheckSucceeded False) and the health check left it to the
machine's owner (OwnerRemediated False). The choice is pure; the execution follows it in this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from remuda.api.cluster_x_k8s_io import MACHINES
from remuda.kube.clock import time_of
from remuda.kube.conditions import (
    BOTH,
    FALSE,
    LEGACY,
    TRUE,
    WARNING,
    get,
    is_false,
    is_true,
    with_condition,
    with_legacy,
    without,
)
from remuda.kube.errors import ApiError
from remuda.kube.objects import annotations_of, dig, is_being_deleted, metadata, name_of
from remuda.runtime import Result, Retry, logger
from remuda.runtime.patching import Patch

from ..change_budget import Act
from ..controller_context import Core
from ..machine_budgets import MachineBudgets
from ..well_known import REMEDIATE_MACHINE, REVISION
from .machine_deletion import REFUSED_AGAIN, DeletionRefused, check_budget, check_removal, remove_machine
from .preflight import PreflightChecks, PreflightVerdict
from .scope import NAME, MachineSetScope, for_each

Obj = dict[str, Any]

HEALTHY, REMEDIATED = "HealthCheckSucceeded", "OwnerRemediated"
IN_FLIGHT = "MachineDeleting"
_PERCENT = re.compile(r"(-?[0-9]+)%")


class InvalidLimit(ValueError):
    """`maxInFlight` is neither a number nor a percentage."""


@dataclass(frozen=True, slots=True)
class RemediationPlan:
    healed: tuple[Obj, ...] = ()  # healthy again: nothing is left to be remediated
    outdated: tuple[Obj, ...] = ()  # a rollout replaces them anyway
    deferred: tuple[Obj, ...] = ()  # too many at once
    chosen: tuple[Obj, ...] = ()  # now
    limit: str = ""  # maxInFlight, as in the spec


def is_unhealthy(machine: Obj) -> bool:
    return is_false(machine, HEALTHY)


def is_to_be_remediated(machine: Obj) -> bool:
    return is_unhealthy(machine) and is_false(machine, REMEDIATED)


def is_healed(machine: Obj) -> bool:
    current = is_true(machine, HEALTHY) and is_false(machine, REMEDIATED)
    return current or (is_true(machine, HEALTHY, LEGACY) and is_false(machine, REMEDIATED, LEGACY))


def is_current(machine_set: Obj, deployment: Obj | None) -> bool:
    """True if a set of a MachineDeployment has its newest revision."""
    if deployment is None:
        return False
    return annotations_of(deployment).get(REVISION) == annotations_of(machine_set).get(REVISION)


def plan(machines: Sequence[Obj], machine_set: Obj, deployment: Obj | None) -> RemediationPlan:
    """`deployment` is the set's, if it has one. Raises InvalidLimit."""
    present = [machine for machine in machines if not is_being_deleted(machine)]
    healed = tuple(machine for machine in present if is_healed(machine))
    wanted = [machine for machine in present if is_to_be_remediated(machine)]
    if not wanted:
        return RemediationPlan(healed)
    if deployment is None:
        return RemediationPlan(healed, chosen=tuple(in_order(wanted)))
    if not is_current(machine_set, deployment):
        return RemediationPlan(healed, outdated=tuple(wanted))
    limit = dig(deployment, "spec", "remediation", "maxInFlight")
    if limit is None:
        return RemediationPlan(healed, chosen=tuple(in_order(wanted)))
    replicas = dig(deployment, "spec", "replicas", default=1)
    room = max(_scaled(limit, replicas) - sum(1 for machine in machines if _in_flight(machine)), 0)
    ordered = in_order(wanted)
    return RemediationPlan(healed, deferred=tuple(ordered[room:]), chosen=tuple(ordered[:room]), limit=str(limit))


def _in_flight(machine: Obj) -> bool:
    """True if it is being deleted because this controller remediates it."""
    found = get(machine, REMEDIATED)
    if found is None or not is_being_deleted(machine):
        return False
    return found.get("status") == FALSE and found.get("reason") == IN_FLIGHT


def _scaled(limit: int | str, total: int) -> int:
    """A number, or a percentage of `total`, rounded up."""
    if isinstance(limit, int):
        return limit
    found = _PERCENT.fullmatch(limit)
    if found is None:
        raise InvalidLimit(
            "failed to calculate maxInFlight to remediate machines: "
            "invalid value for IntOrString: invalid type: string is not a percentage"
        )
    return -(-int(found.group(1)) * total // 100)


def in_order(machines: Sequence[Obj]) -> list[Obj]:
    """Machines that a user asked to remediate first, then the newest: they are the least likely to carry a workload."""

    def rank(machine: Obj) -> tuple[bool, float, str]:
        created = time_of(metadata(machine).get("creationTimestamp")) or 0.0
        return REMEDIATE_MACHINE not in annotations_of(machine), -created, name_of(machine)

    return sorted(machines, key=rank)


# --- unhealthy machines ---------------------------------------------------------------------------------------------------
#
# Execution of a plan: unhealthy machines are marked and deleted; new ones are made like any others.

log = logger(__name__)

_DEFERRED = "RemediationDeferred"


class Remediation:
    def __init__(self, core: Core, gate: PreflightChecks, budgets: MachineBudgets) -> None:
        self._core = core
        self._gate = gate
        self._budgets = budgets

    async def run(self, scope: MachineSetScope) -> Result | None:
        try:
            found = plan(scope.listed, scope.machine_set, scope.deployment)
        except InvalidLimit as error:
            raise Retry(str(error)) from None
        await self._write(scope, [self._healed(machine) for machine in found.healed])
        why = "Machine won't be remediated because it is pending removal due to rollout"
        await self._write(scope, [self._owed(machine, "CannotBeRemediated", why) for machine in found.outdated])
        why = (
            "Waiting because there are already too many remediations in progress "
            f"(spec.strategy.remediation.maxInFlight is {found.limit})"
        )
        await self._write(scope, [self._owed(machine, _DEFERRED, why) for machine in found.deferred])
        if not found.chosen:
            return None
        verdict = await self._gate.verdict(scope, "Machine remediation")
        if verdict.messages:
            await self._hold(scope, found.chosen, verdict)
            return verdict.holds_up(scope)
        return await self._remediate(scope, found.chosen)

    async def _hold(self, scope: MachineSetScope, machines: Iterable[Obj], verdict: PreflightVerdict) -> None:
        listed = "\n".join(f"* {message}" for message in verdict.messages)
        held = []
        for machine in machines:
            marked = with_legacy(machine, REMEDIATED, FALSE, "WaitingForRemediation", verdict.joined, WARNING, now=scope.now)
            held.append((machine, with_condition(marked, REMEDIATED, FALSE, _DEFERRED, listed, now=scope.now)))
        await self._write(scope, held)

    async def _remediate(self, scope: MachineSetScope, machines: Iterable[Obj]) -> Result | None:
        # The mark is written first: a machine that is being deleted is no longer looked at here, and would never get it. So a
        # dry run asks before whether it may be deleted; otherwise it would be marked again and again.
        kept: list[DeletionRefused] = []
        marked = []
        for machine in machines:
            try:
                await check_removal(self._core, machine)
                await check_budget(self._budgets, scope, machine, Act.REPLACE)
            except DeletionRefused as refused:
                kept.append(refused)
                continue
            after = with_legacy(machine, REMEDIATED, TRUE, now=scope.now)
            marked.append((machine, with_condition(after, REMEDIATED, FALSE, IN_FLIGHT, "Machine is deleting", now=scope.now)))
        written = await self._write(scope, marked)

        async def remove(machine: Obj) -> None:
            await remove_machine(self._core, scope, machine)
            log.info("deleting the unhealthy machine %s", machine["metadata"]["name"])

        _raise(await for_each(written, remove))
        if not kept:
            return None
        await self._write(scope, [self._owed(each.machine, _DEFERRED, str(each)) for each in kept])
        return Result(REFUSED_AGAIN, tuple(each.wait(scope) for each in kept))

    # --- conditions of machines -----------------------------------------------------------------------------------------

    def _healed(self, machine: Obj) -> tuple[Obj, Obj]:
        after = machine
        for of in BOTH:
            if is_true(machine, HEALTHY, of) and is_false(machine, REMEDIATED, of):
                after = without(after, REMEDIATED, of)
        return machine, after

    def _owed(self, machine: Obj, reason: str, message: str) -> tuple[Obj, Obj]:
        return machine, with_condition(machine, REMEDIATED, FALSE, reason, message, now=self._core.now())

    async def _write(self, scope: MachineSetScope, changes: Iterable[tuple[Obj, Obj]]) -> list[Obj]:
        """Write machines as (before, after); their new state. Machines that are gone meanwhile are left out."""
        written: list[Obj] = []

        async def write(change: tuple[Obj, Obj]) -> None:
            before, after = change
            patch = Patch(
                self._core.client,
                MACHINES,
                before,
                self._core.clock,
                owned=(REMEDIATED,),
                on_written=lambda found: self._core.wrote(NAME, scope.key, self._core.machines, found),
            )
            try:
                found = await patch.write(after)
            except ApiError as error:
                if not error.is_not_found:
                    raise
                return
            scope.saw(found)
            written.append(found)

        _raise(await for_each(changes, write))
        return written


def _raise(errors: list[Exception]) -> None:
    if errors:
        raise errors[0]
