"""The last output of a periodic instruction of a host, from the Secret with its plan."""

from __future__ import annotations

from typing import Any

from remuda.kube.objects import dig

from ..machine_caches import MachineCaches
from ..plans.machine_plan_secret import PlanSecretError, decode

Obj = dict[str, Any]


def printed(views: MachineCaches, machine: Obj, instruction: str) -> str:
    """The text; "" if there is none. A host may have written anything into its Secret."""
    for key in views.bootstrap_of_machine(machine):
        bootstrap = views.bootstraps.get(*key)
        secret = views.plan_of(bootstrap) if bootstrap is not None else None
        try:
            delivered = decode(secret) if secret is not None else None
        except PlanSecretError:
            delivered = None
        found = delivered.periodic_output.get(instruction) if delivered is not None else None
        if found is not None and found.stdout:
            return found.stdout.decode(errors="replace")
    return ""


def changes(secret: Obj) -> Any:
    """The part of a plan's Secret that has these outputs."""
    return dig(secret, "data", "applied-periodic-output")
