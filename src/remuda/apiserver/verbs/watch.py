"""Watch: where a stream begins. The rest of its life is in :mod:`remuda.apiserver.watching`."""

from __future__ import annotations

from dataclasses import dataclass

from remuda.kube import errors

from ..api import Api
from ..cache import Change
from ..calls import Call, ListOptions
from ..entries import Entry
from ..selection import Selection, select
from ..store import Compacted
from ..watching import ADDED, Feeds, Sink, Watcher, step
from .get import asked_revision, wait_for
from .list import option_errors

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


@dataclass(slots=True)
class Start:
    """What a new watch gets first: the present state, or what has happened since its revision; then it is live.

    `bookmark` is the revision for the bookmark that ends the initial events, if the caller asked for them.
    """

    watcher: Watcher
    events: list[tuple[str, Change, Entry]]
    bookmark: int | None


def selection_of(call: Call, options: ListOptions) -> Selection:
    found = option_errors(options)
    if found:
        raise errors.invalid("meta.k8s.io", "ListOptions", "", found)
    return select(call.version, call.namespace, options.labels, options.fields, call.name)


async def start(api: Api, feeds: Feeds, call: Call, options: ListOptions, selection: Selection, sink: Sink) -> Start:
    version = call.version
    initial = options.send_initial_events is True
    revision = 0 if options.resource_version in ("", "0") else asked_revision(options.resource_version)
    if initial and revision:
        await wait_for(api, revision)
    # Asking for nothing in particular means "from now", but a watch with no resourceVersion at all first shows what is there.
    from_state = initial or (options.send_initial_events is None and not revision)
    feed = feeds.feed(version)
    if from_state:
        now = api.cache.revision
        watcher = Watcher(selection, sink, now)
        entries = _present(selection)
        feed.add(watcher)
        watcher.on_close = None
        if version.resource.convert is not None:
            await version.prepare(entries)
        events = [(ADDED, Change(e.revision, e.key, e.namespace, e.name, e, None), e) for e in entries]
        return Start(watcher, events, now if initial and options.bookmarks else None)
    if not revision:
        watcher = Watcher(selection, sink, api.cache.revision)
        feed.add(watcher)
        return Start(watcher, [], None)
    if revision > api.cache.revision:
        await wait_for(api, revision)
    try:
        changes = await api.cache.changes_since(version.resource.bucket, revision)
    except Compacted as error:
        raise errors.expired(f"too old resource version: {revision} ({error.floor})") from None
    reached = max(api.cache.revision if changes is None else revision, changes[-1].revision if changes else revision)
    watcher = Watcher(selection, sink, reached)
    feed.add(watcher)
    # Between reading the past and joining the feed nothing may be missed: the ring has what came meanwhile.
    late = version.resource.bucket.since(reached) or []
    changes = changes + late
    if late:
        watcher.revision = late[-1].revision
    if version.resource.convert is not None:
        await version.prepare([e for change in changes for e in (change.entry, change.prev) if e is not None])
    events = []
    for change in changes:
        found = _step_in_scope(selection, change)
        if found is not None:
            events.append((found[0], change, found[1]))
    return Start(watcher, events, None)


def _present(selection: Selection) -> list[Entry]:
    resource = selection.version.resource
    bucket = resource.bucket
    if selection.name and (selection.namespace or not resource.namespaced):
        entry = bucket.get(resource.key(selection.namespace, selection.name))
        return [entry] if entry is not None and selection.matches(entry) else []
    return [e for e in bucket.scan(resource.scope_prefix(selection.namespace)) if selection.matches(e)]


def _step_in_scope(selection: Selection, change: Change) -> tuple[str, Entry] | None:
    if selection.namespace and change.namespace != selection.namespace:
        return None
    if selection.name and change.name != selection.name:
        return None
    return step(selection, change)
