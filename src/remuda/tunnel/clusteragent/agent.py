"""The agent's main loop: it checks for changes, and reconnects with the new settings without a gap.

These may change: the server's URL, the token, the checksum of the CA (files of a mounted Secret, or a token file), the CA that
the server hands out, the kubeconfig, and the token of the ServiceAccount. Then a new :class:`~.connections.Attachment` is made
beside the old one, and the old one is closed once the new one is up. One that never comes up (a wrong token) replaces nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import NamedTuple

from remuda.client.kubeconfig import ConfigError, KubeTarget
from remuda.kube.clock import deadline
from remuda.kube.errors import ApiError

from .connections import Attachment, ConnectionContext, ended
from .own_cluster import ClusterError, Introduction, OwnCluster
from .settings import Settings, SettingsError, Source

LOOK_EVERY = 3.0
ASK_EVERY = 60.0
PROVEN_AFTER = 5.0

log = logging.getLogger(__name__)


class Running(NamedTuple):
    attachment: Attachment
    work: asyncio.Task[None]
    cluster: OwnCluster


class Agent:
    """`targets` gives the address of the cluster's API, each time again; `enter` connects to it."""

    def __init__(
        self,
        source: Source,
        targets: Callable[[], KubeTarget],
        enter: Callable[[KubeTarget], OwnCluster],
        around: ConnectionContext,
        told: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._source = source
        self._targets = targets
        self._enter = enter
        self._around = around
        self._told = told
        self._cluster: OwnCluster | None = None
        self._introduction: Introduction | None = None
        self._asked_at = 0.0
        self._problem = ""
        # Set to end the wait for the next look early.
        self._news = asyncio.Event()
        self._standing: Running | None = None
        self._coming: Running | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Run until told to stop; both tunnels are closed then. Raises Departed, and unexpected errors."""
        living, stopping = asyncio.create_task(self._live()), asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((living, stopping), return_when=asyncio.FIRST_COMPLETED)
            if living.done():
                living.result()
        finally:
            stopping.cancel()
            await ended([living])
            clusters = self._in_use()
            await ended([each.work for each in self._running()])
            for cluster in clusters:
                await cluster.close()

    async def _live(self) -> None:
        while True:
            await self._look()
            with contextlib.suppress(TimeoutError):
                async with deadline(self._around.clock, LOOK_EVERY):
                    await self._news.wait()
            self._news.clear()
            await self._move_over()

    def _running(self) -> list[Running]:
        return [each for each in (self._standing, self._coming) if each is not None]

    def _in_use(self) -> set[OwnCluster]:
        found = {each.cluster for each in self._running()}
        return found if self._cluster is None else found | {self._cluster}

    async def _look(self) -> None:
        for running in self._running():
            if running.work.done():
                # It never ends by itself; so this raises the error that ended it.
                running.work.result()
        await self._leave_if_departed()
        try:
            settings, introduction = self._source.read(), await self._introduced()
        except (SettingsError, ConfigError, ClusterError, ApiError) as error:
            self._complain(str(error))
            return
        self._problem = ""
        await self._want(settings, introduction)

    async def _leave_if_departed(self) -> None:
        """End when the cluster was deleted on the server. A good connection counts more than the refusal of a new one."""
        said = [each.attachment.departed for each in self._running()]
        if not said or None in said:
            return
        if self._cluster is not None and self._around.credentials:
            try:
                await self._cluster.retire(self._around.credentials)
            except (ApiError, ConfigError) as error:
                log.warning("the agent's own Deployment is not scaled down: %s", error)
        raise next(reason for reason in said if reason is not None)

    def _complain(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            log.warning("%s%s", problem, "; what was known before is kept" if self._standing is not None else "")

    async def _introduced(self) -> Introduction:
        target = self._targets()
        if self._cluster is None or self._cluster.target != target:
            before, self._cluster = self._cluster, self._enter(target)
            self._introduction = None
            await self._close_unused(before)
        now = self._around.clock.monotonic()
        if self._introduction is None or now - self._asked_at >= ASK_EVERY:
            self._introduction = await self._cluster.introduction()
            self._asked_at = now
        return self._introduction

    async def _want(self, settings: Settings, introduction: Introduction) -> None:
        assert self._cluster is not None
        wanted = (settings, introduction)
        if self._standing is not None and wanted == _key(self._standing) and not self._standing.attachment.outdated:
            await self._give_up_coming()
            return
        if self._coming is not None and wanted == _key(self._coming):
            return
        await self._give_up_coming()
        if self._standing is not None:
            log.info("the settings or the cluster's address changed: connecting again beside the old connection")
        attachment = Attachment(settings, introduction, self._cluster, self._around, self._news.set)
        work = asyncio.create_task(attachment.run(), name="the tunnels")
        work.add_done_callback(lambda _: self._news.set())
        self._coming = Running(attachment, work, self._cluster)

    async def _give_up_coming(self) -> None:
        coming, self._coming = self._coming, None
        await self._drop(coming)

    async def _move_over(self) -> None:
        if self._coming is None or self._coming.attachment.stands_since is None:
            return
        if self._standing is not None:
            # A server may still check the target of the new tunnel before it uses it, or end it.
            left = self._coming.attachment.stands_since + PROVEN_AFTER - self._around.clock.monotonic()
            if left > 0:
                self._around.clock.call_later(left, self._news.set)
                return
        before, self._standing, self._coming = self._standing, self._coming, None
        self._told(f"connected to {self._standing.attachment.settings.url}")
        await self._drop(before)

    async def _drop(self, running: Running | None) -> None:
        if running is not None:
            await ended([running.work])
            await self._close_unused(running.cluster)

    async def _close_unused(self, cluster: OwnCluster | None) -> None:
        if cluster is not None and cluster not in self._in_use():
            await cluster.close()


def _key(running: Running) -> tuple[Settings, Introduction]:
    return running.attachment.settings, running.attachment.introduction
