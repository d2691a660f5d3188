"""`/v3/tokens` and logging out: a user's own tokens, listed, made and removed. The secret is told once, by whoever makes one.

Somebody else's token is as good as none, unless the caller may remove tokens by the management API anyway.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from remuda.access.users.tokens import NewToken, is_expired
from remuda.access.users.user_objects import text_problem
from remuda.api.management_cattle_io import GROUP, TOKENS, VERSION
from remuda.kube.authorization.actions import Action
from remuda.kube.errors import bad_request, not_found
from remuda.kube.objects import labels_of, metadata, name_of

from ..server import csrf, norman
from ..server.dependencies import Services
from ..server.norman import Refused, told
from ..server.request_context import Asked
from ..server.routing import Who
from .tokens import Sessions

Obj = dict[str, Any]

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
    """The cluster a token is to be for, "" for all. That one exists is not asked: a name nobody has opens nothing."""
    cluster = norman.text_of(body, "clusterId")
    if cluster and not _CLUSTER.fullmatch(cluster):
        raise norman.invalid("clusterId is no name of a cluster")
    return cluster


class TokenApi:
    def __init__(self, services: Services, sessions: Sessions) -> None:
        self._services = services
        self._sessions = sessions
        add = services.routes.add
        add("GET", "/v3/tokens", told(self.listed), Who.USER, largest=0)
        # Also for logging out, which a newcomer may.
        add("POST", "/v3/tokens", told(self.act), Who.NEWCOMER, largest=norman.LARGEST_BODY)
        add("GET", "/v3/tokens/{name}", told(self.get), Who.USER, largest=0)
        add("DELETE", "/v3/tokens/{name}", told(self.remove), Who.USER, largest=norman.LARGEST_BODY)
        add("POST", "/v1/logout", told(self.logout), Who.NEWCOMER, largest=norman.LARGEST_BODY)

    # --- one's own ------------------------------------------------------------------------------------------------------

    def shown_token(self, asked: Asked) -> Obj:
        """The Token object of what the caller shows; refused for who shows a certificate."""
        assert asked.caller is not None
        shown = asked.caller.presented
        found = self._sessions.tokens.get("", shown.name) if shown is not None else None
        if found is None:
            raise Refused(403, "Forbidden", "this is for who comes with a token: log in first")
        return found

    def _resource(self, asked: Asked, token: Obj, new: NewToken | None = None) -> Obj:
        assert asked.caller is not None
        current = asked.caller.presented.name if asked.caller.presented is not None else ""
        base = norman.base_url(asked, self._services)
        return token_resource(token, base, self._services.clock.time(), current, new)

    async def listed(self, asked: Asked) -> web.StreamResponse:
        mine = sorted(self._sessions.of(asked.user.name), key=name_of)
        itself = f"{norman.base_url(asked, self._services)}/v3/tokens"
        return norman.shown(norman.collection("token", [self._resource(asked, token) for token in mine], itself))

    async def get(self, asked: Asked) -> web.StreamResponse:
        return norman.shown(self._resource(asked, await self._reached(asked, "get")))

    async def remove(self, asked: Asked) -> web.StreamResponse:
        token = await self._reached(asked, "delete")
        shown = self._resource(asked, token)
        await self._sessions.end(token)
        return norman.shown(shown)

    async def _reached(self, asked: Asked, verb: str) -> Obj:
        name = asked.parameters["name"]
        token = self._sessions.tokens.get("", name)
        if token is not None and token.get("userId") == asked.user.name:
            return token
        action = Action(asked.user, verb, GROUP, VERSION, TOKENS.resource, name=name)
        if token is None or not await self._services.access.allowed(action):
            asked.why = "there is no such token" if token is None else "the token is somebody else's"
            raise not_found(GROUP, TOKENS.resource, name)
        return token

    # --- actions --------------------------------------------------------------------------------------------------------

    async def act(self, asked: Asked) -> web.StreamResponse:
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

    async def _create(self, asked: Asked) -> web.StreamResponse:
        parent = self.shown_token(asked)
        body = await norman.body_of(asked)
        wished = norman.milliseconds_of(body, "ttl") / 1000
        made, new = await self._sessions.derive(parent, wished, described(body), cluster_of(body))
        return norman.shown(self._resource(asked, made, new), 201)

    async def logout(self, asked: Asked) -> web.StreamResponse:
        await self._sessions.end(self.shown_token(asked))
        response = web.Response(status=200)
        for cookie in csrf.ended_cookies():
            response.headers.add("Set-Cookie", cookie)
        return response
