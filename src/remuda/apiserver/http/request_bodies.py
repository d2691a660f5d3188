"""Request bodies: bytes in, values out, and kube-apiserver's errors for unreadable ones.

The meaning of the value (kind, version, fields) is checked in :mod:`remuda.apiserver.verbs.bodies`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from remuda.kube import errors
from remuda.kube.encoding import jsonio, yamlio
from remuda.kube.encoding.jsonio import JsonError
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionKind

from ..limits.caller_caps import BodyRoom, HeldBody
from ..scheme import protobuf
from ..scheme.codec import decoder_for
from ..verbs.bodies import Repeated, kind_problem, not_an_object, not_registered, unrecognized
from ..verbs.context import Call
from ..verbs.patch import APPLY_PATCH, JSON_PATCH, STRATEGIC_MERGE_PATCH
from . import negotiation

Obj = dict[str, Any]

BODY_LIMIT = 3 * 1024 * 1024
# Bodies longer than these are parsed on a thread, so that other requests don't wait.
_LONG_JSON = 256 * 1024
_LONG_YAML = 16 * 1024
_LONG_PROTOBUF = 64 * 1024


# The body after it was read: a request may be attempted twice.
_BODY = web.RequestKey("remuda.body", bytes)
# The bytes that it takes of its user's limit.
_HELD = web.RequestKey("remuda.held", HeldBody)


def begin(request: web.BaseRequest, room: BodyRoom, user: str) -> None:
    """Count the body as this user's until :func:`end`."""
    request[_HELD] = HeldBody(room, user)


def end(request: web.BaseRequest) -> None:
    """The request is answered: its body is not kept while the client reads the response."""
    request.pop(_BODY, None)
    if (held := request.pop(_HELD, None)) is not None:
        held.leave()


def has_body(request: web.BaseRequest) -> bool:
    return request.can_read_body or _BODY in request


async def read_limited(request: web.BaseRequest) -> bytes:
    """The whole body, refused with the right Status when it is too large, or when its user has too many in progress."""
    if _BODY in request:
        return request[_BODY]
    declared = request.content_length
    if declared is not None and declared > BODY_LIMIT:
        raise errors.too_large(f"limit is {BODY_LIMIT}")
    if request.headers.get("Content-Encoding", "identity") not in ("", "identity"):
        raise errors.unsupported_media_type("compressed request bodies are not accepted")
    held = request.get(_HELD)
    if held is not None and not held.reach(declared or 0):
        raise _no_room()
    content = request.content
    pieces: list[bytes] = []
    size = 0
    while True:
        piece = await content.readany()
        if not piece:
            break
        size += len(piece)
        if size > BODY_LIMIT:
            raise errors.too_large(f"limit is {BODY_LIMIT}")
        if held is not None and not held.reach(size):
            raise _no_room()
        pieces.append(piece)
    request[_BODY] = body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    return body


def _no_room() -> ApiError:
    return errors.too_many_requests("too many bytes of requests are under way, please try again later")


async def read_object(request: web.BaseRequest, call: Call) -> tuple[Any, list[str]]:
    """The object that was sent, and the complaints of strict field validation about its text."""
    builtin = call.version.resource.builtin
    media = negotiation.input_type(request.headers.get("Content-Type", ""), builtin)
    call.sent = data = await read_limited(request)
    if media == negotiation.PROTOBUF or data.startswith(protobuf.MAGIC):
        try:
            default = (call.version.api_version, call.version.kind)
            return await _protobuf(data, default), []
        except ValueError as error:
            raise errors.bad_request(str(error)) from None
    try:
        return await parse_aside(data, media == negotiation.YAML, merge=builtin)
    except JsonError as error:
        raise unrecognized(call, f"couldn't get version/kind; json parse error: {error}") from None
    except yamlio.YamlError as error:
        raise unrecognized(call, str(error)) from None


async def _protobuf(data: bytes, default: tuple[str, str] | None = None) -> Obj:
    if len(data) <= _LONG_PROTOBUF:
        return protobuf.decode(data, default=default)
    return await asyncio.to_thread(protobuf.decode, data, default=default)


async def parse_aside(data: bytes, yaml: bool, merge: bool = False) -> tuple[Any, list[str]]:
    """:func:`parse`, on a thread where it may take long: Python parses YAML, and finds errors in JSON."""
    if len(data) <= (_LONG_YAML if yaml else _LONG_JSON):
        return parse(data, yaml, merge)
    return await asyncio.to_thread(parse, data, yaml, merge)


def parse(data: bytes, yaml: bool, merge: bool = False) -> tuple[Any, list[str]]:
    """A JSON or YAML document, and complaints about repeated keys. Raises JsonError or YamlError."""
    if yaml:
        if data.startswith(b"{") and (value := _plain_json(data)) is not None:
            return jsonio.loads(jsonio.dumps_sorted(_whole_numbers(value))), []
        value, repeated = yamlio.loads_reporting_duplicates(data)
        # Like Go's parser: an object from YAML has its keys in order, and whole numbers have no fraction.
        return jsonio.loads(jsonio.dumps_sorted(_whole_numbers(value))), yaml_complaints(repeated)
    if jsonio.depth_exceeds(data):
        raise JsonError("exceeded max depth")
    value, paths = jsonio.loads_as_go(data, merge)
    if merge and paths:
        return value, Repeated(paths, jsonio.key_places(data))
    return value, [f'duplicate field "{path}"' for path in paths]


def _plain_json(data: bytes) -> Any:
    """Most YAML bodies are JSON, which is parsed a hundred times faster; None where the two may differ."""
    if b"\\" in data or jsonio.depth_exceeds(data):
        return None
    try:
        value, repeated = jsonio.loads_as_go(data)
    except JsonError:
        return None
    return None if repeated else value


def _whole_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _whole_numbers(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_whole_numbers(child) for child in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e21 else value


def yaml_complaints(repeated: list[str]) -> list[str]:
    """All in one text, as Go's YAML parser words them."""
    return ["yaml: unmarshal errors:\n" + "\n".join(f"  {each}" for each in repeated)] if repeated else []


_OPERATION_FIELDS = frozenset(("op", "path", "from", "value"))


def _operation_complaints(patch: Any) -> list[str]:
    operations = enumerate(patch) if isinstance(patch, list) else ()
    return [
        f'unknown field "[{index}].{name}"'
        for index, operation in operations
        if isinstance(operation, dict)
        for name in operation
        if name not in _OPERATION_FIELDS
    ]


async def parse_patch(data: bytes, content_type: str) -> tuple[Any, list[str]]:
    try:
        value, complaints = await parse_aside(data, content_type == APPLY_PATCH)
        if content_type == JSON_PATCH:
            complaints = [f"json patch {each}" for each in complaints + _operation_complaints(value)]
        return value, complaints
    except JsonError as error:
        where = "" if content_type == STRATEGIC_MERGE_PATCH else "error decoding patch: "
        raise errors.bad_request(f"{where}{error}") from None
    except yamlio.YamlError as error:
        raise errors.bad_request(f"error decoding YAML: error converting YAML to JSON: {error}") from None


_decode_delete_options = decoder_for("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions")


async def read_delete_options(data: bytes, content_type: str) -> Obj:
    """DeleteOptions as a body, of whichever group."""
    media = negotiation.input_type(content_type, builtin=True)
    try:
        raw: Any
        if data.startswith(protobuf.MAGIC):
            raw = await _protobuf(data)
        else:
            raw, _ = await parse_aside(data, media == negotiation.YAML)
        if raw is None:
            raw = {}
        if not isinstance(raw, dict):
            raise errors.bad_request(not_an_object(raw))
        if problem := kind_problem(raw):
            raise errors.bad_request(problem)
        if raw.get("kind") not in (None, "", "DeleteOptions"):
            where = GroupVersionKind.of(raw).api_version or "v1"
            raise errors.bad_request(not_registered(str(raw["kind"]), where))
        return _decode_delete_options(raw)[0]
    except JsonError as error:
        raise errors.bad_request(f"couldn't get version/kind; json parse error: {error}") from None
    except ValueError as error:
        raise errors.bad_request(str(error)) from None
