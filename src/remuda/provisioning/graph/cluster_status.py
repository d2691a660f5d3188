"""The status of the two Clusters of a cluster that follows from its control plane (docs/reference/objects.md#two-clusters). Pure.

The planner reports progress in the conditions of the RKEControlPlane; users look at the Clusters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from remuda.access.rancher_conditions import ERROR, FALSE, TRUE, UNKNOWN, condition_of, is_true, with_condition
from remuda.kube.objects import dig, with_path

from . import podsecurity
from .generated import written_without_effect

Obj = dict[str, Any]

RENDERED = "RKECluster"
REMOVED = "Removed"
SUPPORTED = "OperationsSupported"
EXPIRING = "CertificatesExpiring"
AUTOSCALER_READY = "ClusterAutoscalerDeploymentReady"
_SHOWN = ("Updated", "Provisioned", "Ready")
NO_PRE_BOOTSTRAP = "provisioningprebootstrap: not offered yet; nothing is written into a cluster before its agent comes"
_NOTHING_YET = "waiting for the control plane to be planned"


def with_graph(wanted: Obj, now: float) -> Obj:
    """The condition that all its objects are up to date."""
    return with_condition(wanted, RENDERED, TRUE, now=now)


def with_refusal(wanted: Obj, message: str, now: float) -> Obj:
    """Conditions for an error that only a change by a user resolves."""
    wanted = with_condition(wanted, RENDERED, FALSE, ERROR, message, now=now)
    return with_condition(wanted, "Stalled", TRUE, ERROR, message, now=now)


def with_wait(wanted: Obj, message: str, now: float) -> Obj:
    """Conditions while it waits; it continues when the object it waits for exists."""
    wanted = with_condition(wanted, RENDERED, UNKNOWN, "Waiting", message, now=now)
    return _progressing(wanted, message, now)


def with_control_plane(wanted: Obj, control_plane: Obj | None, now: float) -> Obj:
    ready = condition_of(control_plane or {}, "Ready")
    for kind in _SHOWN:
        wanted = _copied(wanted, kind, ready, now)
    wanted = _copied(wanted, EXPIRING, condition_of(control_plane or {}, EXPIRING), now)
    if control_plane is None or ready is None:
        return _progressing(wanted, _NOTHING_YET, now)
    if ready.get("status") == TRUE and is_applied(control_plane):
        wanted = with_condition(wanted, "Reconciling", FALSE, now=now)
        return with_condition(wanted, "Stalled", FALSE, now=now)
    return _progressing(wanted, ready.get("message") or _NOTHING_YET, now)


def with_support(wanted: Obj, control_plane: Obj | None, now: float, *, pre_bootstrap: bool = False) -> Obj:
    """The condition that lists requested but unsupported features, which block nothing. `pre_bootstrap`: that one is enabled."""
    refused = condition_of(control_plane or {}, SUPPORTED) or {}
    asked = [refused["message"]] if refused.get("status") == FALSE and refused.get("message") else []
    asked += [f"{path.removeprefix('spec.')}: {why}" for path, why, _ in unsupported(wanted)]
    asked += [NO_PRE_BOOTSTRAP] if pre_bootstrap else []
    if asked:
        return with_condition(wanted, SUPPORTED, FALSE, "NotSupported", "; ".join(asked), now=now)
    return with_condition(wanted, SUPPORTED, TRUE, now=now) if condition_of(wanted, SUPPORTED) else wanted


def unsupported(wanted: Obj | None) -> Iterator[tuple[str, str, Any]]:
    """The set fields of a cluster whose feature is not offered for it: path, reason, value."""
    if (name := dig(wanted, "spec", podsecurity.FIELD)) and (why := podsecurity.why_without_effect(wanted or {})):
        yield f"spec.{podsecurity.FIELD}", why, name
    pools = dig(wanted, "spec", "rkeConfig", "machinePools")
    for at, pool in enumerate(pools if isinstance(pools, list) else ()):
        if isinstance(pool, dict) and pool.get("machineOS") == "windows":
            yield (
                f"spec.rkeConfig.machinePools[{at}].machineOS",
                "windows is not offered yet; its machines get no plan",
                "windows",
            )


def without_effect(wanted: Obj | None) -> Iterator[tuple[str, str, Any]]:
    """The set fields of a cluster that have no effect: path, reason, value."""
    yield from written_without_effect(wanted)
    yield from unsupported(wanted)


def is_applied(control_plane: Obj) -> bool:
    """True if the planner has finished with the current spec, not an earlier one."""
    applied = dig(control_plane, "status", "appliedSpec")
    return applied is None or applied == control_plane.get("spec")


def _progressing(wanted: Obj, message: str, now: float) -> Obj:
    """The conditions that kstatus, and with it `kubectl wait` and others, take for in progress."""
    wanted = with_condition(wanted, "Reconciling", TRUE, "Reconciling", message, now=now)
    return with_condition(wanted, "Stalled", FALSE, now=now)


def managed_with_control_plane(managed: Obj, wanted: Obj, control_plane: Obj, now: float) -> Obj:
    """While the control plane changes, it decides whether the cluster is ready; afterwards the health check does."""
    reconciling = not is_true(control_plane, "Stable")
    if reconciling or dig(managed, "status", "readyReconciling"):
        managed = with_path(managed, ("status", "readyReconciling"), reconciling)
    ready = condition_of(control_plane, "Ready")
    if reconciling:
        managed = _copied(managed, "Ready", ready, now)
    managed = _copied(managed, "Updated", ready, now)
    managed = _copied(managed, "Provisioned", condition_of(control_plane, "Provisioned"), now)
    managed = _copied(managed, EXPIRING, condition_of(control_plane, EXPIRING), now)
    return _copied(managed, AUTOSCALER_READY, condition_of(wanted, AUTOSCALER_READY), now)


def managed_with_removal(managed: Obj, control_plane: Obj, now: float) -> Obj:
    return _copied(managed, REMOVED, condition_of(control_plane, REMOVED), now)


def _copied(obj: Obj, kind: str, source: Obj | None, now: float) -> Obj:
    if source is None or not source.get("status"):
        return obj
    return with_condition(obj, kind, source["status"], source.get("reason") or "", source.get("message") or "", now=now)
