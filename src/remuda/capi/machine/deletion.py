"""The deletion of a Machine: hooks, drain, volumes, hooks, the providers' objects, the node, the finalizer, in this order.

Each stage either lets the next one begin (None) or says what it waits for. Every reconcile walks through all of them, since
any may be the first after a crash; a stage's state is kept in the Machine's status. :mod:`.deletion_rules` decides whether a
stage is needed at all; draining is :mod:`.eviction`, volumes are :mod:`.volume_detach`.

A deletion must also end when the objects that it needs are gone: the Cluster, a provider's kind, the connection to the workload
cluster. But it must not remove a machine under running pods and volumes only because a network is down for a while.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from remuda.api.cluster_x_k8s_io import GROUP
from remuda.client.interface import Client
from remuda.kube import conditions
from remuda.kube.builtin_resources import NODES, SECRETS
from remuda.kube.clock import deadline, parse_rfc3339
from remuda.kube.conditions import FALSE, INFO, LEGACY, TRUE, with_legacy
from remuda.kube.errors import ApiError, go_quote
from remuda.kube.objects import dig, finalizers_of, is_being_deleted, metadata, name_of, namespace_of, with_path
from remuda.kube.owners import without_finalizer
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import NORMAL, WARNING, Result, Retry, logger

from .. import contracts
from ..contracts import NoContract
from ..controller_context import BY_CLUSTER, Core
from ..external_objects import External
from ..well_known import (
    EXCLUDE_NODE_DRAINING,
    EXCLUDE_VOLUME_DETACH,
    MACHINE_FINALIZER,
    PRE_DRAIN_HOOK,
    PRE_TERMINATE_HOOK,
    kubeconfig_secret,
)
from ..workload_clusters import PROVIDER_ID
from . import deletion_rules as rules
from .drain_plan import DrainError
from .eviction import DrainInputs, drain_round
from .provider_phases import deleted, is_gone, kind_is_gone
from .scope import COMPONENT, MachineScope
from .volume_detach import attached_volumes

Obj = dict[str, Any]
log = logger(__name__)


_CHECK_LOGS = "please check controller logs for errors"
_NOT_CONNECTED = "connection to the workload cluster is down"
# Timeouts of one round, so that a server which does not answer can't keep the status from being written.
_DRAIN_SECONDS, _DETACH_SECONDS, _NODE_SECONDS, _NODE_PAUSE = 25.0, 15.0, 10.0, 2.0
# The time that an unreachable cluster's kubeconfig must be missing until we stop waiting for it.
_PATIENCE_SECONDS = 300.0
# The limit of a condition; a longer message would make the whole status unwritable.
_LONGEST_MESSAGE = 10_240

_Stage = Callable[[Core, MachineScope], Awaitable[Result | None]]


async def reconcile_delete(core: Core, scope: MachineScope) -> Result | None:
    """One walk through the stages. Changes `scope.machine`; writes the current stage into `scope.deleting_*`."""
    scope.deleting_reason, scope.deleting_message = "Deleting", "Deletion started"
    stays = await _why_node_stays(core, scope)
    if stays:
        log.debug("the node is neither drained nor deleted: %s", stays)
    before: tuple[_Stage, ...] = () if stays else (_pre_drain_hooks, _infra_is_read, _drain, _detach)
    after: tuple[_Stage, ...] = () if stays else (_delete_node,)
    for stage in (*before, _pre_terminate_hooks, _delete_infra, _delete_bootstrap, *after):
        result = await stage(core, scope)
        if result is not None:
            return result
    scope.deleting_reason, scope.deleting_message = "DeletionCompleted", "Deletion completed"
    scope.machine = without_finalizer(scope.machine, MACHINE_FINALIZER)
    others = finalizers_of(scope.machine)
    if not others:
        return None
    text = f"all of it is gone, and finalizers of other programs hold it: {', '.join(others)}"
    return Result(waits=(_wait(scope, Code.FINALIZERS, Actor.OTHER_CONTROLLER, evidence=text),))


def _waiting(scope: MachineScope, reason: str, message: str, wait: Wait, after: float | None = None, rest: float = 0.0) -> Result:
    scope.deleting_reason, scope.deleting_message = reason, message[:_LONGEST_MESSAGE]
    return Result(after, (wait,), rest)


def _wait(scope: MachineScope, code: Code, actor: Actor, on: Ref | None = None, evidence: str = "", since: str = "") -> Wait:
    subject = Ref(GROUP, "Machine", namespace_of(scope.machine), name_of(scope.machine))
    return Wait(code, subject, actor, on, evidence, since)


def _node_ref(scope: MachineScope) -> Ref:
    return Ref("", "Node", "", rules.node_name(scope.machine))


def _legacy(scope: MachineScope, kind: str, status: str, reason: str = "", message: str = "", severity: str = "") -> None:
    scope.machine = with_legacy(scope.machine, kind, status, reason, message[:_LONGEST_MESSAGE], severity, now=scope.now)


# --- whether the node goes, too ----------------------------------------------------------------------------------------------


async def _why_node_stays(core: Core, scope: MachineScope) -> str:
    if scope.cluster is not None and not is_being_deleted(scope.cluster):
        _find_node_at_last(scope)
    try:
        control_plane = await _control_plane(core, scope.cluster) if rules.node_name(scope.machine) else None
    except (ApiError, Retry):
        scope.deleting_reason, scope.deleting_message = "InternalError", "Please check controller logs for errors"
        raise
    machines = core.machines.indexed(BY_CLUSTER, scope.cluster_key)
    return rules.why_node_stays(scope.cluster, scope.machine, control_plane, machines)


def _find_node_at_last(scope: MachineScope) -> None:
    """A node that joined during the Machine's deletion is still this Machine's."""
    machine = scope.machine
    if rules.node_name(machine) or scope.workload is None:
        return
    provider_id = dig(machine, "spec", "providerID") or (contracts.provider_id(scope.infra.obj) if scope.infra else "")
    found = scope.workload.nodes.indexed(PROVIDER_ID, provider_id) if provider_id else []
    if len(found) == 1:
        scope.machine = with_path(machine, ("status", "nodeRef"), {"name": name_of(found[0])})


async def _control_plane(core: Core, cluster: Obj | None) -> Obj | None:
    """The object that the Cluster refers to; None when it doesn't exist, and never will."""
    ref = dig(cluster, "spec", "controlPlaneRef")
    if cluster is None or not ref or is_being_deleted(cluster):
        return None
    try:
        found = await core.externals.get(ref, namespace_of(cluster))
    except NoContract as error:
        if await kind_is_gone(core, ref):
            return None
        log.warning("can't tell whether the Node may be deleted: %s", error)
        raise Retry(f"failed to check if Kubernetes Node deletion is allowed: {error}") from None
    return None if found is None else found.obj


# --- hooks -------------------------------------------------------------------------------------------------------------------


async def _pre_drain_hooks(core: Core, scope: MachineScope) -> Result | None:
    return _hooks(scope, PRE_DRAIN_HOOK, "PreDrain", "pre-drain", rules.PRE_DRAIN_TIME)


async def _pre_terminate_hooks(core: Core, scope: MachineScope) -> Result | None:
    return _hooks(scope, PRE_TERMINATE_HOOK, "PreTerminate", "pre-terminate", rules.PRE_TERMINATE_TIME)


def _hooks(scope: MachineScope, prefix: str, name: str, shown: str, field: str) -> Result | None:
    condition = f"{name}DeleteHookSucceeded"
    found = rules.hooks(scope.machine, prefix)
    if not found:
        _legacy(scope, condition, TRUE)
        return None
    scope.machine = rules.with_started(scope.machine, field, scope.now)
    _legacy(scope, condition, FALSE, "WaitingExternalHook", severity=INFO)
    listed = ",".join(found)
    wait = _wait(scope, Code.HOOK, Actor.OTHER_CONTROLLER, evidence=listed, since=rules.started(scope.machine, field))
    message = f"Waiting for {shown} hooks to succeed (hooks: {listed})"
    return _waiting(scope, f"WaitingFor{name}Hook", message, wait)


async def _infra_is_read(core: Core, scope: MachineScope) -> Result | None:
    """Wait until it is known whether there is an InfraMachine: draining is skipped without one."""
    ref = dig(scope.machine, "spec", "infrastructureRef") or {}
    if scope.infra is not None or await is_gone(core, scope, ref, scope.infra_missing):
        return None
    return _wait_for_deletion(scope, "Infrastructure", ref)


# --- drain -------------------------------------------------------------------------------------------------------------------


async def _drain(core: Core, scope: MachineScope) -> Result | None:
    infra = None if scope.infra is None else scope.infra.obj
    if not rules.may_drain(scope.machine, infra, scope.now):
        return None
    scope.machine = rules.with_started(scope.machine, rules.DRAIN_TIME, scope.now)
    begun = rules.started(scope.machine, rules.DRAIN_TIME)
    if conditions.get(scope.machine, "DrainingSucceeded", LEGACY) is None:
        _legacy(scope, "DrainingSucceeded", FALSE, "Draining", "Draining the node before deletion", INFO)
    name = rules.node_name(scope.machine)
    if scope.workload is None:
        if await _is_out_of_reach(core, scope):
            return None
        return _drain_failed(core, scope, f"failed to drain Node {name}: error getting client: {_NOT_CONNECTED}")
    try:
        async with deadline(core.clock, _DRAIN_SECONDS):
            inputs = _drain_inputs(core, scope)
            left = await drain_round(scope.workload.client, core.clock, inputs, name, scope.now)
    except TimeoutError:
        return _drain_failed(core, scope, f"failed to drain Node {name}: no answer in {_DRAIN_SECONDS:.0f}s")
    except (DrainError, ApiError, OSError) as error:
        return _drain_failed(core, scope, str(error))
    if left.done:
        _succeeded(core, scope, "DrainingSucceeded", "SuccessfulDrainNode", f"success draining Machine's node {go_quote(name)}")
        return None
    message = left.message(begun)
    _legacy(scope, "DrainingSucceeded", FALSE, "Draining", message, INFO)
    told = _with_outlook(core, scope, message, "NodeDrainSlow", rules.DRAIN_TIME, rules.DRAIN_TIMEOUT, EXCLUDE_NODE_DRAINING)
    pause = rules.pause(scope.machine, rules.DRAIN_TIME, rules.DRAIN_TIMEOUT, scope.now)
    wait = _wait(scope, Code.DRAIN, Actor.USER, _node_ref(scope), told, begun)
    return _waiting(scope, "DrainingNode", told, wait, pause, pause)


def _drain_failed(core: Core, scope: MachineScope, why: str) -> Result:
    name = rules.node_name(scope.machine)
    _legacy(scope, "DrainingSucceeded", FALSE, "DrainingFailed", why, conditions.WARNING)
    core.recorder(COMPONENT).event(
        scope.machine, WARNING, "FailedDrainNode", f"error draining Machine's node {go_quote(name)}: {why}"
    )
    log.warning("drain of node %s: %s", name, why)
    return _failed_round(scope, "DrainingNode", f"Error draining Node, {_CHECK_LOGS}", why, rules.DRAIN_TIME, rules.DRAIN_TIMEOUT)


# --- volumes -----------------------------------------------------------------------------------------------------------------


async def _detach(core: Core, scope: MachineScope) -> Result | None:
    infra = None if scope.infra is None else scope.infra.obj
    if not rules.may_wait_for_volumes(scope.machine, infra, scope.now):
        return None
    scope.machine = rules.with_started(scope.machine, rules.DETACH_TIME, scope.now)
    begun = rules.started(scope.machine, rules.DETACH_TIME)
    if conditions.get(scope.machine, "VolumeDetachSucceeded", LEGACY) is None:
        message = "Waiting for node volumes to be detached"
        _legacy(scope, "VolumeDetachSucceeded", FALSE, "WaitingForVolumeDetach", message, INFO)
    name = rules.node_name(scope.machine)
    if scope.workload is None:
        if await _is_out_of_reach(core, scope):
            return None
        return _detach_failed(core, scope, f"error getting client: {_NOT_CONNECTED}")
    try:
        async with deadline(core.clock, _DETACH_SECONDS):
            inputs = _drain_inputs(core, scope)
            found = await attached_volumes(scope.workload.client, inputs, name, scope.now)
    except TimeoutError:
        return _detach_failed(core, scope, f"no answer in {_DETACH_SECONDS:.0f}s")
    except (DrainError, ApiError, OSError) as error:
        return _detach_failed(core, scope, str(error))
    if found.none:
        told = f"success waiting for node volumes detaching Machine's node {go_quote(name)}"
        _succeeded(core, scope, "VolumeDetachSucceeded", "NodeVolumesDetached", told)
        return None
    told = _with_outlook(
        core, scope, found.message(begun), "VolumeDetachSlow", rules.DETACH_TIME, rules.DETACH_TIMEOUT, EXCLUDE_VOLUME_DETACH
    )
    pause = rules.pause(scope.machine, rules.DETACH_TIME, rules.DETACH_TIMEOUT, scope.now)
    wait = _wait(scope, Code.VOLUMES, Actor.OTHER_CONTROLLER, _node_ref(scope), told, begun)
    return _waiting(scope, "WaitingForVolumeDetach", told, wait, pause, pause)


def _detach_failed(core: Core, scope: MachineScope, why: str) -> Result:
    named = go_quote(rules.node_name(scope.machine))
    told = f"error waiting for node volumes detaching, Machine's node {named}: {why}"
    core.recorder(COMPONENT).event(scope.machine, WARNING, "FailedWaitForVolumeDetach", told)
    log.warning("%s", told)
    message = f"Error waiting for volumes to be detached from Node, {_CHECK_LOGS}"
    return _failed_round(scope, "WaitingForVolumeDetach", message, why, rules.DETACH_TIME, rules.DETACH_TIMEOUT)


# --- what both have in common ------------------------------------------------------------------------------------------------


def _drain_inputs(core: Core, scope: MachineScope) -> DrainInputs:
    assert scope.cluster is not None  # a node stays where it is otherwise
    return DrainInputs(scope.machine, scope.cluster, list(core.drain_rules.objects()))


def _succeeded(core: Core, scope: MachineScope, condition: str, reason: str, message: str) -> None:
    """Recorded once, although a stage is repeated until the InfraMachine is gone."""
    if conditions.is_true(scope.machine, condition, LEGACY):
        return
    _legacy(scope, condition, TRUE)
    core.recorder(COMPONENT).event(scope.machine, NORMAL, reason, message)


def _failed_round(scope: MachineScope, reason: str, message: str, why: str, field: str, limit: str) -> Result:
    """A failed round is repeated, sooner when the cluster is connected again."""
    pause = rules.pause(scope.machine, field, limit, scope.now)
    wait = _wait(scope, Code.CONNECTION, Actor.OTHER_CONTROLLER, _node_ref(scope), why, rules.started(scope.machine, field))
    return _waiting(scope, reason, message, wait, pause, min(pause, 1.0))


def _with_outlook(core: Core, scope: MachineScope, message: str, reason: str, field: str, limit: str, exclude: str) -> str:
    """The message with the expected end once the stage takes long; also sent once as an event."""
    outlook = rules.expected_end(scope.machine, field, limit, exclude, scope.now)
    if not outlook:
        return message
    before = conditions.get(scope.machine, "Deleting") or {}
    if outlook not in (before.get("message") or ""):
        core.recorder(COMPONENT).event(scope.machine, WARNING, reason, f"{message}\n{outlook}")
    return f"{message}\n{outlook}"


async def _is_out_of_reach(core: Core, scope: MachineScope) -> bool:
    """True if the workload cluster is out of reach for good: there is no kubeconfig (any more), and that for a while.

    A cluster that only does not answer is waited for: its pods and volumes may well be alive.
    """
    asked = parse_rfc3339(metadata(scope.machine)["deletionTimestamp"])
    last = core.workloads.health(scope.cluster_key).last_success or 0.0
    if core.now() - max(asked, last) < _PATIENCE_SECONDS:
        return False
    namespace, name = scope.cluster_key
    try:
        await core.client.get(SECRETS, kubeconfig_secret(name), namespace)
    except ApiError as error:
        if not error.is_not_found:
            raise
        log.warning("cluster %s/%s has no kubeconfig: its node is left alone", namespace, name)
        return True
    return False


# --- what the providers made -------------------------------------------------------------------------------------------------


async def _delete_infra(core: Core, scope: MachineScope) -> Result | None:
    ref = dig(scope.machine, "spec", "infrastructureRef") or {}
    if not await _deleted(core, scope, ref, scope.infra, scope.infra_missing):
        return _wait_for_deletion(scope, "Infrastructure", ref)
    _legacy(scope, "InfrastructureReady", FALSE, "Deleted", severity=INFO)
    return None


async def _delete_bootstrap(core: Core, scope: MachineScope) -> Result | None:
    ref = dig(scope.machine, "spec", "bootstrap", "configRef")
    if not ref:
        return None
    if not await _deleted(core, scope, ref, scope.bootstrap, scope.bootstrap_missing):
        return _wait_for_deletion(scope, "Bootstrap", ref)
    _legacy(scope, "BootstrapReady", FALSE, "Deleted", severity=INFO)
    return None


def _wait_for_deletion(scope: MachineScope, what: str, ref: Obj) -> Result:
    kind = ref.get("kind") or ""
    on = Ref(ref.get("apiGroup") or "", kind, namespace_of(scope.machine), ref.get("name") or "")
    wait = _wait(scope, Code.DELETION, Actor.PROVIDER, on)
    return _waiting(scope, f"WaitingFor{what}Deletion", f"Waiting for {kind} to be deleted", wait)


async def _deleted(core: Core, scope: MachineScope, ref: Obj, found: External | None, missing: bool) -> bool:
    try:
        return await deleted(core, scope, ref, found, missing)
    except ApiError:
        scope.deleting_reason = "InternalError"
        scope.deleting_message = f"Failed to delete {ref.get('kind')}, {_CHECK_LOGS}"
        raise


# --- the node ----------------------------------------------------------------------------------------------------------------


async def _delete_node(core: Core, scope: MachineScope) -> Result | None:
    """Only after the machine is gone, so that its kubelet can't register the node again."""
    why = await _try_to_delete_node(core, scope, rules.node_name(scope.machine))
    if not why:
        return None
    log.warning("deleting the node: %s", why)
    _legacy(scope, "NodeHealthy", FALSE, "DeletionFailed", severity=conditions.WARNING)
    core.recorder(COMPONENT).event(scope.machine, WARNING, "FailedDeleteNode", f"error deleting Machine's Node: {why}")
    now = core.now()
    if rules.node_deletion_expired(scope.machine, now):
        return None
    if core.workloads.get(scope.cluster_key) is None and await _is_out_of_reach(core, scope):
        return None
    wait = _wait(scope, Code.NODE, Actor.OTHER_CONTROLLER, _node_ref(scope), why)
    return _waiting(scope, "DeletingNode", f"Error deleting Node, {_CHECK_LOGS}", wait, _NODE_SECONDS, 1.0)


async def _try_to_delete_node(core: Core, scope: MachineScope, name: str) -> str:
    """Try for a while, since this is the last step of the deletion; the error, or ""."""
    until = core.clock.monotonic() + _NODE_SECONDS
    while True:
        workload = core.workloads.get(scope.cluster_key)
        if workload is None:
            why = (
                f"failed deleting Node because connection to the workload cluster is down: error getting client: {_NOT_CONNECTED}"
            )
        else:
            why = await _delete_node_once(core, workload.client, name)
        if not why or core.clock.monotonic() + _NODE_PAUSE > until:
            return why
        await core.clock.sleep(_NODE_PAUSE)


async def _delete_node_once(core: Core, client: Client, name: str) -> str:
    try:
        async with deadline(core.clock, _NODE_SECONDS):
            await client.delete(NODES, name)
    except TimeoutError:
        return f"error deleting node {name}: no answer in {_NODE_SECONDS:.0f}s"
    except (ApiError, OSError) as error:
        gone = isinstance(error, ApiError) and error.is_not_found
        return "" if gone else f"error deleting node {name}: {error}"
    return ""
