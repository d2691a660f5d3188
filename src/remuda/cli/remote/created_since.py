"""Counting the objects of a cluster that were created after a moment, by kind: what a restore to that moment would lose.

Only metadata is read, through the server's proxy, as the user who asks. What a user may not list, or what takes too long, is
named instead of counted. Objects that were changed or deleted since can't be found in this way.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from remuda.kube.clock import time_of
from remuda.kube.errors import ApiError
from remuda.kube.objects import metadata

from ..views.restore_preview import CreatedSince
from .resource_kinds import Kind, served

if TYPE_CHECKING:
    from remuda.client.https import HttpsClient

Obj = dict[str, Any]

_METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
# What a cluster writes by itself all the time.
_PASSING: Final = frozenset({"componentstatuses", "controllerrevisions", "endpoints", "endpointslices", "events", "leases"})
_PAGE, _MOST_PAGES, _AT_ONCE = 500, 40, 8
_SECONDS: Final = 20.0


async def created_since(client: HttpsClient, identifier: str, at: float, seconds: float = _SECONDS) -> CreatedSince:
    """Objects created since then in the cluster with this id; "" is the server's own API."""
    before = f"/k8s/clusters/{identifier}" if identifier else ""
    counting = _Counting(client, before, at)
    try:
        async with asyncio.timeout(seconds):
            await counting.run()
    except TimeoutError:
        return CreatedSince(counting.counts, f"what took longer than {seconds:.0f} s")
    except ApiError as error:
        return CreatedSince({}, f"the cluster's API does not answer ({error.message})")
    return CreatedSince(counting.counts, _listed(counting.refused))


class _Counting:
    def __init__(self, client: HttpsClient, before: str, at: float) -> None:
        self.counts: dict[str, int] = {}
        self.refused: list[str] = []
        self._client = client
        self._before = before
        self._at = at
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def run(self) -> None:
        """Raises ApiError if the API can't be asked at all."""
        kinds = _each_once(await served(self._client, self._before))
        async with asyncio.TaskGroup() as tasks:
            for kind in kinds:
                tasks.create_task(self._count(kind))

    async def _count(self, kind: Kind) -> None:
        async with self._turns:
            try:
                found = await self._newer(kind)
            except ApiError:
                self.refused.append(kind.qualified)
                return
        if found:
            self.counts[kind.qualified] = found

    async def _newer(self, kind: Kind) -> int:
        query, newer = {"limit": str(_PAGE)}, 0
        for _ in range(_MOST_PAGES):
            page = await self._client.raw("GET", f"{self._before}{kind.path('')}", query=query, accept=_METADATA)
            newer += sum(self._is_newer(item) for item in page.get("items") or ())
            query["continue"] = str((page.get("metadata") or {}).get("continue") or "")
            if not query["continue"]:
                return newer
        self.refused.append(f"more than {_PAGE * _MOST_PAGES} {kind.qualified}")
        return newer

    def _is_newer(self, item: Obj) -> bool:
        created = time_of(metadata(item).get("creationTimestamp"))
        return created is not None and created > self._at


def _each_once(kinds: list[Kind]) -> list[Kind]:
    """One of the versions and groups in which the server has the same objects."""
    found = {(kind.group, kind.plural): kind for kind in reversed(kinds) if kind.plural not in _PASSING}
    return list(found.values())[::-1]


def _listed(kinds: list[str]) -> str:
    kinds = sorted(kinds)
    return ", ".join(kinds[:5]) + (f" and {len(kinds) - 5} more" if len(kinds) > 5 else "")
