"""Watch: the start of a stream. The rest is in :mod:`remuda.apiserver.watch.watchers`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from remuda.kube import errors
from remuda.kube.authorization.rbac import Permitted

from ..cache.entries import Entry
from ..cache.resource_cache import Change
from ..registry.resources import Version
from ..storage.store import Compacted
from ..watch.selection import Selection, select
from ..watch.watchers import ADDED, DELETED, Feeds, Sink, Watcher, step
from .context import Api, Call, ListOptions
from .get import asked_revision, wait_for
from .list import option_errors

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


@dataclass(slots=True)
class WatchStart:
    """The first events of a new watch: the present state, or the changes since its revision; then it is live.

    `bookmark` is the revision for the bookmark that ends the initial events, if the caller requested them.
    """

    watcher: Watcher
    events: list[tuple[str, Change, Entry]]
    bookmark: int | None


def selection_of(call: Call, options: ListOptions) -> Selection:
    found = option_errors(options)
    if found:
        raise errors.invalid("meta.k8s.io", "ListOptions", "", found)
    if call.name and options.fields and not _pins(options.fields, call.name):
        raise errors.bad_request("fieldSelector metadata.name doesn't match requested name")
    return select(call.version, call.namespace, options.labels, options.fields, call.name, call.only)


def _pins(selector: str, name: str) -> bool:
    """True if the field selector allows only this name."""
    return any(term.strip() in (f"metadata.name={name}", f"metadata.name=={name}") for term in selector.split(","))


async def start(api: Api, feeds: Feeds, call: Call, options: ListOptions, selection: Selection, sink: Sink) -> WatchStart:
    """Join the feed and gather the first events. The caller sends them, and then lets the watcher :meth:`~Watcher.go`.

    No event may be missed or sent twice: the past (or the present) is read and the feed joined in one step of the event loop,
    both at the cache's revision of that moment. Slow steps (conversion) come after.
    """
    version = call.version
    initial = options.send_initial_events is True
    revision = 0 if options.resource_version in ("", "0") else asked_revision(options.resource_version)
    if not options.resource_version:
        await api.cache.consistent()
    elif revision and initial:
        await wait_for(api, revision)
    # Without a revision a watch starts now, but one with no resourceVersion at all first sends the present objects.
    if initial or (options.send_initial_events is None and not revision):
        present = _present(selection)
        watcher = _join(api, feeds, selection, sink, api.cache.revision)
        async with _leaving(watcher):
            events = await _as_events(selection, present)
        return WatchStart(watcher, events, watcher.revision if initial and options.bookmarks else None)
    if selection.only is not None and revision < selection.only.since.revision:
        # Changes of visibility since then are in no log.
        raise errors.expired(f"too old resource version: {revision} ({selection.only.since.revision})")
    changes = await _changes(api, version, revision) if revision else []
    # A future revision is no error: the watch gets the events after it.
    watcher = _join(api, feeds, selection, sink, max(revision, api.cache.revision))
    async with _leaving(watcher):
        if version.resource.convert is not None:
            await version.prepare([e for change in changes for e in (change.entry, change.prev) if e is not None])
        stepped = ((_step_in_scope(selection, change), change) for change in changes)
        return WatchStart(watcher, [(found[0], change, found[1]) for found, change in stepped if found is not None], None)


def _join(api: Api, feeds: Feeds, selection: Selection, sink: Sink, revision: int) -> Watcher:
    watcher = Watcher(selection, sink, revision)
    feeds.feed(selection.version).add(watcher)
    return watcher


@asynccontextmanager
async def _leaving(watcher: Watcher) -> AsyncIterator[None]:
    """Make a watch leave its feed if it does not start (its conversion failed, its client has gone)."""
    try:
        yield
    except BaseException:
        watcher.leave()
        raise


async def _changes(api: Api, version: Version, revision: int) -> list[Change]:
    try:
        return await api.cache.changes_since(version.resource.bucket, revision)
    except Compacted as error:
        raise errors.expired(f"too old resource version: {revision} ({error.floor})") from None


def _present(selection: Selection) -> list[Entry]:
    """The present entries that may be in the selection."""
    resource = selection.version.resource
    bucket = resource.bucket
    if selection.name and (selection.namespace or not resource.namespaced):
        entry = bucket.get(resource.key(selection.namespace, selection.name))
        return [] if entry is None else [entry]
    return bucket.snapshot(resource.scope_prefix(selection.namespace))


async def _as_events(selection: Selection, present: list[Entry]) -> list[tuple[str, Change, Entry]]:
    entries, _ = await selection.choose(present)
    if selection.version.resource.convert is not None:
        await selection.version.prepare(entries)
    return [(ADDED, Change(e.revision, e.key, e.namespace, e.name, e, None), e) for e in entries]


def sight_changes(selection: Selection, was: Permitted) -> list[tuple[str, Change, Entry]]:
    """The events of a filtered watch after a change of what the caller may see."""
    assert selection.only is not None
    found: list[tuple[str, Change, Entry]] = []
    for entry in _present(selection):
        before, now = was.allows(entry.namespace, entry.name), selection.only.sees(entry.namespace, entry.name)
        if before is now or not selection.asks_for(selection.version.resource.bucket.fresh(entry)):
            continue
        change = Change(entry.revision, entry.key, entry.namespace, entry.name, entry if now else None, None if now else entry)
        found.append((ADDED if now else DELETED, change, entry))
    return found


def follow_sight(selection: Selection, sink: Sink) -> Callable[[], None]:
    """Tell `sink` from now on about each change of what the caller may see, until the result is called."""
    if selection.only is None:
        return _nothing

    def told(was: Permitted) -> None:
        if selection.version.resource.convert is not None:
            # Conversion takes time; the client reconnects and gets the new state.
            sink.end()
        elif (events := sight_changes(selection, was)) and not sink.deliver(events):
            sink.end()

    return selection.only.follow(told)


def _nothing() -> None:
    pass


def _step_in_scope(selection: Selection, change: Change) -> tuple[str, Entry] | None:
    if selection.namespace and change.namespace != selection.namespace:
        return None
    if selection.name and change.name != selection.name:
        return None
    return step(selection, change)
