"""Both tunnels of one set of settings, kept up until they are given up.

The main one introduces the cluster and is what its API is dialled through; when it stands, the second is opened, which is
answered here. Each comes back by itself, after a pause drawn at random: many agents lose the same server at once.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Collection, Coroutine
from dataclasses import dataclass
from typing import Any

import aiohttp

from remuda.client.kubeconfig import ConfigError
from remuda.kube.clock import Clock, Rng
from remuda.kube.errors import ApiError

from .. import Session, Stream, TunnelClient, TunnelError
from ..client import FIRST_PAUSE, LONGEST_PAUSE
from .dial_allow_list import AllowList, Place
from .own_cluster import Introduction, OwnCluster
from .ping_responder import answer
from .server_trust import Trust, TrustError, establish, followed
from .settings import Settings

# A session that lasted this long was a success, whatever ended it.
_SETTLED = 60.0
TRUST_EVERY = 300.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What does not change while an agent runs."""

    clock: Clock
    rng: Rng
    allowed: tuple[Place, ...] = ()
    # As in `remuda.tunnel.Server`: None asks the environment, "" goes without one.
    proxy: str | None = None
    # The server has met this agent before: the path for first contacts is left out.
    known: bool = False


class Attachment:
    """`stands_since` (by the monotonic clock) both tunnels are there; None while one is missing. `outdated`: the server hands out
    another CA than the one that is believed here."""

    def __init__(
        self,
        settings: Settings,
        introduction: Introduction,
        cluster: OwnCluster,
        around: Surroundings,
        on_stand: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings
        self.introduction = introduction
        self.stands_since: float | None = None
        self.outdated = False
        self._cluster = cluster
        self._on_stand = on_stand
        self._around = around
        self._trust: Trust | None = None
        self._trusting = asyncio.Lock()
        self._registered = around.known
        self._main_is_up = asyncio.Event()
        self._second_is_up = False

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as both:
            both.create_task(self._keep(self._main, "main"))
            both.create_task(self._second())
            both.create_task(self._follow_trust())

    async def _second(self) -> None:
        await self._main_is_up.wait()
        await self._keep(self._answered, "second")

    async def _keep(self, connect: Callable[[], Coroutine[Any, Any, str]], which: str) -> None:
        clock, rng = self._around.clock, self._around.rng
        pause = FIRST_PAUSE
        while True:
            started = clock.monotonic()
            try:
                reason = await connect()
            except (TrustError, TunnelError, OSError, aiohttp.ClientError, ssl.SSLError) as error:
                reason = str(error) or type(error).__name__
                if isinstance(error, ssl.SSLCertVerificationError | aiohttp.ClientConnectorCertificateError):
                    # It may have got another CA: when that has the right checksum, so be it.
                    self._trust = None
            if clock.monotonic() - started >= _SETTLED:
                pause = FIRST_PAUSE
            wait = rng.uniform(pause / 2, pause)
            log.warning("%s tunnel: connecting in %.1f s: %s", which, wait, reason, extra={"server": self.settings.url})
            await clock.sleep(wait)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _main(self) -> str:
        trust = await self._trusted()
        parameters = self.introduction.parameters(trust.fingerprints)
        headers = {"X-API-Tunnel-Token": self.settings.token, "X-API-Tunnel-Params": parameters}
        path = "/v3/connect" if self._registered else "/v3/connect/register"
        allow = AllowList(self.introduction.address, self._around.allowed)

        async def connected(session: Session) -> None:
            self._registered = True
            self._main_is_up.set()
            self._noted()
            await self._announce(trust)

        try:
            return await self._client(trust, path, headers, allow, connected).connect_once()
        finally:
            self._main_is_up.clear()
            self._noted()

    async def _answered(self) -> str:
        headers = {"Authorization": f"Bearer stv-cluster-{self.settings.token}"}

        async def connected(session: Session) -> None:
            self._second_is_up = True
            self._noted()

        trust = await self._trusted()
        try:
            return await self._client(trust, "/v3/connect", headers, lambda *_: True, connected, serve=answer).connect_once()
        finally:
            self._second_is_up = False
            self._noted()

    def _noted(self) -> None:
        """One of both has come or gone."""
        if not (self._main_is_up.is_set() and self._second_is_up):
            self.stands_since = None
        elif self.stands_since is None:
            self.stands_since = self._around.clock.monotonic()
            self._on_stand()

    def _client(
        self,
        trust: Trust,
        path: str,
        headers: dict[str, str],
        allow: Callable[[str, str], bool],
        connected: Callable[[Session], Awaitable[None]],
        serve: Callable[[Stream], Awaitable[None]] | None = None,
    ) -> TunnelClient:
        url = f"wss{self.settings.url.removeprefix('https')}{path}"
        server = trust.server(url, self._around.proxy)
        clock, rng = self._around.clock, self._around.rng
        return TunnelClient(server, lambda: headers, allow, clock, rng, serve=serve, connected=connected)

    async def _trusted(self) -> Trust:
        async with self._trusting:
            if self._trust is None:
                self._trust = await establish(self.settings, self._around.clock, self._around.proxy)
            return self._trust

    async def _follow_trust(self) -> None:
        """The server may have another CA now, and be known by the present one for a while only."""
        while True:
            await self._around.clock.sleep(TRUST_EVERY)
            trust = self._trust
            if trust is not None and await followed(self.settings.url, trust, self._around.clock, self._around.proxy) != trust:
                log.info("the server has another CA now: connecting anew, to believe it", extra={"server": self.settings.url})
                self.outdated = True

    async def _announce(self, trust: Trust) -> None:
        """Written when it can be: that the API is away for a moment is no reason to cut the way to it."""
        pause = FIRST_PAUSE
        while True:
            try:
                return await self._cluster.announce(self.settings, trust)
            except (ApiError, ConfigError) as error:
                log.warning("what others here should know about the server is not written yet: %s", error)
            await self._around.clock.sleep(self._around.rng.uniform(pause / 2, pause))
            pause = min(2 * pause, LONGEST_PAUSE)


async def ended(tasks: Collection[asyncio.Task[None]]) -> None:
    """They are over, whatever they were doing."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
