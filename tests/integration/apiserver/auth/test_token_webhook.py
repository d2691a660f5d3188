"""Tokens that somebody else knows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from remuda.apiserver.auth.authenticator import BadCredentials, Credentials
from remuda.apiserver.auth.token_webhook import WebhookAuthenticator
from remuda.apiserver.webhook_client import WebhookClient, WebhookEndpoint
from remuda.kube.clock import SYSTEM_CLOCK, VirtualClock

Obj = dict[str, Any]
SOMEBODY = {"username": "u-1", "uid": "1", "groups": ["team://1"], "extra": {"from": ["afar"]}}


class Webhook:
    """Answers with `status`; `asked` are the reviews that came."""

    def __init__(self) -> None:
        self.status: Obj = {}
        self.asked: list[Obj] = []

    async def answer(self, request: web.Request) -> web.Response:
        review = await request.json()
        self.asked.append(review)
        return web.json_response({**review, "spec": {}, "status": self.status})


@pytest.fixture
async def webhook() -> AsyncIterator[tuple[Webhook, str]]:
    found = Webhook()
    app = web.Application()
    app.router.add_post("/v1/authenticate", found.answer)
    server = TestServer(app, host="127.0.0.1")
    await server.start_server()
    try:
        yield found, str(server.make_url("/v1/authenticate"))
    finally:
        await server.close()


@pytest.fixture
async def client() -> AsyncIterator[WebhookClient]:
    found = WebhookClient(SYSTEM_CLOCK)
    yield found
    await found.close()


async def test_a_token_is_asked_about_once_in_a_while(webhook: tuple[Webhook, str], client: WebhookClient) -> None:
    there, url = webhook
    clock = VirtualClock()
    found = WebhookAuthenticator(client, WebhookEndpoint(url, b""), clock, keep=120)
    there.status = {"authenticated": True, "user": SOMEBODY}
    assert await found.identify(Credentials()) is None and there.asked == [], "nothing was shown"
    for _ in range(2):
        identity = await found.identify(Credentials(bearer="t"))
        assert identity is not None
        user = identity.user
        assert (user.name, user.uid, user.groups, user.extra) == ("u-1", "1", ("team://1",), {"from": ["afar"]})
    assert [(each["apiVersion"], each["spec"]) for each in there.asked] == [("authentication.k8s.io/v1beta1", {"token": "t"})]
    there.status = {"authenticated": False}
    await clock.advance(121)
    assert await found.identify(Credentials(bearer="t")) is None, "it was withdrawn"


@pytest.mark.parametrize(
    "status", [{}, {"authenticated": False}, {"authenticated": "true", "user": SOMEBODY}, {"authenticated": True, "user": {}}]
)
async def test_who_is_not_said_to_be_known_is_not(webhook: tuple[Webhook, str], client: WebhookClient, status: Obj) -> None:
    there, url = webhook
    there.status = status
    found = WebhookAuthenticator(client, WebhookEndpoint(url, b""), VirtualClock(), version="v1")
    assert await found.identify(Credentials(bearer="t")) is None
    assert there.asked[0]["apiVersion"] == "authentication.k8s.io/v1"


async def test_what_is_wrong_is_told_and_trouble_is_not_remembered(webhook: tuple[Webhook, str], client: WebhookClient) -> None:
    there, url = webhook
    there.status = {"error": "its time is over"}
    found = WebhookAuthenticator(client, WebhookEndpoint(url, b""), VirtualClock())
    with pytest.raises(BadCredentials) as refused:
        await found.identify(Credentials(bearer="t"))
    assert refused.value.why == "its time is over"
    nobody = WebhookAuthenticator(client, WebhookEndpoint(url.replace("/v1/", "/none/"), b""), VirtualClock())
    for _ in range(2):
        with pytest.raises(BadCredentials):
            await nobody.identify(Credentials(bearer="t"))
