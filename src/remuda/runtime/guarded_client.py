"""A `Client` that reads always and writes only while this process leads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from remuda.client.interface import Client
from remuda.client.wrapper import Send, WrappedClient
from remuda.kube.errors import Fenced

from .leader_election import Elector, NotLeading


class GuardedClient(WrappedClient):
    """Each write goes through :meth:`Elector.fenced`, and through `around`: :meth:`Fence.standing` where the store takes part."""

    def __init__(
        self, client: Client, elector: Elector, around: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        super().__init__(client)
        self._elector = elector
        self._around = around

    async def _call(self, send: Send, *, write: bool) -> Any:
        if not write:
            return await send()
        async with self._elector.fenced():
            try:
                with self._around():
                    return await send()
            except Fenced as error:
                raise NotLeading(self._elector.name) from error
