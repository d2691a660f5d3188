"""A real webhook over TLS on loopback, answering as a test tells it to."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from remuda.kube.encoding import jsonio
from tests.real.pki import Authority

Obj = dict[str, Any]
Answer = Callable[[Obj], Any]


class HookServer:
    """`answer(review)` gives a body (dict), or an aiohttp Response; `reviews` keeps what was asked, `urls` where."""

    def __init__(self, ca: bytes, port: int) -> None:
        self.ca_bundle = base64.b64encode(ca).decode()
        self.port = port
        self.reviews: list[Obj] = []
        self.urls: list[str] = []
        self.connections: set[Any] = set()
        self.answer: Answer = allow
        self.hang: asyncio.Event | None = None

    def config(self, path: str = "/hook") -> Obj:
        return {"url": f"https://127.0.0.1:{self.port}{path}", "caBundle": self.ca_bundle}

    async def handle(self, request: web.Request) -> web.StreamResponse:
        review = jsonio.loads(await request.read())
        self.reviews.append(review)
        self.urls.append(str(request.rel_url))
        self.connections.add(request.transport)
        if self.hang is not None:
            await self.hang.wait()
        answered = self.answer(review)
        return answered if isinstance(answered, web.StreamResponse) else web.json_response(answered)


@contextlib.asynccontextmanager
async def serve_hooks(directory: Path) -> AsyncIterator[HookServer]:
    authority = Authority(directory)
    pair = authority.serving("hook", ("127.0.0.1",))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    server = HookServer(authority.pair.cert.read_bytes(), 0)
    app = web.Application()
    app.router.add_post("/{tail:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        if server.hang is not None:
            server.hang.set()
        await runner.cleanup()


def respond(review: Obj, **response: Any) -> Obj:
    return {
        "apiVersion": review["apiVersion"],
        "kind": review["kind"],
        "response": {"uid": review["request"]["uid"], **response},
    }


def allow(review: Obj) -> Obj:
    return respond(review, allowed=True)


def patch(*operations: Obj) -> Answer:
    encoded = base64.b64encode(jsonio.dumps(list(operations))).decode()
    return lambda review: respond(review, allowed=True, patchType="JSONPatch", patch=encoded)
