"""The simulated infrastructure provider: clusters that are provisioned after a while, machines that join as nodes.

Durations count from times in the objects, so a restart of the provider changes nothing.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

from remuda.api.cluster_x_k8s_io import CLUSTERS, MACHINES
from remuda.capi.phases import is_paused
from remuda.capi.well_known import CLUSTER_NAME
from remuda.capi.well_known import CONTROL_PLANE as CONTROL_PLANE_LABEL
from remuda.kube.builtin_resources import NODES
from remuda.kube.clock import parse_rfc3339, rfc3339
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, dig, is_being_deleted, labels_of, metadata, name_of, namespace_of, with_path
from remuda.kube.owners import with_finalizer, without_finalizer
from remuda.runtime import DONE, Controller, Result, Watch, spec_change

from .delays_and_faults import born
from .providers import FINALIZER, SIM_CLUSTERS, SIM_MACHINES, Land, handed_over, held, of_cluster
from .workload_clusters import SimulatedCluster

Obj = dict[str, Any]
SIMULATED = "remuda.dev/simulated"


class Clusters:
    """SimClusters: after a while there is a workload cluster, and its endpoint is set."""

    controller = Controller(
        "simcluster",
        SIM_CLUSTERS,
        watches=(Watch(CLUSTERS, lambda cluster: _infrastructure(cluster, "SimCluster"), handed_over),),
        concurrency=10,
    )

    def __init__(self, land: Land) -> None:
        self._land = land
        self._clusters = land.manager.informers.of(SIM_CLUSTERS)

    async def reconcile(self, key: Key) -> Result:
        land = self._land
        await land.fresh(self._clusters, key)
        found = self._clusters.get(*key)
        if found is None or held(found):
            return DONE
        cluster = land.cluster_of(found)
        if is_paused(cluster, found):
            return DONE
        if is_being_deleted(found):
            await land.clusters.remove(_workload(found, cluster))
            await land.patch(self._clusters, found).write(without_finalizer(found, FINALIZER))
            return DONE
        if cluster is None:
            return DONE
        left = born(found) + land.weather.within(land.weather.cluster, land.seed, found, "cluster") - land.clock.time()
        patch = land.patch(self._clusters, found)
        found = with_finalizer(found, FINALIZER)
        if left > 0:
            await patch.write(found)
            return Result(after=left)
        await land.clusters.ensure(Key.of(cluster))
        host, port = land.clusters.endpoint(Key.of(cluster))
        found = with_path(found, ("spec", "controlPlaneEndpoint"), {"host": host, "port": port})
        if "failureDomains" in (found.get("spec") or {}):
            found = with_path(found, ("status", "failureDomains"), found["spec"]["failureDomains"])
        found = with_path(found, ("status", "initialization"), {"provisioned": True})
        await patch.write(land.ready(found))
        return DONE


def _infrastructure(cluster: Obj, kind: str) -> tuple[Key, ...]:
    ref = dig(cluster, "spec", "infrastructureRef") or {}
    return (Key(namespace_of(cluster), ref.get("name") or ""),) if ref.get("kind") == kind else ()


def _workload(infra: Obj, cluster: Obj | None) -> Key:

    return (
        Key.of(cluster) if cluster is not None else Key(namespace_of(infra), labels_of(infra).get(CLUSTER_NAME) or name_of(infra))
    )


class Machines:
    """SimMachines: provisioned after a while, their nodes a while later; both are removed on deletion."""

    controller = Controller("simmachine", SIM_MACHINES, concurrency=20)

    def __init__(self, land: Land) -> None:
        self._land = land
        self._machines = land.manager.informers.of(SIM_MACHINES)
        watches = (Watch(MACHINES, _machine, spec_change), Watch(CLUSTERS, of_cluster(self._machines), handed_over))
        self.controller = replace(type(self).controller, watches=watches)

    async def reconcile(self, key: Key) -> Result:
        land = self._land
        await land.fresh(self._machines, key)
        found = self._machines.get(*key)
        if found is None or held(found):
            return DONE
        cluster = land.cluster_of(found)
        if is_paused(cluster, found):
            return DONE
        if is_being_deleted(found):
            return await self._remove(found, cluster)
        machine = land.machine_of(found)
        if machine is None or cluster is None:
            return DONE
        if not dig(cluster, "status", "initialization", "infrastructureProvisioned"):
            return DONE
        if dig(machine, "spec", "bootstrap", "dataSecretName") is None:
            return DONE
        return await self._run(found, machine, Key.of(cluster))

    async def _run(self, found: Obj, machine: Obj, cluster: Key) -> Result:
        land = self._land
        weather, seed, now = land.weather, land.seed, land.clock.time()
        patch = land.patch(self._machines, found)
        found = with_finalizer(found, FINALIZER)
        # A machine with a provider id was made before, under another management cluster.
        there = bool(dig(found, "spec", "providerID"))
        takes = 0.0 if there else weather.within(weather.machine, seed, found, "machine")
        if weather.happens(weather.failing, seed, found, "failing"):
            takes *= 2
        started = dig(found, "status", "startedAt")
        if started is None:
            started = rfc3339(now)
            found = with_path(found, ("status", "startedAt"), started)
        if (left := parse_rfc3339(started) + takes - now) > 0:
            await patch.write(found)
            return Result(after=left)
        if not dig(found, "status", "initialization", "provisioned"):
            found = self._provisioned(found, machine)
        await patch.write(land.ready(found))
        return await self._join(found, machine, cluster)

    def _provisioned(self, found: Obj, machine: Obj) -> Obj:
        found = with_path(found, ("spec", "providerID"), provider_id(found))
        status = {
            **(found.get("status") or {}),
            "initialization": {"provisioned": True},
            "provisionedAt": rfc3339(self._land.clock.time()),
            "addresses": [{"type": "InternalIP", "address": _address(found)}, {"type": "Hostname", "address": name_of(found)}],
        }
        if domain := dig(machine, "spec", "failureDomain"):
            status["failureDomain"] = domain
        return with_path(found, ("status",), status)

    async def _join(self, found: Obj, machine: Obj, cluster: Key) -> Result:
        land = self._land
        weather, seed = land.weather, land.seed
        if weather.happens(weather.lost, seed, found, "lost"):
            return DONE
        takes = weather.within(weather.join, seed, found, "join")
        if (left := parse_rfc3339(found["status"]["provisionedAt"]) + takes - land.clock.time()) > 0:
            return Result(after=left)
        workload = await land.clusters.ensure(cluster)
        if CONTROL_PLANE_LABEL in labels_of(machine):
            workload.power_on()
        await self._register(workload, found, machine)
        return await self._flap(workload, found)

    async def _register(self, workload: SimulatedCluster, found: Obj, machine: Obj) -> None:
        name = name_of(found)
        try:
            await workload.client.get(NODES, name)
            return
        except ApiError as error:
            if not error.is_not_found:
                raise
        node = _node(found, machine, self._land.clock.time())
        try:
            await workload.client.create(NODES, node)
        except ApiError as error:
            if not error.is_already_exists:
                raise

    async def _flap(self, workload: SimulatedCluster, found: Obj) -> Result:
        """Ready for a while, not Ready for a tenth of that, and so on, by the clock alone."""
        every = self._land.weather.flapping
        if not every:
            return DONE
        since = self._land.clock.time() - parse_rfc3339(found["status"]["provisionedAt"])
        at = since % (every * 1.1)
        ready = at < every
        await set_ready(workload, name_of(found), ready, self._land.clock.time())
        return Result(after=(every if ready else every * 1.1) - at + 0.001)

    async def _remove(self, found: Obj, cluster: Obj | None) -> Result:
        land = self._land
        takes = land.weather.within(land.weather.removal, land.seed, found, "removal")
        if (left := parse_rfc3339(metadata(found)["deletionTimestamp"]) + takes - land.clock.time()) > 0:
            return Result(after=left)
        workload = land.clusters.get(_workload(found, cluster))
        if workload is not None:
            # The machine is off; its Node stays until it is deleted, as real ones do.
            await set_ready(workload, name_of(found), False, land.clock.time())
        await land.patch(self._machines, found).write(without_finalizer(found, FINALIZER))
        return DONE


def _machine(machine: Obj) -> tuple[Key, ...]:
    ref = dig(machine, "spec", "infrastructureRef") or {}
    return (Key(namespace_of(machine), ref.get("name") or ""),) if ref.get("kind") == "SimMachine" else ()


def provider_id(infra: Obj) -> str:
    return f"sim.remuda.dev://{namespace_of(infra)}/{name_of(infra)}"


def _address(infra: Obj) -> str:
    """An address of 198.18.0.0/15, which is reserved for tests: the same wherever the object is moved to."""
    number = zlib.crc32(provider_id(infra).encode()) % (2**17 - 2) + 1
    return f"198.{18 + (number >> 16)}.{(number >> 8) & 255}.{number & 255}"


def _node(infra: Obj, machine: Obj, now: float) -> Obj:
    conditions = [_condition("Ready", "True", "KubeletReady", "kubelet is posting ready status", now)] + [
        _condition(kind, "False", f"KubeletHasNo{kind}", f"kubelet has no {kind}", now)
        for kind in ("MemoryPressure", "DiskPressure", "PIDPressure")
    ]
    info = {
        "machineID": name_of(infra),
        "systemUUID": metadata(infra)["uid"],
        "bootID": metadata(infra)["uid"],
        "kernelVersion": "0.0.0-simulated",
        "osImage": "none: simulated by remuda",
        "containerRuntimeVersion": "none://0",
        "kubeletVersion": dig(machine, "spec", "version") or "v0.0.0",
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": "amd64",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name_of(infra),
            "labels": {SIMULATED: "true", "kubernetes.io/hostname": name_of(infra)},
        },
        "spec": {"providerID": provider_id(infra)},
        "status": {"conditions": conditions, "nodeInfo": info},
    }


def _condition(kind: str, status: str, reason: str, message: str, now: float) -> Obj:
    time = rfc3339(now)
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": time,
        "lastHeartbeatTime": time,
    }


async def set_ready(workload: SimulatedCluster, node: str, ready: bool, now: float) -> None:
    """Set a node's Ready condition; no change if it is set already or the node does not exist."""
    try:
        found = await workload.client.get(NODES, node)
    except ApiError as error:
        if error.is_not_found:
            return
        raise
    status, reason, message = (
        ("True", "KubeletReady", "kubelet is posting ready status")
        if ready
        else ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
    )
    conditions = dig(found, "status", "conditions") or []
    if any(each["type"] == "Ready" and each["status"] == status for each in conditions):
        return
    changed = [each for each in conditions if each["type"] != "Ready"] + [_condition("Ready", status, reason, message, now)]
    await workload.client.patch(NODES, node, {"status": {"conditions": changed}}, subresource="status")
