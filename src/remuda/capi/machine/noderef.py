"""The phase that finds a Machine's Node by its providerID, and keeps the Node in sync with the Machine.

The Node is looked up again every time, even when its name is known: a Node that is registered again under another name is
still the Machine's. Its name is recorded once (`status.nodeRef`).
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from remuda.kube.builtin_resources import NODES
from remuda.kube.clock import deadline, time_of
from remuda.kube.conditions import ERROR, FALSE, INFO, UNKNOWN, WARNING, with_legacy
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, dig, is_being_deleted, labels_of, name_of, resource_version_of, uid_of, with_path
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import NORMAL, Result, Retry, logger
from remuda.runtime import WARNING as WARNING_EVENT

from .. import contracts
from ..controller_context import BY_NODE, BY_PROVIDER_ID, Core
from ..phases import Stuck
from ..well_known import INTERRUPTIBLE
from ..workload_clusters import PROVIDER_ID, Workload
from .node_sync import is_outdated, legacy_node_health, node_patch
from .provider_phases import machine_ref
from .scope import COMPONENT, MachineScope
from .status import control_plane_initialized

Obj = dict[str, Any]
log = logger(__name__)

# Seconds without a Node after which it is looked for among the unclaimed ones.
_PATIENCE = 120.0
_CANDIDATES = 3
# A workload cluster that does not answer must not keep the status from being written.
_ANSWER_SECONDS = 10.0
_NODE_INFO = (
    "architecture",
    "bootID",
    "containerRuntimeVersion",
    "kernelVersion",
    "kubeProxyVersion",
    "kubeletVersion",
    "machineID",
    "operatingSystem",
    "osImage",
    "systemUUID",
)
_LONGEST_INFO = 256


class NotConnected(Exception):
    """There is no connection to the workload cluster now."""


class Nodes:
    """Nodes of Machines; remembers the last write to each until the cache has it, so that it is not repeated."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._events = core.recorder(COMPONENT)
        self._written: dict[Key, Obj] = {}

    def forget(self, machine: Key) -> None:
        self._written.pop(machine, None)

    async def reconcile(self, scope: MachineScope) -> Result | None:
        workload = scope.workload
        if workload is None and control_plane_initialized(scope.cluster):
            raise self._disconnected(scope)
        provider_id = dig(scope.machine, "spec", "providerID")
        if not provider_id:
            _note(scope, FALSE, "WaitingForNodeRef", severity=INFO)
            return None
        if workload is None:
            raise self._disconnected(scope)
        found = workload.nodes.indexed(PROVIDER_ID, provider_id)
        if len(found) > 1:
            raise self._ambiguous(scope, provider_id)
        if not found:
            return self._absent(scope, workload, provider_id)
        await self._keep(scope, workload, self._newest(scope.key, found[0]))
        return None

    # --- no node, or too many ---------------------------------------------------------------------------------------------

    def _disconnected(self, scope: MachineScope) -> Stuck:
        scope.node_error = NotConnected()
        cluster = Ref("cluster.x-k8s.io", "Cluster", *scope.cluster_key)
        return Stuck(Wait(Code.CONNECTION, machine_ref(scope), Actor.USER, cluster, evidence="it can't be reached"))

    def _ambiguous(self, scope: MachineScope, provider_id: str) -> Stuck:
        told = f"unexpectedly found more than one Node matching the providerID {provider_id}"
        stuck = Stuck(Wait(Code.NODE, machine_ref(scope), Actor.PROVIDER, evidence=told))
        scope.node_error = stuck
        log.warning("%s", told)
        self._events.event(scope.machine, WARNING_EVENT, "Failed to retrieve Node by ProviderID", told)
        _note(scope, UNKNOWN, "NodeInspectionFailed", "Failed to get the Node for this Machine by ProviderID")
        return stuck

    def _absent(self, scope: MachineScope, workload: Workload, provider_id: str) -> Result | None:
        if scope.deleting:
            return None
        name = dig(scope.machine, "status", "nodeRef", "name")
        if name:
            _note(scope, FALSE, "NodeNotFound", severity=ERROR)
            told = f"Node {name} with providerID {provider_id} is gone"
            raise Stuck(Wait(Code.NODE, machine_ref(scope), Actor.MACHINE, Ref("", "Node", "", name), evidence=told))
        _note(scope, FALSE, "NodeProvisioning", "Waiting for a node with matching ProviderID to exist", WARNING)
        told = f"no Node has providerID {provider_id}"
        others = self._candidates(scope, workload) if _waits_long(scope) else ""
        if others:
            told = f"{told}; {others}"
            self._events.event(scope.machine, WARNING_EVENT, "NoMatchingNode", told)
        return Result(waits=(Wait(Code.NODE, machine_ref(scope), Actor.MACHINE, evidence=told),))

    def _candidates(self, scope: MachineScope, workload: Workload) -> str:
        """Nodes that no Machine claims: often the wanted one, with an empty or differently spelled providerID."""
        machines, cluster = self._core.machines, scope.cluster_key

        def claimed(node: Obj) -> bool:
            provider_id = dig(node, "spec", "providerID")
            if provider_id and machines.indexed(BY_PROVIDER_ID, (*cluster, provider_id)):
                return True
            return bool(machines.indexed(BY_NODE, (*cluster, name_of(node))))

        unclaimed = (node for node in workload.nodes.objects() if not claimed(node))
        shown = [f"{name_of(node)} has {dig(node, 'spec', 'providerID') or 'none'}" for node in islice(unclaimed, _CANDIDATES)]
        return f"of the Nodes without a Machine {', '.join(shown)}" if shown else ""

    # --- the node ---------------------------------------------------------------------------------------------------------

    def _newest(self, machine: Key, cached: Obj) -> Obj:
        written = self._written.get(machine)
        if written is None:
            return cached
        if uid_of(written) == uid_of(cached) and _revision(written) > _revision(cached):
            return written
        self.forget(machine)
        return cached

    async def _keep(self, scope: MachineScope, workload: Workload, node: Obj) -> None:
        scope.node = node
        if not dig(scope.machine, "status", "nodeRef", "name"):
            scope.machine = with_path(scope.machine, ("status", "nodeRef"), {"name": name_of(node)})
            log.info("Node %s is there", name_of(node))
            self._events.event(scope.machine, NORMAL, "SuccessfulSetNodeRef", name_of(node))
        scope.machine = with_path(scope.machine, ("status", "nodeInfo"), node_info(node))
        interruptible = scope.infra is not None and contracts.interruptible(scope.infra.obj)
        await self._sync(scope, workload, node, interruptible)
        if interruptible and INTERRUPTIBLE not in labels_of(node):
            self._events.event(scope.machine, NORMAL, "SuccessfulSetInterruptibleNodeLabel", name_of(node))
        if scope.infra is None or is_being_deleted(scope.infra.obj):
            _note(scope, FALSE, "Deleting", severity=INFO)
            return
        health = legacy_node_health(node)
        _note(scope, health.status, health.reason, health.message, health.severity)

    async def _sync(self, scope: MachineScope, workload: Workload, node: Obj, interruptible: bool) -> None:
        patch = node_patch(
            node,
            scope.machine,
            interruptible=interruptible,
            outdated=is_outdated(scope.machine_set, scope.machine_deployment),
            more_labels=self._core.options.additional_sync_labels,
            more_annotations=self._core.options.additional_sync_annotations,
        )
        if patch is None:
            return
        try:
            async with deadline(self._core.clock, _ANSWER_SECONDS):
                scope.node = await workload.client.patch(NODES, name_of(node), patch)
        except OSError as error:
            raise Retry(f"Node {name_of(node)} can't be written: {error or 'no answer'}") from None
        except ApiError as error:
            if error.is_conflict or error.is_not_found:
                # Another writer was faster; its change wakes us.
                raise Retry(f"Node {name_of(node)} has changed meanwhile") from None
            raise
        self._written[scope.key] = scope.node


def node_info(node: Obj) -> Obj:
    """The Node's info as a Machine repeats it; a required field that the Node lacks is empty."""
    found = dig(node, "status", "nodeInfo") or {}
    info = {field: str(found.get(field) or "")[:_LONGEST_INFO] for field in _NODE_INFO}
    return info | ({"swap": found["swap"]} if found.get("swap") else {})


def _revision(obj: Obj) -> int:
    text = resource_version_of(obj)
    return int(text) if text.isdigit() else 0


def _waits_long(scope: MachineScope) -> bool:
    """True if its phase has been Provisioned for long."""
    since = time_of(dig(scope.machine, "status", "lastUpdated"))
    if since is None or dig(scope.machine, "status", "phase") != "Provisioned":
        return False
    return scope.now - since >= _PATIENCE


def _note(scope: MachineScope, status: str, reason: str = "", message: str = "", severity: str = "") -> None:
    scope.machine = with_legacy(scope.machine, "NodeHealthy", status, reason, message, severity, now=scope.now)
