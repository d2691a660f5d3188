"""A tunnel server that other servers may call, and that calls others."""

from __future__ import annotations

import asyncio

from aiohttp import web

from remuda.kube.clock import SYSTEM_CLOCK, Rng
from remuda.tunnel import Announcer, Server, Session, Stream, StreamError, TunnelClient, serve_relayed
from tests.integration.tunnel.pair import Door


async def answer(about: str, argument: str) -> bytes:
    if about != "echo":
        raise StreamError(f"nothing is known about {about}")
    return argument.encode() * 10_000


class PeerDoor(Door):
    """A tunnel server that other servers may call."""

    async def __aenter__(self) -> PeerDoor:
        async def called(request: web.Request) -> web.StreamResponse:
            return await self.tunnels.accept_server(request, request.headers["X-API-Tunnel-ID"])

        application = web.Application()
        application.router.add_get("/v3/connect", self.tunnels.handle)
        application.router.add_get("/peer", called)
        self._runner = web.AppRunner(application, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        self.url = f"ws://127.0.0.1:{self.port}/v3/connect"
        return self

    def calling(self, port: int, name: str) -> TunnelClient:
        """As this server calls another one, which listens at this port."""

        async def connected(session: Session) -> None:
            stop = self.tunnels.add_own_listener(Announcer(session))
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                stop()

        async def serve(stream: Stream) -> None:
            await serve_relayed(stream, self.tunnels.own, answer)

        url = f"ws://127.0.0.1:{port}/peer"
        return TunnelClient(
            Server(url, proxy=""),
            lambda: {"X-API-Tunnel-ID": name},
            lambda *_: True,
            SYSTEM_CLOCK,
            Rng(4),
            serve=serve,
            connected=connected,
        )
