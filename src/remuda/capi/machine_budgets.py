"""Change budgets of a cluster's machines, asked by the controllers that delete them (:mod:`.change_budget`).

Budgets are those of the namespace (read right before), of the Cluster, and those that a MachineDeployment has: its own, and that
of its cluster. Drains for a restart and for a deletion are one count (:mod:`.drain_count`). Deletions that have just begun count
although the cache does not show them yet. A cluster that is deleted as a whole needs no budget, nor does a machine that never
became a node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from remuda.client.interface import Client
from remuda.kube.clock import Clock
from remuda.kube.objects import Key, annotations_of, dig, is_being_deleted, labels_of, name_of, namespace_of, uid_of

from .change_budget import (
    CHANGE_BUDGET,
    CLUSTER_CHANGE_BUDGET,
    Act,
    Holder,
    Refusal,
    Role,
    Subject,
    namespace_budget,
    refusal,
)
from .controller_context import Core, cluster_key_of, never_was_node
from .drain_count import DrainCount
from .well_known import CONTROL_PLANE, DEPLOYMENT_NAME, EXCLUDE_NODE_DRAINING

Obj = dict[str, Any]

# Seconds until a held deletion is tried again: budgets are annotations that no controller watches.
HELD_AGAIN = 15.0
# Seconds within which the cache shows a deletion.
_SHOWN = 60.0
# The kind of control plane whose planner drains machines before it restarts them.
_WITH_PLANNER = "RKEControlPlane"
_ROLES = {Role.ETCD: "rke.cattle.io/etcd-role", Role.CONTROL_PLANE: CONTROL_PLANE, Role.WORKER: "rke.cattle.io/worker-role"}


class MachineBudgets:
    def __init__(self, client: Client, clock: Clock, machines: Callable[[Key], Iterable[Obj]], drains: DrainCount) -> None:
        """`machines` gives all Machines of a cluster; `drains` is shared with the other controllers that drain."""
        self._drains = drains
        self._client = client
        self._clock = clock
        self._machines = machines
        # When deletions of machines began, by uid.
        self._begun: dict[str, float] = {}

    @classmethod
    def of(cls, core: Core) -> MachineBudgets:
        return cls(core.client, core.clock, lambda cluster: core.in_cluster(core.machines, cluster), core.drains)

    async def claim(self, act: Act, machine: Obj, cluster: Obj | None, deployment: Obj | None) -> Refusal | None:
        """Count the machine's deletion, if all budgets allow it; else the reason why it has to wait. `cluster` is the one that
        has the budget."""
        if cluster is None or is_being_deleted(cluster) or is_being_deleted(machine) or never_was_node(machine):
            return None
        holders = await self._holders(machine, cluster, deployment)
        if not holders:
            return None
        # From here on nothing is awaited, so that two deletions can't take the same place.
        now = self._clock.time()
        self._begun = {uid: at for uid, at in self._begun.items() if now - at < _SHOWN}
        key = cluster_key_of(machine)
        planned = self._drains.by_planner(key)
        if planned is None and _has_planner(cluster):
            return Refusal("it is not known yet which machines are being drained for a new plan")
        busy = (planned or frozenset()) | self._drains.deleted(key)
        machines = [self._subject(each, busy) for each in self._machines(key)]
        subject = self._subject(machine, busy)
        acts = (act, Act.DRAIN) if _is_drained(machine) else (act,)
        found = next((why for each in acts if (why := refusal(each, subject, machines, holders, now)) is not None), None)
        if found is None:
            self._begun[uid_of(machine)] = now
            if _is_drained(machine):
                self._drains.delete(key, name_of(machine))
        return found

    def release(self, machine: Obj) -> None:
        """Its deletion was refused."""
        self._begun.pop(uid_of(machine), None)
        self._drains.keep(cluster_key_of(machine), name_of(machine))

    async def why_no_rollout(self, deployment: Obj, cluster: Obj | None) -> Refusal | None:
        """The reason why no machine of a deployment may be replaced now, however few are."""
        if cluster is None or is_being_deleted(cluster):
            return None
        labels = dig(deployment, "spec", "template", "metadata", "labels") or {}
        subject = Subject("", _roles(labels), name_of(deployment))
        holders = await self._holders(deployment, cluster, deployment)
        return refusal(Act.REPLACE, subject, [subject], holders, self._clock.time())

    async def _holders(self, of: Obj, cluster: Obj, deployment: Obj | None) -> list[Holder]:
        named = f"Cluster {name_of(cluster)}"
        pool = name_of(deployment or {})
        written = [
            Holder(named, annotations_of(cluster).get(CHANGE_BUDGET, "")),
            Holder(named, annotations_of(deployment or {}).get(CLUSTER_CHANGE_BUDGET, "")),
            Holder(f"MachineDeployment {pool}", annotations_of(deployment or {}).get(CHANGE_BUDGET, ""), pool),
        ]
        general = await namespace_budget(self._client, namespace_of(of))
        return [*([] if general is None else [general]), *(each for each in written if each.text)]

    def _subject(self, machine: Obj, draining: Collection[str] = ()) -> Subject:
        acts: set[Act] = {Act.DRAIN} if name_of(machine) in draining else set()
        if is_being_deleted(machine) or uid_of(machine) in self._begun:
            acts |= {Act.REPLACE, Act.DELETE} | ({Act.DRAIN} if _is_drained(machine) else set())
        labels = labels_of(machine)
        return Subject(name_of(machine), _roles(labels), labels.get(DEPLOYMENT_NAME, ""), frozenset(acts))


def _has_planner(cluster: Obj) -> bool:
    """True for a Cluster of Cluster API with such a control plane, and for the one that it was made for."""
    return dig(cluster, "spec", "controlPlaneRef", "kind") == _WITH_PLANNER or isinstance(dig(cluster, "spec", "rkeConfig"), dict)


def _roles(labels: Obj) -> frozenset[Role]:
    found = frozenset(role for role, label in _ROLES.items() if labels.get(label) not in (None, "false"))
    return found or frozenset({Role.WORKER})


def _is_drained(machine: Obj) -> bool:
    return EXCLUDE_NODE_DRAINING not in annotations_of(machine)
