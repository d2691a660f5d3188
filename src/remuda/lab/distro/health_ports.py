"""Small doors where the parts of a host say that they are well: the ports that probes ask, which are those of Kubernetes' own."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from remuda.apiserver.http.listener import Listener, server_context

_PATHS = ("/healthz", "/livez", "/readyz")


class HealthPort:
    """Answers `ok` or 503, by what `is_well` says at the moment."""

    def __init__(self, is_well: Callable[[], bool], certificate: Path | None = None) -> None:
        self._is_well = is_well
        context: ssl.SSLContext | None = None
        if certificate is not None:
            context = server_context(certificate, certificate.with_suffix(".key"), None)
        self._listener = Listener(self._answer, context)

    async def open(self, host: str, port: int) -> None:
        await self._listener.open(host, port)

    async def close(self) -> None:
        await self._listener.close(0.0)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path not in _PATHS:
            return web.Response(status=404, text="not found\n")
        return web.Response(text="ok") if self._is_well() else web.Response(status=503, text="not well\n")
