"""One count of drains for the controllers of a process that begin them: the planner before a restart, MachineSets (and the
controller of registered hosts) by a deletion. Change budgets limit both together (:mod:`.change_budget`).

Each side asks and notes within one step of the event loop, so that two of them can't take the same place. What is noted here is
what the caches do not show yet; beyond that the planner reads deletions from the Machines, while drains of the planner, which are
marks on Secrets that Cluster API does not read, are noted as a whole in each of its passes.
"""

from __future__ import annotations

from collections.abc import Collection

from remuda.kube.clock import Clock
from remuda.kube.objects import Key

# Seconds within which the caches show a deletion.
_SHOWN = 60.0


class DrainCount:
    """Machines by name, for each Cluster of Cluster API."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._planner = False
        self._planned: dict[Key, frozenset[str]] = {}
        self._deleted: dict[Key, dict[str, float]] = {}

    def has_planner(self) -> None:
        """A planner works in this process: until its first pass, the drains of a cluster are not known."""
        self._planner = True

    # --- the planner's side -----------------------------------------------------------------------------------------------

    def planned(self, cluster: Key, machines: Collection[str]) -> None:
        """All machines that are in a drain by the planner, or are about to be."""
        self._planned[cluster] = frozenset(machines)

    def forget(self, cluster: Key) -> None:
        """Its control plane is gone."""
        self._planned.pop(cluster, None)

    def deleted(self, cluster: Key) -> frozenset[str]:
        """Machines whose deletion, with a drain, has just begun."""
        since = self._clock.time() - _SHOWN
        fresh = {name: at for name, at in self._deleted.get(cluster, {}).items() if at > since}
        if fresh:
            self._deleted[cluster] = fresh
        else:
            self._deleted.pop(cluster, None)
        return frozenset(fresh)

    # --- the side of deletions --------------------------------------------------------------------------------------------

    def by_planner(self, cluster: Key) -> frozenset[str] | None:
        """None while it is not known."""
        return self._planned.get(cluster, None if self._planner else frozenset())

    def delete(self, cluster: Key, machine: str) -> None:
        self._deleted.setdefault(cluster, {})[machine] = self._clock.time()

    def keep(self, cluster: Key, machine: str) -> None:
        """Its deletion was refused."""
        self._deleted.get(cluster, {}).pop(machine, None)
