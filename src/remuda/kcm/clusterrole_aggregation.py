"""Aggregated ClusterRoles get the rules of the roles they select."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remuda.client.interface import Client
from remuda.client.server_side_apply import apply_owned
from remuda.kube.builtin_resources import CLUSTER_ROLES
from remuda.kube.clock import Clock, Rng
from remuda.kube.objects import labels_of, name_of
from remuda.kube.selectors import from_structure
from remuda.runtime import Informers, Workers, WorkQueue, synced

Obj = dict[str, Any]


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
        # The aggregates of a role depend on its labels before and after. Aggregates are few, but each sums up all roles.
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


# --- aggregated rules -----------------------------------------------------------------------------------------------------
#
# Aggregated ClusterRoles: their rules are those of all roles that their selectors match.
#
# Pure; the controller above writes the result of :func:`aggregated_rules`.

FIELD_MANAGER = "clusterrole-aggregation-controller"
_RULE_FIELDS = ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")


def is_aggregated(role: Obj) -> bool:
    return role.get("aggregationRule") is not None


def gathers(role: Obj, other: Obj) -> bool:
    """True if an aggregated ClusterRole selects another one's rules."""
    structures = (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ()
    return any(from_structure(structure).matches(labels_of(other)) for structure in structures)


def aggregated_rules(role: Obj, cluster_roles: Iterable[Obj]) -> list[Obj] | None:
    """The rules that an aggregated ClusterRole should have, None when it has them already (or is not aggregated).

    Roles are taken selector by selector and by name within one, each rule once, so that the result is always the same.
    """
    if not is_aggregated(role):
        return None
    candidates = sorted((each for each in cluster_roles if name_of(each) != name_of(role)), key=name_of)
    found: list[Obj] = []
    for structure in role["aggregationRule"].get("clusterRoleSelectors") or ():
        selector = from_structure(structure)
        for candidate in candidates:
            if selector.matches(labels_of(candidate)):
                found.extend(rule for rule in map(_normal, candidate.get("rules") or ()) if rule not in found)
    return None if found == [_normal(rule) for rule in role.get("rules") or ()] else found


def _normal(rule: Obj) -> Obj:
    return {field: rule[field] for field in _RULE_FIELDS if rule.get(field)}
