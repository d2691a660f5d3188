"""Our two sides of a tunnel as programs with the same words as the Go ones in `tests/real/remotedialer`.

`python -m tests.bench.access.tunnel_side server` prints its port and has /connect, /clients and /forward;
`… client URL KEY [COUNT]` keeps a session, or so many with keys of their own, and prints `connected` for each. With a
directory of certificates in $TUNNEL_TLS (:mod:`tests.real.pki`) a second port, in the next line, speaks TLS.
"""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import sys
from pathlib import Path

import uvloop
from aiohttp import web

from remuda.cli.programs.event_loop import raise_file_limit
from remuda.kube.clock import SYSTEM_CLOCK, Rng
from remuda.tunnel import Server, Session, TunnelClient, TunnelServer, join

TOKEN = "right"
TLS = Path(os.environ["TUNNEL_TLS"]) if "TUNNEL_TLS" in os.environ else None


async def authorize(request: web.Request) -> str | None:
    return request.headers["X-Key"] if request.headers.get("X-API-Tunnel-Token") == TOKEN else None


async def serve() -> None:
    tunnels = TunnelServer(authorize, SYSTEM_CLOCK, Rng())

    async def clients(request: web.Request) -> web.Response:
        return web.Response(text="\n".join(tunnels.clients()))

    async def forward(request: web.Request) -> web.Response:
        key, network, address = (request.query[name] for name in ("key", "network", "address"))

        async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await join(await tunnels.dial(key, network, address), reader, writer)

        listener = await asyncio.start_server(lead, "127.0.0.1", 0)
        return web.Response(text=str(listener.sockets[0].getsockname()[1]))

    application = web.Application()
    application.router.add_get("/connect", tunnels.handle)
    application.router.add_get("/clients", clients)
    application.router.add_get("/forward", forward)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    if TLS is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(TLS / "serving.crt", TLS / "serving.key")
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        print(runner.addresses[1][1], flush=True)
    await asyncio.get_running_loop().create_future()


async def connect(url: str, key: str, count: int) -> None:
    server = Server(url, (TLS / "ca.crt").read_bytes() if TLS is not None else b"", proxy="")

    async def greet(session: Session) -> None:
        print("connected", flush=True)

    def client(name: str) -> TunnelClient:
        headers = {"X-API-Tunnel-Token": TOKEN, "X-Key": name}
        return TunnelClient(server, lambda: headers, lambda *_: True, SYSTEM_CLOCK, Rng(), connected=greet)

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(client(key if count == 1 else f"{key}-{number}").run())


def main(arguments: list[str]) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    raise_file_limit()
    match arguments:
        case ["server"]:
            uvloop.run(serve())
        case ["client", url, key, *rest]:
            uvloop.run(connect(url, key, int(rest[0]) if rest else 1))
        case _:
            sys.exit("server | client URL KEY [COUNT]")


if __name__ == "__main__":
    main(sys.argv[1:])
