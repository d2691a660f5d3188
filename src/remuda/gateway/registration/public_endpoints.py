"""Endpoints without authentication, for clients that do not trust us yet, and the settings in Rancher's old API.

An agent with only a checksum or a registration token gets the CA from `/cacerts`: with the hash of a registration token and a
nonce in the request, the answer has a proof that it is ours (docs/reference/registration.md#ca-and-checksum), which nothing in
between can make.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from contextlib import suppress
from typing import Any

from aiohttp import web

from remuda import __version__
from remuda.access.settings.settings import SETTINGS, Effective, Settings, problem_of
from remuda.api.management_cattle_io import GROUP, VERSION
from remuda.api.management_cattle_io import SETTINGS as SETTING_KIND
from remuda.kube.authorization.actions import Action, forbidden_action
from remuda.kube.clock import deadline
from remuda.kube.encoding import jsonio
from remuda.kube.errors import not_found
from remuda.kube.objects import resource_version_of

from ..server import norman
from ..server.dependencies import Services
from ..server.routing import Access, RequestContext
from ..server.serving_certificate import ca_text
from .registration_tokens import Registrations

_LONGEST_NONCE = 1024
_SHA256 = 32
_SEEN_SECONDS = 2.0
# The settings that an agent or a page must be able to read before login.
PUBLIC = ("cacerts",)


class Facts:
    """`healthz`: the gateway itself answers that path, where the API behind it is a foreign Kubernetes."""

    def __init__(self, services: Services, registrations: Registrations, *, healthz: bool = False) -> None:
        self._services = services
        self._registrations = registrations
        self._settings = services.informers.of(SETTING_KIND)
        add = services.routes.add
        add("GET HEAD", "/cacerts", self.cacerts, Access.PUBLIC, largest=0, quiet=True)
        add("GET HEAD", "/cacerts/former", self.former, Access.PUBLIC, largest=0, quiet=True)
        add("GET HEAD", "/ping", self.ping, Access.PUBLIC, largest=0, quiet=True)
        add("GET HEAD", "/rancherversion", self.version, Access.PUBLIC, largest=0, quiet=True)
        for name in PUBLIC:
            add("GET HEAD", f"/v3/settings/{name}", self.public_setting, Access.PUBLIC, largest=0, quiet=True)
        add("GET HEAD", "/v3/settings", self.settings, Access.USER, largest=0)
        add("GET HEAD", "/v3/settings/{name}", self.setting, Access.USER, largest=0)
        add("PUT", "/v3/settings/{name}", norman.told(self.set), Access.USER, largest=norman.LARGEST_BODY)
        if healthz:
            add("GET HEAD", "/healthz", self.health, Access.PUBLIC, largest=0, quiet=True)

    async def ping(self, asked: RequestContext) -> web.StreamResponse:
        return web.Response(text="pong")

    async def health(self, asked: RequestContext) -> web.StreamResponse:
        return web.Response(text="ok")

    async def version(self, asked: RequestContext) -> web.StreamResponse:
        return _json({"Version": f"v{__version__}", "GitCommit": "", "RancherPrime": "false"})

    # --- the CA ---------------------------------------------------------------------------------------------------------

    def ca(self) -> str:
        """The CA that clients are to trust: the one set by an administrator, else the authority of our own certificate."""
        return ca_text(self._services.settings().text("cacerts") or self._services.authority.ca)

    async def cacerts(self, asked: RequestContext) -> web.StreamResponse:
        body = self.ca().encode()
        response = web.Response(body=body, headers={"Content-Type": "text/plain"})
        proof = self._proof(asked, body)
        if proof:
            response.headers["X-Cattle-Hash"] = proof
        return response

    async def former(self, asked: RequestContext) -> web.StreamResponse:
        """The bundles that `/cacerts` served before CAs were dropped, as long as those vouch for the current one.

        An agent that has the checksum of one of them finds there the CA that it trusts, and verifies our certificate by it.
        """
        set_by_user = self._services.settings().text("cacerts")
        return _json({"bundles": [] if set_by_user else list(self._services.former())})

    def _proof(self, asked: RequestContext, body: bytes) -> str:
        headers = asked.request.headers
        nonce, scheme = headers.get("X-Cattle-Nonce", ""), headers.get("Authorization", "").split(" ")
        if not nonce or len(nonce) > _LONGEST_NONCE or len(scheme) != 2 or scheme[0].lower() != "bearer":
            return ""
        digest = _digest(scheme[1])
        token = self._registrations.token_by_digest(digest) if digest else ""
        if not token:
            return ""
        said = nonce.encode(errors="surrogateescape") + b"\0" + body + b"\0"
        return base64.b64encode(hmac.new(token.encode(), said, hashlib.sha512).digest()).decode()

    # --- settings -------------------------------------------------------------------------------------------------------

    async def public_setting(self, asked: RequestContext) -> web.StreamResponse:
        return _json(self._shown(asked, self._services.settings().effective(asked.target.segments[-1])))

    async def setting(self, asked: RequestContext) -> web.StreamResponse:
        name = asked.parameters["name"]
        await self._check(asked, "get", name)
        if name not in SETTINGS:
            raise not_found(GROUP, "settings", name)
        return _json(self._shown(asked, self._services.settings().effective(name), await self._may_set(asked, name)))

    async def set(self, asked: RequestContext) -> web.StreamResponse:
        """Set `value`; empty or null for the default."""
        name = asked.parameters["name"]
        await norman.check(self._services, self._action(asked, "update", name))
        if name not in SETTINGS:
            raise not_found(GROUP, "settings", name)
        body = await norman.body_of(asked)
        if "value" not in body:
            raise norman.invalid("value is missing")
        value = norman.text_of(body, "value")
        for field in ("id", "name"):
            if norman.text_of(body, field, name) != name:
                raise norman.invalid(f"{field} must be {name}, as in the address")
        if problem := problem_of(name, value):
            raise norman.invalid(problem)
        stored = await self._services.client.patch(SETTING_KIND, name, {"value": value})
        # The next read returns the new value; but a slow watch must not delay an answer for ever.
        with suppress(TimeoutError):
            async with deadline(self._services.clock, _SEEN_SECONDS):
                await self._settings.reach(resource_version_of(stored))
        return norman.shown(self._shown(asked, Settings([stored], self._services.environment).effective(name), True))

    async def settings(self, asked: RequestContext) -> web.StreamResponse:
        await self._check(asked, "list")
        may_set = await self._may_set(asked)
        shown = [self._shown(asked, effective, may_set) for effective in self._services.settings().everything()]
        return _json(
            {
                "type": "collection",
                "resourceType": "setting",
                "links": {"self": f"{self._address(asked)}/v3/settings"},
                "data": shown,
            }
        )

    @staticmethod
    def _action(asked: RequestContext, verb: str, name: str = "") -> Action:
        return Action(asked.user, verb, GROUP, VERSION, "settings", name=name)

    async def _may_set(self, asked: RequestContext, name: str = "") -> bool:
        return await self._services.access.allowed(self._action(asked, "update", name))

    async def _check(self, asked: RequestContext, verb: str, name: str = "") -> None:
        action = self._action(asked, verb, name)
        if not await self._services.access.allowed(action):
            raise forbidden_action(action)

    def _address(self, asked: RequestContext) -> str:
        return self._services.settings().text("server-url") or f"https://{asked.request.headers.get('Host', '')}"

    def _shown(self, asked: RequestContext, effective: Effective, may_set: bool = False) -> dict[str, Any]:
        # Agents hash this text with a line end added, so it must not have one already
        # (docs/reference/tunnel.md#start-of-a-cluster-agent, docs/reference/registration.md#ca-and-checksum).
        value = self.ca().rstrip("\n") if effective.name == "cacerts" else effective.value
        itself = f"{self._address(asked)}/v3/settings/{effective.name}"
        return {
            "id": effective.name,
            "type": "setting",
            "baseType": "setting",
            "name": effective.name,
            "value": value,
            "default": effective.default,
            "customized": effective.value != effective.default,
            "source": effective.source,
            "links": {"self": itself, **({"update": itself} if may_set else {})},
        }


def _digest(text: str) -> bytes:
    """The hash that an agent sends in place of its token: base64 of the token's SHA-256, in either alphabet."""
    try:
        found = base64.b64decode(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        return b""
    return found if len(found) == _SHA256 else b""


def _json(body: dict[str, Any]) -> web.Response:
    return web.Response(body=jsonio.dumps(body) + b"\n", headers={"Content-Type": "application/json"})
