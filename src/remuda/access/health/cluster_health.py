"""The controller that watches each cluster: is its agent connected, does its API answer, what capacity does it have.

Agents are asked every fifteen seconds or so, and at once when a session comes or goes; without a session, an occasional check is
enough. APIs are asked every second or third time: no connection to them stays open in between, and opening one is work. An API
that does not answer is asked twice more before it counts as ill; an agent that does not answer counts as gone.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from remuda.api.management_cattle_io import CLUSTERS
from remuda.client.idempotent import find
from remuda.client.interface import Client
from remuda.kube.clock import deadline, time_of
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, Key, annotations_of, dig, is_being_deleted, with_path
from remuda.runtime import DONE, Controller, Manager, Result, changed, logger, synced

from ..downstreams import Agents, Downstreams, while_working
from ..rancher_conditions import tell_status
from .cluster_conditions import ADMINISTRATED, ClusterObservation, is_internal, judged
from .cluster_resources import ClusterCapacity, summary_of
from .downstream_caches import DownstreamCache, DownstreamCaches

log = logger(__name__)

Obj = dict[str, Any]

CONTROLLER: Final = "cluster-health"
EVERY: Final = 15.0
# At least; the API is asked at the first look after that.
_API_EVERY: Final = 30.0
_AGAIN: Final = 5.0
_AWAY: Final = 60.0
# Other controllers write a new cluster first; its health can wait for that.
_NEW: Final = 2.0
_LATER: Final = 0.5
_TRIES: Final = 3
_API_SECONDS: Final = 10.0
# Versions and keys change with an upgrade.
_FACTS_FOR: Final = 300.0
# Bounds for values that a cluster reports; any program may have sent them.
_LONGEST: Final = 256
_LARGEST_KEYS: Final = 256 * 1024
SECRETS: Final = GroupVersionResource("", "v1", "secrets")
CREDENTIALS: Final = "cattle-global-data"
KEYS: Final = "jwks"


@dataclass(slots=True)
class _Memory:
    """The state of a cluster that is kept from one look to the next."""

    client: Client | None = None
    failures: int = 0
    api: str | None = None
    asked_at: float = -inf
    version: Obj | None = None
    read_at: float = 0.0
    # The Secret for the cluster's keys when they were read; without keys it can't prove itself from another address.
    place: str = ""
    summary: ClusterCapacity | None = None
    made_of: tuple[DownstreamCache, int, str] | None = None


class ClusterHealth:
    def __init__(self, manager: Manager, downstreams: Downstreams, agents: Agents, followings: DownstreamCaches) -> None:
        self.controller = Controller(CONTROLLER, CLUSTERS, when=changed(_telling), concurrency=32, lane=lambda key: key)
        self._manager = manager
        self._client = manager.client
        self._clock = manager.clock
        self._downstreams = downstreams
        self._agents = agents
        self._followings = followings
        self._clusters = manager.informers.of(CLUSTERS)
        self._memories: dict[str, _Memory] = {}
        while_working(manager, lambda: agents.on_change(self._look), lambda: downstreams.on_change(self._look))
        followings.on_nodes(self._look)

    def _look(self, cluster: str) -> None:
        working = self._manager.working(CONTROLLER)
        if working is not None:
            working.queue.add(Key("", cluster))

    async def reconcile(self, key: Key) -> Result:
        who = (CONTROLLER, key)
        await synced(self._clusters)
        await self._manager.freshness.caught_up(who)
        cluster = self._clusters.get(*key)
        if cluster is None or is_being_deleted(cluster):
            self._memories.pop(key.name, None)
            self._manager.freshness.forget(who)
            return DONE
        memory = self._memories.get(key.name)
        if memory is None:
            memory = self._memories[key.name] = _Memory()
            if self._is_new(cluster):
                return Result(after=_LATER)
        seen = await self._see(cluster, memory)
        # It may have changed during the calls.
        cluster = self._clusters.get(*key)
        if cluster is None:
            return DONE
        now = self._clock.time()
        written = await tell_status(
            self._client, CLUSTERS, cluster, lambda latest: judged(latest, seen, now), field_manager=CONTROLLER
        )
        if written is not None:
            self._manager.freshness.wrote(who, self._clusters, written)
        pause = _AGAIN if 0 < memory.failures < _TRIES else EVERY
        if seen.problem and not self._agents.is_connected(key.name):
            # A new session triggers a look. Of many clusters most may never have connected.
            pause = _AWAY
        # Spreads the looks at clusters that connected together, after a restart.
        return Result(after=pause * self._manager.rng.uniform(0.7, 1.1))

    def _is_new(self, cluster: Obj) -> bool:
        made = time_of(dig(cluster, "metadata", "creationTimestamp"))
        away = not is_internal(cluster) and not self._agents.is_connected(str(dig(cluster, "metadata", "name")))
        return away and made is not None and self._clock.time() - made < _NEW

    async def _see(self, cluster: Obj, memory: _Memory) -> ClusterObservation:
        name = str(dig(cluster, "metadata", "name"))
        problem = "" if is_internal(cluster) else await self._agents.ping(name)
        if problem:
            memory.failures, memory.asked_at = 0, -inf
            return ClusterObservation(problem)
        if self._is_due(name, cluster, memory):
            memory.api = await self._api(name, cluster, memory)
        following = self._followings.get(name)
        summary = self._sum(following, memory) if following is not None and following.client is memory.client else None
        return ClusterObservation("", memory.api, memory.version, summary)

    def _is_due(self, name: str, cluster: Obj, memory: _Memory) -> bool:
        downstream = self._downstreams.get(name)
        if downstream is None or downstream.client is not memory.client or memory.failures:
            return True
        if _place_of(cluster) != memory.place:
            return True
        return self._clock.monotonic() - memory.asked_at >= _API_EVERY

    @staticmethod
    def _sum(following: DownstreamCache, memory: _Memory) -> ClusterCapacity:
        version = str((memory.version or {}).get("gitVersion") or "")
        made_of = (following, following.changes, version)
        if memory.summary is None or memory.made_of != made_of:
            memory.summary = summary_of(version, following.nodes.objects(), following.loads())
            memory.made_of = made_of
        return memory.summary

    async def _api(self, name: str, cluster: Obj, memory: _Memory) -> str | None:
        """The problem with the API, if it is certain."""
        downstream = self._downstreams.get(name)
        problem = "there is no tunnel to it" if downstream is None else await self._ask(downstream.client, cluster, memory)
        memory.asked_at = self._clock.monotonic()
        if not problem:
            memory.failures = 0
            self._followings.look(name)
            return ""
        memory.failures += 1
        return problem if memory.failures >= _TRIES else None

    async def _ask(self, client: Client, cluster: Obj, memory: _Memory) -> str:
        try:
            async with deadline(self._clock, _API_SECONDS):
                await client.raw("GET", "/readyz")
                due = self._clock.monotonic() - memory.read_at >= _FACTS_FOR
                due = due or _place_of(cluster) != memory.place
                if client is not memory.client or memory.version is None or due:
                    memory.version = await _version(client)
                    await self._learn_keys(client, cluster)
                    memory.client, memory.read_at, memory.place = client, self._clock.monotonic(), _place_of(cluster)
        except TimeoutError:
            return f"no answer within {_API_SECONDS:.0f} s"
        except ApiError as error:
            return error.message[:_LONGEST]
        except OSError as error:
            return (str(error) or type(error).__name__)[:_LONGEST]
        return ""

    async def _learn_keys(self, client: Client, cluster: Obj) -> None:
        """Store the cluster's token signing keys: they prove its identity when its CA or its address changes."""
        name = _place_of(cluster)
        if not name:
            return
        try:
            found = await client.raw("GET", "/openid/v1/jwks")
            keys = jsonio.loads(found) if isinstance(found, str | bytes) else found
        except (ApiError, jsonio.JsonError):
            return
        secret = await find(self._client, SECRETS, name, CREDENTIALS)
        if secret is None or not isinstance(keys, dict) or not keys.get("keys"):
            return
        wanted = base64.b64encode(jsonio.dumps_sorted(keys)).decode()
        if len(wanted) <= _LARGEST_KEYS and dig(secret, "data", KEYS) != wanted:
            patch = with_path({}, ("data", KEYS), wanted)
            await self._client.patch(SECRETS, name, patch, CREDENTIALS, field_manager=CONTROLLER)


def _place_of(cluster: Obj) -> str:
    """The Secret with the agent's introduction. It comes with the first call, and may become known a moment later."""
    found = dig(cluster, "status", "serviceAccountTokenSecret")
    return found if isinstance(found, str) else ""


async def _version(client: Client) -> Obj | None:
    found = await client.raw("GET", "/version")
    if not isinstance(found, dict):
        return None
    return {name: value[:_LONGEST] for name, value in found.items() if isinstance(value, str) and name in _VERSION}


_VERSION = ("major", "minor", "gitVersion", "gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform")


def _telling(cluster: Obj) -> tuple[Any, ...]:
    """The fields whose changes matter: most changes of a cluster are our own writes."""
    status = cluster.get("status") or {}
    return (
        is_being_deleted(cluster),
        is_internal(cluster),
        annotations_of(cluster).get(ADMINISTRATED),
        *(status.get(name) for name in ("apiEndpoint", "caCert", "serviceAccountTokenSecret", "driver", "readyReconciling")),
    )
