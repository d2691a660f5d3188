"""Authentication: tokens, sessions and client certificates become a :class:`~..server.routing.Caller`.

Tokens and users are read from caches, so that a request costs a lookup and a hash. A token that is not in the cache is read once
from the API: a user who has just logged in may be faster than our watch. For the Kubernetes API at `/`,
:class:`TokenAuthenticator` makes the same tokens bearer tokens there. All refusals look the same to the caller; the audit log has
the reason.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remuda.access.users import tokens
from remuda.access.users.user_objects import local_principal
from remuda.api.management_cattle_io import TOKENS, USERS
from remuda.apiserver.auth.authenticator import (
    PROTOCOL_PREFIX,
    Authenticator,
    BadCredentials,
    Credentials,
    Identity,
    protocol_token,
)
from remuda.kube import errors
from remuda.kube.authorization.users import AUTHENTICATED, User
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource
from remuda.runtime import Informer, synced

from ..server.credentials import BadCredential, Presented, parse_token, presented
from ..server.csrf import cookie_counts
from ..server.dependencies import Services
from ..server.routing import Caller, RequestContext
from .session_revocation import Ongoing

log = logging.getLogger(__name__)
Obj = Mapping[str, Any]

CATTLE_AUTHENTICATED = "system:cattle:authenticated"
# The cluster of the management API itself.
HERE = "local"
IDLE_SETTING = "auth-user-session-idle-ttl-minutes"
_WRITE_EVERY = 10.0
_NOT_THERE_SECONDS = 2.0
_NOT_THERE_MOST = 4096
_ASK_AT_ONCE = 8
# A request is authenticated more than once, and callers send several requests: within this time nothing is hashed again.
_KNOWN_SECONDS, _KNOWN_MOST = 5.0, 4096


class NotLetIn(ApiError):
    """401, the same for every caller; `why` is for the audit log."""

    def __init__(self, why: str) -> None:
        super().__init__(401, "Unauthorized", "Unauthorized")
        self.why = why


def user_of(user: Obj, token: Obj, host: str = "") -> User:
    """The user as the management API and every cluster know them (docs/reference/proxy.md#identity)."""
    name = str((user.get("metadata") or {}).get("name") or "")
    known = tokens.principal_name(token.get("userPrincipal")) or next(iter(user.get("principalIds") or ()), "")
    extra = {
        "principalid": [known or local_principal(name)],
        "requesttokenid": [str((token.get("metadata") or {}).get("name") or "")],
        "username": [str(user.get("username") or "")],
    }
    if host:
        extra["requesthost"] = [host[:255]]
    return User(name, name, (*tokens.groups_of(token), AUTHENTICATED, CATTLE_AUTHENTICATED), extra)


def refused_user(user: Obj) -> str:
    """The reason why no token of this user is accepted; "" when there is none."""
    if (user.get("metadata") or {}).get("deletionTimestamp"):
        return "the user is being deleted"
    return "the user is disabled" if user.get("enabled") is False else ""


@dataclass(frozen=True, slots=True)
class _Known:
    """A token that was valid a moment ago, and the objects by which it was."""

    token: Obj
    user: Obj
    cluster: str
    host: str
    until: float
    caller: Caller

    def still(self, token: Obj, users: Informer, shown: Presented, cluster: str, host: str, now: float) -> bool:
        before = self.caller.presented
        return (
            before is not None
            and now < self.until
            and token is self.token
            and users.get("", self.caller.user.name) is self.user
            and (cluster, host, shown.from_cookie, shown.from_basic)
            == (self.cluster, self.host, before.from_cookie, before.from_basic)
            and hmac.compare_digest(shown.secret.encode(), before.secret.encode())
        )


class Callers:
    """`certificates` authenticates client certificates; None where none are requested."""

    def __init__(self, services: Services, certificates: Authenticator | None = None) -> None:
        self._services = services
        self._clock = services.clock
        self._certificates = certificates
        self._tokens = services.informers.of(TOKENS)
        self._users = services.informers.of(USERS)
        self._used: dict[str, str] = {}
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._not_there: OrderedDict[str, float] = OrderedDict()
        self._asking = asyncio.Semaphore(_ASK_AT_ONCE)
        self.ongoing = Ongoing(services)
        services.beside.append(self._keep_last_use)

    async def ready(self) -> None:
        """Wait until users and tokens are cached."""
        await synced(self._tokens, self._users)

    async def identify(self, asked: RequestContext, cluster: str = "") -> Caller | None:
        """The caller by the request's credential; None without one. Raises NotLetIn, and 503 before the caches are filled."""
        headers = asked.request.headers
        try:
            shown = presented(headers.items(), cookie=cookie_counts(asked.target))
        except BadCredential as error:
            raise NotLetIn(str(error)) from None
        if shown is not None:
            return await self.of_token(shown, cluster, headers.get("Host", ""))
        if "Authorization" in headers:
            return None
        return await self._of_certificate(asked)

    async def identify_behind(self, asked: RequestContext) -> Caller | None:
        """The same at the Kubernetes API, which checks certificates itself and also takes a token from a websocket's protocols.
        Such a token is treated as one in `Authorization`: limited in number, audited, and its long requests end with it."""
        headers = asked.request.headers
        shown = headers.getall("Sec-WebSocket-Protocol", [])
        if not any(PROTOCOL_PREFIX in value for value in shown):
            return await self.identify(asked, HERE) if "Authorization" in headers else None
        if "Authorization" in headers or len(shown) > 1:
            raise NotLetIn("a token was sent among the websocket's protocols, and not alone")
        token = parse_token(protocol_token(shown[0]))
        return None if token is None else await self.of_token(token, HERE, headers.get("Host", ""))

    async def _of_certificate(self, asked: RequestContext) -> Caller | None:
        der = getattr(asked.request.protocol, "peer_certificate", None)
        if self._certificates is None or der is None:
            return None
        try:
            found = await self._certificates.identify(Credentials(der))
        except BadCredentials as error:
            raise NotLetIn(error.why) from None
        return None if found is None else Caller(found.user)

    async def of_token(self, shown: Presented, cluster: str = "", host: str = "") -> Caller:
        """The caller whose token this is, for `cluster` ("" for none). Raises NotLetIn."""
        token = await self._find(self._tokens, TOKENS, shown.name)
        if token is None:
            raise NotLetIn("there is no such token")
        known = self._known.get(shown.name)
        if known is not None and known.still(token, self._users, shown, cluster, host, self._clock.monotonic()):
            return known.caller
        why = tokens.refusal(token, shown, self._clock.time(), cluster=cluster, idle=self._idle())
        if why:
            raise NotLetIn(why)
        user = await self._find(self._users, USERS, str(token["userId"]))
        why = refused_user(user) if user is not None else "the token's user does not exist"
        if user is None or why:
            raise NotLetIn(why)
        if (used := tokens.last_use(token, self._clock.time())) is not None:
            self._used[shown.name] = used
        caller = Caller(
            user_of(user, token, host), shown, str(token.get("clusterName") or ""), bool(user.get("mustChangePassword"))
        )
        self._remember(_Known(token, user, cluster, host, self._until(token), caller))
        return caller

    def _until(self, token: Obj) -> float:
        """The time at which a token must be checked again though nothing changed."""
        ends = tokens.ends_at(token)
        left = _KNOWN_SECONDS if ends is None else min(_KNOWN_SECONDS, ends - self._clock.time())
        return self._clock.monotonic() + left

    def _remember(self, known: _Known) -> None:
        assert known.caller.presented is not None
        name = known.caller.presented.name
        self._known[name] = known
        self._known.move_to_end(name)
        if len(self._known) > _KNOWN_MOST:
            self._known.popitem(last=False)

    def _idle(self) -> float:
        return 60.0 * self._services.settings().number(IDLE_SETTING)

    async def _find(self, informer: Informer, resource: GroupVersionResource, name: str) -> Obj | None:
        if not informer.synced.is_set():
            raise errors.unavailable("the server has just started and does not know its users yet: try again", retry_after=1)
        found = informer.get("", name)
        return found if found is not None else await self._ask(resource, name)

    async def _ask(self, resource: GroupVersionResource, name: str) -> Obj | None:
        """Reads from the API what may be too new for the cache. Names that do not exist are not read again and again."""
        key, now = f"{resource.resource}/{name}", self._clock.monotonic()
        if now - self._not_there.get(key, float("-inf")) < _NOT_THERE_SECONDS:
            return None
        async with self._asking:
            try:
                return await self._services.client.get(resource, name)
            except ApiError as error:
                if not error.is_not_found:
                    raise errors.unavailable("the caller can't be identified right now: try again", retry_after=1) from error
        self._not_there[key] = now
        self._not_there.move_to_end(key)
        if len(self._not_there) > _NOT_THERE_MOST:
            self._not_there.popitem(last=False)
        return None

    # --- last use -------------------------------------------------------------------------------------------------------

    async def _keep_last_use(self) -> None:
        while True:
            await self._clock.sleep(_WRITE_EVERY)
            await self.write_last_use()

    async def write_last_use(self) -> None:
        used, self._used = self._used, {}
        for name, moment in used.items():
            try:
                await self._services.client.patch(TOKENS, name, {"lastUsedAt": moment})
            except (ApiError, OSError) as error:
                # Deleted meanwhile, or written next time.
                log.debug("the last use of %s was not written: %s", name, error)


class TokenAuthenticator:
    """The same tokens for the API server's chain, as Bearer or Basic. Tokens for a single cluster are not accepted."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers

    async def identify(self, credentials: Credentials) -> Identity | None:
        try:
            shown = (
                parse_token(credentials.bearer) if credentials.bearer else presented(credentials.headers.items(), cookie=False)
            )
        except BadCredential as error:
            raise BadCredentials(str(error)) from None
        if shown is None:
            return None
        try:
            caller = await self._callers.of_token(shown, HERE, credentials.headers.get("Host", ""))
        except NotLetIn as error:
            raise BadCredentials(error.why) from None
        if caller.must_change_password:
            raise BadCredentials("the password must be changed first")
        return Identity(caller.user)
