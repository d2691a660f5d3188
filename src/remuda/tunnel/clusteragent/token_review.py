"""`kube-api-auth`: tells a cluster's API server the user of a Remuda token, from objects in the cluster itself.

The API server calls it as a token webhook (`TokenReview`); the answer comes from caches of ClusterAuthToken and
ClusterUserAttribute, so it needs nothing outside of the cluster. An unknown token is not an error: another authenticator of the
API server may know it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from aiohttp import web

from remuda.access.agent_objects import NAMESPACE
from remuda.access.users.token_hashes import same_secret
from remuda.api.cluster_cattle_io import CLUSTER_AUTH_TOKENS, CLUSTER_USER_ATTRIBUTES
from remuda.client.interface import Client
from remuda.kube.clock import Clock, Rng, parse_rfc3339
from remuda.kube.encoding import jsonio
from remuda.kube.network.unreadable import Runner
from remuda.kube.objects import dig, is_being_deleted
from remuda.runtime import Informers

log = logging.getLogger(__name__)

Obj = dict[str, Any]

GROUP: Final = "authentication.k8s.io"
AUTHENTICATED: Final = "system:cattle:authenticated"
PATHS: Final = ("/v1/authenticate", "/v1beta1/authenticate")
_LARGEST: Final = 64 << 10
_LONGEST_HEADER: Final = 8 << 10


class Reviewer:
    """`client` reads the two kinds in the cluster."""

    def __init__(self, client: Client, clock: Clock, rng: Rng) -> None:
        self._clock = clock
        self._informers = Informers(client, clock, rng)
        self._tokens = self._informers.of(CLUSTER_AUTH_TOKENS, NAMESPACE)
        self._users = self._informers.of(CLUSTER_USER_ATTRIBUTES, NAMESPACE)

    async def run(self) -> None:
        await self._informers.run()

    @property
    def is_ready(self) -> bool:
        return self._tokens.synced.is_set() and self._users.synced.is_set()

    def application(self) -> web.Application:
        app = web.Application(client_max_size=_LARGEST)
        for path in PATHS:
            app.router.add_post(path, self._review)
        app.router.add_get("/healthcheck", self._health)
        app.router.add_get("/readyz", self._readiness)
        return app

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _readiness(self, request: web.Request) -> web.Response:
        return web.Response(text="ok") if self.is_ready else web.Response(status=503, text="the caches are not filled yet")

    async def _review(self, request: web.Request) -> web.Response:
        try:
            review = jsonio.loads(await request.read())
        except ValueError:
            return web.Response(status=400, text="the body is not JSON")
        version = review.get("apiVersion") if isinstance(review, dict) else None
        if version not in (f"{GROUP}/v1", f"{GROUP}/v1beta1") or review.get("kind") != "TokenReview":
            return web.Response(status=400, text=f"the body is not a TokenReview of {GROUP}")
        token = dig(review, "spec", "token")
        status = self.status_of(token if isinstance(token, str) else "")
        answer = {"apiVersion": version, "kind": "TokenReview", "metadata": {}, "status": status}
        return web.Response(body=jsonio.dumps(answer), content_type="application/json")

    def status_of(self, shown: str) -> Obj:
        """The status of a review of this token."""
        name, _, secret = shown.partition(":")
        token = self._tokens.get(NAMESPACE, name) if secret else None
        if token is None:
            return {"authenticated": False}
        user = self._users.get(NAMESPACE, str(token.get("userName") or ""))
        why = self._refusal(token, user, secret)
        if why or user is None:
            log.info("token %s is refused: %s", name, why)
            return {"authenticated": False}
        groups = [group for group in user.get("groups") or () if isinstance(group, str) and not group.startswith("system:")]
        named = str(token["userName"])
        return {"authenticated": True, "user": {"username": named, "uid": named, "groups": [*groups, AUTHENTICATED]}}

    def _refusal(self, token: Obj, user: Obj | None, secret: str) -> str:
        if not same_secret(str(token.get("hash") or ""), True, secret):
            return "the secret is wrong"
        if token.get("enabled") is not True or is_being_deleted(token):
            return "it is disabled"
        if self._is_over(str(token.get("expiresAt") or "")):
            return "it has expired"
        # A known user has the name of an object, so never one with a meaning in Kubernetes itself.
        known = user is not None and user.get("enabled") is True and not is_being_deleted(user)
        return "" if known else "its user is disabled or unknown"

    def _is_over(self, ends: str) -> bool:
        if not ends:
            return False
        try:
            return self._clock.time() >= parse_rfc3339(ends)
        except ValueError:
            return True


async def serve(reviewer: Reviewer, host: str, port: int, stop: asyncio.Event) -> None:
    """Serve until `stop`. Raises OSError if the address is taken."""
    runner = Runner(reviewer.application(), access_log=None, max_field_size=_LONGEST_HEADER, max_line_size=_LONGEST_HEADER)
    await runner.setup()
    following = asyncio.create_task(reviewer.run(), name="the caches")
    try:
        await web.TCPSite(runner, host, port).start()
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait([following, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if following.done():
            await following
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await runner.cleanup()
