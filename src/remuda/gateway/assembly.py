"""The gateway put together: what runs when somebody says `access`.

:class:`Gateway` is what every server has: the door with its routes, the caches behind them, the tunnels. It is made before
anything listens and runs as long as the server does. :class:`AccessControllers` are those of one server at a time.
:func:`admitted_types` are the rules of the kinds, which the embedded API takes in-process and a real one as webhooks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from remuda.apiserver.authn import Authenticator
from remuda.client.api import Client
from remuda.kube.clock import Clock, Entropy, Rng
from remuda.management import CONTROLLERS
from remuda.management.choices import Choices
from remuda.management.choices import admitted as admitted_choices
from remuda.runtime import Informers, Manager, Pauses, Registry
from remuda.runtime.admission import AdmittedType
from remuda.tunnel import TunnelServer

from .audit import AuditLog
from .behind import Behind
from .callers import Callers, TokenAuthenticator
from .door import Auditing, Door, Unaudited
from .facts import Facts
from .importing import Importing
from .lines import Lines
from .live import Live
from .registrations import Registrations
from .services import Access, Authority, Services
from .tunnels import Tunnels

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 5.0
# The definitions may come a moment after the caches are asked for.
_PAUSES = Pauses(first=0.05, longest=5.0)


@dataclass(frozen=True, slots=True)
class Ground:
    """What a gateway stands on. `client` acts as the gateway itself; `data_dir` None: nothing is kept, so there is no audit log.

    `names` gives the names of the certificate that is served at the moment. `certificates` knows those who show one of theirs.
    `healthz`: that path is the gateway's own.
    """

    client: Client
    clock: Clock
    rng: Rng
    entropy: Entropy
    access: Access
    authority: Authority
    environment: Mapping[str, str]
    data_dir: Path | None = None
    names: Callable[[], Iterable[str]] = tuple
    certificates: Authenticator | None = None
    healthz: bool = False
    say: Callable[[str], None] = lambda text: None


class Gateway:
    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        clock, rng = ground.clock, ground.rng
        self.registry = Registry()
        informers = Informers(ground.client, clock, rng, registry=self.registry, pauses=_PAUSES)
        live = Live(informers, ground.environment)
        self.services = Services(
            client=ground.client,
            informers=informers,
            clock=clock,
            rng=rng,
            entropy=ground.entropy,
            access=ground.access,
            authority=ground.authority,
            tunnels=TunnelServer(self._tunnel_key, clock, rng),
            environment=ground.environment,
            settings=live.settings,
            features=live.features,
            data_dir=ground.data_dir,
            say=ground.say,
        )
        self.lines = Lines(clock)
        self.audit = AuditLog(ground.data_dir / "audit" / "audit.log", clock) if ground.data_dir is not None else None
        self.callers = Callers(self.services, ground.certificates)
        self.authenticator = TokenAuthenticator(self.callers)
        self._add_parts()

    def _add_parts(self) -> None:
        services = self.services
        registrations = Registrations(services)
        Facts(services, registrations, healthz=self.ground.healthz)
        Importing(services, registrations)
        Tunnels(services, registrations)

    async def _tunnel_key(self, request: web.Request) -> str | None:
        for authorize in self.services.authorizers:
            if (key := await authorize(request)) is not None:
                return key
        return None

    def door(self, behind: Behind) -> Door:
        """What the listener calls, with :attr:`lines` as its watchman."""
        auditing: Auditing = self.audit if self.audit is not None else Unaudited()
        return Door(self.services, self.callers, behind, auditing, self.lines, self.ground.names)

    async def run(self) -> None:
        """Until cancelled. Tunnels are cut and the audit log is closed at the end."""
        beside = [self.lines.watch, *self.services.beside]
        if self.audit is not None:
            beside.append(self.audit.keep_forced)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.services.informers.run(), name="the gateway's caches")
                for run in beside:
                    group.create_task(self._kept(run))
        finally:
            self.services.tunnels.close()
            if self.audit is not None:
                self.audit.close()

    async def _kept(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """A part that fails begins anew: one that can't do its work must not take the others with it."""
        while True:
            try:
                await run()
                return
            except Exception:
                log.exception("a part of the gateway failed; it begins anew in %.0fs", _AGAIN_SECONDS)
                await self.ground.clock.sleep(_AGAIN_SECONDS)


class AccessControllers:
    """The controllers, or `only` some of them, added to a manager that has not begun to run."""

    def __init__(self, manager: Manager, gateway: Gateway, only: Collection[str] = CONTROLLERS) -> None:
        ground = gateway.ground
        if "settings" in only:
            choices = Choices(manager.client, manager.informers, manager.clock, ground.environment)
            manager.beside(choices.run)


def admitted_types() -> tuple[AdmittedType, ...]:
    """What is defaulted and checked of the kinds of `management.cattle.io` and `provisioning.cattle.io`."""
    return (*admitted_choices(),)
