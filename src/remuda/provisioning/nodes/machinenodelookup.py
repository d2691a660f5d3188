"""The machinenodelookup controller: finds the node that a machine's host became (docs/reference/objects.md#node-lookup).

A host names its Machine in a label of its node. The node has the addresses and the identity that Cluster API expects of the
infrastructure and by which it finds the node. Any node can have any label, so a node that is another machine's, or has another
name than the machine, is not accepted; and if two nodes claim a machine, neither is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from remuda.access.rancher_conditions import is_true
from remuda.api import cluster_x_k8s_io as capi
from remuda.api import rke_cattle_io as rke
from remuda.capi.machine.provider_contract import usable_addresses
from remuda.capi.workload_clusters import Workloads
from remuda.client.idempotent import find
from remuda.kube.objects import GroupVersionResource, Key, dig, is_being_deleted, labels_of, name_of, namespace_of, uid_of
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import DONE, Controller, Manager, Result, Watch, changed, logger

from ..machine_caches import MachineCaches
from ..well_known import MACHINE_API_VERSION, MACHINE_GROUP, NODE_MACHINE, NODE_NAME, resource_of

log = logger(__name__)

Obj = dict[str, Any]

CONTROLLER = "machine-node-lookup"
_AGAIN = 15.0
_BY_UID, _BY_LABEL = "uid", "machine"
GROUPS = frozenset({MACHINE_GROUP, rke.GROUP, "elemental.cattle.io"})

# The resource of infrastructure by group and kind; None if unknown.
Resources = Callable[[str, str], GroupVersionResource | None]


def infrastructure_machines(group: str, kind: str) -> GroupVersionResource | None:
    """CustomMachines, and machines of node drivers; other providers find their nodes themselves."""
    if (group, kind) == (rke.GROUP, "CustomMachine"):
        return rke.CUSTOM_MACHINES
    return resource_of(MACHINE_API_VERSION, kind) if group == MACHINE_GROUP and kind.endswith("Machine") else None


@dataclass(frozen=True, slots=True)
class NodeLookup:
    """The node, or the reason why there is none (yet)."""

    node: Obj | None = None
    why: str = ""


def choose(machine: Obj, nodes: Sequence[Obj], others: Iterable[Obj]) -> NodeLookup:
    """The Machine's node among those that claim to be it; `others` are the other Machines of its cluster."""
    called = labels_of(machine).get(NODE_NAME)
    claimed = {dig(each, "spec", "providerID") for each in others} - {None, ""}
    fitting = [each for each in nodes if not called or name_of(each) == called]
    if not fitting:
        why = f"no node that says it is the machine's is called {called}" if nodes else "no node says that it is the machine's"
        return NodeLookup(why=why)
    if len(fitting) > 1:
        return NodeLookup(why=f"several nodes say that they are the machine's: {', '.join(sorted(map(name_of, fitting)))}")
    node = fitting[0]
    identity = dig(node, "spec", "providerID")
    if not identity:
        return NodeLookup(why=f"the node {name_of(node)} has no providerID yet")
    if identity in claimed:
        return NodeLookup(why=f"the node {name_of(node)} is another machine's")
    if not is_true(node, "Ready"):
        return NodeLookup(why=f"the node {name_of(node)} is not ready")
    return NodeLookup(node)


class MachineNodeLookup:
    controller = Controller(CONTROLLER, rke.RKE_BOOTSTRAPS)

    def __init__(self, manager: Manager, workloads: Workloads, resources: Resources = infrastructure_machines) -> None:
        self._manager = manager
        self._client = manager.client
        self._workloads = workloads
        self._resources = resources
        self._views = MachineCaches(manager.informers)
        self._views.machines.add_index(_BY_UID, lambda machine: (uid_of(machine),))
        self.controller = replace(
            type(self).controller,
            watches=(Watch(capi.MACHINES, self._views.bootstrap_of_machine, changed("spec.providerID", labels_of)),),
            concurrency=8,
            wait=_AGAIN,
        )
        workloads.follow_nodes(CONTROLLER, self._of_node)

    def _of_node(self, cluster: Key, node: Obj) -> Iterable[Key]:
        found = self._views.machines.indexed(_BY_UID, labels_of(node).get(NODE_MACHINE) or "")
        # Only in this very cluster: a uid may exist elsewhere, too.
        mine = [each for each in found if Key(namespace_of(each), dig(each, "spec", "clusterName") or "") == cluster]
        return [key for machine in mine for key in self._views.bootstrap_of_machine(machine)]

    async def reconcile(self, key: Key) -> Result:
        await self._views.synced()
        await self._manager.freshness.caught_up((CONTROLLER, key))
        bootstrap = self._views.bootstraps.get(*key)
        if bootstrap is None or is_being_deleted(bootstrap):
            self._manager.freshness.forget((CONTROLLER, key))
            return DONE
        machine = self._views.machine_of(bootstrap)
        created = dig(bootstrap, "status", "initialization", "dataSecretCreated") is True
        if machine is None or not created or is_being_deleted(machine) or dig(machine, "spec", "providerID"):
            return DONE
        ref = dig(machine, "spec", "infrastructureRef") or {}
        group, kind = ref.get("apiGroup") or "", ref.get("kind") or ""
        resource = self._resources(group, kind) if group in GROUPS else None
        if resource is None:
            return DONE
        return await self._look(machine, resource, Ref(group, kind, key.namespace, ref.get("name") or ""))

    async def _look(self, machine: Obj, resource: GroupVersionResource, infra: Ref) -> Result:
        subject = Ref(capi.GROUP, "Machine", *Key.of(machine))
        found = await find(self._client, resource, infra.name, infra.namespace)
        if found is None or not is_true(found, "Ready"):
            return _wait(Wait(Code.PROVISIONING, subject, Actor.PROVIDER, infra, "it is not ready"))
        cluster = Key(namespace_of(machine), dig(machine, "spec", "clusterName") or "")
        on = Ref(capi.GROUP, "Cluster", *cluster)
        workload = self._workloads.get(cluster)
        if workload is None:
            return _wait(Wait(Code.CONNECTION, subject, Actor.REMUDA, on, "it can't be reached"))
        workload.nodes.add_index(_BY_LABEL, lambda node: filter(None, (labels_of(node).get(NODE_MACHINE),)))
        others = [each for each in self._views.machines_of_cluster(cluster) if uid_of(each) != uid_of(machine)]
        chosen = choose(machine, workload.nodes.indexed(_BY_LABEL, uid_of(machine)), others)
        if chosen.node is None:
            return _wait(Wait(Code.NODE, subject, Actor.MACHINE, on, chosen.why))
        await self._write(resource, found, chosen.node)
        return DONE

    async def _write(self, resource: GroupVersionResource, infra: Obj, node: Obj) -> None:
        """Addresses first: once the identity is set, Cluster API takes the infrastructure as complete."""
        name, namespace, seen = name_of(infra), namespace_of(infra), {"uid": uid_of(infra)}
        addresses = usable_addresses(node)
        if addresses != (dig(infra, "status", "addresses") or []):
            status = {"metadata": seen, "status": {"addresses": addresses}}
            await self._client.patch(resource, name, status, namespace, subresource="status", field_manager=CONTROLLER)
        identity = dig(node, "spec", "providerID")
        if dig(infra, "spec", "providerID") != identity:
            spec = {"metadata": seen, "spec": {"providerID": identity}}
            await self._client.patch(resource, name, spec, namespace, field_manager=CONTROLLER)
            log.info("its node is %s", name_of(node))


def _wait(wait: Wait) -> Result:
    return Result(_AGAIN, (wait,))
