"""Get: one object, at least as new as the requested revision."""

from __future__ import annotations

from remuda.kube import errors
from remuda.kube.clock import deadline
from remuda.kube.encoding.go_format import IntegerError, parse_uint

from ..cache.entries import Entry
from .context import Api, Call

_WAIT_FOR_REVISION = 3.0


async def get(api: Api, call: Call, resource_version: str = "") -> Entry:
    resource = call.version.resource
    if not resource_version:
        if api.cache.shared:
            await api.cache.consistent()
    elif resource_version != "0":
        await wait_for(api, asked_revision(resource_version))
    entry = api.entry(resource, call.namespace, call.name)
    if entry is None:
        raise resource.not_found(call.name)
    if call.version.needs_conversion(entry):
        await call.version.prepare([entry])
    return entry


def asked_revision(text: str) -> int:
    """The revision in a get or a watch."""
    try:
        return parse_uint(text)
    except IntegerError as error:
        raise errors.ApiError(500, "", str(errors.invalid_value("resourceVersion", text, str(error)))) from None


def parse_revision(text: str) -> int:
    """The revision in a list."""
    try:
        return parse_uint(text)
    except IntegerError as error:
        problem = errors.invalid_value("resourceVersion", text, str(error))
        raise errors.bad_request(f"invalid resource version: {problem}") from None


async def wait_for(api: Api, revision: int) -> None:
    """Wait a little for a future revision, which a client may have from another server."""
    if api.cache.revision >= revision:
        return
    try:
        async with deadline(api.clock, _WAIT_FOR_REVISION):
            await api.cache.reached(revision)
    except TimeoutError:
        raise _too_large_revision(revision, api.cache.revision) from None


def _too_large_revision(asked: int, current: int) -> errors.ApiError:
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    return errors.ApiError(504, "Timeout", f"Timeout: Too large resource version: {asked}, current: {current}", details, 1)
