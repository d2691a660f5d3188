"""Answers of `/v1-remuda/explain` (what one cluster waits for, and what to do) and `/v1-remuda/attention` (that of all clusters).

Objects are read with the caller's own permissions; waits are for callers who may read the cluster. Both are computed for each
request, from what is there at that moment. Of very many clusters that are not settled, the first are explained and the others
are counted: one broken thing usually explains them all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace
from typing import Any, Final

from aiohttp import web

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.client.interface import Client
from remuda.kube import conditions
from remuda.kube.authorization.actions import Action
from remuda.kube.authorization.users import User
from remuda.kube.clock import rfc3339_micro
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, Key, name_of
from remuda.kube.redaction import redacted
from remuda.provisioning.graph.cluster_status import EXPIRING

from ..registration.node_progress import NodeProgress
from ..server import norman
from ..server.dependencies import Services
from ..server.remuda_api import Waits, acting_client, cluster_of
from ..server.routing import Access, RequestContext
from . import attention, operations, states, wait_chain
from .cluster_reader import if_any, read_view, with_plans
from .states import ClusterView, LastLine
from .waits import waits_in

Obj = dict[str, Any]

EXPLAIN: Final = "/v1-remuda/explain"
ATTENTION: Final = "/v1-remuda/attention"
# As many are explained in one answer, and as many are read at a time.
_MOST, _AT_ONCE = 50, 8


class Explanations:
    def __init__(self, services: Services, waits: Waits, progress: NodeProgress) -> None:
        self._services = services
        self._waits = waits
        self._progress = progress
        services.routes.add("GET", EXPLAIN, self.explain, Access.USER, largest=0, quiet=True)
        services.routes.add("GET", ATTENTION, self.attention, Access.USER, largest=0, quiet=True)

    async def explain(self, asked: RequestContext) -> web.StreamResponse:
        """The chain of waits of `?cluster=NAMESPACE/NAME`, a provisioning Cluster, as `remuda explain` has it."""
        cluster = cluster_of(asked)
        view = await self._view(acting_client(self._services, asked), cluster)
        now = self._services.clock.time()
        links = wait_chain.chain(view, now)
        state = states.of_cluster(view.wanted, view.managed, view.plane)
        body: Obj = {
            "cluster": str(cluster),
            "state": state.word,
            "message": redacted(state.message),
            "complete": view.waits is not None,
            "waits": [_redacted(wait_chain.data(link, view)) for link in links],
            "toDo": [{"text": each.text, "commands": list(each.commands)} for each in wait_chain.to_do(links, view)],
        }
        return norman.shown(body | ({"leader": view.leader} if view.leader else {}))

    async def attention(self, asked: RequestContext) -> web.StreamResponse:
        """What needs a person in the clusters that the caller may see."""
        client = acting_client(self._services, asked)
        wanted = await self._readable(client, asked.user)
        unsettled = await self._unsettled(client, wanted)
        some = asyncio.Semaphore(_AT_ONCE)

        async def look(cluster: Obj) -> ClusterView | None:
            async with some:
                # It may be deleted meanwhile.
                return await if_any(self._view(client, Key.of(cluster)))

        views = [each for each in await asyncio.gather(*map(look, unsettled[:_MOST])) if each is not None]
        found = attention.problems(views, self._services.clock.time())
        body: Obj = {
            "complete": all(each.waits is not None for each in views),
            "clusters": len(wanted),
            "unsettled": len(unsettled),
            "unexplained": max(0, len(unsettled) - _MOST),
            "problems": [each.shown() for each in found],
        }
        return norman.shown(body)

    async def _readable(self, client: Client, user: User) -> list[Obj]:
        """The clusters that the caller may read: for members, those one by one."""
        try:
            return list((await client.list(provisioning.CLUSTERS)).get("items") or ())
        except ApiError as error:
            if error.code != 403:
                raise
        found = (await self._services.client.list(provisioning.CLUSTERS)).get("items") or ()
        keys = map(Key.of, found)
        actions = [Action(user, "get", *provisioning.CLUSTERS, namespace=key.namespace, name=key.name) for key in keys]
        allowed = await asyncio.gather(*map(self._services.access.allowed, actions))
        return [each for each, may in zip(found, allowed, strict=True) if may]

    async def _view(self, client: Client, cluster: Key) -> ClusterView:
        """Raises ApiError when the caller may not read the cluster."""
        view = await read_view(client, *cluster)
        told = await self._waits.known(cluster)
        last = await self._progress.of_cluster(cluster)
        readable = {name_of(each) for each in view.machines}
        said = {
            name: LastLine(rfc3339_micro(line.time), states.one_line(line.text))
            for name, line in last.items()
            if name in readable
        }
        view = replace(view, waits=waits_in(told), leader=str(told.get("leader") or ""), said=said)
        return await with_plans(client, view, lambda each: states.of_machine(each).word != states.READY)

    async def _unsettled(self, client: Client, wanted: list[Obj]) -> list[Obj]:
        """Clusters that are not in use as they are wanted, or about which there is something to say; the oldest first."""
        managed, planes = await asyncio.gather(_all(client, management.CLUSTERS), _all(client, rke.RKE_CONTROL_PLANES))
        by_id = {name_of(each): each for each in managed}
        by_key = {Key.of(each): each for each in planes}
        told = await self._waiting(client, wanted)
        found = [
            each
            for each in wanted
            if Key.of(each) in told or _is_unsettled(each, by_id.get(states.identifier_of(each)), by_key.get(Key.of(each)))
        ]
        return sorted(found, key=lambda each: str(each["metadata"].get("creationTimestamp") or ""))

    async def _waiting(self, client: Client, wanted: list[Obj]) -> set[Key]:
        subjects = self._waits.subjects()
        # Pools' objects begin with the name of their cluster; registered hosts have names of their own.
        hosts = any(ref.kind == "Machine" for ref in subjects)
        machines = await _all(client, capi.MACHINES) if hosts else ()
        return attention.waiting_clusters(wanted, machines, subjects)


async def _all(client: Client, resource: GroupVersionResource) -> Collection[Obj]:
    try:
        return (await client.list(resource)).get("items") or ()
    except ApiError as error:
        if error.code in (403, 404, 405):
            return ()
        raise


def _is_unsettled(wanted: Obj, managed: Obj | None, plane: Obj | None) -> bool:
    state = states.of_cluster(wanted, managed, plane)
    if state.word != states.ACTIVE or state.message:
        return True
    return conditions.is_true(wanted, EXPIRING) or bool(operations.unsuccessful(wanted, plane))


def _redacted(link: Obj) -> Obj:
    """The link; its sentences may quote a host or a provider."""
    return {
        **link,
        "message": redacted(link["message"]),
        "evidence": [redacted(each) for each in link["evidence"]],
        "effects": [{**each, "message": redacted(each["message"])} for each in link["effects"]],
        "waits": [_redacted(each) for each in link["waits"]],
    }
