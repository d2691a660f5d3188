"""List: a consistent page of a resource, now, at the revision of an earlier page, or at the requested one."""

from __future__ import annotations

import base64
import binascii
import posixpath
from typing import Any

from remuda.kube import errors
from remuda.kube.encoding import jsonio
from remuda.kube.errors import FieldError, forbidden_field

from ..cache.entries import Entry
from ..storage.store import Compacted, FutureRevision
from ..watch.selection import Selection, select
from .context import Api, Call, ListOptions
from .get import parse_revision, wait_for

Obj = dict[str, Any]

_EXACT, _NOT_OLDER = "Exact", "NotOlderThan"


class Page:
    """Entries of one list response, and its metadata."""

    __slots__ = ("continue_token", "entries", "remaining", "revision")

    def __init__(self, entries: list[Entry], revision: int, continue_token: str = "", remaining: int | None = None) -> None:
        self.entries = entries
        self.revision = revision
        self.continue_token = continue_token
        self.remaining = remaining

    def metadata(self) -> Obj:
        found: Obj = {"resourceVersion": str(self.revision)}
        if self.continue_token:
            found["continue"] = self.continue_token
        if self.remaining:
            found["remainingItemCount"] = self.remaining
        return found


def option_errors(options: ListOptions) -> list[FieldError]:
    """The combinations that kube-apiserver refuses."""
    if options.watch:
        return _watch_errors(options)
    found = _match_errors(options.resource_version_match, options.resource_version, bool(options.continue_token))
    if options.send_initial_events is not None:
        found.append(forbidden_field("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return found


def _watch_errors(options: ListOptions) -> list[FieldError]:
    found: list[FieldError] = []
    match = options.resource_version_match
    if options.send_initial_events is not None and match != _NOT_OLDER:
        why = f"sendInitialEvents requires setting resourceVersionMatch to {_NOT_OLDER}"
        found.append(forbidden_field("resourceVersionMatch", why))
    if not match:
        return found
    if options.send_initial_events is None:
        why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        found.append(forbidden_field("resourceVersionMatch", why))
    if match != _NOT_OLDER:
        found.append(errors.not_supported("resourceVersionMatch", match, (_NOT_OLDER,)))
    if options.continue_token:
        found.append(forbidden_field("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided"))
    return found


def _match_errors(match: str, version: str, continued: bool) -> list[FieldError]:
    found: list[FieldError] = []
    if not match:
        return found
    if not version:
        found.append(
            forbidden_field("resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided")
        )
    if continued:
        found.append(forbidden_field("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided"))
    if match not in (_EXACT, _NOT_OLDER):
        found.append(errors.not_supported("resourceVersionMatch", match, (_EXACT, _NOT_OLDER, "")))
    if match == _EXACT and version == "0":
        found.append(forbidden_field("resourceVersionMatch", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'))
    return found


async def list_(api: Api, call: Call, options: ListOptions) -> Page:
    found = option_errors(options)
    if found:
        raise errors.invalid("meta.k8s.io", "ListOptions", "", found)
    selection = select(call.version, call.namespace, options.labels, options.fields, only=call.only)
    return await list_selected(api, call, options, selection)


async def list_selected(api: Api, call: Call, options: ListOptions, selection: Selection) -> Page:
    # A caller that accepts any version gets the whole list, as from kube-apiserver's cache.
    if options.limit < 0 or options.resource_version == "0":
        options.limit = 0
    if options.continue_token:
        start, revision = decode_continue(options.continue_token, call.version.resource.scope_prefix(selection.namespace))
        if options.resource_version not in ("", "0"):
            raise errors.bad_request("specifying resource version is not allowed when using continue")
        if revision > 0:
            return await _list_at(api, call, options, selection, revision, start)
        await api.cache.consistent()
        return await _list_now(api, call, options, selection, start)
    if options.resource_version not in ("", "0"):
        revision = parse_revision(options.resource_version)
        if options.resource_version_match == _EXACT:
            return await _list_at(api, call, options, selection, revision, "")
        await wait_for(api, revision)
    elif not options.resource_version:
        await api.cache.consistent()
    return await _list_now(api, call, options, selection, "")


async def _list_now(api: Api, call: Call, options: ListOptions, selection: Selection, start: str) -> Page:
    resource = call.version.resource
    bucket = resource.bucket
    revision = api.cache.revision
    prefix = resource.scope_prefix(selection.namespace)
    if selection.name and (selection.namespace or not resource.namespaced):
        entry = bucket.get(resource.key(selection.namespace, selection.name))
        candidates = [entry] if entry is not None and entry.key >= start else []
    else:
        candidates = bucket.snapshot(prefix, start)
    entries, looked = await selection.choose(candidates, options.limit)
    # Later entries are not matched: the next page may be empty.
    left = len(candidates) - looked
    if not left:
        return await _page(call, entries, revision)
    token = encode_continue(entries[-1].key + "\x00", revision, prefix)
    return await _page(call, entries, revision, token, left if selection.trivial else None)


async def _list_at(api: Api, call: Call, options: ListOptions, selection: Selection, revision: int, start: str) -> Page:
    """A past revision: the present state while nothing has changed since; else the store's history."""
    resource = call.version.resource
    bucket = resource.bucket
    await wait_for(api, revision)
    if revision >= api.cache.store.floor and bucket.since(revision) == []:
        page = await _list_now(api, call, options, selection, start)
        page.revision = revision
        if page.continue_token:
            prefix = resource.scope_prefix(selection.namespace)
            page.continue_token = encode_continue(page.entries[-1].key + "\x00", revision, prefix)
        return page
    entries: list[Entry] = []
    prefix = resource.scope_prefix(selection.namespace)
    chunk = options.limit + 1 if options.limit else 0
    remaining: int | None = None
    token = ""
    while True:
        try:
            found = await api.cache.store.range(prefix, start=start, limit=chunk, revision=revision)
        except Compacted as error:
            raise _expired(options, error, prefix, start) from None
        except FutureRevision:
            raise errors.expired(f"The resourceVersion for the provided list is too new: {revision}") from None
        past = [api.cache.entry_of(kv) for kv in found.items]
        chosen, looked = await selection.choose(past, options.limit - len(entries) if options.limit else 0)
        entries += chosen
        if len(entries) == options.limit > 0:
            left = len(past) - looked + found.remaining
            if left or found.more:
                token = encode_continue(entries[-1].key + "\x00", revision, prefix)
                remaining = left if selection.trivial else None
        if len(entries) == options.limit > 0 or token or not found.more:
            return await _page(call, entries, revision, token, remaining)
        start = found.items[-1].key + "\x00"


async def _page(call: Call, entries: list[Entry], revision: int, token: str = "", remaining: int | None = None) -> Page:
    if call.version.resource.convert is not None:
        await call.version.prepare(entries)
    return Page(entries, revision, token, remaining)


# ---------------------------------------------------------------------------------------------------------------------
# Continue tokens: opaque to clients, the same form as kube-apiserver's


def encode_continue(start: str, revision: int, prefix: str) -> str:
    token = jsonio.dumps({"v": _TOKEN_VERSION, "rv": revision, "start": start[len(prefix) :]})
    return base64.urlsafe_b64encode(token).rstrip(b"=").decode()


_TOKEN_VERSION = "meta.k8s.io/v1"


def decode_continue(token: str, prefix: str) -> tuple[str, int]:
    """The key to go on from, and the revision (-1: the newest, after an expired token)."""
    start, revision = _read_token(token)
    if revision == 0:
        raise _bad_token(f"incorrect encoded start resourceVersion (version {_TOKEN_VERSION})")
    if not start:
        raise _bad_token(f"encoded start key empty (version {_TOKEN_VERSION})")
    # A token must not lead out of the list that it was made for.
    key = start if start.startswith("/") else f"/{start}"
    if key != posixpath.normpath(key) or key.startswith("//"):
        raise _bad_token(start)
    return prefix + key[1:], revision


def _read_token(token: str) -> tuple[str, int]:
    try:
        data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        bad = next((at for at, char in enumerate(token) if not (char.isascii() and (char.isalnum() or char in "-_"))), len(token))
        raise _bad_token(f"illegal base64 data at input byte {bad}") from None
    try:
        found, _ = jsonio.loads_as_go(data)
    except jsonio.JsonError as error:
        raise _bad_token(str(error)) from None
    if not isinstance(found, dict):
        raise _bad_token("json: cannot unmarshal into Go value of type storage.continueToken")
    version, revision, start = found.get("v", ""), found.get("rv", 0), found.get("start", "")
    if version != _TOKEN_VERSION:
        raise _bad_token(f"server does not recognize this encoded version {version}")
    whole = isinstance(revision, int) and not isinstance(revision, bool) and -(1 << 63) <= revision < 1 << 63
    if not whole or not isinstance(start, str):
        raise _bad_token("json: cannot unmarshal into Go struct field continueToken")
    return start, revision


def _bad_token(why: str) -> errors.ApiError:
    return errors.bad_request(f"invalid continue token: continue key is not valid: {why}")


def _expired(options: ListOptions, error: Compacted, prefix: str, start: str) -> errors.ApiError:
    if not options.continue_token:
        return errors.expired("The resourceVersion for the provided list is too old.")
    gone = errors.expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without the "
        "continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing "
        "with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the "
        "time the first chunk was returned and now may show up in the list."
    )
    gone.continue_token = encode_continue(start, -1, prefix)
    return gone
