"""Informers that several controllers share, so that each resource is followed once."""

from __future__ import annotations

import asyncio

from remuda.client.api import Client
from remuda.kube.clock import Clock, Rng
from remuda.kube.objects import GroupVersionResource
from remuda.runtime import Informer

NAMESPACES = GroupVersionResource("", "v1", "namespaces")
PODS = GroupVersionResource("", "v1", "pods")
SECRETS = GroupVersionResource("", "v1", "secrets")
CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")
SERVICE_ACCOUNTS = GroupVersionResource("", "v1", "serviceaccounts")


class Watches:
    """Made with what controllers asked for before `run`; it runs them all."""

    name = "informers"

    def __init__(self, client: Client, clock: Clock, rng: Rng) -> None:
        self._client = client
        self._clock = clock
        self._rng = rng
        self._informers: dict[tuple[GroupVersionResource, str], Informer] = {}

    def of(self, resource: GroupVersionResource, fields: str = "") -> Informer:
        found = self._informers.get((resource, fields))
        if found is None:
            found = Informer(self._client, resource, self._clock, self._rng, fields=fields)
            self._informers[resource, fields] = found
        return found

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for (resource, _), informer in self._informers.items():
                group.create_task(informer.run(), name=f"informer {resource.group_resource}")


async def synced(*informers: Informer) -> None:
    for informer in informers:
        await informer.synced.wait()
