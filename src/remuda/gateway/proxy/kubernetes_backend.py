"""A foreign Kubernetes as the management API: requests go on to its API server, as the user who sent them.

Callers with a token of ours are impersonated with the gateway's own credential. All others (a service account's token, a client
of that Kubernetes) are passed on with their own credential, over connections without our certificate: an API server that sees it
would take them for us. Impersonation by a caller counts only where that Kubernetes allows it (:mod:`..auth.access_review`); all
other identity headers are removed.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from aiohttp import web

from remuda.apiserver.auth import impersonation as parsing
from remuda.client.credentials import CredentialSource, source_for
from remuda.client.kubeconfig import ConfigError, KubeTarget
from remuda.client.tls import client_context
from remuda.kube.authorization.users import User
from remuda.kube.clock import Clock
from remuda.kube.errors import unavailable

from ..auth.access_review import acting, impersonation_headers
from ..server.dependencies import Access
from ..server.headers import Cleaned, for_cluster, from_cluster, upgrade_of, without_shown_tokens
from ..server.routing import RequestContext
from .connection_pool import Pool, direct
from .partial_list import Theirs
from .reverse_proxy import Exchange


class Kubernetes:
    """`target` has its address and our credential; `access` asks it; `theirs` answers lists that it would refuse.

    Raises ConfigError for a target that can't be used.
    """

    def __init__(self, target: KubeTarget, clock: Clock, access: Access, theirs: Theirs | None = None) -> None:
        parts = urlsplit(target.server)
        if parts.scheme != "https" or not parts.hostname or parts.path.strip("/"):
            raise ConfigError(f"{target.server} must be https:// and a host, without a path")
        if target.exec_plugin is not None:
            raise ConfigError("a gateway needs a permanent credential: a token, a token file or a client certificate")
        self._clock = clock
        self._access = access
        self._shown = theirs
        self._credentials: CredentialSource = source_for(target, clock)
        self._host = parts.netloc
        port = parts.port or 443
        bare = KubeTarget(target.server, ca=target.ca, insecure=target.insecure)
        name = target.tls_server_name
        self._ours = Pool(direct(parts.hostname, port, client_context(target), name), clock)
        self._theirs = Pool(direct(parts.hostname, port, client_context(bare), name), clock)

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()

    async def answer(self, asked: RequestContext) -> web.StreamResponse:
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

    async def _as_they_are(self, asked: RequestContext, cleaned: Cleaned) -> web.StreamResponse:
        """Pass the request on with the caller's own credential."""
        shown = [("Authorization", value) for value in asked.request.headers.getall("Authorization", [])]
        headers = [("Host", self._host), *cleaned.headers, *shown, *cleaned.impersonation]
        return await self._pass_on(asked, self._theirs, headers)

    async def _as(self, asked: RequestContext, cleaned: Cleaned, user: User) -> web.StreamResponse:
        own = await self._credentials.current()
        kept = without_shown_tokens(cleaned.headers)
        shown = [("Authorization", own.authorization)] if own.authorization else []
        return await self._pass_on(asked, self._ours, [("Host", self._host), *kept, *shown, *impersonation_headers(user)])

    async def _pass_on(self, asked: RequestContext, pool: Pool, headers: list[tuple[str, str]]) -> web.StreamResponse:
        request, target = asked.request, asked.target
        path = f"{target.path}?{target.query}" if target.query else target.path
        async with Exchange(request, pool, self._clock, what="the Kubernetes API") as exchange:
            head = await exchange.ask(path, headers, upgrade_of(request.headers.items()))
            if head.status == 401 and pool is self._ours:
                # It rejects our credential, not the caller's.
                self._credentials.forget()
                raise unavailable("the Kubernetes API does not accept this gateway's credential", 5)
            try:
                return await exchange.answer(from_cluster)
            finally:
                asked.why = asked.why or exchange.noted
