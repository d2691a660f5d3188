"""The worker's label: set on the nodes of machines with the worker role (docs/reference/objects.md#worker-label).

A distribution labels its servers itself; a worker's kubelet may not set such a label on its own node, so it is set from
here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import rke_cattle_io as rke
from remuda.capi.workload_clusters import Workloads
from remuda.kube.builtin_resources import NODES
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, annotations_of, dig, is_being_deleted, labels_of, uid_of
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import DONE, Controller, Manager, Result, Watch, changed, logger

from ..machine_caches import MachineCaches
from ..well_known import WORKER_ROLE

log = logger(__name__)

Obj = dict[str, Any]

CONTROLLER: Final = "machine-worker-label"
LABEL: Final = "node-role.kubernetes.io/worker"
# Cluster API sets it on each node to the name of its Machine.
_MACHINE = "cluster.x-k8s.io/machine"


class WorkerLabels:
    controller = Controller(CONTROLLER, capi.MACHINES)

    def __init__(self, manager: Manager, workloads: Workloads) -> None:
        self._manager = manager
        self._workloads = workloads
        self._views = MachineCaches(manager.informers)
        self.controller = replace(
            type(self).controller,
            watches=(Watch(rke.RKE_BOOTSTRAPS, self._of_bootstrap, changed(labels_of)),),
            when=changed("status.nodeRef"),
            concurrency=4,
            lane=lambda key: key,
        )
        workloads.follow_nodes(CONTROLLER, self._of_node)

    def _of_bootstrap(self, bootstrap: Obj) -> Iterable[Key]:
        machine = self._views.machine_of(bootstrap)
        return () if machine is None else (Key.of(machine),)

    def _of_node(self, cluster: Key, node: Obj) -> Iterable[Key]:
        name = annotations_of(node).get(_MACHINE)
        return (Key(cluster.namespace, name),) if name and LABEL not in labels_of(node) else ()

    async def reconcile(self, key: Key) -> Result:
        await self._views.synced()
        machine = self._views.machines.get(*key)
        name = dig(machine or {}, "status", "nodeRef", "name")
        if machine is None or is_being_deleted(machine) or not name or not self._is_worker(machine):
            return DONE
        cluster = Key(key.namespace, dig(machine, "spec", "clusterName") or "")
        workload = self._workloads.get(cluster)
        if workload is None:
            subject, on = Ref(capi.GROUP, "Machine", *key), Ref(capi.GROUP, "Cluster", *cluster)
            return Result(waits=(Wait(Code.CONNECTION, subject, Actor.REMUDA, on, "it can't be reached"),))
        node = workload.nodes.get("", name)
        if node is None or labels_of(node).get(LABEL) == "true":
            return DONE
        try:
            await workload.client.patch(NODES, name, {"metadata": {"uid": uid_of(node), "labels": {LABEL: "true"}}})
        except ApiError as error:
            if not (error.is_not_found or error.is_conflict):
                raise
            return DONE
        log.info("node %s is labelled as a worker", name)
        return DONE

    def _is_worker(self, machine: Obj) -> bool:
        """Whether it is a worker, by its bootstrap: the host's own claims do not count."""
        found = [self._views.bootstraps.get(*key) for key in self._views.bootstrap_of_machine(machine)]
        return any(each is not None and labels_of(each).get(WORKER_ROLE) == "true" for each in found)
