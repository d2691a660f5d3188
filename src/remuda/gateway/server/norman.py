"""Rancher's old API as its clients know it: resources with `id`, `type` and `links`, actions by `?action=`, and its errors.

Other programs and pages use it to log in and to make tokens. Everything else of Remuda is the Kubernetes API. This module has the
format only; the resources are in :mod:`..auth.login`, :mod:`..auth.users_api`, :mod:`..auth.tokens` and
:mod:`..auth.kubeconfigs`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from aiohttp import web

from remuda.kube.authorization.actions import Action
from remuda.kube.clock import parse_rfc3339
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError, bad_request, too_large

from .dependencies import Services
from .routing import Answer, RequestContext

Obj = dict[str, Any]

# All requests of this API are short.
LARGEST_BODY = 64 << 10
_MOST_PARAMETERS = 32
# The form of a Host header that may appear in an answer: a name or an address, and a port.
_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252})|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?", re.ASCII)


class Refused(ApiError):
    """`message` is for the caller; `why` is for the audit log."""

    def __init__(self, code: int, reason: str, message: str, why: str = "", retry_after: int = 0) -> None:
        super().__init__(code, reason, message, None, retry_after)
        self.why = why or message


def invalid(message: str) -> ApiError:
    return ApiError(422, "InvalidBodyContent", message)


def told(answer: Answer) -> Answer:
    """`answer` with its errors in Rancher's form."""

    async def answered(asked: RequestContext) -> web.StreamResponse:
        try:
            return await answer(asked)
        except ApiError as error:
            asked.why = asked.why or str(getattr(error, "why", "") or error.message)
            return failed(error)

    return answered


def failed(error: ApiError) -> web.Response:
    body = {"type": "error", "baseType": "error", "status": error.code, "code": error.reason, "message": error.message}
    response = shown(body, error.code)
    if error.retry_after:
        response.headers["Retry-After"] = str(error.retry_after)
    if error.code == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def shown(body: Obj, status: int = 200) -> web.Response:
    headers = {"Content-Type": "application/json", "Cache-Control": "no-store"}
    return web.Response(status=status, body=jsonio.dumps(body) + b"\n", headers=headers)


def collection(kind: str, data: list[Obj], itself: str) -> Obj:
    return {"type": "collection", "resourceType": kind, "links": {"self": itself}, "data": data}


async def body_of(asked: RequestContext) -> Obj:
    """The object in the body; an empty one without a body."""
    if (asked.request.content_length or 0) > LARGEST_BODY:
        raise too_large(f"limit is {LARGEST_BODY}")
    data = await asked.request.read()
    if len(data) > LARGEST_BODY:
        raise too_large(f"limit is {LARGEST_BODY}")
    if not data.strip():
        return {}
    try:
        found = jsonio.loads(data)
    except jsonio.JsonError:
        # Without details: the text may quote a password.
        raise bad_request("the body is not JSON") from None
    if not isinstance(found, dict):
        raise bad_request("the body must be a JSON object")
    return found


def text_of(body: Obj, field: str, default: str = "") -> str:
    value = body.get(field)
    if value is None:
        return default
    if not isinstance(value, str):
        raise invalid(f"{field} must be text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise invalid(f"{field} must be text that can be written in UTF-8") from None
    return value


def flag_of(body: Obj, field: str) -> bool | None:
    value = body.get(field)
    if value is not None and not isinstance(value, bool):
        raise invalid(f"{field} must be true or false")
    return value


def milliseconds_of(body: Obj, field: str) -> int:
    value = body.get(field)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 53:
        raise invalid(f"{field} must be a number of milliseconds, 0 or more")
    return value


def parameters_of(asked: RequestContext) -> Mapping[str, str]:
    """The query. Duplicate parameters are refused: two readers could choose differently."""
    try:
        found = parse_qs(asked.target.query, keep_blank_values=True, max_num_fields=_MOST_PARAMETERS)
    except ValueError:
        raise bad_request("the query has too many parameters") from None
    if any(len(values) > 1 for values in found.values()):
        raise bad_request("a parameter of the query is given twice")
    return {name: values[0] for name, values in found.items()}


def action_of(asked: RequestContext) -> str:
    """The action, in lower case: clients differ in how they write it."""
    return parameters_of(asked).get("action", "").lower()


def base_url(asked: RequestContext, services: Services) -> str:
    """The server's URL for the caller: the setting, else the host that they requested."""
    said = services.settings().text("server-url")
    if said:
        return said.rstrip("/")
    host = asked.request.headers.get("Host", "")
    if not _HOST.fullmatch(host):
        raise bad_request("the Host header is no name or address")
    return f"https://{host}"


async def check(services: Services, action: Action, message: str = "") -> None:
    """Raise 403 unless the action's user may do it."""
    if not await services.access.allowed(action):
        why = f"{action.user.name} may not {action.verb} {action.resource} {action.name}".rstrip()
        raise Refused(403, "Forbidden", message or "you are not allowed to do this", why)


def created_fields(metadata: Mapping[str, Any]) -> Obj:
    """The creation time and uid, as every resource has them."""
    created = str(metadata.get("creationTimestamp") or "")
    try:
        stamp = int(parse_rfc3339(created) * 1000)
    except ValueError:
        stamp = 0
    return {"created": created, "createdTS": stamp, "uuid": str(metadata.get("uid") or "")}
