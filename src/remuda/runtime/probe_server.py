"""Small plain-HTTP endpoints beside the controllers: metrics for a scraper, health for a kubelet."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from remuda.kube.network.unreadable import Runner

# The status code and the text of an answer.
Answer = Callable[[], tuple[int, str]]


class Endpoints:
    """Answers by path. `open`, then `close`."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self._answers = answers
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def open(self, host: str, port: int) -> None:
        app = web.Application()
        app.add_routes([web.get(path, _handler(answer)) for path, answer in self._answers.items()])
        self._runner = Runner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, host or None, port).start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None


def _handler(answer: Answer) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(_request: web.Request) -> web.StreamResponse:
        status, text = answer()
        return web.Response(status=status, text=text)

    return handle
