"""Creation and revocation of tokens: their lifetime, their parent, and the caches that must see them before the answer is sent.

Times come from settings: a session lasts at most so many minutes, a token that was made with another one is limited to a
maximum, and never outlives a parent that was itself made so. (A session may make tokens that outlast it: that is their purpose.
A token with an expiry must not be able to make its own successor.)
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Mapping
from typing import Any

from aiohttp import web

from remuda.access.settings.settings import Settings
from remuda.access.users.controllers import user_of_token
from remuda.access.users.tokens import NewToken, TokenSpec, ends_at, is_expired, make_token
from remuda.access.users.user_objects import identity_of, text_problem
from remuda.api.management_cattle_io import GROUP, TOKENS, VERSION
from remuda.client.idempotent import remove
from remuda.kube.authorization.actions import Action
from remuda.kube.clock import deadline
from remuda.kube.errors import ApiError, bad_request, not_found
from remuda.kube.objects import labels_of, metadata, name_of, resource_version_of

from ..server import csrf, norman
from ..server.dependencies import Services
from ..server.norman import Refused, invalid, told
from ..server.routing import Access, RequestContext
from .login_providers import Principal

Obj = dict[str, Any]

BY_USER = "user"
KUBECONFIG = "kubeconfig"
SESSION_KIND = "session"
SESSION_TTL, MAX_TTL, KUBECONFIG_TTL = (
    "auth-user-session-ttl-minutes",
    "auth-token-max-ttl-minutes",
    "kubeconfig-default-token-ttl-minutes",
)
# A user needs no more; without a limit one user could fill the store. A new session ends the oldest one, since a program that
# logs in each minute must not lock its user out.
MOST_TOKENS = 1000
MOST_SESSIONS = 200
_TRIES = 5
_SEEN_SECONDS = 5.0


def session_seconds(settings: Settings, wished: float) -> float:
    """The lifetime of a session: the requested one, at most the setting's."""
    longest = 60.0 * settings.number(SESSION_TTL)
    return min(wished, longest) if wished else longest


def derived_seconds(settings: Settings, wished: float, parent: Obj | None, now: float, usual: str = MAX_TTL) -> float:
    """The lifetime of a token made with `parent`, 0 for ever; `usual` is the setting for requests that ask for none."""
    longest = 60.0 * settings.number(MAX_TTL)
    seconds = wished or 60.0 * settings.number(usual)
    if longest:
        seconds = min(seconds, longest) if seconds else longest
    ends = ends_at(parent) if parent is not None and parent.get("isDerived") is not False else None
    if ends is None:
        return seconds
    left = max(ends - now, 1.0)
    return min(seconds, left) if seconds else left


class Sessions:
    def __init__(self, services: Services) -> None:
        self._services = services
        self.tokens = services.informers.of(TOKENS)
        self.tokens.add_index(BY_USER, user_of_token)
        # The events of those who wait for a token's deletion, by its name.
        self._leaving: dict[str, asyncio.Event] = {}
        self.tokens.on_change(self._changed)

    def of(self, user: str) -> list[Obj]:
        """A user's tokens in the cache."""
        return self.tokens.indexed(BY_USER, user)

    # --- creating --------------------------------------------------------------------------------------------------------

    async def begin(self, principal: Principal, wished: float, description: str) -> tuple[Obj, NewToken]:
        """A session for a user who has just logged in."""
        seconds = session_seconds(self._services.settings(), wished)
        wish = TokenSpec(
            user=identity_of(principal.user),
            ttl=seconds,
            kind=SESSION_KIND,
            description=description,
            derived=False,
            provider=principal.provider,
            principal=principal.manifest(),
            groups=principal.groups,
        )
        await self._make_room(wish.user)
        return await self._create(wish)

    async def _make_room(self, user: str) -> None:
        sessions = [token for token in self.of(user) if token.get("isDerived") is False]
        sessions.sort(key=lambda token: (str(token["metadata"].get("creationTimestamp") or ""), name_of(token)))
        for token in sessions[: max(0, len(sessions) + 1 - MOST_SESSIONS)]:
            await self.end(token)

    async def for_kubeconfig(self, principal: Principal, wished: float, description: str, cluster: str) -> tuple[Obj, NewToken]:
        """A token for a program, for a user who has just logged in."""
        now = self._services.clock.time()
        wish = TokenSpec(
            user=identity_of(principal.user),
            ttl=derived_seconds(self._services.settings(), wished, None, now, KUBECONFIG_TTL),
            kind=KUBECONFIG,
            description=description,
            provider=principal.provider,
            principal=principal.manifest(),
            groups=principal.groups,
            cluster=cluster,
            name=self._kubeconfig_name(identity_of(principal.user)),
        )
        return await self._create(wish)

    async def derive(
        self, parent: Obj, wished: float, description: str, cluster: str, *, kubeconfig: bool = False
    ) -> tuple[Obj, NewToken]:
        """A token made with `parent`: for the same user and groups, and for the same cluster if the parent is for one."""
        bound = str(parent.get("clusterName") or "")
        if bound and cluster and cluster != bound:
            raise Refused(403, "Forbidden", "a token for one cluster can't make one for another")
        user = str(parent.get("userId") or "")
        usual = KUBECONFIG_TTL if kubeconfig else MAX_TTL
        wish = TokenSpec(
            user=user,
            ttl=derived_seconds(self._services.settings(), wished, parent, self._services.clock.time(), usual),
            kind=KUBECONFIG if kubeconfig else "",
            description=description,
            provider=str(parent.get("authProvider") or ""),
            principal=parent.get("userPrincipal"),
            groups=tuple(parent.get("groupPrincipals") or ()),
            cluster=bound or cluster,
            name=self._kubeconfig_name(user) if kubeconfig else "",
        )
        return await self._create(wish)

    def _kubeconfig_name(self, user: str) -> str:
        return f"{KUBECONFIG}-{user}-{self._services.entropy.token_text(5)}"

    async def _create(self, wish: TokenSpec) -> tuple[Obj, NewToken]:
        if wish.derived and sum(token.get("isDerived") is not False for token in self.of(wish.user)) >= MOST_TOKENS:
            raise Refused(409, "TooManyTokens", f"a user can have at most {MOST_TOKENS} tokens: remove some first")
        for _ in range(_TRIES):
            try:
                new = make_token(wish, self._services.clock.time(), self._services.entropy)
            except ValueError as error:
                raise invalid(str(error)) from None
            try:
                made = await self._services.client.create(TOKENS, new.manifest)
            except ApiError as error:
                # Five random characters may collide.
                if not error.is_already_exists or wish.name:
                    raise
                continue
            await self.seen(self.tokens.reach(resource_version_of(made)))
            return made, new
        raise Refused(503, "ServiceUnavailable", "no free name was found for the token: try again", retry_after=1)

    # --- revoking --------------------------------------------------------------------------------------------------------

    async def end(self, token: Obj) -> None:
        """Delete the token; when this returns, it is no longer valid at this server, also for those who copied it."""
        await remove(self._services.client, TOKENS, token)
        await self.seen(self._gone(token))

    async def end_others(self, user: str, current: str) -> int:
        """End a user's sessions but the current one, after a new password. Tokens for programs stay."""
        found = [token for token in self.of(user) if token.get("isDerived") is False and name_of(token) != current]
        for token in found:
            await self.end(token)
        return len(found)

    async def _gone(self, token: Obj) -> None:
        name = name_of(token)
        waiting = self._leaving.setdefault(name, asyncio.Event())
        try:
            while self.tokens.get("", name) is not None:
                await waiting.wait()
        finally:
            self._leaving.pop(name, None)

    def _changed(self, new: Obj | None, old: Obj | None) -> None:
        if new is None and old is not None and (waiting := self._leaving.get(name_of(old))) is not None:
            waiting.set()

    async def seen(self, happening: Awaitable[None]) -> None:
        """Wait until the gateway's caches have caught up; a slow watch must not delay an answer for ever."""
        try:
            async with deadline(self._services.clock, _SEEN_SECONDS):
                await happening
        except TimeoutError:
            return


# --- tokens api -----------------------------------------------------------------------------------------------------------
#
# `/v3/tokens` and logging out: a user's own tokens, listed, made and removed. Only the answer to its creation has the secret.
#
# Another user's token is treated as missing, unless the caller may remove tokens by the management API anyway.

_CLUSTER = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def token_resource(token: Mapping[str, Any], base: str, now: float, current: str = "", new: NewToken | None = None) -> Obj:
    """A token as Rancher's clients see it; with its secret when it is new."""
    found = dict(token)
    name = name_of(found)
    return {
        "id": name,
        "type": "token",
        "baseType": "token",
        "name": name,
        **norman.created_fields(metadata(found)),
        "authProvider": str(token.get("authProvider") or ""),
        "clusterId": str(token.get("clusterName") or "") or None,
        "current": bool(current) and name == current,
        "description": str(token.get("description") or ""),
        "enabled": token.get("enabled") is not False,
        "expired": is_expired(token, now),
        "expiresAt": str(token.get("expiresAt") or ""),
        "isDerived": token.get("isDerived") is True,
        "labels": labels_of(found),
        "lastUsedAt": token.get("lastUsedAt"),
        "ttl": token.get("ttl") or 0,
        "userId": str(token.get("userId") or ""),
        "userPrincipal": token.get("userPrincipal") or {},
        **({"token": new.presented.text} if new is not None else {}),
        "links": {"self": f"{base}/v3/tokens/{name}", "remove": f"{base}/v3/tokens/{name}"},
    }


def described(body: Obj) -> str:
    description = norman.text_of(body, "description")
    if problem := text_problem("the description", description):
        raise norman.invalid(problem)
    return description


def cluster_of(body: Obj) -> str:
    """The cluster that a token is for, "" for all. Its existence is not checked: a token for an unknown name is of no use."""
    cluster = norman.text_of(body, "clusterId")
    if cluster and not _CLUSTER.fullmatch(cluster):
        raise norman.invalid("clusterId is no name of a cluster")
    return cluster


class TokenApi:
    def __init__(self, services: Services, sessions: Sessions) -> None:
        self._services = services
        self._sessions = sessions
        add = services.routes.add
        add("GET", "/v3/tokens", told(self.listed), Access.USER, largest=0)
        # Also for logging out, which a newcomer may do.
        add("POST", "/v3/tokens", told(self.act), Access.PASSWORD_CHANGE, largest=norman.LARGEST_BODY)
        add("GET", "/v3/tokens/{name}", told(self.get), Access.USER, largest=0)
        add("DELETE", "/v3/tokens/{name}", told(self.remove), Access.USER, largest=norman.LARGEST_BODY)
        add("POST", "/v1/logout", told(self.logout), Access.PASSWORD_CHANGE, largest=norman.LARGEST_BODY)

    # --- own tokens ------------------------------------------------------------------------------------------------------

    def shown_token(self, asked: RequestContext) -> Obj:
        """The Token object of the caller's credential; refused for callers with a certificate."""
        assert asked.caller is not None
        shown = asked.caller.presented
        found = self._sessions.tokens.get("", shown.name) if shown is not None else None
        if found is None:
            raise Refused(403, "Forbidden", "this requires a token: log in first")
        return found

    def _resource(self, asked: RequestContext, token: Obj, new: NewToken | None = None) -> Obj:
        assert asked.caller is not None
        current = asked.caller.presented.name if asked.caller.presented is not None else ""
        base = norman.base_url(asked, self._services)
        return token_resource(token, base, self._services.clock.time(), current, new)

    async def listed(self, asked: RequestContext) -> web.StreamResponse:
        mine = sorted(self._sessions.of(asked.user.name), key=name_of)
        itself = f"{norman.base_url(asked, self._services)}/v3/tokens"
        return norman.shown(norman.collection("token", [self._resource(asked, token) for token in mine], itself))

    async def get(self, asked: RequestContext) -> web.StreamResponse:
        return norman.shown(self._resource(asked, await self._reached(asked, "get")))

    async def remove(self, asked: RequestContext) -> web.StreamResponse:
        token = await self._reached(asked, "delete")
        shown = self._resource(asked, token)
        await self._sessions.end(token)
        return norman.shown(shown)

    async def _reached(self, asked: RequestContext, verb: str) -> Obj:
        name = asked.parameters["name"]
        token = self._sessions.tokens.get("", name)
        if token is not None and token.get("userId") == asked.user.name:
            return token
        action = Action(asked.user, verb, GROUP, VERSION, TOKENS.resource, name=name)
        if token is None or not await self._services.access.allowed(action):
            asked.why = "there is no such token" if token is None else "the token belongs to another user"
            raise not_found(GROUP, TOKENS.resource, name)
        return token

    # --- actions --------------------------------------------------------------------------------------------------------

    async def act(self, asked: RequestContext) -> web.StreamResponse:
        assert asked.caller is not None
        match norman.action_of(asked):
            case "logout":
                return await self.logout(asked)
            case "logoutall":
                await self._sessions.end_others(asked.user.name, self.shown_token(asked)["metadata"]["name"])
                return await self.logout(asked)
            case "":
                if asked.caller.must_change_password:
                    raise Refused(403, "Forbidden", "the password must be changed first")
                return await self._create(asked)
        raise bad_request("there is no such action")

    async def _create(self, asked: RequestContext) -> web.StreamResponse:
        parent = self.shown_token(asked)
        body = await norman.body_of(asked)
        wished = norman.milliseconds_of(body, "ttl") / 1000
        made, new = await self._sessions.derive(parent, wished, described(body), cluster_of(body))
        return norman.shown(self._resource(asked, made, new), 201)

    async def logout(self, asked: RequestContext) -> web.StreamResponse:
        await self._sessions.end(self.shown_token(asked))
        response = web.Response(status=200)
        for cookie in csrf.ended_cookies():
            response.headers.add("Set-Cookie", cookie)
        return response
