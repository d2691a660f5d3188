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
        await wait_for(api, parse_revision(resource_version))
    entry = api.entry(resource, call.namespace, call.name)
    if entry is None:
        raise resource.not_found(call.name)
    if call.version.needs_conversion(entry):
        await call.version.prepare([entry])
    return entry


def parse_revision(text: str) -> int:
    if not text.isdigit() or len(text) > 19:
        raise errors.invalid("meta.k8s.io", "ListOptions", "", [_not_a_revision(text)])
    return int(text)


def _not_a_revision(text: str) -> errors.FieldError:
    return errors.invalid_value("resourceVersion", text, f'strconv.ParseUint: parsing "{text}": invalid syntax')


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
