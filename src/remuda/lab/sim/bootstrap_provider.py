"""The simulated bootstrap provider: a secret with nothing useful in it, as soon as the contract allows."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

from remuda.api.cluster_x_k8s_io import CLUSTERS, MACHINES
from remuda.capi.paused import is_paused
from remuda.capi.well_known import CLUSTER_NAME, SECRET_TYPE
from remuda.capi.well_known import CONTROL_PLANE as CONTROL_PLANE_LABEL
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, Key, dig, is_being_deleted, labels_of, name_of, namespace_of, with_path
from remuda.kube.owners import reference
from remuda.runtime import DONE, Controller, Result, Watch, spec_change

from .delays_and_faults import born
from .provider_crds import SIM_CONFIGS
from .providers import Land, handed_over, held, of_cluster

Obj = dict[str, Any]
SECRETS = GroupVersionResource("", "v1", "secrets")


class Configs:
    """SimConfigs: joiners wait for the control plane, everybody for the infrastructure."""

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
