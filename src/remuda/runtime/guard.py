"""A `Client` that reads always and writes only while this process leads."""

from __future__ import annotations

from typing import Any

from remuda.client.api import Client
from remuda.client.wrapping import Send, WrappedClient

from .leader import Elector


class GuardedClient(WrappedClient):
    """Each write goes through :meth:`Elector.fenced`."""

    def __init__(self, client: Client, elector: Elector) -> None:
        super().__init__(client)
        self._elector = elector

    async def _call(self, send: Send, *, write: bool) -> Any:
        if not write:
            return await send()
        async with self._elector.fenced():
            return await send()
