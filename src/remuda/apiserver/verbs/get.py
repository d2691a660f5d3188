"""Get: one object, at least as new as the caller asks."""

from __future__ import annotations

from remuda.kube import errors
from remuda.kube.clock import deadline

from ..api import Api
from ..calls import Call
from ..entries import Entry

_WAIT_FOR_REVISION = 3.0


async def get(api: Api, call: Call, resource_version: str = "") -> Entry:
    resource = call.version.resource
    if resource_version not in ("", "0"):
        await wait_for(api, _asked(resource_version))
    entry = api.entry(resource, call.namespace, call.name)
    if entry is None:
        raise resource.not_found(call.name)
    if call.version.needs_conversion(entry):
        await call.version.prepare([entry])
    return entry


def _asked(text: str) -> int:
    problem = revision_problem(text)
    if problem is not None:
        raise errors.ApiError(500, "", str(problem))
    return int(text)


def parse_revision(text: str) -> int:
    """The revision that a list names."""
    problem = revision_problem(text)
    if problem is not None:
        raise errors.bad_request(f"invalid resource version: {problem}")
    return int(text)


def revision_problem(text: str) -> errors.FieldError | None:
    if text.isascii() and text.isdigit():
        if int(text) < 1 << 64:
            return None
        why = "value out of range"
    else:
        why = "invalid syntax"
    return errors.invalid_value("resourceVersion", text, f"strconv.ParseUint: parsing {errors.go_quote(text)}: {why}")


async def wait_for(api: Api, revision: int) -> None:
    """Wait a little for a revision that has not come yet, as a client that read elsewhere may name one."""
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
