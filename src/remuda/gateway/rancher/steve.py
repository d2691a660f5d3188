"""Steve, the API `/v1` of Rancher's clients: every kind of the management API in one form.

`/v1/TYPE` lists a type, `/v1/TYPE/NAMESPACE` a part of it; `/v1/TYPE/NAMESPACE/NAME`, or without a namespace `/v1/TYPE/NAME`,
is one object. The same is at `/k8s/clusters/local/v1`. Each request is carried out with the caller's own client, so that it can
do no more than the same request at `/apis`. The order of a request: the kinds (:mod:`.discovery`), the query (:mod:`.query`), the
objects (:mod:`.reading`), the selection (:mod:`.collections`), the form (:mod:`.resources`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from remuda import __version__
from remuda.client.interface import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from remuda.kube.clock import yield_to_loop
from remuda.kube.encoding import jsonio, yamlio
from remuda.kube.errors import ApiError, bad_request, no_such_path, not_found, too_large, unsupported_media_type
from remuda.kube.objects import Key, labels_of, name_of, namespace_of, resource_version_of

from ..server import norman
from ..server.routing import LARGEST_BODY, Access, Answer, RequestContext
from . import collections, login_page, query, schemas
from .counts import counts
from .kinds import Kind
from .live.subscribe import Subscriber, Subscriptions
from .login_page import LoginPage
from .own_user import OwnUser
from .query import Query
from .reading import Listed, Selector, listed
from .requests import CallerRequest, Facade
from .resources import Shape, shape_of, stored_form
from .schemas import UsableKinds

Obj = dict[str, Any]

ROOTS: Final = ("/v1", "/k8s/clusters/local/v1")
_SLICE: Final = 200
_PATCHES: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH)
_PROJECT: Final = "field.cattle.io/projectId"
_YAML: Final = ("application/yaml", "application/x-yaml", "text/yaml")
_FIELD_MANAGER: Final = "rancher"

# Links of one object that only its own module knows, for a caller.
MoreLinks = Callable[[RequestContext, Obj], Awaitable[Iterable[str]]]


@dataclass(frozen=True, slots=True)
class _Request(CallerRequest):
    query: Query

    @property
    def name(self) -> str:
        return self.asked.parameters.get("name", "")

    @property
    def namespace(self) -> str:
        return self.asked.parameters.get("namespace", "")


_Answer = Callable[[_Request], Awaitable[web.StreamResponse]]


class Steve:
    def __init__(self, facade: Facade) -> None:
        services = self._services = facade.services
        self._facade = facade
        self._states = facade.states
        self._usable = UsableKinds()
        self.more_links: dict[str, MoreLinks] = {}
        # Of types without a namespace, by type and action in lower case; the object is the parameter `id`.
        self.actions: dict[tuple[str, str], Answer] = {}
        self.subscriptions = Subscriptions(services.clock, facade.discovery.kinds, self._states, self.more_links, __version__)
        services.beside.append(self.subscriptions.keep_alive)
        # Its paths are more precise than those for all types.
        OwnUser(services, lambda asked: self.one(asked, "management.cattle.io.user"))
        LoginPage(services, self._told(ROOTS[0], self._in_turn(self._list_settings)))
        for root in ROOTS:
            self._add_routes(root)

    def _add_routes(self, root: str) -> None:
        def add(methods: str, path: str, answer: _Answer, largest: int = 0) -> None:
            self._services.routes.add(methods, root + path, self._told(root, answer), Access.USER, largest=largest)

        add("GET", "", self._root)
        # A websocket: it has no body, and ends with its session.
        subscribe = self._told(root, self._subscribe)
        self._services.routes.add("GET", f"{root}/subscribe", subscribe, Access.USER, largest=None)
        add("GET", "/schemas", self._schemas)
        add("GET", "/schemas/{id}", self._schema)
        add("GET", "/counts", self._in_turn(self._counts))
        add("GET", "/{type}", self._in_turn(self._list))
        add("POST", "/{type}", self._create, LARGEST_BODY)
        for place in ("/{type}/{namespace}", "/{type}/{namespace}/{name}"):
            add("GET", place, self._read)
            add("PUT", place, self._update, LARGEST_BODY)
            add("PATCH", place, self._patch, LARGEST_BODY)
            add("DELETE", place, self._delete, LARGEST_BODY)
        add("POST", "/{type}/{namespace}", self._create, LARGEST_BODY)
        # A session's cookie counts here: nothing below may reach the proxy to clusters.
        add("GET HEAD POST PUT PATCH DELETE OPTIONS", "/{path*}", _nothing_there)

    def _told(self, root: str, answer: _Answer) -> Answer:
        async def answered(asked: RequestContext) -> web.StreamResponse:
            request = await self._begin(asked, root)
            response = await answer(request)
            if not response.prepared:
                response.headers["X-API-Schemas"] = f"{request.base}/schemas"
            return response

        return norman.told(answered)

    def _in_turn(self, answer: _Answer) -> _Answer:
        async def answered(request: _Request) -> web.StreamResponse:
            async with self._facade.gate.seat(request.asked.user.name):
                return await answer(request)

        return answered

    async def _begin(self, asked: RequestContext, root: str) -> _Request:
        wanted = query.parse(asked.target.query)
        begun = await self._facade.begin(asked, root)
        return _Request(asked, begun.base, begun.client, begun.permissions, begun.kinds, wanted)

    def _shape(self, request: _Request, more: Mapping[str, Iterable[str]] = {}) -> Shape:
        now = self._services.clock.time()
        return shape_of(request.query, request.base, request.kinds, request.permissions, self._states, now, more)

    async def _subscribe(self, request: _Request) -> web.StreamResponse:
        return await self.subscriptions.answer(Subscriber(request.asked, request.base, request.client, request.permissions))

    # --- types -----------------------------------------------------------------------------------------------------------

    async def _root(self, request: _Request) -> web.StreamResponse:
        links = {"self": request.base, "schemas": f"{request.base}/schemas", "subscribe": f"{request.base}/subscribe"}
        version = {"id": "v1", "type": "apiRoot", "apiVersion": {"version": "v1"}, "baseType": "apiRoot", "links": links}
        return norman.shown({"type": "collection", "resourceType": "apiRoot", "links": links, "data": [version]})

    async def _schemas(self, request: _Request) -> web.StreamResponse:
        usable = self._usable.of(request.permissions, request.kinds)
        data = [schemas.shown(each, request.base) for each in usable.values()]
        data += [schemas.virtual(each, request.base) for each in schemas.VIRTUAL]
        return norman.shown(norman.collection("schema", data, f"{request.base}/schemas"))

    async def _schema(self, request: _Request) -> web.StreamResponse:
        wanted = request.asked.parameters["id"].lower()
        if wanted in schemas.VIRTUAL:
            return norman.shown(schemas.virtual(wanted, request.base))
        kind = request.kinds.find(wanted)
        usable = self._usable.of(request.permissions, request.kinds).get(kind.id) if kind is not None else None
        if usable is None:
            raise not_found("", "schemas", request.asked.parameters["id"])
        return norman.shown(schemas.shown(usable, request.base))

    def _kind(self, request: _Request) -> Kind:
        """The kind in the path; what the caller may do with it, the API decides."""
        name = request.asked.parameters["type"]
        kind = request.kinds.find(name)
        if kind is None:
            raise not_found("", "schemas", name)
        return kind

    async def _counts(self, request: _Request) -> web.StreamResponse:
        usable = self._usable.of(request.permissions, request.kinds)
        found, revision = await counts(request.client, request.permissions, usable.values())
        itself = f"{request.base}/counts"
        count = {"id": "count", "type": "count", "links": {"self": itself}, "counts": found}
        return norman.shown({**norman.collection("count", [count], itself), "revision": str(revision), "count": 1})

    # --- reading ---------------------------------------------------------------------------------------------------------

    def _place(self, request: _Request, kind: Kind) -> Key:
        """The object in the path: what follows the type is a namespace, or the name of an object without one."""
        if kind.namespaced:
            return Key(request.namespace, request.name)
        if request.name:
            raise not_found(kind.group, kind.resource, f"{request.namespace}/{request.name}")
        return Key("", request.namespace)

    async def _read(self, request: _Request) -> web.StreamResponse:
        kind = self._kind(request)
        place = self._place(request, kind)
        if not place.name:
            return await self._in_turn(self._list)(request)
        if request.query.link:
            raise not_found(kind.group, kind.resource, f"{place.name}?link={request.query.link[:64]}")
        obj = await request.client.get(kind.gvr, place.name, place.namespace)
        if _wants_yaml(request.asked):
            whole = {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
            return web.Response(text=yamlio.dumps(whole), content_type=_YAML[0])
        return await self._one(request, kind, obj)

    async def one(self, asked: RequestContext, type_name: str) -> web.StreamResponse:
        """One object of a type whose path another module has."""
        asked.parameters = {**asked.parameters, "type": type_name}
        return await self._told(ROOTS[0], self._read)(asked)

    async def _one(self, request: _Request, kind: Kind, obj: Obj, status: int = 200) -> web.Response:
        links = self.more_links.get(kind.id)
        more = {str(Key.of(obj)): await links(request.asked, obj)} if links is not None else {}
        return norman.shown(self._shape(request, more).shown(kind, obj), status)

    async def _list(self, request: _Request) -> web.StreamResponse:
        kind, wanted = self._kind(request), request.query
        paged = wanted.is_plain
        selector = Selector(
            wanted.labels, wanted.fields, wanted.limit if paged else 0, wanted.continue_ if paged else "", metadata_only=False
        )
        page = await listed(request.client, request.permissions, kind, request.namespace, selector)
        if wanted.revision > page.revision:
            raise ApiError(400, "UnknownRevision", f"the revision {wanted.revision} is not known here yet: try again")
        objects = await self._in_scope(request, kind, page.objects)
        collections.check_cost(wanted, len(objects))
        shape = self._shape(request)
        found = collections.select(objects, wanted, shape.derived(kind))
        data: list[Obj] = []
        for first in range(0, len(found.rows), _SLICE):
            if first:
                await yield_to_loop()
            data += [shape.shown(kind, obj) for obj in found.rows[first : first + _SLICE]]
        return norman.shown(self._collection(request, kind, page, found, data))

    async def _list_settings(self, request: _Request) -> web.StreamResponse:
        request.asked.parameters = {"type": login_page.TYPE}
        return await self._list(request)

    def _collection(self, request: _Request, kind: Kind, page: Listed, found: collections.Selected, data: list[Obj]) -> Obj:
        itself = f"{request.base}/{kind.plural}" + (f"/{request.namespace}" if request.namespace else "")
        body: Obj = {
            **norman.collection(kind.id, data, itself),
            "createTypes": {kind.id: itself} if request.permissions.somewhere(kind, "create") else {},
            "actions": {},
            "revision": str(page.revision),
            "count": found.total + page.remaining,
        }
        if request.query.page_size:
            body["pages"] = found.pages
        if page.continue_:
            body["continue"] = page.continue_
            body["pagination"] = {"limit": request.query.limit, "partial": True}
        return body

    async def _in_scope(self, request: _Request, kind: Kind, objects: list[Obj]) -> list[Obj]:
        """The objects in the wanted namespaces and projects."""
        wanted = request.query
        if not kind.namespaced or not (wanted.scopes or wanted.outside_scopes):
            return objects
        inside = await self._namespaces(request, wanted.scopes)
        outside = await self._namespaces(request, wanted.outside_scopes)
        return [obj for obj in objects if (not wanted.scopes or namespace_of(obj) in inside) and namespace_of(obj) not in outside]

    async def _namespaces(self, request: _Request, scopes: tuple[str, ...]) -> frozenset[str]:
        """The namespaces of these names, and those in projects of these names that the caller may list."""
        namespaces = request.kinds.find("namespace")
        if not scopes or namespaces is None:
            return frozenset(scopes)
        wanted = ",".join(sorted(scopes))
        try:
            selector = Selector(labels=f"{_PROJECT} in ({wanted})", metadata_only=True)
            found = await listed(request.client, request.permissions, namespaces, "", selector)
        except ApiError as error:
            if error.code not in (400, 403):
                raise
            return frozenset(scopes)
        return frozenset((*scopes, *(name_of(obj) for obj in found.objects if labels_of(obj).get(_PROJECT) in scopes)))

    # --- writing ---------------------------------------------------------------------------------------------------------

    async def _create(self, request: _Request) -> web.StreamResponse:
        kind = self._kind(request)
        if request.query.action:
            return await self._act(request, kind)
        if request.namespace and not kind.namespaced:
            raise not_found(kind.group, kind.resource, request.namespace)
        obj = stored_form(kind, await _body(request.asked))
        namespace = request.namespace or namespace_of(obj)
        if namespace_of(obj) not in ("", namespace):
            raise norman.invalid(f"metadata.namespace must be {namespace}, as in the address")
        made = await request.client.create(
            kind.gvr, obj, namespace if kind.namespaced else "", dry_run=request.query.dry_run, field_manager=_FIELD_MANAGER
        )
        return await self._one(request, kind, made, 201)

    async def _act(self, request: _Request, kind: Kind) -> web.StreamResponse:
        answer = self.actions.get((kind.id, request.query.action.lower()))
        if answer is None or not request.namespace:
            raise not_found(kind.group, kind.resource, request.query.action[:64])
        request.asked.parameters = {"id": request.namespace}
        return await answer(request.asked)

    async def _update(self, request: _Request) -> web.StreamResponse:
        kind = self._kind(request)
        place = self._named(request, kind)
        obj = stored_form(kind, await _body(request.asked))
        if (namespace_of(obj) or place.namespace, name_of(obj)) != place:
            raise norman.invalid(f"metadata must name {place}, as the address does")
        if place.namespace:
            obj["metadata"]["namespace"] = place.namespace
        try:
            written = await request.client.update(kind.gvr, obj, dry_run=request.query.dry_run, field_manager=_FIELD_MANAGER)
        except ApiError as error:
            if error.code != 409:
                raise
            return await self._conflict(request, kind, place, error)
        return await self._one(request, kind, written)

    async def _conflict(self, request: _Request, kind: Kind, place: Key, error: ApiError) -> web.StreamResponse:
        """The error, with the present object, which the client needs to merge its changes."""
        try:
            current = await request.client.get(kind.gvr, place.name, place.namespace)
        except ApiError:
            raise error from None
        request.asked.why = request.asked.why or error.message
        body = {"type": "error", "status": error.code, "code": error.reason, "message": error.message}
        return norman.shown({**body, "current": self._shape(request).shown(kind, current)}, error.code)

    async def _patch(self, request: _Request) -> web.StreamResponse:
        kind = self._kind(request)
        place = self._named(request, kind)
        media_type = _media_type(request.asked) or MERGE_PATCH
        if media_type == "application/json":
            media_type = MERGE_PATCH
        if media_type not in _PATCHES:
            raise unsupported_media_type(f"a patch must be one of {', '.join(_PATCHES)}")
        patch = await _json(request.asked)
        written = await request.client.patch(
            kind.gvr,
            place.name,
            patch,
            place.namespace,
            patch_type=media_type,
            dry_run=request.query.dry_run,
            field_manager=_FIELD_MANAGER,
        )
        return await self._one(request, kind, written)

    async def _delete(self, request: _Request) -> web.StreamResponse:
        kind = self._kind(request)
        place = self._named(request, kind)
        left = await request.client.delete(kind.gvr, place.name, place.namespace, dry_run=request.query.dry_run)
        if left.get("kind") == "Status" or not resource_version_of(left):
            return web.Response(status=204)
        return await self._one(request, kind, left)

    def _named(self, request: _Request, kind: Kind) -> Key:
        place = self._place(request, kind)
        if not place.name or (kind.namespaced and not place.namespace):
            raise bad_request("the address must name one object")
        return place


async def _nothing_there(request: _Request) -> web.StreamResponse:
    raise no_such_path()


# --- bodies ---------------------------------------------------------------------------------------------------------------


def _media_type(asked: RequestContext) -> str:
    return asked.request.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def _wants_yaml(asked: RequestContext) -> bool:
    accepted = asked.request.headers.get("Accept", "").partition(",")[0].partition(";")[0].strip().lower()
    return accepted in _YAML


async def _data(asked: RequestContext) -> bytes:
    data = await asked.request.read()
    if len(data) > LARGEST_BODY:
        raise too_large(f"limit is {LARGEST_BODY}")
    return data


async def _json(asked: RequestContext) -> Any:
    try:
        return jsonio.loads(await _data(asked))
    except jsonio.JsonError:
        # Without details: the text may quote a secret.
        raise bad_request("the body is not JSON") from None


async def _body(asked: RequestContext) -> Any:
    """The object in the body: JSON, or YAML where the request says so."""
    if _media_type(asked) not in _YAML:
        return await _json(asked)
    try:
        return yamlio.loads(await _data(asked))
    except yamlio.YamlError:
        raise bad_request("the body is not YAML") from None
