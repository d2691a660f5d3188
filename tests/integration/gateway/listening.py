"""The routes of a management API, over real HTTP."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from aiohttp import web

from remuda.gateway.server.path_validation import judge
from remuda.gateway.server.routing import RequestContext
from tests.unit.gateway.management_gateway import Management


@contextlib.asynccontextmanager
async def door(made: Management) -> AsyncIterator[str]:
    """Where they listen."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        target = judge(request.path_qs)
        found = made.services.routes.find(request.method, target)
        assert isinstance(found, tuple)
        asked = RequestContext(request, target, "127.0.0.1", found[1])
        made.asked.append(asked)
        return await found[0].answer(asked)

    runner = web.ServerRunner(web.Server(handle), shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        made.services.tunnels.close()
        await runner.cleanup()
