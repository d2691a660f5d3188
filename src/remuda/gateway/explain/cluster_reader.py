"""Reads a cluster with the permissions of a client.

The cluster itself has to exist and be readable. What belongs to it is read as far as the client may: a reader who may not see
machines still sees the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.capi.well_known import CLUSTER_NAME
from remuda.client.interface import Client
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, dig, labels_of, name_of, namespace_of
from remuda.provisioning.well_known import plan_name

from . import states
from .states import ClusterView

Obj = dict[str, Any]
_T = TypeVar("_T")

# Whose plans are read to explain a cluster: of many that wait, the first say enough.
_MOST_PLANS = 20


async def read_view(client: Client, namespace: str, name: str) -> ClusterView:
    """The cluster as it is now, without waits and what its hosts say. Raises ApiError."""
    wanted = await client.get(provisioning.CLUSTERS, name, namespace)
    identifier = states.identifier_of(wanted)
    managed, cluster, plane, machines = await asyncio.gather(
        if_any(client.get(management.CLUSTERS, identifier)) if identifier else _nothing(),
        if_any(client.get(capi.CLUSTERS, name, namespace)),
        if_any(client.get(rke.RKE_CONTROL_PLANES, name, namespace)),
        if_any(machines_of(client, wanted)),
    )
    return ClusterView(wanted, managed, cluster, plane, tuple(machines or ()))


async def machines_of(client: Client, wanted: Obj) -> list[Obj]:
    """Raises ApiError."""
    namespace, name = key = Key.of(wanted)
    listed = await client.list(capi.MACHINES, namespace, labels=f"{CLUSTER_NAME}={name}")
    return sorted((each for each in listed.get("items") or () if _is_of(each, key)), key=name_of)


async def with_plans(client: Client, view: ClusterView, wanted: Callable[[Obj], bool]) -> ClusterView:
    """The view with the plan Secrets of some machines, as far as this client may read them."""
    chosen = [each for each in view.machines if wanted(each)][:_MOST_PLANS]
    names = {name_of(each): plan_name(str(dig(each, "spec", "bootstrap", "configRef", "name") or "")) for each in chosen}
    namespace = namespace_of(view.wanted)
    found = await asyncio.gather(*(if_any(client.get(SECRETS, secret, namespace)) for secret in names.values()))
    return replace(view, plans={name: each for name, each in zip(names, found, strict=True) if each is not None})


async def if_any(asking: Awaitable[_T]) -> _T | None:
    """The object; None if it does not exist, or if this client may not read it."""
    try:
        return await asking
    except ApiError as error:
        if error.code in (403, 404, 405):
            return None
        raise


async def _nothing() -> None:
    return None


def _is_of(machine: Obj, cluster: Key) -> bool:
    said = dig(machine, "spec", "clusterName") or labels_of(machine).get(CLUSTER_NAME)
    return (namespace_of(machine), said) == cluster
