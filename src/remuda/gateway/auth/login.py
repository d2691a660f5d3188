"""Logging in: `/v3-public` and `/v1-public`, which need no credential.

The answer depends on `responseType`: `json` (or `token`) returns the session's token, `cookie` sets it as a cookie that no
script can read, `kubeconfig` (or `kubeconfig_<cluster>`) returns a token for programs. A user who must change their password
gets a session that is valid for nothing else (:class:`..server.routing.Access`), and no token for programs.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from remuda.access.users.tokens import NewToken
from remuda.access.users.user_objects import identity_of, must_change_password
from remuda.kube.authorization.users import User
from remuda.kube.errors import bad_request, no_such_path

from ..server import csrf, norman
from ..server.dependencies import Services
from ..server.norman import Refused, told
from ..server.routing import Access, Caller, RequestContext
from .login_providers import Principal, Provider, Providers
from .tokens import KUBECONFIG, Sessions, cluster_of, described, session_seconds, token_resource

Obj = dict[str, Any]

COOKIE, JSON, TOKEN = "cookie", "json", "token"


class Login:
    def __init__(self, services: Services, sessions: Sessions, providers: Providers) -> None:
        self._services = services
        self._sessions = sessions
        self._providers = providers
        add = services.routes.add
        for path in ("/v3-public/authProviders", "/v3-public/authproviders", "/v1-public/authproviders"):
            add("GET", path, told(self.listed), Access.PUBLIC, largest=0, quiet=True)
        add("GET", "/v3-public/{kind}/{provider}", told(self.get), Access.PUBLIC, largest=0, quiet=True)
        add("POST", "/v3-public/{kind}/{provider}", told(self.at_provider), Access.PUBLIC, largest=norman.LARGEST_BODY)
        add("POST", "/v1-public/login", told(self.by_type), Access.PUBLIC, largest=norman.LARGEST_BODY)

    # --- the providers ---------------------------------------------------------------------------------------------------

    async def listed(self, asked: RequestContext) -> web.StreamResponse:
        base = norman.base_url(asked, self._services)
        data = [self._resource(provider, base) for provider in self._providers]
        return norman.shown(norman.collection("authProvider", data, base + asked.target.path))

    async def get(self, asked: RequestContext) -> web.StreamResponse:
        return norman.shown(self._resource(self._provider(asked), norman.base_url(asked, self._services)))

    def _provider(self, asked: RequestContext) -> Provider:
        found = self._providers.named(asked.parameters["provider"])
        kind = asked.parameters["kind"]
        if found is None or kind not in (f"{found.type}s", "authProviders"):
            raise no_such_path()
        return found

    @staticmethod
    def _resource(provider: Provider, base: str) -> Obj:
        itself = f"{base}/v3-public/{provider.type}s/{provider.name}"
        return {
            "id": provider.name,
            "type": provider.type,
            "baseType": "authProvider",
            "name": provider.name,
            "links": {"self": itself},
            "actions": {"login": f"{itself}?action=login"},
        }

    # --- logging in -----------------------------------------------------------------------------------------------------

    async def at_provider(self, asked: RequestContext) -> web.StreamResponse:
        provider = self._provider(asked)
        if norman.action_of(asked) != "login":
            raise bad_request("there is no such action")
        return await self._login(asked, provider, await norman.body_of(asked))

    async def by_type(self, asked: RequestContext) -> web.StreamResponse:
        body = await norman.body_of(asked)
        provider = self._providers.of_type(norman.text_of(body, "type", "localProvider"))
        if provider is None:
            raise norman.invalid("there is no such login provider")
        return await self._login(asked, provider, body)

    async def _login(self, asked: RequestContext, provider: Provider, body: Obj) -> web.StreamResponse:
        self._check_origin(asked)
        kind = norman.text_of(body, "responseType", JSON)
        cluster = _cluster_of_kind(kind)
        wished, description = norman.milliseconds_of(body, "ttl") / 1000, described(body)
        principal = await provider.login(body, asked.address)
        newcomer = must_change_password(principal.user)
        if cluster is not None and newcomer:
            raise Refused(
                403, "PasswordChangeRequired", "the password must be changed first", "the password must be changed first"
            )
        if cluster is not None:
            made, new = await self._sessions.for_kubeconfig(principal, wished, description, cluster)
        else:
            made, new = await self._sessions.begin(principal, wished, description)
        self._note(asked, principal, new)
        if kind == COOKIE:
            return self._with_cookies(new, session_seconds(self._services.settings(), wished))
        base = norman.base_url(asked, self._services)
        body = {**token_resource(made, base, self._services.clock.time(), new=new), "mustChangePassword": newcomer}
        return norman.shown(body, 201)

    def _check_origin(self, asked: RequestContext) -> None:
        """Another site's page must not log the browser's user in here under its own name."""
        headers = asked.request.headers
        ours = (self._services.settings().text("server-url"), f"https://{headers.get('Host', '')}")
        problem = csrf.problem("POST", headers.items(), None, ours)
        if problem:
            raise Refused(403, "Forbidden", problem)

    def _note(self, asked: RequestContext, principal: Principal, new: NewToken) -> None:
        """Set the caller for the audit line."""
        identity = identity_of(principal.user)
        asked.caller = Caller(User(identity, identity), new.presented)

    def _with_cookies(self, new: NewToken, seconds: float) -> web.Response:
        response = web.Response(status=200, headers={"Cache-Control": "no-store"})
        response.headers.add("Set-Cookie", csrf.session_cookie(new.presented, int(seconds)))
        token = csrf.issue(new.presented, self._services.entropy)
        response.headers.add("Set-Cookie", csrf.csrf_cookie(token, int(seconds)))
        return response


def _cluster_of_kind(kind: str) -> str | None:
    """The cluster of a token for programs ("" for all); None when a session is wanted."""
    if kind in (JSON, TOKEN, COOKIE, ""):
        return None
    if kind == KUBECONFIG:
        return ""
    if kind.startswith(f"{KUBECONFIG}_"):
        return cluster_of({"clusterId": kind.removeprefix(f"{KUBECONFIG}_")})
    raise norman.invalid("responseType must be json, token, cookie or kubeconfig")
