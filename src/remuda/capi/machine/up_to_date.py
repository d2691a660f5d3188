"""Comparison of a Machine with what its MachineDeployment wants now.

The template of the Machine's set is compared with the deployment's template, as for rollouts, so that both always agree.
Fields that are updated in place never count. Other programs parse the texts.
"""

from __future__ import annotations

from typing import Any

from remuda.kube.clock import time_of
from remuda.kube.condition_summaries import Sum
from remuda.kube.conditions import FALSE, TRUE
from remuda.kube.objects import dig, metadata

Obj = dict[str, Any]


def template_differences(current: Obj, desired: Obj) -> list[str]:
    """The differences in a machine template (`spec.template`) that require new machines, in words; empty without any."""
    have, want = current.get("spec") or {}, desired.get("spec") or {}
    found: list[str] = []
    if (have.get("version") or "") != (want.get("version") or ""):
        found.append(f"Version {have.get('version') or ''}, {want.get('version') or ''} required")
    if _bootstrap(have) != _bootstrap(want):
        found.append(_bootstrap_difference(have, want))
    if (have.get("infrastructureRef") or {}) != (want.get("infrastructureRef") or {}):
        found.append(f"{_kind(dig(have, 'infrastructureRef', 'kind'))} is not up-to-date")
    if (have.get("failureDomain") or "") != (want.get("failureDomain") or ""):
        found.append(f"Failure domain {have.get('failureDomain') or ''}, {want.get('failureDomain') or ''} required")
    return found


def _bootstrap(spec: Obj) -> tuple[Obj, str | None]:
    return dig(spec, "bootstrap", "configRef") or {}, dig(spec, "bootstrap", "dataSecretName")


def _bootstrap_difference(have: Obj, want: Obj) -> str:
    ref, secret = _bootstrap(have)
    if ref:
        return f"{_kind(ref.get('kind'))} is not up-to-date"
    wanted = _bootstrap(want)[1]
    return "spec.bootstrap.dataSecretName {}, {} required".format(*("nil" if name is None else name for name in (secret, wanted)))


def _kind(template: str | None) -> str:
    """The kind of the object that is made from a template."""
    return (template or "").removesuffix("Template")


def rollout_expired(machine_set: Obj, machine_deployment: Obj, now: float) -> bool:
    """True if everything older than `spec.rollout.after` must go, and the set is older."""
    after = time_of(dig(machine_deployment, "spec", "rollout", "after"))
    made = time_of(metadata(machine_set).get("creationTimestamp"))
    return after is not None and after < now and made is not None and made < after


def up_to_date(machine: Obj, machine_set: Obj, machine_deployment: Obj, now: float) -> Sum:
    """The condition UpToDate; `machine` has its nodeInfo already."""
    why = template_differences(dig(machine_set, "spec", "template") or {}, dig(machine_deployment, "spec", "template") or {})
    if rollout_expired(machine_set, machine_deployment, now):
        why.append("MachineDeployment spec.rolloutAfter expired")
    if why:
        return Sum(FALSE, "NotUpToDate", "\n".join(f"* {line}" for line in why))
    kubelet, wanted = dig(machine, "status", "nodeInfo", "kubeletVersion"), dig(machine, "spec", "version") or ""
    if kubelet and kubelet != wanted:
        return Sum(FALSE, "Updating", f"* Node.status.nodeInfo.kubeletVersion {kubelet}, {wanted} required")
    return Sum(TRUE, "UpToDate", "")
