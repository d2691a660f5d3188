"""The deletion of a Cluster in order: workers, then the control plane, then the infrastructure, then the Cluster itself.

:func:`next_step` decides, :func:`delete` does it. Each step waits until the objects that it deleted are gone; the Deleting
condition names them. Nothing is deleted that an earlier step may still need.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from remuda.api.cluster_x_k8s_io import GROUP
from remuda.kube.clock import time_of
from remuda.kube.conditions import FALSE, INFO, with_legacy
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, finalizers_of, is_being_deleted, metadata, name_of, uid_of
from remuda.kube.owners import without_finalizer
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import Informer, Result, logger

from ..controller_context import Core
from ..well_known import CLUSTER_FINALIZER
from .scope import CONTROLLER, UNREADABLE, Referred, Scope

log = logger(__name__)

Obj = dict[str, Any]

RECHECK_SECONDS = 5.0
# An object that has been going for longer than this is stuck, and users should see on what.
_STUCK_SECONDS = 900.0
_WAITS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Step:
    """The objects to delete now, and the message meanwhile. `done`: nothing is left but the Cluster."""

    reason: str
    message: str
    children: tuple[Obj, ...] = ()
    external: Referred | None = None
    waits: tuple[Wait, ...] = ()
    after: float | None = None
    gone: tuple[str, ...] = ()  # the older conditions of what is known to be gone
    done: bool = False


def next_step(scope: Scope) -> Step:
    pending = scope.descendants.pending
    if pending:
        children = tuple(child for child in scope.descendants.children if not is_being_deleted(child))
        waits = tuple(
            Wait(Code.DELETION, scope.ref, Actor.REMUDA, Ref(GROUP, each.get("kind") or "", *Key.of(each)))
            for each in pending[:_WAITS_SHOWN]
        )
        lines = "\n".join(scope.descendants.pending_lines)
        return Step("WaitingForWorkersDeletion", lines, children, waits=waits, after=RECHECK_SECONDS)
    gone: list[str] = []
    for referred, reason, legacy in (
        (scope.control_plane, "WaitingForControlPlaneDeletion", "ControlPlaneReady"),
        (scope.infra, "WaitingForInfrastructureDeletion", "InfrastructureReady"),
    ):
        if not referred.ref:
            continue
        if referred.obj is not None:
            return _waiting_for(scope, referred, reason, tuple(gone))
        if not referred.missing:
            return _unreadable(scope, referred, tuple(gone))
        gone.append(legacy)
    return Step("DeletionCompleted", "Deletion completed", gone=tuple(gone), done=True)


def _waiting_for(scope: Scope, referred: Referred, reason: str, gone: tuple[str, ...]) -> Step:
    obj = referred.obj or {}
    message = f"Waiting for {referred.kind} to be deleted"
    evidence = ""
    if is_being_deleted(obj):
        evidence = f"finalizers {', '.join(finalizers_of(obj))}"
        since = metadata(obj)["deletionTimestamp"]
        if scope.now - (time_of(since) or scope.now) > _STUCK_SECONDS:
            message += f" ({name_of(obj)} has been deleting since {since}, held by {evidence})"
    wait = Wait(Code.DELETION, scope.ref, Actor.PROVIDER, referred.named(scope.key.namespace), evidence)
    external = None if is_being_deleted(obj) else referred
    return Step(reason, message, external=external, waits=(wait,), gone=gone)


def _unreadable(scope: Scope, referred: Referred, gone: tuple[str, ...]) -> Step:
    wait = Wait(Code.REFERENCE, scope.ref, Actor.USER, referred.named(scope.key.namespace), referred.trouble)
    name = referred.ref.get("name") or ""
    message = f"{UNREADABLE}: can't tell whether {referred.kind} {name} still exists"
    if referred.trouble:
        message += f": {referred.trouble}"
    return Step("InternalError", message, waits=(wait,), gone=gone)


# --- doing it -----------------------------------------------------------------------------------------------------------------


async def delete(core: Core, scope: Scope) -> Result:
    step = next_step(scope)
    scope.deleting_reason, scope.deleting_message = step.reason, step.message
    for condition in step.gone:
        scope.cluster = with_legacy(scope.cluster, condition, FALSE, "Deleted", "", INFO, now=scope.now)
    try:
        await _delete_children(core, scope, step.children)
        if step.external is not None and step.external.found is not None:
            found = step.external.found
            await _delete_one(core, scope, found.informer, found.obj)
    except ApiError as error:
        scope.deleting_reason, scope.deleting_message = "InternalError", f"{UNREADABLE}: {error.message}"
        raise
    if step.done:
        scope.cluster = without_finalizer(scope.cluster, CLUSTER_FINALIZER)
        scope.events.append(("Deleted", f"Cluster {scope.key.name} has been deleted"))
    return Result(step.after, step.waits)


async def _delete_children(core: Core, scope: Scope, children: tuple[Obj, ...]) -> None:
    informers = {
        "MachineDeployment": core.machine_deployments,
        "MachineSet": core.machine_sets,
        "Machine": core.machines,
    }
    failures = []
    for child in children:
        log.info("deleting %s %s", child.get("kind"), name_of(child))
        try:
            await _delete_one(core, scope, informers[child["kind"]], child)
        except ApiError as error:
            failures.append(error)
    if failures:
        raise failures[0]


async def _delete_one(core: Core, scope: Scope, informer: Informer, obj: Obj) -> None:
    try:
        await core.client.delete(informer.resource, name_of(obj), scope.key.namespace, uid=uid_of(obj))
    except ApiError as error:
        # It is gone, or another object has its name by now, which the next look finds.
        if not error.is_not_found and not error.is_conflict:
            raise
        return
    core.deleted(CONTROLLER, scope.key, informer, obj)
