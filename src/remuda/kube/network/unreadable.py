"""Unreadable requests, on every listener: their answers and log lines.

aiohttp's answer and log contain the unreadable bytes. These may be the body of the previous request, taken for the
next request line: a login without its length. So the reason depends only on the kind of the error, without a
byte of the request. :class:`Connection` does so for listeners, :class:`Runner` for applications.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import (
    BadStatusLine,
    ContentEncodingError,
    ContentLengthError,
    HttpProcessingError,
    InvalidHeader,
    InvalidURLError,
    LineTooLong,
    TransferEncodingError,
)
from aiohttp.web_protocol import RequestHandler, RequestPayloadError

log = logging.getLogger(__name__)

_REASONS: tuple[tuple[type[BaseException], str], ...] = (
    (InvalidURLError, "the target of the request can't be read"),
    (LineTooLong, "a line of the request is too long"),
    (InvalidHeader, "a header of the request can't be read"),
    (BadStatusLine, "the request does not begin with a method, a target and a version of HTTP"),
    (TransferEncodingError, "the chunks of the body can't be read"),
    (ContentEncodingError, "the encoding of the body can't be read"),
    (ContentLengthError, "the body is not as long as was said"),
    (HttpProcessingError, "what was sent is no HTTP request"),
)


def reason(error: BaseException) -> str:
    """The reason why a request could not be read, without any of its bytes."""
    return next((text for kind, text in _REASONS if isinstance(error, kind)), "the connection was lost")


class Connection(RequestHandler):
    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        if not isinstance(exc, HttpProcessingError):
            return super().handle_error(request, status, exc, message)
        why = reason(exc)
        self.misread(request, why)
        log.debug("a request could not be read: %s", why)
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun already")
        response = web.Response(status=status, text=why)
        response.force_close()
        return response

    def misread(self, request: web.BaseRequest, why: str) -> None:
        """Called before the answer."""

    def log_exception(self, *args: Any, **kwargs: Any) -> None:
        """Clients' protocol errors and disconnects are no errors of ours: logged at debug level."""
        found = kwargs.get("exc_info")
        error = sys.exc_info()[1] if found is True else found
        if isinstance(error, HttpProcessingError | ConnectionError | RequestPayloadError):
            log.debug("a request could not be read: %s", reason(error))
            return
        super().log_exception(*args, **kwargs)


class _Server(web.Server):
    def __call__(self) -> Connection:
        return Connection(self, loop=self._loop, **self._kwargs)


class Runner(web.AppRunner):
    """Runs small servers that are one application each."""

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        loop = asyncio.get_running_loop()
        return _Server(made.request_handler, request_factory=made.request_factory, loop=loop, **made._kwargs)
