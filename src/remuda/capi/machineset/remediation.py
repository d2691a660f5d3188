"""Which unhealthy machines a set replaces now, which later, and which never.

A machine is to be remediated when a health check failed (HealthCheckSucceeded False) and the health check left it to the
machine's owner (OwnerRemediated False). Pure; :mod:`.unhealthy_machines` does it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from remuda.kube.clock import time_of
from remuda.kube.conditions import FALSE, LEGACY, get, is_false, is_true
from remuda.kube.objects import annotations_of, dig, is_being_deleted, metadata, name_of

from ..well_known import REMEDIATE_MACHINE, REVISION

Obj = dict[str, Any]

HEALTHY, REMEDIATED = "HealthCheckSucceeded", "OwnerRemediated"
IN_FLIGHT = "MachineDeleting"
_PERCENT = re.compile(r"(-?[0-9]+)%")


class InvalidLimit(ValueError):
    """`maxInFlight` is neither a number nor a percentage."""


@dataclass(frozen=True, slots=True)
class Plan:
    healed: tuple[Obj, ...] = ()  # healthy again: nothing is left to be remediated
    outdated: tuple[Obj, ...] = ()  # a rollout replaces them anyway
    deferred: tuple[Obj, ...] = ()  # too many at once
    chosen: tuple[Obj, ...] = ()  # now
    limit: str = ""  # maxInFlight, as somebody wrote it


def is_unhealthy(machine: Obj) -> bool:
    return is_false(machine, HEALTHY)


def is_to_be_remediated(machine: Obj) -> bool:
    return is_unhealthy(machine) and is_false(machine, REMEDIATED)


def is_healed(machine: Obj) -> bool:
    current = is_true(machine, HEALTHY) and is_false(machine, REMEDIATED)
    return current or (is_true(machine, HEALTHY, LEGACY) and is_false(machine, REMEDIATED, LEGACY))


def is_current(machine_set: Obj, deployment: Obj | None) -> bool:
    """Whether a set of a MachineDeployment has its newest revision."""
    if deployment is None:
        return False
    return annotations_of(deployment).get(REVISION) == annotations_of(machine_set).get(REVISION)


def plan(machines: Sequence[Obj], machine_set: Obj, deployment: Obj | None) -> Plan:
    """`deployment` is the set's, if it has one. Raises InvalidLimit."""
    present = [machine for machine in machines if not is_being_deleted(machine)]
    healed = tuple(machine for machine in present if is_healed(machine))
    wanted = [machine for machine in present if is_to_be_remediated(machine)]
    if not wanted:
        return Plan(healed)
    if deployment is None:
        return Plan(healed, chosen=tuple(in_order(wanted)))
    if not is_current(machine_set, deployment):
        return Plan(healed, outdated=tuple(wanted))
    limit = dig(deployment, "spec", "remediation", "maxInFlight")
    if limit is None:
        return Plan(healed, chosen=tuple(in_order(wanted)))
    replicas = dig(deployment, "spec", "replicas", default=1)
    room = max(_scaled(limit, replicas) - sum(1 for machine in machines if _in_flight(machine)), 0)
    ordered = in_order(wanted)
    return Plan(healed, deferred=tuple(ordered[room:]), chosen=tuple(ordered[:room]), limit=str(limit))


def _in_flight(machine: Obj) -> bool:
    """It is on its way out because this controller remediates it."""
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
    """What somebody asked for first, then the newest: it is the least likely to carry anything."""

    def rank(machine: Obj) -> tuple[bool, float, str]:
        created = time_of(metadata(machine).get("creationTimestamp")) or 0.0
        return REMEDIATE_MACHINE not in annotations_of(machine), -created, name_of(machine)

    return sorted(machines, key=rank)
