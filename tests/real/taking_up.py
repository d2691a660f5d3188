"""When a real kube-apiserver serves a definition: a moment after it says that it has established it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from remuda.client.interface import Client
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource


async def taken_up(client: Client, definitions: Iterable[dict[str, Any]]) -> None:
    """Until every version that is to be served is."""
    async with asyncio.timeout(120):
        for spec in (each["spec"] for each in definitions):
            for version in spec["versions"]:
                resource = GroupVersionResource(spec["group"], version["name"], spec["names"]["plural"])
                while version["served"] and not await _is_served(client, resource):
                    await asyncio.sleep(0.05)


async def _is_served(client: Client, resource: GroupVersionResource) -> bool:
    try:
        await client.list(resource)
    except ApiError as error:
        # The second one while a cache for it is being made, the third while its handlers are replaced.
        if error.code in (404, 429, 503):
            return False
        raise
    return True
