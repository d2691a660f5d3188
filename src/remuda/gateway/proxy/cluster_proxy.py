"""`/k8s/clusters/<id>/…`: the API of every cluster, for callers who may see that cluster, as the user that the cluster knows.

In this order: may the caller see the cluster at all (the same answer for one that does not exist), which user do they impersonate
(their own `Impersonate-*` counts only where the management API allows it), is the cluster connected (the proxy waits a little for
an agent that has just disconnected: Rancher waits 20 to 40 s, which makes every tool hang on a cluster that is down; the answer
has a Retry-After for clients that want to wait), then the request goes on with the token of the user's own service account there
(:mod:`.impersonation`). `local` is the management API itself. :mod:`.reverse_proxy` carries the bytes.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from urllib.parse import urljoin, urlsplit

from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from remuda.api.management_cattle_io import CLUSTERS, GROUP, TOKENS
from remuda.apiserver.auth import impersonation as parsing
from remuda.apiserver.http.listener import Request
from remuda.client.idempotent import find
from remuda.kube import conditions, errors
from remuda.kube.authorization.actions import Action, forbidden_action
from remuda.kube.authorization.users import User, split_service_account
from remuda.kube.clock import deadline
from remuda.kube.errors import ApiError

from ..auth.access_review import acting
from ..server.dependencies import Services
from ..server.headers import PROXIED_ANSWER, Cleaned, Headers, for_cluster, from_cluster, upgrade_of, without_shown_tokens
from ..server.path_validation import judge
from ..server.routing import Access, Backend, RequestContext
from .impersonation import Impersonation, headers_for
from .reverse_proxy import Exchange
from .tunnel_downstreams import LOCAL, Reach, TunnelDownstreams

# The time to wait for an agent that is not connected; and for one that has lost its server a moment ago, and connects to another.
WAIT_SECONDS = 5.0
RECONNECT_SECONDS = 15.0
_MOST_LOST = 10_000
RETRY_AFTER = 5

PROVISIONED = "Provisioned"
# The methods of an API server; TRACE would return our own headers to the caller.
_METHODS = "GET HEAD POST PUT PATCH DELETE OPTIONS"

Account = tuple[str, str]
"""Namespace and name of a service account of the cluster's own."""


class Proxy:
    """`behind` is the management API; the code that opens the listener sets it."""

    def __init__(self, services: Services, downstreams: TunnelDownstreams, impersonation: Impersonation) -> None:
        self.behind: Backend | None = None
        self._services = services
        self._downstreams = downstreams
        self._impersonation = impersonation
        self._clusters = services.informers.of(CLUSTERS)
        self._arrivals: dict[str, set[asyncio.Event]] = {}
        # When clusters were lost that were connected.
        self._lost: OrderedDict[str, float] = OrderedDict()
        downstreams.on_change(self._arrived)
        for route in ("/k8s/clusters/{cluster}/{path*}", "/k8s/proxy/{cluster}/{path*}"):
            services.routes.add(_METHODS, route, self.answer, Access.USER, largest=None)

    async def answer(self, asked: RequestContext) -> web.StreamResponse:
        _carry(asked.request, PROXIED_ANSWER)
        cluster = asked.cluster = asked.parameters["cluster"]
        await self._check_access(asked.user, cluster)
        prefix, path = _split(asked.target.path)
        if _opens_shell(asked.target.segments[3:]) and not self._services.features().enabled("pod-shell"):
            raise ApiError(403, "Forbidden", "pod-shell feature is disabled")
        target = f"{path}?{asked.target.query}" if asked.target.query else path
        if cluster == LOCAL:
            return await self._answer_locally(asked, target)
        cleaned = for_cluster(asked.request.headers.items())
        asked.forged = tuple(dict.fromkeys((*asked.forged, *cleaned.forged)))
        who = await self._acting(asked, cleaned)
        reach = await self._reach(cluster)
        return await self._pass_on(asked, reach, target, prefix, cleaned, who)

    # --- authorization ---------------------------------------------------------------------------------------------------

    async def _check_access(self, user: User, cluster: str) -> None:
        action = Action(user, "get", GROUP, "v3", "clusters", name=cluster)
        if not await self._services.access.allowed(action):
            raise forbidden_action(action)

    async def _acting(self, asked: RequestContext, cleaned: Cleaned) -> User | Account:
        """The user to act as in the cluster: the caller, or the user they may impersonate by the management API's rules."""
        wanted = parsing.parse(cleaned.impersonation)
        if wanted is None:
            return asked.user
        asked.impersonated = wanted.name
        user = await acting(self._services.access, asked.user, wanted)
        account = split_service_account(wanted.name)
        if account is not None:
            return account
        for token in user.extra.get("requesttokenid", ()):
            await self._check_token(token, user.name)
        return user

    async def _check_token(self, token: str, user: str) -> None:
        """Refuse the id of a token that belongs to another user."""
        found = await find(self._services.client, TOKENS, token)
        if found is None or found.get("userId") != user:
            raise errors.forbidden("", "", "", "request token user does not match impersonated user")

    # --- the target ------------------------------------------------------------------------------------------------------

    async def _answer_locally(self, asked: RequestContext, target: str) -> web.StreamResponse:
        """The management API's own handler authenticates and impersonates, as it does at `/`."""
        if self.behind is None:
            raise errors.unavailable("the server has just started", RETRY_AFTER)
        said = list(asked.request.headers.items())
        kept = without_shown_tokens(said)
        if kept != said:
            # It would count there beside the one that was checked here.
            asked.forged = (*asked.forged, "sec-websocket-protocol")
        request = asked.request.clone(rel_url=URL(target, encoded=True), headers=CIMultiDict(kept))
        _carry(request, PROXIED_ANSWER)
        there = replace(asked, request=request, target=judge(target))
        try:
            return await self.behind.answer(there)
        finally:
            asked.impersonated, asked.why = there.impersonated, there.why or asked.why

    async def _reach(self, cluster: str) -> Reach:
        found = self._clusters.get("", cluster)
        if found is None:
            raise errors.not_found(GROUP, "clusters", cluster)
        if not conditions.is_true(found, PROVISIONED):
            raise errors.unavailable(f"cluster {cluster} is not provisioned yet", RETRY_AFTER)
        reach = self._downstreams.reach(cluster)
        if reach is not None:
            return reach
        came = asyncio.Event()
        waiting = self._arrivals.setdefault(cluster, set())
        waiting.add(came)
        try:
            async with deadline(self._services.clock, self._patience(cluster)):
                while (reach := self._downstreams.reach(cluster)) is None:
                    await came.wait()
                    came.clear()
            return reach
        except TimeoutError:
            raise errors.unavailable("cluster agent disconnected", RETRY_AFTER) from None
        finally:
            waiting.discard(came)
            if not waiting:
                self._arrivals.pop(cluster, None)

    def _patience(self, cluster: str) -> float:
        lost = self._lost.get(cluster)
        left = 0.0 if lost is None else lost + RECONNECT_SECONDS - self._services.clock.monotonic()
        return max(WAIT_SECONDS, left)

    def _arrived(self, cluster: str) -> None:
        """Its agent has connected or disconnected, or other facts have changed."""
        if self._services.tunnels.has_session(cluster):
            self._lost.pop(cluster, None)
        else:
            self._lost.setdefault(cluster, self._services.clock.monotonic())
            if len(self._lost) > _MOST_LOST:
                self._lost.popitem(last=False)
        for event in self._arrivals.get(cluster, ()):
            event.set()

    # --- the exchange ----------------------------------------------------------------------------------------------------

    async def _pass_on(
        self, asked: RequestContext, reach: Reach, target: str, prefix: str, cleaned: Cleaned, who: User | Account
    ) -> web.StreamResponse:
        request, clock = asked.request, self._services.clock
        upgrade = upgrade_of(request.headers.items())
        kept = without_shown_tokens(cleaned.headers)
        if kept != cleaned.headers:
            asked.forged = (*asked.forged, "sec-websocket-protocol")

        def home(headers: Headers) -> list[tuple[str, str]]:
            def told(location: str) -> str:
                return moved(location, prefix, reach.address, target, request.headers.get("Host", ""))

            found = ((name, told(value) if name.lower() == "location" else value) for name, value in from_cluster(headers))
            return [(name, value) for name, value in found if value or name.lower() != "location"]

        async with Exchange(request, reach.pool, clock, what=f"cluster {reach.cluster}") as exchange:
            for attempt in (1, 2):
                identity = await self._identity(reach.cluster, who)
                head = await exchange.ask(target, [("Host", reach.address), *kept, *identity], upgrade)
                if head.status != 401:
                    break
                # The cluster does not reject the caller, but the account that we have made for them.
                self._forget(reach.cluster, who)
                if attempt == 2 or not exchange.repeatable:
                    raise errors.unavailable(f"cluster {reach.cluster} does not know the user's service account any more", 1)
            try:
                return await exchange.answer(home)
            finally:
                asked.why = asked.why or exchange.noted

    async def _identity(self, cluster: str, who: User | Account) -> list[tuple[str, str]]:
        if isinstance(who, User):
            token = await self._impersonation.token(cluster, who)
            return [("Authorization", f"Bearer {token}"), *headers_for(who)]
        token = await self._impersonation.account_token(cluster, *who)
        return [("Authorization", f"Bearer {token}")]

    def _forget(self, cluster: str, who: User | Account) -> None:
        if isinstance(who, User):
            self._impersonation.forget(cluster, who.name)
        else:
            self._impersonation.forget_account(cluster, *who)


def _carry(request: web.BaseRequest, headers: Mapping[str, str]) -> None:
    """Add these headers to every answer to this request, also to our own errors: all appear at a cluster's address."""

    def put(response: web.StreamResponse) -> None:
        response.headers.pop("Server", None)
        for name, value in headers.items():
            response.headers.setdefault(name, value)

    if isinstance(request, Request):
        request.before_headers = put


def _opens_shell(segments: Sequence[str]) -> bool:
    """Decided on decoded segments: a letter of the path may be percent-encoded."""
    match segments:
        case ["api", "v1", "namespaces", _, "pods", _, "exec" | "attach"]:
            return True
    return False


def _split(path: str) -> tuple[str, str]:
    """`/k8s/clusters/<id>` and the rest of the path, both as written."""
    parts = path.split("/", 4)
    return "/".join(parts[:4]), f"/{parts[4]}" if len(parts) > 4 else "/"


# --- redirects --------------------------------------------------------------------------------------------------------------
#
# The locations that a cluster's answer may redirect a client to. A program that follows a redirect to the host it asked sends its
# token there again, and repeats its request: the owner of one cluster could make an administrator `DELETE` in another. So a
# cluster may redirect within itself, which is below our prefix, or to other hosts, where no client sends our token; and nowhere
# else. Pure.

# The characters of a location; browsers skip tabs, and take a backslash for a slash.
_PLAIN = re.compile(r"[!-\[\]^-~]+", re.ASCII)
_DOTS = frozenset((".", "..", "%2e", "%2e.", ".%2e", "%2e%2e"))


def moved(location: str, prefix: str, address: str, path: str, host: str) -> str:
    """The location for the client; empty for none.

    `address` and `path` were requested of the cluster; `prefix` is the cluster's path at our `host`, as the client named that.
    """
    if not _PLAIN.fullmatch(location):
        return ""
    try:
        parts = urlsplit(urljoin(f"https://{address}{path}", location))
        named, ours = parts.hostname or "", urlsplit(f"https://{host}").hostname or ""
    except ValueError:
        return ""
    if parts.scheme not in ("https", "http") or not named or "@" in parts.netloc:
        return ""
    if parts.scheme == "https" and parts.netloc == address:
        return _below(prefix, parts.path or "/", parts.query, parts.fragment)
    # Also under another port, and below our name: programs send their tokens there again.
    if not ours or named == ours or named.endswith(f".{ours}"):
        return ""
    return location


def _below(prefix: str, path: str, query: str, fragment: str) -> str:
    if not path.startswith("/") or any(part.lower() in _DOTS for part in path.split("/")):
        return ""
    return prefix + path + (f"?{query}" if query else "") + (f"#{fragment}" if fragment else "")
