"""What a request held is repeated to nobody when it can't be read: not in the answer, the audit log or a log, on any door."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from remuda.apiserver.http.connection_limits import ConnectionLimits
from remuda.apiserver.http.listener import Listener
from remuda.app.attached import Endpoints
from remuda.gateway.auth.authenticator import Callers
from remuda.gateway.handler import GatewayHandler
from remuda.gateway.server.audit_log import Record, render
from remuda.kube.clock import SYSTEM_CLOCK
from remuda.kube.network.unreadable import Runner, reason
from tests.integration.gateway.auth.logged_in_users import LOGIN, Nothing, house

SECRET = "Hunter2Hunter2"
BODY = f'{{"username":"admin","password":"{SECRET}"}}'
HOST = "Host: x\r\n"
# Each is sent as it is; in each the secret is where the program that reads it does not expect it.
REQUESTS = {
    "a login that does not say how long it is": f"POST {LOGIN} HTTP/1.1\r\n{HOST}\r\n{BODY}\r\n\r\n",
    "a login that says it is shorter": f"POST {LOGIN} HTTP/1.1\r\n{HOST}Content-Length: 2\r\n\r\n{{}}{BODY}\r\n\r\n",
    "a body alone": f"{BODY}\r\n\r\n",
    "a word for a method": f"{SECRET} / HTTP/1.1\r\n{HOST}\r\n",
    "a form": f"POST {LOGIN} HTTP/1.1\r\n{HOST}\r\npassword={SECRET}&x=y HTTP/1.1\r\n\r\n",
    "another protocol": f"GET / {SECRET}/1.1\r\n{HOST}\r\n",
    "a header without an end": f"GET / HTTP/1.1\r\n{HOST}{SECRET}\r\n\r\n",
    "a header's name": f"GET / HTTP/1.1\r\n{HOST}{SECRET} x: y\r\n\r\n",
    "a header's value": f"GET / HTTP/1.1\r\n{HOST}Authorization: Bearer {SECRET}\x01\r\n\r\n",
    "a length": f"POST {LOGIN} HTTP/1.1\r\n{HOST}Content-Length: {SECRET}\r\n\r\n",
    "two lengths": f"POST {LOGIN} HTTP/1.1\r\n{HOST}Content-Length: 1\r\nContent-Length: {SECRET}\r\n\r\n",
    "an encoding": f"POST {LOGIN} HTTP/1.1\r\n{HOST}Transfer-Encoding: {SECRET}\r\n\r\n",
    "a chunk": f"POST {LOGIN} HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n{SECRET}\r\n\r\n",
    "a host": f"GET /v3-public/authProviders HTTP/1.1\r\nHost: {SECRET}@x/y\r\n\r\n",
    "a long line": f"GET / HTTP/1.1\r\n{HOST}X: {SECRET}{'x' * 70000}\r\n\r\n",
    "no JSON": f"POST {LOGIN} HTTP/1.1\r\n{HOST}Content-Length: {len(BODY)}\r\n\r\n{BODY[:-1]}x",
    "another type": f'POST {LOGIN} HTTP/1.1\r\n{HOST}Content-Length: {len(SECRET) + 2}\r\n\r\n"{SECRET}"',
    "a query": f"GET /v3/users?token={SECRET} HTTP/1.1\r\n{HOST}\r\n",
    "a protocol among websockets": (
        f"GET /v3/connect HTTP/1.1\r\n{HOST}Upgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.{SECRET}\r\n\r\n"
    ),
}


async def sent(port: int, data: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data.encode("latin-1"))
        await writer.drain()
        found = await asyncio.wait_for(reader.read(1 << 16), 20)
        with contextlib.suppress(TimeoutError):
            # Until the door hangs up, or waits for the next request.
            while more := await asyncio.wait_for(reader.read(1 << 16), 0.3):
                found += more
        return found
    finally:
        writer.close()


@asynccontextmanager
async def door(caplog: pytest.LogCaptureFixture) -> AsyncIterator[tuple[int, list[Record]]]:
    caplog.set_level(logging.DEBUG)
    async with house() as here:
        await here.admin()
        here.audit.clear()
        lines = ConnectionLimits(SYSTEM_CLOCK)
        answering = GatewayHandler(here.made.services, Callers(here.made.services), Nothing(), here, lines)
        listener = Listener(answering, None, lines)
        await listener.open("127.0.0.1", 0)
        try:
            yield listener.port, here.audit
        finally:
            await listener.close(0)


@pytest.mark.parametrize("kind", REQUESTS)
async def test_what_can_not_be_read_is_not_repeated(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async with door(caplog) as (port, audit):
        answer = await sent(port, REQUESTS[kind])
        written = b"".join(render(record, 0.0) for record in audit)
    assert answer.startswith(b"HTTP/1.") and SECRET.encode() not in answer
    assert SECRET.encode() not in written and SECRET not in caplog.text
    assert audit, "it was told that there was one"


async def test_why_a_request_can_not_be_read_is_said_in_words_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    async with door(caplog) as (port, audit):
        answer = await sent(port, REQUESTS["a login that does not say how long it is"])
        assert b"400 Bad Request" in answer and answer.endswith(b"a version of HTTP")
        assert audit[-1].why == "the request does not begin with a method, a target and a version of HTTP"
    assert reason(ValueError(SECRET)) == "the connection was lost"


@pytest.mark.parametrize("kind", REQUESTS)
async def test_small_doors_repeat_nothing(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Metrics and health; webhooks and the reviewer of tokens are an application each, too."""
    caplog.set_level(logging.DEBUG)
    endpoints = Endpoints({"/healthz": lambda: (200, "ok")})
    await endpoints.open("127.0.0.1", 0)
    try:
        answer = await sent(endpoints.port, REQUESTS[kind])
    finally:
        await endpoints.close()
    assert SECRET.encode() not in answer and SECRET not in caplog.text


async def test_an_application_reads_what_can_be_read() -> None:
    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=await request.read())

    app = web.Application()
    app.add_routes([web.post("/", echo)])
    runner = Runner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        answer = await sent(runner.addresses[0][1], f"POST / HTTP/1.1\r\n{HOST}Content-Length: 2\r\nConnection: close\r\n\r\nhi")
        assert answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"hi")
    finally:
        await runner.cleanup()


def test_every_application_is_run_by_the_runner_that_repeats_nothing() -> None:
    from .page import ROOT

    using = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "src").rglob("*.py")
        if any(word in path.read_text() for word in (" web.AppRunner(", "ServerRunner(", "web.run_app("))
    }
    assert using == set()
