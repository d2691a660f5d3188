"""Aggregated ClusterRoles get the rules of the roles they select; the sum is computed in `apiserver.authz.aggregation`."""

from __future__ import annotations

from typing import Any

from remuda.client.field_ownership import apply_owned
from remuda.client.interface import Client
from remuda.kube.clock import Clock, Rng
from remuda.kube.objects import GroupVersionResource, name_of
from remuda.runtime import Workers, WorkQueue

from .aggregated_rules import FIELD_MANAGER, aggregated_rules, gathers, is_aggregated
from .resources import Informers, synced

Obj = dict[str, Any]

CLUSTER_ROLES = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterroles")


class ClusterRoleAggregation:
    name = "clusterrole-aggregation-controller"

    def __init__(self, client: Client, clock: Clock, rng: Rng, watches: Informers) -> None:
        self._client = client
        self._roles = watches.of(CLUSTER_ROLES)
        self._aggregated: set[str] = set()
        self._queue: WorkQueue[str] = WorkQueue(clock, rng, metrics=watches.registry.queue(self.name))

    async def run(self) -> None:
        await synced(self._roles)
        self._roles.on_change(self._changed)
        await Workers(self.name, self._queue, self.reconcile, concurrency=5).run()

    def _changed(self, new: Obj | None, old: Obj | None) -> None:
        name = name_of(new or old or {})
        if new is not None and is_aggregated(new):
            self._aggregated.add(name)
        else:
            self._aggregated.discard(name)
        # Which aggregate a role belongs to depends on labels before and after. Aggregates are few, but each sums up all roles.
        for aggregate in self._aggregated:
            role = self._roles.get("", aggregate)
            if aggregate == name or (role is not None and any(each is not None and gathers(role, each) for each in (new, old))):
                self._queue.add(aggregate)

    async def reconcile(self, name: str) -> None:
        role = self._roles.get("", name)
        if role is None:
            return
        rules = aggregated_rules(role, self._roles.objects())
        if rules is None:
            return
        wanted = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": rules,
        }
        await apply_owned(self._client, CLUSTER_ROLES, wanted, FIELD_MANAGER)
