"""Interpretation of an API server's responses: values, errors, warnings, pauses, watch lines.

Nothing here does I/O; :mod:`remuda.client.https` does.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping
from http import HTTPStatus
from typing import Any

from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError, page_not_found

from .interface import Obj, WatchEvent

# The reason for clients when a proxy or the like answered instead of the API server.
_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Gone",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


# A Kubernetes API's response to a path with an unknown group, or for a document that it doesn't have.
_PAGES = (b"404 page not found\n", b"")


def value(content: bytes, media_type: str) -> Any:
    """JSON as Python values, anything else as text."""
    if media_type.endswith("json"):
        try:
            return jsonio.loads(content)
        except jsonio.JsonError as error:
            raise ApiError(500, "InternalError", f"the server's answer is not JSON: {error}") from None
    return content.decode(errors="replace")


def named_items(listed: Obj) -> Obj:
    """A list whose items have a kind: those of built-in kinds have it only on the list."""
    kind, api_version = str(listed.get("kind", "")), listed.get("apiVersion", "")
    items = listed.get("items") or []
    if items and "kind" not in items[0] and kind.endswith("List"):
        of = kind.removesuffix("List")
        listed["items"] = [{"kind": of, "apiVersion": api_version, **item} for item in items]
    elif listed.get("items") is None:
        listed["items"] = []
    return listed


def failure(code: int, content: bytes, headers: Mapping[str, str], method: str, path: str) -> ApiError:
    """The server's own Status; a substitute when a proxy or the like answered."""
    retry_after = _seconds(headers.get("Retry-After", ""))
    try:
        status = jsonio.loads(content)
    except jsonio.JsonError:
        status = None
    if isinstance(status, dict) and status.get("kind") == "Status":
        error = ApiError.from_status(status, code)
        error.continue_token = str((status.get("metadata") or {}).get("continue") or "")
        error.retry_after = error.retry_after or retry_after
        return error
    if isinstance(status, dict) and status.get("type") == "error" and isinstance(status.get("message"), str):
        # Errors in the form of Rancher's own API, and of the gateway's below `/v3`.
        return ApiError(code, _REASONS.get(code, ""), status["message"], None, retry_after)
    if code == 404 and content in _PAGES:
        return page_not_found()
    return ApiError(code, _REASONS.get(code, ""), _substitute(code, content, method, path), None, retry_after)


def _substitute(code: int, content: bytes, method: str, path: str) -> str:
    try:
        phrase = f"{code} {HTTPStatus(code).phrase}"
    except ValueError:
        phrase = str(code)
    text = content[:4096].decode(errors="replace").strip()
    told = "" if text.startswith("<") else text.partition("\n")[0][:200]
    return f'{method} {path} was answered with "{phrase}"' + (f": {told}" if told else "")


def pause(code: int, headers: Mapping[str, str]) -> float | None:
    """Seconds to wait before the next request; None when the server did not ask for a pause."""
    if code not in (429, 503) or "Retry-After" not in headers:
        return None
    return float(max(_seconds(headers["Retry-After"]), 1))


def _seconds(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')


def warnings(headers: Iterable[str]) -> list[str]:
    """The texts of Warning headers."""
    found = [text for header in headers for text in _WARNING.findall(header)]
    return [re.sub(r"\\(.)", r"\1", text) for text in found]


def too_long(largest: int) -> ApiError:
    return ApiError(500, "InternalError", f"the server's answer is longer than {largest} bytes")


async def lines(
    chunks: AsyncIterator[bytes], cut: tuple[type[BaseException], ...], largest: int | None = None
) -> AsyncIterator[bytes]:
    """The lines of a stream, by default of any length; any end of the connection ends the lines."""
    pending: list[bytes] = []
    waiting = 0
    try:
        async for chunk in chunks:
            *whole, rest = chunk.split(b"\n")
            for line in whole:
                pending.append(line)
                joined = b"".join(pending)
                pending.clear()
                if joined.strip():
                    yield joined
                waiting = 0
            if rest:
                pending.append(rest)
                waiting += len(rest)
                if largest is not None and waiting > largest:
                    raise too_long(largest)
    except cut:
        return


def event(line: bytes) -> WatchEvent:
    """One watch event; an ERROR event is raised as its error."""
    try:
        found = jsonio.loads(line)
        kind, obj = found["type"], found["object"]
    except (jsonio.JsonError, KeyError, TypeError) as error:
        raise ApiError(500, "InternalError", f"unable to decode an event from the watch stream: {error}") from None
    if kind == "ERROR":
        raise ApiError.from_status(obj if isinstance(obj, dict) else {})
    return WatchEvent(kind, obj)
