"""The simulated control plane provider: machines by number and version, one at a time where it matters.

    spec: {replicas: 3, version: v1.36.3, machineTemplate: {spec: {infrastructureRef: {…SimMachineTemplate…}}}}

It makes the kubeconfig secret, then Machines, sets `controlPlaneInitialized` when the first of them has a node, replaces Machines
of another version one by one, and replaces Machines that health checks found unhealthy.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

from remuda.api.cluster_x_k8s_io import API_VERSION, CLUSTERS, MACHINES
from remuda.capi.phases import is_paused
from remuda.capi.well_known import (
    CLONED_FROM_GROUP_KIND,
    CLONED_FROM_NAME,
    CLUSTER_NAME,
    CONTROL_PLANE_NAME,
    SECRET_TYPE,
    kubeconfig_secret,
    label_value,
)
from remuda.capi.well_known import CONTROL_PLANE as CONTROL_PLANE_LABEL
from remuda.kube.conditions import FALSE, TRUE, is_false, is_true, with_condition
from remuda.kube.errors import ApiError
from remuda.kube.objects import (
    GroupVersionResource,
    Key,
    dig,
    is_being_deleted,
    labels_of,
    metadata,
    name_of,
    namespace_of,
    with_path,
)
from remuda.kube.owners import controller_of, reference, with_finalizer, without_finalizer
from remuda.runtime import DONE, Controller, Result, Watch, owner, spec_change

from .delays_and_faults import born
from .providers import (
    BOOTSTRAP,
    BY_CLUSTER,
    CONTROL_PLANE,
    FINALIZER,
    INFRASTRUCTURE,
    SIM_CONFIGS,
    SIM_CONTROL_PLANES,
    SIM_MACHINE_TEMPLATES,
    SIM_MACHINES,
    VERSION,
    Land,
    handed_over,
    held,
    of_cluster,
    ref,
)

Obj = dict[str, Any]
_BY_TEMPLATE = "template"


class ControlPlanes:
    controller = Controller(
        "simcontrolplane",
        SIM_CONTROL_PLANES,
        watches=(Watch(MACHINES, owner("SimControlPlane", CONTROL_PLANE, controller=True)),),
        concurrency=10,
    )

    def __init__(self, land: Land) -> None:
        self._land = land
        self._planes = land.manager.informers.of(SIM_CONTROL_PLANES)
        self._planes.add_index(_BY_TEMPLATE, lambda plane: (Key(namespace_of(plane), _template_name(plane)),))
        self._templates = land.manager.informers.of(SIM_MACHINE_TEMPLATES)
        watches = (
            *type(self).controller.watches,
            Watch(CLUSTERS, of_cluster(self._planes), handed_over),
            Watch(SIM_MACHINE_TEMPLATES, self._using),
        )
        self.controller = replace(type(self).controller, watches=watches)

    def _using(self, template: Obj) -> list[Key]:
        return [Key.of(plane) for plane in self._planes.indexed(_BY_TEMPLATE, Key.of(template))]

    async def reconcile(self, key: Key) -> Result:
        land = self._land
        await land.fresh(self._planes, key)
        found = self._planes.get(*key)
        if found is None or held(found):
            return DONE
        cluster = land.cluster_of(found)
        if cluster is None or is_paused(cluster, found):
            return DONE
        patch = land.patch(self._planes, found)
        mine = self._machines_of(found, cluster)
        if is_being_deleted(found):
            for machine in mine:
                if not is_being_deleted(machine):
                    await land.delete(MACHINES, name_of(machine), namespace_of(machine))
            if not mine:
                found = without_finalizer(found, FINALIZER)
            await patch.write(found)
            return DONE
        found = await patch.write(with_finalizer(found, FINALIZER))
        if dig(cluster, "status", "initialization", "infrastructureProvisioned"):
            await self._kubeconfig(found, Key.of(cluster))
            await self._scale(found, cluster, mine)
        await patch.write(self._status(found, cluster, mine), observed=True)
        return DONE

    def _machines_of(self, plane: Obj, cluster: Obj) -> list[Obj]:
        found = self._land.core_machines.indexed(BY_CLUSTER, Key.of(cluster))
        uid = metadata(plane)["uid"]
        return sorted((each for each in found if (controller_of(each) or {}).get("uid") == uid), key=Key.of)

    async def _kubeconfig(self, plane: Obj, cluster: Key) -> None:
        name = kubeconfig_secret(cluster.name)
        if dig(plane, "status", "kubeconfig") == name:
            return
        await self._land.clusters.ensure(cluster)
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": SECRET_TYPE,
            "metadata": {
                "name": name,
                "namespace": cluster.namespace,
                "labels": {CLUSTER_NAME: cluster.name},
                "ownerReferences": [reference(plane, controller=True)],
            },
            "data": {"value": base64.b64encode(self._land.clusters.kubeconfig(cluster)).decode()},
        }
        try:
            await self._land.client.create(SECRETS, secret, cluster.namespace)
        except ApiError as error:
            if not error.is_already_exists:
                raise

    async def _scale(self, plane: Obj, cluster: Obj, mine: list[Obj]) -> None:
        land = self._land
        wanted = int(dig(plane, "spec", "replicas", default=1))
        going = [machine for machine in mine if is_being_deleted(machine)]
        standing = [machine for machine in mine if not is_being_deleted(machine)]
        outdated = [machine for machine in standing if not _current(plane, machine)]
        sick = [machine for machine in standing if _unhealthy(machine)]
        settled = all(dig(machine, "status", "nodeRef") for machine in standing)
        if len(standing) < wanted or (outdated and settled and not going and len(standing) == wanted):
            # The first one alone, then the others: joiners need a server to join.
            if not standing or dig(plane, "status", "initialization", "controlPlaneInitialized"):
                for _ in range(max(wanted - len(standing), 1) if standing else 1):
                    await self._make(plane, cluster)
            return
        if going or not settled:
            if sick and not going and len(standing) > 1:
                await land.delete(MACHINES, name_of(sick[0]), namespace_of(plane))
            return
        if len(standing) > wanted:
            oldest = sorted(outdated or standing, key=lambda machine: (metadata(machine)["creationTimestamp"], name_of(machine)))
            await land.delete(MACHINES, name_of(oldest[0]), namespace_of(plane))
        elif sick and len(standing) > 1:
            await land.delete(MACHINES, name_of(sick[0]), namespace_of(plane))

    async def _make(self, plane: Obj, cluster: Obj) -> None:
        land = self._land
        template = self._templates.get(namespace_of(plane), _template_name(plane))
        if template is None:
            return
        name = f"{name_of(plane)}-{land.rng.name_suffix()}"
        labels = {
            CLUSTER_NAME: name_of(cluster),
            CONTROL_PLANE_LABEL: "",
            CONTROL_PLANE_NAME: label_value(name_of(plane)),
        }
        common: Obj = {"name": name, "namespace": namespace_of(plane), "labels": labels}
        creator = {**common, "ownerReferences": [reference(plane)]}
        cloned = {CLONED_FROM_NAME: name_of(template), CLONED_FROM_GROUP_KIND: f"SimMachineTemplate.{INFRASTRUCTURE}"}
        await land.client.create(
            SIM_CONFIGS,
            {"apiVersion": f"{BOOTSTRAP}/{VERSION}", "kind": "SimConfig", "metadata": creator, "spec": {}},
            namespace_of(plane),
        )
        infra = {
            "apiVersion": f"{INFRASTRUCTURE}/{VERSION}",
            "kind": "SimMachine",
            "metadata": {**creator, "annotations": cloned},
            "spec": dig(template, "spec", "template", "spec", default={}),
        }
        await land.client.create(SIM_MACHINES, infra, namespace_of(plane))
        machine = {
            "apiVersion": API_VERSION,
            "kind": "Machine",
            "metadata": {**common, "ownerReferences": [reference(plane, controller=True)]},
            "spec": {
                "clusterName": name_of(cluster),
                "version": dig(plane, "spec", "version"),
                "bootstrap": {"configRef": ref(BOOTSTRAP, "SimConfig", name)},
                "infrastructureRef": ref(INFRASTRUCTURE, "SimMachine", name),
            },
        }
        made = await land.client.create(MACHINES, machine, namespace_of(plane))
        land.manager.freshness.wrote((SIM_CONTROL_PLANES, Key.of(plane)), land.core_machines, made)

    def _status(self, plane: Obj, cluster: Obj, mine: list[Obj]) -> Obj:
        wanted = int(dig(plane, "spec", "replicas", default=1))
        ready = [machine for machine in mine if is_true(machine, "Ready")]
        available = [machine for machine in mine if is_true(machine, "Available")]
        versions: dict[str, int] = {}
        for machine in mine:
            if version := dig(machine, "status", "nodeInfo", "kubeletVersion"):
                versions[version] = versions.get(version, 0) + 1
        initialized = bool(dig(plane, "status", "initialization", "controlPlaneInitialized")) or any(
            dig(machine, "status", "nodeRef") for machine in mine
        )
        status: Obj = {
            **(plane.get("status") or {}),
            "selector": f"{CLUSTER_NAME}={labels_of(plane).get(CLUSTER_NAME, '')},{CONTROL_PLANE_LABEL}=",
            "replicas": len(mine),
            "readyReplicas": len(ready),
            "availableReplicas": len(available),
            "upToDateReplicas": sum(1 for machine in mine if _current(plane, machine)),
        }
        if initialized:
            status["initialization"] = {"controlPlaneInitialized": True}
        if versions:
            status["versions"] = [{"version": version, "replicas": count} for version, count in sorted(versions.items())]
        if dig(plane, "status", "kubeconfig") is None and dig(
            self._land.cluster_of(plane), "status", "initialization", "infrastructureProvisioned"
        ):
            status["kubeconfig"] = kubeconfig_secret(labels_of(plane).get(CLUSTER_NAME, ""))
        found = with_path(plane, ("status",), status)
        now = self._land.clock.time()
        enough = initialized and len(available) > 0
        found = with_condition(found, "Available", TRUE if enough else FALSE, "Available" if enough else "NotAvailable", now=now)
        growing, shrinking = len(mine) < wanted, len(mine) > wanted
        found = with_condition(
            found, "ScalingUp", TRUE if growing else FALSE, "ScalingUp" if growing else "NotScalingUp", now=now
        )
        return with_condition(
            found, "ScalingDown", TRUE if shrinking else FALSE, "ScalingDown" if shrinking else "NotScalingDown", now=now
        )


def _template_name(plane: Obj) -> str:
    return str(dig(plane, "spec", "machineTemplate", "spec", "infrastructureRef", "name", default=""))


def _unhealthy(machine: Obj) -> bool:
    """A health check found it unhealthy, and its owner must remediate."""
    return is_false(machine, "HealthCheckSucceeded") and is_false(machine, "OwnerRemediated")


def _current(plane: Obj, machine: Obj) -> bool:
    return bool(dig(machine, "spec", "version") == dig(plane, "spec", "version"))


# --- bootstrap provider ---------------------------------------------------------------------------------------------------
#
# The simulated bootstrap provider: a secret with nothing useful in it, as soon as the contract allows.

SECRETS = GroupVersionResource("", "v1", "secrets")


class Configs:
    """SimConfigs: joiners wait for the control plane, all wait for the infrastructure."""

    controller = Controller("simconfig", SIM_CONFIGS, concurrency=20)

    def __init__(self, land: Land) -> None:
        self._land = land
        self._configs = land.manager.informers.of(SIM_CONFIGS)
        watches = (Watch(MACHINES, _config, spec_change), Watch(CLUSTERS, of_cluster(self._configs), handed_over))
        self.controller = replace(type(self).controller, watches=watches)

    async def reconcile(self, key: Key) -> Result:
        land = self._land
        await land.fresh(self._configs, key)
        found = self._configs.get(*key)
        if found is None or held(found) or is_being_deleted(found) or dig(found, "status", "dataSecretName"):
            return DONE
        machine, cluster = land.machine_of(found), land.cluster_of(found)
        if machine is None or cluster is None or is_paused(cluster, found):
            return DONE
        initialization = dig(cluster, "status", "initialization") or {}
        if not initialization.get("infrastructureProvisioned"):
            return DONE
        if CONTROL_PLANE_LABEL not in labels_of(machine) and not initialization.get("controlPlaneInitialized"):
            return DONE
        left = born(found) + land.weather.within(land.weather.bootstrap, land.seed, found, "bootstrap") - land.clock.time()
        if left > 0:
            return Result(after=left)
        await self._write_secret(found, cluster)
        status = {"dataSecretName": name_of(found), "initialization": {"dataSecretCreated": True}}
        await land.patch(self._configs, found).write(land.ready(with_path(found, ("status",), status)))
        return DONE

    async def _write_secret(self, found: Obj, cluster: Obj) -> None:
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": SECRET_TYPE,
            "metadata": {
                "name": name_of(found),
                "namespace": namespace_of(found),
                "labels": {CLUSTER_NAME: name_of(cluster)},
                "ownerReferences": [reference(found, controller=True)],
            },
            "data": {"value": base64.b64encode(b"#cloud-config\n# simulated\n").decode()},
        }
        try:
            await self._land.client.create(SECRETS, secret, namespace_of(found))
        except ApiError as error:
            if not error.is_already_exists:
                raise


def _config(machine: Obj) -> tuple[Key, ...]:
    ref = dig(machine, "spec", "bootstrap", "configRef") or {}
    return (Key(namespace_of(machine), ref.get("name") or ""),) if ref.get("kind") == "SimConfig" else ()
