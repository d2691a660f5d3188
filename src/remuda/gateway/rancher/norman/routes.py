"""The paths of Norman: the root, the schemas, and for each type its list, its objects and its actions.

Each request is carried out with the caller's own client, so that it can do no more than the same request at `/apis`. A list has
the objects that the caller may list; a caller who may list none gets an empty one, since clients list some types of every user.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from remuda.api.management_cattle_io import USERS
from remuda.client.idempotent import find
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.clock import yield_to_loop
from remuda.kube.errors import ApiError, bad_request, not_found, unavailable
from remuda.kube.objects import GroupVersionResource, name_of, namespace_of, with_path
from remuda.provisioning.references.cloud_credentials import GLOBAL

from ...server import norman
from ...server.routing import Access, Answer, RequestContext
from ..kinds import Kind
from ..reading import Selector, listed
from ..requests import CallerRequest, Facade
from . import credentials, objects, pages, principals, schemas
from .objects import id_of, key_of
from .types import CLUSTER, TYPES, NormanType

Obj = dict[str, Any]

ROOT: Final = "/v3"
_FIELD_MANAGER: Final = "rancher"
_SLICE: Final = 200
_TRIES: Final = 4
_LINKS: Final = (("update", "update"), ("delete", "remove"))
_DYNAMIC: Final = "management.cattle.io.dynamicschema"
_SECRET: Final = "secret"
_USER: Final = "management.cattle.io.user"


@dataclass(frozen=True, slots=True)
class _Request(CallerRequest):
    parameters: Mapping[str, str]

    @property
    def identity(self) -> str:
        return self.asked.parameters.get("id", "")


_Answer = Callable[[_Request], Awaitable[web.StreamResponse]]
# Shows an object of one type to a caller.
_Show = Callable[[Obj], Obj]
_Change = Callable[[Obj], Obj]


class Norman:
    def __init__(self, facade: Facade) -> None:
        self._services = facade.services
        self._facade = facade
        self._states = facade.states
        #: Creates a cluster; the path has an action of another module, too.
        self.create_cluster = self._told(self._of_type(CLUSTER, self._create))
        self._add("GET", "", self._root)
        self._add("GET", "/schemas", self._schemas)
        self._add("GET", "/schemas/{id}", self._schema)
        self._add("GET", "/principals", self._principals)
        self._add("POST", "/principals", self._search, norman.LARGEST_BODY)
        for type_ in TYPES:
            self._add_type(type_)
        path = credentials.PATH.removeprefix(ROOT)
        self._add("GET", path, self._in_turn(self._list_credentials))
        self._add("POST", path, self._create_credential, norman.LARGEST_BODY)
        self._add("GET", f"{path}/{{id}}", self._credential)
        self._add("PUT", f"{path}/{{id}}", self._update_credential, norman.LARGEST_BODY)
        self._add("DELETE", f"{path}/{{id}}", self._delete_credential, norman.LARGEST_BODY)
        for scope in ("clusters", "projects"):
            self._add("GET", f"/{scope}/{{id}}/schemas", self._no_schemas)

    def _add(self, methods: str, path: str, answer: _Answer, largest: int = 0) -> None:
        self._services.routes.add(methods, ROOT + path, self._told(answer), Access.USER, largest=largest)

    def _add_type(self, type_: NormanType) -> None:
        path, body = type_.path.removeprefix(ROOT), norman.LARGEST_BODY
        self._add("GET", path, self._in_turn(self._of_type(type_, self._list)))
        self._add("GET", f"{path}/{{id}}", self._of_type(type_, self._read))
        if type_.writable:
            self._add("PUT", f"{path}/{{id}}", self._of_type(type_, self._update), body)
        if type_.prefix:
            self._add("DELETE", f"{path}/{{id}}", self._of_type(type_, self._delete), body)
        if type_.prefix and type_ is not CLUSTER:
            self._add("POST", path, self._of_type(type_, self._create), body)
        if type_.activation:
            self._add("POST", f"{path}/{{id}}", self._of_type(type_, self._act), body)

    @staticmethod
    def _of_type(type_: NormanType, answer: Callable[[_Request, NormanType], Awaitable[web.StreamResponse]]) -> _Answer:
        async def answered(request: _Request) -> web.StreamResponse:
            return await answer(request, type_)

        return answered

    def _told(self, answer: _Answer) -> Answer:
        async def answered(asked: RequestContext) -> web.StreamResponse:
            request = await self._begin(asked)
            response = await answer(request)
            if not response.prepared:
                # A cluster and a project are the roots of types of their own.
                segments = asked.target.segments
                scoped = len(segments) == 3 and segments[1] in ("clusters", "projects")
                response.headers["X-API-Schemas"] = f"{request.base}{'/' + '/'.join(segments[1:]) if scoped else ''}/schemas"
            return response

        return norman.told(answered)

    def _in_turn(self, answer: _Answer) -> _Answer:
        async def answered(request: _Request) -> web.StreamResponse:
            async with self._facade.gate.seat(request.asked.user.name):
                return await answer(request)

        return answered

    async def _begin(self, asked: RequestContext) -> _Request:
        parameters = norman.parameters_of(asked)
        begun = await self._facade.begin(asked, ROOT)
        return _Request(asked, begun.base, begun.client, begun.permissions, begun.kinds, parameters)

    # --- types -----------------------------------------------------------------------------------------------------------

    async def _root(self, request: _Request) -> web.StreamResponse:
        links = {each.plural: f"{request.base}/{each.plural.lower()}" for each in TYPES}
        links |= {
            "self": request.base,
            "schemas": f"{request.base}/schemas",
            "cloudCredentials": f"{request.base}/cloudcredentials",
        }
        version = {"id": "v3", "type": "apiRoot", "apiVersion": schemas.VERSION, "baseType": "apiRoot", "links": links}
        return norman.shown({"type": "collection", "resourceType": "apiRoot", "links": links, "data": [version]})

    async def _all_schemas(self, request: _Request) -> list[Obj]:
        return schemas.schemas(request.base, request.kinds, request.permissions, await self._dynamic(request))

    async def _schemas(self, request: _Request) -> web.StreamResponse:
        data = await self._all_schemas(request)
        return norman.shown(norman.collection("schema", data, f"{request.base}/schemas"))

    async def _schema(self, request: _Request) -> web.StreamResponse:
        wanted = request.identity.lower()
        for schema in await self._all_schemas(request):
            if schema["id"].lower() == wanted:
                return norman.shown(schema)
        raise not_found("", "schemas", request.identity)

    async def _no_schemas(self, request: _Request) -> web.StreamResponse:
        """The types inside a cluster or a project: none, its API has them."""
        itself = f"{request.base}/{'/'.join(request.asked.target.segments[1:])}"
        return norman.shown(norman.collection("schema", [], itself))

    async def _dynamic(self, request: _Request) -> list[Obj]:
        return await self._visible(request, request.kinds.find(_DYNAMIC))

    async def _visible(self, request: _Request, kind: Kind | None, namespace: str = "") -> list[Obj]:
        """The objects that the caller may list: none for a caller who may list none."""
        if kind is None:
            return []
        try:
            return (await listed(request.client, request.permissions, kind, namespace, Selector())).objects
        except ApiError as error:
            if error.code != 403:
                raise
            return []

    def _kind(self, request: _Request, type_: NormanType) -> Kind:
        kind = request.kinds.find(type_.kind)
        if kind is None:
            raise unavailable(f"{type_.plural} are not served yet: try again", 1)
        return kind

    # --- objects ---------------------------------------------------------------------------------------------------------

    async def _list(self, request: _Request, type_: NormanType) -> web.StreamResponse:
        kind = self._kind(request, type_)
        cluster = request.parameters.get("clusterId", "") if type_.in_cluster else ""
        found = await self._visible(request, kind, cluster)
        page = pages.parse(request.parameters, schemas.fields_of(type_))
        return await self._answer_list(
            request, type_.id, type_.path, found, page, lambda obj: self._show(request, type_, kind, obj)
        )

    async def _answer_list(
        self, request: _Request, id_: str, path: str, found: list[Obj], page: pages.Page, show: _Show
    ) -> web.StreamResponse:
        rows: list[Obj] = []
        for first in range(0, len(found), _SLICE):
            if first:
                await yield_to_loop()
            rows += [show(obj) for obj in found[first : first + _SLICE]]
        itself = request.base + path.removeprefix(ROOT)
        data, said = pages.chosen(rows, page, itself, request.parameters)
        return norman.shown({**norman.collection(id_, data, itself), "pagination": said, "actions": {}})

    async def _read(self, request: _Request, type_: NormanType) -> web.StreamResponse:
        kind = self._kind(request, type_)
        return norman.shown(self._show(request, type_, kind, await self._stored(request, type_, kind)))

    async def _stored(self, request: _Request, type_: NormanType, kind: Kind) -> Obj:
        namespace, name = self._place(request, type_)
        return await request.client.get(kind.gvr, name, namespace)

    def _place(self, request: _Request, type_: NormanType) -> tuple[str, str]:
        namespace, name = key_of(type_.id, request.identity, namespaced=type_.in_cluster)
        request.asked.cluster = name if type_ is CLUSTER else namespace
        return namespace, name

    def _show(self, request: _Request, type_: NormanType, kind: Kind, obj: Obj) -> Obj:
        found = objects.shown(type_, obj, self._states.of(obj, self._services.clock.time()))
        itself = f"{request.base}{type_.path.removeprefix(ROOT)}/{found['id']}"
        actions = {}
        if type_ is CLUSTER:
            actions["generateKubeconfig"] = f"{itself}?action=generateKubeconfig"
        links = self._links(request, kind, obj, itself)
        if "update" in links and type_.activation:
            active = found.get("active") is True
            actions |= {name: f"{itself}?action={name}" for name, value in type_.activation.items() if value != active}
        return {**found, "links": links, "actions": actions}

    @staticmethod
    def _links(request: _Request, kind: Kind, obj: Obj, itself: str) -> dict[str, str]:
        namespace, name = namespace_of(obj), name_of(obj)
        allowed = {link: itself for verb, link in _LINKS if request.permissions.may(kind, verb, namespace, name)}
        return {"self": itself, **allowed}

    # --- writes ----------------------------------------------------------------------------------------------------------

    async def _create(self, request: _Request, type_: NormanType) -> web.StreamResponse:
        kind = self._kind(request, type_)
        self._refuse_action(request)
        body = await norman.body_of(request.asked)
        namespace = norman.text_of(body, "clusterId") or norman.text_of(body, "namespaceId") if type_.in_cluster else ""
        if type_.in_cluster and not namespace:
            raise norman.invalid("clusterId is missing")
        metadata: Obj = {"namespace": namespace} if namespace else {}
        skeleton = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        wanted = objects.changed(type_, skeleton, body)
        made = await self._created(request, kind.gvr, wanted, type_.prefix, namespace)
        return norman.shown(self._show(request, type_, kind, made), 201)

    async def _created(self, request: _Request, gvr: GroupVersionResource, wanted: Obj, prefix: str, namespace: str) -> Obj:
        for _ in range(_TRIES):
            named = with_path(wanted, ("metadata", "name"), prefix + self._services.entropy.token_text(5))
            try:
                return await request.client.create(gvr, named, namespace, field_manager=_FIELD_MANAGER)
            except ApiError as error:
                # Five random characters may collide.
                if not error.is_already_exists:
                    raise
        raise unavailable("no free name was found: try again", 1)

    async def _update(self, request: _Request, type_: NormanType) -> web.StreamResponse:
        kind = self._kind(request, type_)
        body = await norman.body_of(request.asked)
        place = self._place(request, type_)
        written = await self._written(request, kind.gvr, *place, lambda obj: objects.changed(type_, obj, body))
        return norman.shown(self._show(request, type_, kind, written))

    async def _written(self, request: _Request, gvr: GroupVersionResource, namespace: str, name: str, change: _Change) -> Obj:
        """Change the present object; again if it was written in between."""
        for left in reversed(range(_TRIES)):
            stored = await request.client.get(gvr, name, namespace)
            wanted = change(stored)
            if wanted == stored:
                return stored
            try:
                return await request.client.update(gvr, wanted, field_manager=_FIELD_MANAGER)
            except ApiError as error:
                if not error.is_conflict or not left:
                    raise
        raise AssertionError("the last try raises")

    async def _act(self, request: _Request, type_: NormanType) -> web.StreamResponse:
        kind = self._kind(request, type_)
        action = norman.action_of(request.asked)
        if action not in type_.activation:
            raise bad_request("there is no such action")
        value = type_.activation[action]
        place = self._place(request, type_)
        written = await self._written(request, kind.gvr, *place, lambda obj: with_path(obj, ("spec", "active"), value))
        return norman.shown(self._show(request, type_, kind, written))

    async def _delete(self, request: _Request, type_: NormanType) -> web.StreamResponse:
        kind = self._kind(request, type_)
        namespace, name = self._place(request, type_)
        stored = await request.client.get(kind.gvr, name, namespace)
        await request.client.delete(kind.gvr, name, namespace)
        return norman.shown(self._show(request, type_, kind, stored))

    @staticmethod
    def _refuse_action(request: _Request) -> None:
        if norman.action_of(request.asked):
            raise bad_request("there is no such action")

    # --- cloud credentials -----------------------------------------------------------------------------------------------

    def _secret_kind(self, request: _Request) -> Kind:
        kind = request.kinds.find(_SECRET)
        assert kind is not None
        return kind

    async def _list_credentials(self, request: _Request) -> web.StreamResponse:
        dynamic = await self._dynamic(request)
        found = [each for each in await self._visible_credentials(request) if credentials.is_credential(each)]
        fields = (*schemas.BASE_FIELDS, *schemas.CREDENTIAL_FIELDS)
        page = pages.parse(request.parameters, fields)
        return await self._answer_list(
            request,
            credentials.TYPE,
            credentials.PATH,
            found,
            page,
            lambda secret: self._show_credential(request, secret, dynamic),
        )

    async def _visible_credentials(self, request: _Request) -> list[Obj]:
        """Those that the caller may list, else those that they may read: of a credential that is all its creator may."""
        kind = self._secret_kind(request)
        if request.permissions.may(kind, "list", GLOBAL):
            return await self._visible(request, kind, GLOBAL)
        part = request.permissions.part(kind, "get", GLOBAL)
        names = part.everywhere | (part.by_namespace.get(GLOBAL) or frozenset())
        found = [
            await find(request.client, SECRETS, name, GLOBAL) for name in sorted(names) if name.startswith(credentials.PREFIX)
        ]
        return [each for each in found if each is not None]

    def _show_credential(self, request: _Request, secret: Obj, dynamic: Iterable[Obj]) -> Obj:
        found = credentials.shown(secret, self._states.of(secret, self._services.clock.time()), dynamic)
        itself = f"{request.base}/cloudcredentials/{found['id']}"
        return {**found, "links": self._links(request, self._secret_kind(request), secret, itself), "actions": {}}

    def _credential_name(self, request: _Request) -> str:
        namespace, name = key_of(credentials.TYPE, request.identity, namespaced=True)
        if namespace != GLOBAL or not name.startswith(credentials.PREFIX):
            raise not_found("", "cloudcredentials", request.identity)
        return name

    async def _stored_credential(self, request: _Request) -> Obj:
        secret = await request.client.get(SECRETS, self._credential_name(request), GLOBAL)
        if not credentials.is_credential(secret):
            raise not_found("", "cloudcredentials", request.identity)
        return secret

    async def _credential(self, request: _Request) -> web.StreamResponse:
        secret = await self._stored_credential(request)
        return norman.shown(self._show_credential(request, secret, await self._dynamic(request)))

    async def _create_credential(self, request: _Request) -> web.StreamResponse:
        self._refuse_action(request)
        wanted = credentials.changed(credentials.new(""), await norman.body_of(request.asked))
        made = await self._created(request, SECRETS, wanted, credentials.PREFIX, GLOBAL)
        return norman.shown(self._show_credential(request, made, await self._dynamic(request)), 201)

    async def _update_credential(self, request: _Request) -> web.StreamResponse:
        body = await norman.body_of(request.asked)
        name = name_of(await self._stored_credential(request))
        written = await self._written(request, SECRETS, GLOBAL, name, lambda secret: credentials.changed(secret, body))
        return norman.shown(self._show_credential(request, written, await self._dynamic(request)))

    async def _delete_credential(self, request: _Request) -> web.StreamResponse:
        secret = await self._stored_credential(request)
        await request.client.delete(SECRETS, name_of(secret), GLOBAL)
        return norman.shown(self._show_credential(request, secret, await self._dynamic(request)))

    # --- principals ------------------------------------------------------------------------------------------------------

    async def _principals(self, request: _Request) -> web.StreamResponse:
        own = await find(self._services.client, USERS, request.asked.user.name)
        data = [] if own is None else [principals.principal(request.base, own, me=True)]
        return norman.shown(norman.collection(principals.TYPE, data, f"{request.base}/principals"))

    async def _search(self, request: _Request) -> web.StreamResponse:
        """Users by the beginning of a name, among those that the caller may list."""
        if norman.action_of(request.asked) != "search":
            raise bad_request("there is no such action")
        body = await norman.body_of(request.asked)
        name, kind = norman.text_of(body, "name"), norman.text_of(body, "principalType")
        users = await self._visible(request, request.kinds.find(_USER)) if kind in ("", "user") else []
        own = request.asked.user.name
        found = [user for user in users if principals.is_wanted(user, name)]
        data = [principals.principal(request.base, user, me=name_of(user) == own) for user in sorted(found, key=id_of)]
        return norman.shown(norman.collection(principals.TYPE, data, f"{request.base}/principals"))
