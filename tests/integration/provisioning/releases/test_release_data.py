"""Release data, fetched over HTTP."""

from __future__ import annotations

import json

import pytest
from aiohttp import web

from remuda.client.download import FetchError
from remuda.kube.clock import SYSTEM_CLOCK
from remuda.provisioning.releases.release_data import fetcher
from tests.unit.provisioning.releases.test_release_data import data


async def test_a_document_is_fetched_from_the_web() -> None:
    async def moved(request: web.Request) -> web.Response:
        raise web.HTTPFound("/data.json")

    async def there(request: web.Request) -> web.Response:
        return web.json_response(data("v1.33.1+k3s1"))

    app = web.Application()
    app.add_routes([web.get("/moved.json", moved), web.get("/data.json", there)])
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        fetch = fetcher(SYSTEM_CLOCK, {})
        assert json.loads(await fetch(f"http://{host}:{port}/moved.json")) == data("v1.33.1+k3s1")
        with pytest.raises(FetchError, match="answered 404"):
            await fetch(f"http://{host}:{port}/none.json")
    finally:
        await runner.cleanup()
    with pytest.raises(FetchError, match="can't be reached"):
        await fetch(f"http://{host}:{port}/data.json")
