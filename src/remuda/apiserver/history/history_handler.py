"""Objects and lists at a past moment, and the life of one object, from the history that the store keeps.

`/history` comes before the path of a resource. The caller needs the right to read it now; :class:`Rights` says how far
back they may see:

- `GET /history/api/v1/namespaces/NAMESPACE/configmaps/NAME?at=MOMENT`: the object as it was; without NAME the list, which also
  takes `labelSelector`, `limit` and `continue`. Both are Tables on request.
- `GET /history/api/v1/namespaces/NAMESPACE/configmaps/NAME`: its states, newest first, `limit` of them before the revision
  `before`; with `objects=true` each with the object itself.

Everything is shown as it was stored: in the version that it had, with fields that the kind may not have any more, without
conversion webhooks. A kind whose definition is deleted is described by the definition of that time. One request reads a limited
number of objects and bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from remuda.kube import errors
from remuda.kube.authorization.actions import Action, forbidden_action
from remuda.kube.authorization.rbac import GROUP, Rbac, allows, binds
from remuda.kube.authorization.users import MASTERS
from remuda.kube.clock import rfc3339, rfc3339_micro, yield_to_loop
from remuda.kube.encoding import jsonio
from remuda.kube.encoding.go_format import IntegerError, parse_uint
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, dig

from ..cache.entries import Entry, encode, splice
from ..crd.custom_resources import CustomResources
from ..http import negotiation, query_options, responses
from ..http.paths import Target
from ..http.tables import TableShape
from ..keys.encryption import EncryptionError
from ..limits.flow_control import Flow
from ..registry.resources import Resource, Version, not_served
from ..storage import key_layout
from ..storage.store import Compacted, FutureRevision, HistoryStore, KeyValue
from ..storage.store import Version as State
from ..verbs.context import Api
from ..verbs.list import Page, decode_continue, encode_continue
from ..watch.selection import select
from . import object_changes, point_in_time
from .point_in_time import Moment

Obj = dict[str, Any]
# A function from an object to the form that the caller may see: the same when nothing is to be hidden.
Veil = Callable[[Action, Obj], Obj]

MOST_ITEMS = 500
STATES = 50
MOST_BYTES = 8 * 1024 * 1024
_METADATA = b'"metadata":{'


class HistoryHandler:
    """Called by the HTTP handler, with an action that is allowed now."""

    def __init__(self, api: Api, rbac: Rbac, history: HistoryStore | None, custom: CustomResources, flow: Flow) -> None:
        self._api = api
        self._history = history
        self._custom = custom
        self._flow = flow
        self._rights = None if history is None else Rights(rbac, history, lambda kv: api.cache.past_entry(kv).object())
        # By group: a function that hides parts of an object's past from a caller who may read the object.
        self.veils: dict[str, Veil] = {}

    async def __call__(self, request: web.BaseRequest, target: Target, action: Action) -> web.StreamResponse:
        if target.method != "GET" or target.verb not in ("get", "list"):
            raise errors.method_not_allowed()
        if self._history is None or self._rights is None:
            raise ApiError(
                501,
                "NotImplemented",
                "this server keeps its state in etcd, which forgets what is older than --watch-window: the past can be read "
                "where the state is in the server's data directory (remuda serve without --etcd)",
            )
        async with self._flow.past.seat(action.user.name):
            since = await self._rights.since(action)
            try:
                if "at" in target.query or "continue" in target.query or target.verb == "list":
                    return await self._then(request, target, action, self._history, since)
                return await self._life(request, target, action, self._history, since)
            except Compacted as error:
                raise point_in_time.forgotten(self._history, error, target.resource) from None
            except FutureRevision as error:
                raise point_in_time.in_future(error) from None

    # --- at a moment ------------------------------------------------------------------------------------------------------

    async def _then(
        self, request: web.BaseRequest, target: Target, action: Action, history: HistoryStore, since: int
    ) -> web.StreamResponse:
        moment = await self._moment(target, history)
        if moment.revision < since:
            raise await _before_rights(action, history, since, moment)
        version = await self._version(target, history, moment.revision)
        output = negotiation.negotiate(request.headers.get("Accept", ""), target.verb == "list")
        if target.verb == "list":
            page = await self._list(target, action, history, version, moment)
            data = await self._shown(version, page, output, moment)
        else:
            found = await history.read_history(_key(version.resource, target), at_revision=moment.revision)
            if found is None or found.kv is None:
                error = version.resource.not_found(target.name)
                error.message += f" at revision {moment.revision} ({rfc3339(moment.time)})"
                raise error
            entry = self._entry(found.kv, action)
            page = Page([entry], moment.revision)
            data = await self._shown(version, page, output, moment) if output.as_ else _body(version, entry) + b"\n"
        return await responses.body(request, data, 200, output.media_type, responses.wants_pretty(request, target.query))

    async def _moment(self, target: Target, history: HistoryStore) -> Moment:
        if token := target.query.get("continue", ""):
            _, revision = decode_continue(token, "")
            if revision <= 0:
                raise errors.bad_request("continue is not one of a list of the past")
            if revision > history.revision:
                raise point_in_time.in_future(FutureRevision(revision, history.revision))
            return Moment(revision, await history.time_of(revision))
        if not target.query.get("at"):
            raise errors.bad_request("at: give a revision, how long ago it was, or a time")
        return await point_in_time.resolve(history, self._api.clock, target.query["at"])

    async def _list(self, target: Target, action: Action, history: HistoryStore, version: Version, moment: Moment) -> Page:
        listed = query_options.list_options(target.query)
        selection = select(version, target.namespace, listed.labels, listed.fields)
        if selection.by_content:
            raise errors.bad_request("of the past only metadata.name and metadata.namespace can be selected by field")
        namespaced = version.resource.namespaced
        if selection.name and (selection.namespace or not namespaced):
            # A single read. Besides, a caller who may list only this object must not see others in a continue token.
            key = version.resource.key(selection.namespace if namespaced else "", selection.name)
            state = await history.read_history(key, at_revision=moment.revision)
            there = [] if state is None or state.kv is None else [self._entry(state.kv, action)]
            return Page((await selection.choose(there))[0], moment.revision)
        prefix = version.resource.scope_prefix(target.namespace)
        start = decode_continue(listed.continue_token, prefix)[0] if listed.continue_token else ""
        limit = min(listed.limit, MOST_ITEMS) if listed.limit > 0 else MOST_ITEMS
        found = await history.range_history(prefix, moment.revision, start=start, limit=limit, most_bytes=MOST_BYTES)
        entries, _ = await selection.choose([self._entry(kv, action) for kv in found.items])
        token = encode_continue(found.items[-1].key + "\x00", moment.revision, prefix) if found.more else ""
        return Page(entries, moment.revision, token)

    async def _shown(self, version: Version, page: Page, output: negotiation.Output, moment: Moment) -> bytes:
        if output.as_ == "Table":
            # Ages are relative to that moment.
            shape = TableShape(output.table_version, "Metadata", self._api.clock)
            return await shape.page(_columns_of(version, page), page, moment.time)
        if output.as_:
            raise errors.not_acceptable("of the past there are objects and Tables")
        head = {"kind": version.resource.list_kind, "apiVersion": version.api_version, "metadata": page.metadata()}
        items = b",".join([_body(version, entry) for entry in page.entries])
        return b'%s,"items":[%s]}\n' % (jsonio.dumps(head)[:-1], items)

    # --- one object's life ------------------------------------------------------------------------------------------------

    async def _life(
        self, request: web.BaseRequest, target: Target, action: Action, history: HistoryStore, since: int
    ) -> web.StreamResponse:
        limit, before = _number(target, "limit") or STATES, _number(target, "before")
        # Larger numbers from a client are capped.
        limit, before = min(limit, MOST_ITEMS), min(before, history.revision + 1)
        version = await self._version(target, history, None)
        key = _key(version.resource, target)
        states = await history.history(key, before=before, limit=limit + 1, most_bytes=MOST_BYTES)
        size = sum(len(state.kv.value) for state in states if state.kv is not None)
        # The last state of a page is the base of comparison for the one before it, and begins the next page.
        older = states.pop() if len(states) > 1 and (len(states) > limit or size >= MOST_BYTES) else None
        # States from before the caller's rights are hidden, since it is unknown how long they lasted.
        visible = [] if before and before <= since else _visible(states, since)
        if not visible or visible[-1].revision <= since or len(visible) < len(states):
            older = None
        if not visible and not before:
            error = version.resource.not_found(target.name)
            error.message += f" in the history that is kept from revision {max(since, history.history_floor, 1)} on"
            raise error
        items = await self._items(version, action, visible, older, with_objects=target.query.get("objects") == "true")
        more = older is not None
        metadata = {"resourceVersion": str(history.revision)} | ({"continue": str(visible[-1].revision)} if more else {})
        oldest = history.history_floor if history.keeps_past(key) else history.floor
        data = {
            "kind": "ObjectHistory",
            "apiVersion": "remuda.dev/v1",
            "metadata": metadata,
            "oldest": max(oldest, since),
            "items": items,
        }
        pretty = responses.wants_pretty(request, target.query)
        output = negotiation.negotiate(request.headers.get("Accept", ""), False)
        return await responses.body(request, jsonio.dumps(data) + b"\n", 200, output.media_type, pretty)

    async def _items(
        self, version: Version, action: Action, states: list[State], older: State | None, *, with_objects: bool
    ) -> list[Obj]:
        """Newest first. Each is compared with the one before it in time, so they are made from the oldest on."""
        items: list[Obj] = []
        previous = None if older is None else self._readable(older, action)
        for state in reversed(states):
            obj = self._readable(state, action)
            item = _item(state, previous, obj)
            if with_objects and obj is not None:
                item["object"] = _under_version(version, obj)
            items.append(item)
            previous = obj
            await yield_to_loop()
        items.reverse()
        return items

    def _readable(self, state: State, action: Action) -> Obj | None:
        """The object; None for a deletion, and for an object encrypted with a key that no longer exists."""
        if state.kv is None:
            return None
        try:
            found = self._api.cache.past_entry(state.kv).object()
        except EncryptionError:
            return None
        veil = self.veils.get(action.group)
        return found if veil is None else veil(action, found)

    # --- the request ------------------------------------------------------------------------------------------------------

    def _entry(self, kv: KeyValue, action: Action) -> Entry:
        try:
            found = self._api.cache.past_entry(kv)
        except EncryptionError:
            raise errors.gone(
                f"{kv.key} was sealed at revision {kv.mod_revision} with a key that is not there any more: it can't be read"
            ) from None
        veil, whole = self.veils.get(action.group), found.object()
        if veil is None or (shown := veil(action, whole)) is whole:
            return found
        return Entry(found.key, found.namespace, found.name, found.revision, encode(shown))

    async def _version(self, target: Target, history: HistoryStore, revision: int | None) -> Version:
        registry = self._api.registry
        found = registry.find(target.group, target.version, target.resource)
        if found is None:
            resource = registry.resource(target.group, target.resource) or await self._gone(target, history, revision)
            if resource is None or target.version not in resource.versions:
                raise not_served(registry, target.group)
            found = resource.versions[target.version]
        namespaced = found.resource.namespaced
        is_namespace = target.resource == "namespaces" and not target.group
        if target.subresource or target.verb not in found.verbs or found.resource.virtual:
            raise errors.no_such_path()
        if (namespaced and target.verb == "get" and not target.namespace) or (
            not namespaced and target.namespace and not is_namespace
        ):
            raise errors.no_such_path()
        return found

    async def _gone(self, target: Target, history: HistoryStore, revision: int | None) -> Resource | None:
        """The resource of a CRD that does not exist now: as it was then, or last."""
        prefix = key_layout.prefix_for("apiextensions.k8s.io", "customresourcedefinitions", builtin=True)
        key = f"{prefix}{target.resource}.{target.group}"
        if revision is not None:
            state = await history.read_history(key, at_revision=revision)
            states = [] if state is None else [state]
        else:
            states = await history.history(key, limit=2)
        for state in states:
            if state.kv is not None:
                return self._custom.described(self._api.cache.past_entry(state.kv).object())
        return None


def _key(resource: Resource, target: Target) -> str:
    return resource.key(target.namespace if resource.namespaced else "", target.name)


def _body(version: Version, entry: Entry) -> bytes:
    """The object as stored, where versions differ in more than apiVersion."""
    if version.resource.convert is None:
        return version.body(entry)
    prefix = entry.stored[: entry.stored.find(_METADATA) + len(_METADATA)]
    return splice(entry.stored, prefix, entry.revision)


def _under_version(version: Version, obj: Obj) -> Obj:
    if version.resource.convert is not None:
        return obj
    return {**obj, "apiVersion": version.api_version, "kind": version.kind}


def _columns_of(version: Version, page: Page) -> Version:
    """The version whose columns fit the stored objects."""
    if version.resource.convert is None or not page.entries:
        return version
    stored = str(page.entries[0].object().get("apiVersion", "")).rpartition("/")[2]
    return version.resource.versions.get(stored, version)


def _visible(states: list[State], since: int) -> list[State]:
    """The states that existed at `since` or later: the last of them may have been written before."""
    for count, state in enumerate(states):
        if state.revision <= since:
            # An object deleted by then is not among them.
            return states[:count] if state.kv is None else states[: count + 1]
    return states


def _item(state: State, previous: Obj | None, obj: Obj | None) -> Obj:
    item: Obj = {"revision": state.revision, "time": rfc3339_micro(state.at), "user": state.who}
    if state.kv is None:
        return {**item, "change": object_changes.DELETED, "managers": [], **_identity(previous)}
    created = state.kv.create_revision == state.revision
    item["change"] = object_changes.CREATED if created else object_changes.CHANGED
    if obj is None:
        return {**item, "managers": [], "unreadable": True}
    item |= {"managers": object_changes.managers(None if created else previous, obj), **_identity(obj)}
    if previous is not None and not created:
        fields = object_changes.changed_fields(previous, obj)
        item |= {"fields": fields.named, "moreFields": fields.more}
    elif not created:
        # The state before is not kept, so the changed fields and their managers are unknown.
        item["managers"] = []
    return item


def _identity(obj: Obj | None) -> Obj:
    found = {name: dig(obj, "metadata", name) for name in ("uid", "generation")}
    return {name: value for name, value in found.items() if value is not None}


def _number(target: Target, name: str) -> int:
    text = target.query.get(name)
    if not text:
        return 0
    try:
        return parse_uint(text)
    except IntegerError as error:
        raise errors.bad_request(f"{name}: {error}") from None


async def _before_rights(action: Action, history: HistoryStore, since: int, moment: Moment) -> ApiError:
    held = rfc3339(await history.time_of(since))
    return forbidden_action(
        action,
        f"as of revision {moment.revision} ({rfc3339(moment.time)}), since that right is held only from revision {since} "
        f"({held}) on; who may get {action.resource}/history in the whole cluster sees what was before",
    )


# --- since when a caller may see the past ---------------------------------------------------------------------------------
#
# The moment from which on a caller may see the past.
#
# A right to read covers the present state. A user who gets access to a namespace today does not get to see objects deleted from
# it yesterday; and a name (of a namespace, of an object) may have belonged to another before. So the past is shown as far back
# as the caller has held the right without a break, by one binding and its role: their history tells since when. A binding that
# was deleted and created again counts from then on.
#
# Two see everything that is kept: system:masters, and users who may `get` the subresource `history` of the kind in all
# namespaces, a right that cluster-admin's `*` includes and that can be given to auditors.


# A role is not followed further than this; if it changes all the time, older history is not shown.
_MOST_STATES = 2000
_PAGE = 100
_PAGE_BYTES = 4 * 1024 * 1024


class Rights:
    def __init__(self, rbac: Rbac, history: HistoryStore, read: Callable[[KeyValue], Obj]) -> None:
        self._rbac = rbac
        self._history = history
        self._read = read

    async def since(self, action: Action) -> int:
        """The revision since which the caller has held this right, which they have now; 0: all that is kept."""
        if MASTERS in action.user.groups:
            return 0
        everything = action.but(verb="get", subresource="history", namespace="", name="")
        if self._rbac.authorize(everything).allowed:
            return 0
        best = self._history.revision
        for grant in self._rbac.grants(action):
            held = await self._held(_binding_key(grant.binding), lambda binding: binds(binding, action.user))
            if held < best:
                role = Key(grant.binding.namespace if grant.role_kind == "Role" else "", grant.role_name)
                held = max(held, await self._held(_role_key(role), lambda found: allows(found.get("rules") or (), action)))
            best = min(best, held)
            if not best:
                break
        return best

    async def _held(self, key: str, gives: Callable[[Obj], bool]) -> int:
        """The revision since which the object has given the right without a break; 0 when that was before all that is kept."""
        since, before, looked = self._history.revision, 0, 0
        while looked < _MOST_STATES:
            page = await self._history.history(key, before=before, limit=_PAGE, most_bytes=_PAGE_BYTES)
            if not page:
                # Older states are not kept; the object existed before, since it was not created here.
                return 0 if looked else since
            for version in page:
                # Roles may be large, so other tasks get a turn between them.
                await yield_to_loop()
                if version.kv is None or not gives(self._read(version.kv)):
                    return since
                since = version.revision
                if version.kv.create_revision == version.revision:
                    return since
            looked += len(page)
            before = since
        return since


def _binding_key(binding: Key) -> str:
    return _rbac_key("rolebindings" if binding.namespace else "clusterrolebindings", binding)


def _role_key(role: Key) -> str:
    return _rbac_key("roles" if role.namespace else "clusterroles", role)


def _rbac_key(resource: str, of: Key) -> str:
    prefix = key_layout.prefix_for(GROUP, resource, builtin=True)
    return f"{prefix}{of.namespace}/{of.name}" if of.namespace else prefix + of.name
