"""Informers that several controllers share, so that each resource is followed once.

One :class:`Informers` is one API server. Controllers ask for what they follow before or while it runs; what is asked for
later (a provider's kind that has just appeared) starts at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from remuda.client.interface import Client
from remuda.kube.clock import Clock, Rng
from remuda.kube.objects import GroupVersionResource

from .informer import Informer, Transform
from .metrics import Registry
from .reflector import Pauses

_Selection = tuple[GroupVersionResource, str, str, str, bool, Transform | None]


class Informers:
    name = "informers"

    def __init__(
        self,
        client: Client,
        clock: Clock,
        rng: Rng,
        *,
        registry: Registry | None = None,
        pauses: Pauses = Pauses(),  # noqa: B008 - a constant
    ) -> None:
        """`registry` is where the controllers that share these count."""
        self.registry = registry or Registry()
        self._client = client
        self._clock = clock
        self._rng = rng
        self._pauses = pauses
        self._informers: dict[_Selection, Informer] = {}
        self._group: asyncio.TaskGroup | None = None

    def of(
        self,
        resource: GroupVersionResource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
        transform: Transform | None = None,
    ) -> Informer:
        """The one informer of this selection."""
        key = (resource, namespace, labels, fields, metadata_only, transform)
        found = self._informers.get(key)
        if found is None:
            found = Informer(
                self._client,
                resource,
                self._clock,
                self._rng,
                namespace=namespace,
                labels=labels,
                fields=fields,
                metadata_only=metadata_only,
                transform=transform,
                pauses=self._pauses,
            )
            self._informers[key] = found
            if self._group is not None:
                self._start(found)
        return found

    def __iter__(self) -> Iterator[Informer]:
        return iter(list(self._informers.values()))

    async def run(self) -> None:
        """Keep all of them up until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                for informer in self:
                    self._start(informer)
                # Also with nothing to follow yet: somebody may still ask.
                await asyncio.get_running_loop().create_future()
            finally:
                self._group = None

    def _start(self, informer: Informer) -> None:
        assert self._group is not None
        self._group.create_task(informer.run(), name=f"informer {informer.resource.group_resource}")


async def synced(*informers: Informer) -> None:
    for informer in informers:
        await informer.synced.wait()
