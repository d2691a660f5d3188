"""APIServices: one object for each group and version that the server itself serves, as `kubectl get apiservices` lists them.

kube-apiserver keeps these by its own loops. Those of built-in groups are made at start; those of custom resources come and
go with the CRDs that serve the version. All are local: there is no other server behind them.
"""

from __future__ import annotations

from typing import Any

from remuda.apiserver.crd.conditions import served_versions
from remuda.client.interface import Client
from remuda.kube.builtin_resources import CRDS
from remuda.kube.clock import Clock, Rng
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, labels_of, name_of
from remuda.runtime import Informers, Workers, WorkQueue, synced

Obj = dict[str, Any]

API_SERVICES = GroupVersionResource("apiregistration.k8s.io", "v1", "apiservices")
AUTOMANAGED = "kube-aggregator.kubernetes.io/automanaged"
MANAGER = "kube-apiserver"

# The ranks of kube-apiserver's own groups; clients prefer the higher one where kinds share a name.
_GROUPS = {
    "": 18000,
    "apps": 17800,
    "events.k8s.io": 17750,
    "authentication.k8s.io": 17700,
    "authorization.k8s.io": 17600,
    "batch": 17400,
    "networking.k8s.io": 17200,
    "policy": 17100,
    "rbac.authorization.k8s.io": 17000,
    "storage.k8s.io": 16800,
    "admissionregistration.k8s.io": 16700,
    "apiextensions.k8s.io": 16700,
    "scheduling.k8s.io": 16600,
    "coordination.k8s.io": 16500,
    "discovery.k8s.io": 16200,
}
_CUSTOM_GROUP, _CUSTOM_VERSION = 1000, 100


def _service(group: str, version: str, managed: str, group_priority: int, version_priority: int) -> Obj:
    spec: Obj = {"version": version, "groupPriorityMinimum": group_priority, "versionPriority": version_priority}
    if group:
        spec["group"] = group
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"{version}.{group}", "labels": {AUTOMANAGED: managed}},
        "spec": spec,
    }


class ApiServices:
    name = "autoregister"

    def __init__(self, client: Client, clock: Clock, rng: Rng, watches: Informers) -> None:
        self._client = client
        self._crds = watches.of(CRDS)
        self._services = watches.of(API_SERVICES)
        self._queue: WorkQueue[str] = WorkQueue(clock, rng, metrics=watches.registry.queue(self.name))

    async def run(self) -> None:
        await synced(self._crds, self._services)
        for group in _GROUPS:
            self._queue.add(f"v1.{group}")
        self._services.on_change(self._service_changed)
        self._crds.on_change(self._crd_changed)
        await Workers(self.name, self._queue, self.reconcile, concurrency=2).run()

    def _service_changed(self, new: Obj | None, old: Obj | None) -> None:
        self._queue.add(name_of(new or old or {}))

    def _crd_changed(self, new: Obj | None, old: Obj | None) -> None:
        for crd in (new, old):
            if crd is not None:
                for version in served_versions(crd):
                    self._queue.add(f"{version['name']}.{crd['spec']['group']}")

    def _wanted(self, name: str) -> Obj | None:
        version, _, group = name.partition(".")
        if version == "v1" and group in _GROUPS:
            return _service(group, version, "onstart", _GROUPS[group], 15 if group else 1)
        for crd in self._crds.objects():
            if crd["spec"]["group"] == group and any(served["name"] == version for served in served_versions(crd)):
                return _service(group, version, "true", _CUSTOM_GROUP, _CUSTOM_VERSION)
        return None

    async def reconcile(self, name: str) -> None:
        wanted, found = self._wanted(name), self._services.get("", name)
        if wanted is None:
            # Only objects that these loops made may be removed.
            if found is not None and AUTOMANAGED in labels_of(found):
                await self._remove(name)
            return
        if found is None:
            await self._create(wanted)
        elif found["spec"] != wanted["spec"]:
            await self._client.update(API_SERVICES, {**found, "spec": wanted["spec"]}, field_manager=MANAGER)

    async def _create(self, wanted: Obj) -> None:
        try:
            await self._client.create(API_SERVICES, wanted, field_manager=MANAGER)
        except ApiError as error:
            # The cache has not seen our own object yet; when it does, it queues this again.
            if not error.is_already_exists:
                raise

    async def _remove(self, name: str) -> None:
        try:
            await self._client.delete(API_SERVICES, name)
        except ApiError as error:
            if not error.is_not_found:
                raise
