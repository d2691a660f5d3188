"""Somebody else's Kubernetes behind the door: requests go on to its API server, as whoever asked.

Whoever came with a token of ours is impersonated with the gateway's own credential. Everybody else (a service account's token, a
client of that Kubernetes) is passed on with what they showed, over connections on which we show nothing: an API server that sees
our certificate would take them for us. Whom a caller wants to be counts only where that Kubernetes says that they may
(:mod:`..auth.access_review`); what else says who somebody is never gets through.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from aiohttp import web

from remuda.apiserver.auth import impersonation as parsing
from remuda.client.credentials import CredentialSource, source_for
from remuda.client.kubeconfig import ConfigError, Target
from remuda.client.tls import client_context
from remuda.kube.authorization.users import User
from remuda.kube.clock import Clock
from remuda.kube.errors import unavailable

from ..auth.access_review import acting, impersonation_headers
from ..server.dependencies import Access
from ..server.headers import Cleaned, for_cluster, from_cluster, upgrade_of, without_shown_tokens
from ..server.request_context import Asked
from .connection_pool import Pool, direct
from .partial_list import Theirs
from .reverse_proxy import Exchange


class Kubernetes:
    """`target` says where it is and who we are there; `access` asks it; `theirs` answers lists that it would refuse.

    Raises ConfigError for a target that can't be used.
    """

    def __init__(self, target: Target, clock: Clock, access: Access, theirs: Theirs | None = None) -> None:
        parts = urlsplit(target.server)
        if parts.scheme != "https" or not parts.hostname or parts.path.strip("/"):
            raise ConfigError(f"{target.server} must be https:// and a host, without a path")
        if target.exec_plugin is not None:
            raise ConfigError("a gateway needs a credential that lasts: a token, a token file or a client certificate")
        self._clock = clock
        self._access = access
        self._shown = theirs
        self._credentials: CredentialSource = source_for(target, clock)
        self._host = parts.netloc
        port = parts.port or 443
        bare = Target(target.server, ca=target.ca, insecure=target.insecure)
        name = target.tls_server_name
        self._ours = Pool(direct(parts.hostname, port, client_context(target), name), clock)
        self._theirs = Pool(direct(parts.hostname, port, client_context(bare), name), clock)

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()

    async def answer(self, asked: Asked) -> web.StreamResponse:
        cleaned = for_cluster(asked.request.headers.items())
        asked.forged = tuple(dict.fromkeys((*asked.forged, *cleaned.forged)))
        caller = asked.caller
        if caller is None:
            return await self._as_they_are(asked, cleaned)
        wanted = parsing.parse(cleaned.impersonation)
        user = caller.user
        if wanted is not None:
            asked.impersonated = wanted.name
            user = await acting(self._access, user, wanted)
        shown = await self._shown.answer(asked, user) if self._shown is not None else None
        return shown if shown is not None else await self._as(asked, cleaned, user)

    async def _as_they_are(self, asked: Asked, cleaned: Cleaned) -> web.StreamResponse:
        """That Kubernetes knows them, or does not."""
        shown = [("Authorization", value) for value in asked.request.headers.getall("Authorization", [])]
        headers = [("Host", self._host), *cleaned.headers, *shown, *cleaned.impersonation]
        return await self._pass_on(asked, self._theirs, headers)

    async def _as(self, asked: Asked, cleaned: Cleaned, user: User) -> web.StreamResponse:
        own = await self._credentials.current()
        kept = without_shown_tokens(cleaned.headers)
        shown = [("Authorization", own.authorization)] if own.authorization else []
        return await self._pass_on(asked, self._ours, [("Host", self._host), *kept, *shown, *impersonation_headers(user)])

    async def _pass_on(self, asked: Asked, pool: Pool, headers: list[tuple[str, str]]) -> web.StreamResponse:
        request, target = asked.request, asked.target
        path = f"{target.path}?{target.query}" if target.query else target.path
        async with Exchange(request, pool, self._clock, what="the Kubernetes API") as exchange:
            head = await exchange.ask(path, headers, upgrade_of(request.headers.items()))
            if head.status == 401 and pool is self._ours:
                # Not the caller is unknown there, but we are.
                self._credentials.forget()
                raise unavailable("the Kubernetes API does not know this gateway", 5)
            try:
                return await exchange.answer(from_cluster)
            finally:
                asked.why = asked.why or exchange.noted
