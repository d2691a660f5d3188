"""What happened in a simulated world since a revision of its store, as plain data: the input of :mod:`.outcomes`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from remuda.api import cluster_x_k8s_io as capi
from remuda.apiserver.storage import key_layout
from remuda.apiserver.storage.store import Event, KeyValue
from remuda.kube.encoding import jsonio
from remuda.kube.objects import Key, annotations_of, labels_of
from remuda.kube.waits import Wait
from remuda.lab.sim.members import Move
from remuda.lab.sim.provisioning_world import ProvisioningWorld
from remuda.provisioning.well_known import PLAN_TYPE

from .scope import cluster_name

Obj = dict[str, Any]

# What hosts write into the Secrets of their plans again and again.
_REPORTS = ("applied-periodic-output", "probe-statuses")
MACHINES = key_layout.prefix_for("cluster.x-k8s.io", "machines", builtin=False)
SECRETS = key_layout.prefix_for("", "secrets", builtin=True)
# What is written for ever, or for a while, whatever happens to clusters; and counts of the server's own.
_PASSING = tuple(
    key_layout.prefix_for(group, resource, builtin=True)
    for group, resource in (("", "events"), ("coordination.k8s.io", "leases"), ("apiregistration.k8s.io", "apiservices"))
)


@dataclass(frozen=True, slots=True)
class Version:
    """An object from a moment on; None when it was deleted then. `at` are seconds since the change."""

    at: float
    obj: Obj | None


@dataclass(frozen=True)
class Record:
    """The objects before and after by their keys in the store, the versions in between of Machines and plan Secrets, what
    happened to hosts (`at` are seconds since the change, too), the waits at the end, and whether all clusters are ready then."""

    clusters: tuple[Key, ...]
    seconds: float
    before: Mapping[str, Obj]
    after: Mapping[str, Obj]
    versions: Mapping[str, tuple[Version, ...]]
    moves: Mapping[Key, tuple[Move, ...]]
    waits: tuple[Wait, ...]
    ready: bool
    violations: tuple[str, ...] = ()
    # The time of the end, in seconds since the epoch.
    ended: float = 0.0

    def machines(self) -> dict[str, Key]:
        """All Machines of the clusters that existed at any time, by key in the store: the cluster of each."""
        found = {}
        for key in sorted({key for key in (*self.before, *self.versions) if key.startswith(MACHINES)}):
            obj = self.last(key)
            name = cluster_name(obj, capi.MACHINES)
            cluster = Key(str(obj["metadata"].get("namespace") or ""), name)
            if cluster in self.clusters:
                found[key] = cluster
        return found

    def last(self, key: str) -> Obj:
        """The last version of an object that was there at any time."""
        known = [self.before[key]] if key in self.before else []
        known += [each.obj for each in self.versions.get(key, ()) if each.obj is not None]
        return known[-1]


async def recorded(
    world: ProvisioningWorld, clusters: Iterable[Key], since: int, began: float, until: float, ready: bool
) -> Record:
    """What happened between two moments, from a revision on."""
    store = world.server.store
    now = await store.current()
    before = await store.range(key_layout.ROOT, revision=since)
    after = await store.range(key_layout.ROOT)
    versions: dict[str, list[Version]] = {}
    for event in await store.changes(since, now):
        if event.key.startswith((MACHINES, SECRETS)):
            at = await _time_of(world, event.revision) - began
            versions.setdefault(event.key, []).append(Version(at, None if event.kv is None else _read(event.kv)))
    named = tuple(clusters)
    distributions = world.hosts.distributions
    moves = {
        key: tuple(move._replace(at=move.at - began) for move in found.moves if move.at >= began)
        for key, found in distributions.items()
        if key in named
    }
    violations = [line for key in named if key in distributions for line in distributions[key].violations]
    return Record(
        clusters=named,
        seconds=until - began,
        before=_kept(before.items),
        after=_kept(after.items),
        versions={key: tuple(found) for key, found in versions.items()},
        moves=moves,
        waits=tuple(world.waits()),
        ready=ready,
        violations=tuple(violations),
        ended=world.clock.time(),
    )


async def _time_of(world: ProvisioningWorld, revision: int) -> float:
    history = world.server.history
    assert history is not None, "a server in memory has its history"
    return await history.time_of(revision)


def is_passing(key: str) -> bool:
    """True for objects whose writes say nothing about clusters."""
    return key.startswith(_PASSING)


def without_reports(obj: Obj) -> bytes | None:
    """What is in a plan's Secret, without what hosts that have nothing to do report; None for other objects."""
    if obj.get("type") != PLAN_TYPE:
        return None
    data = {name: value for name, value in (obj.get("data") or {}).items() if name not in _REPORTS}
    return jsonio.dumps_sorted([data, labels_of(obj), annotations_of(obj)])


class Activity:
    """Tells whether writes change anything, or only repeat reports."""

    def __init__(self, items: Iterable[KeyValue]) -> None:
        """`items` are the Secrets at the beginning."""
        self._told = {each.key: without_reports(_read(each)) for each in items}

    def is_in(self, events: Iterable[Event]) -> bool:
        # All of them are noted, also after the first that counts.
        return sum(self._moves(each) for each in events) > 0

    def _moves(self, event: Event) -> bool:
        if is_passing(event.key):
            return False
        if not event.key.startswith(SECRETS):
            return True
        known = self._told.pop(event.key, None)
        if event.kv is None:
            return True
        found = self._told[event.key] = without_reports(_read(event.kv))
        return found is None or found != known


def _kept(items: Collection[KeyValue]) -> dict[str, Obj]:
    return {each.key: _read(each) for each in items if not is_passing(each.key)}


def _read(found: KeyValue) -> Obj:
    read: Obj = jsonio.loads(found.value)
    return read
