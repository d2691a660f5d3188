"""What a rollout waits for: the sets that have not come to their size yet, or whose machines are not available. Pure."""

from __future__ import annotations

from typing import Any

from remuda.kube.waits import Actor, Code, Wait

from .machineset_view import count, spec_replicas
from .scope import Scope

Obj = dict[str, Any]


def waits_of(scope: Scope) -> tuple[Wait, ...]:
    return tuple(wait for each in (scope.rolled.machine_sets if scope.rolled else ()) if (wait := _wait(scope, each)))


def _wait(scope: Scope, machine_set: Obj) -> Wait | None:
    wanted = spec_replicas(machine_set) or 0
    present, available = (count(machine_set, "status", field) or 0 for field in ("replicas", "availableReplicas"))
    if present > wanted:
        return scope.waits_for(Code.DELETION, Actor.REMUDA, f"{present - wanted} machines must go", scope.of(machine_set))
    if available < wanted:
        evidence = f"{available} of {wanted} machines are available"
        return scope.waits_for(Code.MACHINES, Actor.REMUDA, evidence, scope.of(machine_set))
    return None
