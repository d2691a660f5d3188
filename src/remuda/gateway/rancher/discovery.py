"""The kinds that the management API serves now, read from its discovery documents when they may have changed."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from remuda.client.interface import Client
from remuda.kube.builtin_resources import CRDS
from remuda.kube.clock import Clock
from remuda.kube.errors import ApiError
from remuda.runtime import Informers

from .kinds import Kinds, custom_columns, defined_columns, preferred_versions, read

Obj = dict[str, Any]

# Kinds of aggregated APIs change without a definition.
_SECONDS: Final = 30.0
# After a definition changed, discovery follows within this time.
_UNSETTLED_SECONDS: Final = 5.0
_AT_ONCE: Final = 16


class Discovery:
    def __init__(self, client: Client, informers: Informers, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._definitions = informers.of(CRDS, transform=defined_columns)
        self._definitions.on_change(self._changed)
        self._kinds = Kinds(())
        self._read_at = float("-inf")
        self._changed_at = float("-inf")
        self._lock = asyncio.Lock()

    def _changed(self, new: Obj | None, old: Obj | None) -> None:
        self._changed_at = self._clock.monotonic()

    def _is_current(self) -> bool:
        settled = self._read_at > self._changed_at + _UNSETTLED_SECONDS
        return self._clock.monotonic() - self._read_at < (_SECONDS if settled else 1.0) and self._read_at > self._changed_at

    async def kinds(self) -> Kinds:
        """The same object as long as nothing is known to have changed."""
        if not self._is_current():
            async with self._lock:
                if not self._is_current():
                    await self._read()
        return self._kinds

    async def _read(self) -> None:
        begun = self._clock.monotonic()
        groups, core = await asyncio.gather(self._client.raw("GET", "/apis"), self._client.raw("GET", "/api"))
        documents: list[Obj] = []
        versions = preferred_versions(groups, core)
        for first in range(0, len(versions), _AT_ONCE):
            documents += await asyncio.gather(*(self._resources(*each) for each in versions[first : first + _AT_ONCE]))
        found = read(documents, custom_columns(self._definitions.objects()))
        if list(found) != list(self._kinds):
            self._kinds = found
        self._read_at = begun

    async def _resources(self, group: str, version: str) -> Obj:
        try:
            found: Obj = await self._client.raw("GET", f"/apis/{group}/{version}" if group else f"/api/{version}")
        except ApiError:
            # An aggregated API that does not answer; the others still do.
            return {}
        return found
