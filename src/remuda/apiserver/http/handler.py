"""A request from its first byte to its response: authentication, authorization, the target, and the verb.

Requests for resources end in :mod:`remuda.apiserver.verbs`; other paths (health, discovery, OpenAPI,
metrics) are looked up in a table that the server fills.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from remuda.kube import errors
from remuda.kube.authorization.actions import Action, forbidden_action
from remuda.kube.authorization.users import ANONYMOUS_USER, User
from remuda.kube.clock import yield_to_loop
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError
from remuda.kube.names import path_segment_problems

from ..apply import manager_from_user_agent
from ..auth import impersonation
from ..auth.authenticator import Chain, Credentials, anonymous_allowed
from ..cache.entries import Entry, encode
from ..limits.flow_control import Flow
from ..registry.resources import no_such_subresource, served
from ..storage import store
from ..verbs import create, delete, get, patch, update, watch
from ..verbs import list as listing
from ..verbs.context import Api, Call, ListOptions
from ..verbs.subresources import SubresourceRequest, SubresourceResponse, Subresources
from ..watch.filtered_list import FilteredLists, VisiblePart
from ..watch.selection import SLICE
from ..watch.watchers import ERROR, JSON, Feeds, Marked, Shape, framed
from . import list_bodies, negotiation, paths, query_options, request_bodies, responses
from .listener import Connection
from .metrics import Metrics
from .negotiation import Output
from .tables import MetadataShape, TableShape, check_metadata_form
from .watch_stream import WatchStream, watch_wire

logger = logging.getLogger(__name__)
Obj = dict[str, Any]

# A list of more entries than this passes the gate of lists and is built in slices.
_LARGE = 500
_MIN_WATCH_SECONDS = 1800

# The identity of a request, for the gateway in front of this handler: the authenticated user and the impersonated one.
WHO = web.RequestKey("remuda.who", tuple)
# The user of a request whose token the gateway in front of this handler has verified: it is not verified again.
VERIFIED = web.RequestKey("remuda.verified", User)
# The annotations of admission for the audit log, which the gateway writes.
ANNOTATIONS = web.RequestKey("remuda.annotations", dict)

PathHandler = Callable[[web.BaseRequest, paths.Target, User], Awaitable[web.StreamResponse]]
# Gets the action to authorize: a user with the right now may not have had it then.
PastHandler = Callable[[web.BaseRequest, paths.Target, Action], Awaitable[web.StreamResponse]]


class Handler:
    def __init__(self, api: Api, feeds: Feeds, chain: Chain, flow: Flow, subresources: Subresources, metrics: Metrics) -> None:
        self.api = api
        self.feeds = feeds
        self.chain = chain
        self.flow = flow
        self.subresources = subresources
        self.metrics = metrics
        # Exact paths, then prefixes (ending in a slash), for all non-resource paths.
        self.paths: dict[str, PathHandler] = {}
        self.prefixes: dict[str, PathHandler] = {}
        self.streams: set[Marked] = set()
        self.stopping = False
        self.impersonator = impersonation.Impersonator(api.authorizer)
        # For API groups of which users see only their own objects; without it other reads are refused with 403, as in Kubernetes.
        self.filtered_lists: FilteredLists | None = None
        # Answers requests about the past.
        self.past: PastHandler | None = None

    # --- the chain -----------------------------------------------------------------------------------------------------

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        started = self.api.clock.monotonic()
        target: paths.Target | None = None
        warnings: list[str] = []
        try:
            target = paths.parse(request.method, request.raw_path)
            asker = await self._authenticate(request, target, warnings)
            request[WHO] = (asker, asker)
            user = self._impersonate(request, target, asker)
            request[WHO] = (asker, user)
            only = self._authorize(target, user)
            if request.method != "GET":
                request_bodies.begin(request, self.flow.bodies, user.name)
            if self.api.cache.shared:
                known = target
                response = await self.api.run_consistently(lambda: self._respond(request, known, user, only))
            elif request.method == "GET":
                response = await self._respond(request, target, user, only)
            else:
                with store.writing(user.name if user is asker else f"{asker.name} as {user.name}"):
                    response = await self._respond(request, target, user, only)
            if warnings and not response.prepared:
                responses.add_warnings(response, warnings)
        except ApiError as failure:
            response = responses.error(failure, request)
            responses.add_warnings(response, [*failure.warnings, *warnings])
            if failure.code == 401:
                response.headers["WWW-Authenticate"] = "Bearer"
        except (ConnectionError, web.HTTPException):
            raise
        except Exception:
            logger.exception("%s %s failed", request.method, request.path)
            response = responses.error(errors.internal("the server met an error of its own; its log has the details"), request)
        finally:
            if request.method != "GET":
                request_bodies.end(request)
        if self.stopping and not response.prepared:
            # The client must not send its next request on this connection.
            response.force_close()
        if target is not None:
            self.metrics.request(target, response.status, self.api.clock.monotonic() - started)
        return response

    async def _authenticate(self, request: web.BaseRequest, target: paths.Target, warnings: list[str]) -> User:
        connection = request.protocol
        assert isinstance(connection, Connection)
        # Checked on every request: a certificate may expire while its connection lives. Authenticators cache their results.
        certificate = connection.peer_certificate
        verified: User | None = request.get(VERIFIED)
        if verified is not None and certificate is None:
            return verified
        identity = await self.chain.identify(Credentials.of(certificate, request.headers))
        if identity is not None:
            warnings.extend(identity.warnings)
            return identity.user
        if anonymous_allowed(target.path):
            return ANONYMOUS_USER
        raise errors.unauthorized()

    def _impersonate(self, request: web.BaseRequest, target: paths.Target, user: User) -> User:
        wanted = impersonation.parse(request.headers.items())
        return user if wanted is None else self.impersonator.impersonate(wanted, paths.action_of(target, user))

    def _authorize(self, target: paths.Target, user: User) -> VisiblePart | None:
        """None if the caller may see everything, else the part that may be shown."""
        if user is ANONYMOUS_USER and anonymous_allowed(target.path):
            return None
        return self.authorize(paths.action_of(target, user))

    def authorize(self, action: Action) -> VisiblePart | None:
        """None if the user may see everything, else the part that may be shown. Raises ApiError."""
        decision = self.api.authorizer.authorize(action)
        if decision.allowed:
            return None
        if self.filtered_lists is not None and self.filtered_lists.hides(action):
            raise errors.not_found(action.group, action.resource, action.name)
        only = self.filtered_lists.of(action) if self.filtered_lists is not None else None
        if only is None:
            raise forbidden_action(action, decision.reason)
        return only

    def _respond(
        self, request: web.BaseRequest, target: paths.Target, user: User, only: VisiblePart | None
    ) -> Awaitable[web.StreamResponse]:
        """One attempt at a response. Nothing of it has been sent yet when it raises ApiError."""
        if target.past:
            return self._past(request, target, user, only)
        return self._resource(request, target, user, only) if target.is_resource else self._path(request, target, user)

    async def _past(
        self, request: web.BaseRequest, target: paths.Target, user: User, only: VisiblePart | None
    ) -> web.StreamResponse:
        action = paths.action_of(target, user)
        # The caller may see a part now: that part is not known for the past.
        if only is not None:
            raise forbidden_action(action)
        if self.past is None:
            raise errors.page_not_found()
        return await self.past(request, target, action)

    async def _path(self, request: web.BaseRequest, target: paths.Target, user: User) -> web.StreamResponse:
        found = self.paths.get(target.path) or self.paths.get(target.path.rstrip("/"))
        if found is None:
            for prefix, handler in self.prefixes.items():
                if target.path.startswith(prefix):
                    found = handler
                    break
        if found is None:
            raise errors.page_not_found()
        return await found(request, target, user)

    # --- resources -----------------------------------------------------------------------------------------------------

    async def _resource(
        self, request: web.BaseRequest, target: paths.Target, user: User, only: VisiblePart | None
    ) -> web.StreamResponse:
        version = served(
            self.api.registry,
            target.group,
            target.version,
            target.resource,
            verb=target.verb,
            namespace=target.namespace,
            name="" if target.name_from_selector else target.name,
            subresource=target.subresource,
        )
        if target.method == "HEAD":
            raise errors.method_not_allowed()
        if target.name and (problems := path_segment_problems(target.name)) and not target.name_from_selector:
            raise errors.bad_request(f"Name parameter invalid: {errors.go_quote(target.name)}: {';'.join(problems)}")
        call = Call(
            version=version,
            verb=target.verb,
            namespace=target.namespace if version.resource.namespaced else "",
            name="" if target.name_from_selector else target.name,
            subresource=target.subresource,
            user=user,
            only=only,
        )
        request[ANNOTATIONS] = call.annotations
        if target.extra:
            raise no_such_subresource(self.api.registry, version, target.name)
        if target.subresource and target.subresource != "status":
            response = await self._subresource(request, target, call)
            responses.add_warnings(response, call.warnings)
            return response
        if version.resource.builtin:
            negotiation.check_route(request.headers.get("Accept", ""), target.verb in ("list", "watch"))
        if version.deprecation_warning:
            call.warnings.append(version.deprecation_warning)
        try:
            response = await self._verbs[target.verb](self, request, target, call)
        except ApiError as failure:
            failure.warnings = call.warnings
            raise
        if call.warnings and not response.prepared:
            responses.add_warnings(response, call.warnings)
        return response

    async def _get(self, request: web.BaseRequest, target: paths.Target, call: Call) -> web.StreamResponse:
        accept = request.headers.get("Accept", "")
        output = negotiation.negotiate(accept, False)
        query = target.query
        entry = await get.get(self.api, call, query.get("resourceVersion", "") if query else "")
        if output is negotiation.PLAIN and len(entry.stored) < responses.GZIP_FROM and not responses.wants_pretty(request, query):
            return responses.plain(call.version.body(entry) + b"\n")
        return await self.answer(request, target, call, entry, output)

    async def _list(self, request: web.BaseRequest, target: paths.Target, call: Call) -> web.StreamResponse:
        output = negotiation.negotiate(request.headers.get("Accept", ""), True)
        listed = query_options.list_options(target.query)
        size = len(call.version.resource.bucket.entries)
        if size > _LARGE and not (0 < listed.limit <= _LARGE):
            async with self.flow.lists.seat(call.user.name):
                return await self._list_page(request, target, call, listed, output)
        return await self._list_page(request, target, call, listed, output)

    async def _list_page(
        self, request: web.BaseRequest, target: paths.Target, call: Call, listed: ListOptions, output: Output
    ) -> web.StreamResponse:
        page = await listing.list_(self.api, call, listed)
        version = call.version
        if output.as_ == "Table":
            data = await self._table(target, output).page(version, page, self.api.clock.time())
        elif output.as_:
            check_metadata_form(version, output.as_, collection=True)
            data = await MetadataShape(output.table_version).page(version, page)
        else:
            pretty = responses.wants_pretty(request, target.query)
            if output.media_type == negotiation.JSON and not pretty and list_bodies.is_large(version, page):
                return responses.stream(request, list_bodies.pieces(version, page, self.flow.pieces))
            data = await list_bodies.body(version, page)
        return await responses.body(request, data, 200, output.media_type, responses.wants_pretty(request, target.query))

    async def _create(self, request: web.BaseRequest, target: paths.Target, call: Call) -> web.StreamResponse:
        if call.name:
            raise errors.method_not_allowed()
        virtual = call.version.resource.virtual
        forms = negotiation.WITHOUT_TABLE if virtual else negotiation.FORMS
        output = negotiation.negotiate(request.headers.get("Accept", ""), False, forms)
        self._write_options(request, target, call, "CreateOptions")
        raw, duplicates = await request_bodies.read_object(request, call)
        if virtual:
            answer = await self.subresources.review(call, SubresourceRequest(raw, duplicates))
            return await self._unstored(request, target, call, output, answer)
        async with self.flow.writes.seat(call.user.name):
            entry = await create.create(self.api, call, raw, duplicates)
        return await self.answer(request, target, call, entry, output, 201)

    async def _update(self, request: web.BaseRequest, target: paths.Target, call: Call) -> web.StreamResponse:
        if not call.name:
            raise errors.method_not_allowed()
        output = negotiation.negotiate(request.headers.get("Accept", ""), False)
        self._write_options(request, target, call, "UpdateOptions")
        raw, duplicates = await request_bodies.read_object(request, call)
        async with self.flow.writes.seat(call.user.name):
            outcome = await update.update(self.api, call, raw, duplicates)
        return await self.answer(request, target, call, outcome.entry, output, 201 if outcome.created else 200)

    async def _patch(self, request: web.BaseRequest, target: paths.Target, call: Call) -> web.StreamResponse:
        if not call.name:
            raise errors.method_not_allowed()
        content_type = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        accepted = patch.patch_types(call)
        if content_type not in accepted:
            raise patch.unsupported_type(accepted)
        output = negotiation.negotiate(request.headers.get("Accept", ""), False)
        self._write_options(request, target, call, "PatchOptions")
        data = await request_bodies.read_limited(request)
        found = patch.option_errors(call, content_type)
        if found:
            raise errors.invalid("meta.k8s.io", "PatchOptions", "", found)
        body, duplicates = await request_bodies.parse_patch(data, content_type)
        async with self.flow.writes.seat(call.user.name):
            outcome = await patch.patch(self.api, call, body, content_type, duplicates)
        return await self.answer(request, target, call, outcome.entry, output, 201 if outcome.created else 200)

    async def _delete(self, request: web.BaseRequest, target: paths.Target, call: Call) -> web.StreamResponse:
        output = negotiation.negotiate(request.headers.get("Accept", ""), False)
        chosen, call.dry_run = query_options.delete_options(target.query, await self._delete_body(request))
        async with self.flow.writes.seat(call.user.name):
            deletion = await delete.delete(self.api, call, chosen)
        if deletion.done and not call.version.resource.shows_deleted:
            return await responses.body(
                request,
                jsonio.dumps(deletion.status(call)) + b"\n",
                200,
                output.media_type,
                responses.wants_pretty(request, target.query),
            )
        # Only for propagation that deletes dependents does the status say that the work goes on.
        status = 202 if chosen.orphan_dependents is False else 200
        return await self.answer(request, target, call, deletion.entry, output, status)

    async def _deletecollection(self, request: web.BaseRequest, target: paths.Target, call: Call) -> web.StreamResponse:
        output = negotiation.negotiate(request.headers.get("Accept", ""), True)
        listed = query_options.list_options(target.query)
        chosen, call.dry_run = query_options.delete_options(target.query, await self._delete_body(request))
        async with self.flow.writes.seat(call.user.name):
            page = await delete.delete_collection(self.api, call, listed, chosen)
        return await responses.body(request, await list_bodies.body(call.version, page), 200, output.media_type)

    async def _delete_body(self, request: web.BaseRequest) -> Any:
        data = await request_bodies.read_limited(request) if request_bodies.has_body(request) else b""
        if not data:
            return None
        return await request_bodies.read_delete_options(data, request.headers.get("Content-Type", ""))

    async def _subresource(self, request: web.BaseRequest, target: paths.Target, call: Call) -> web.StreamResponse:
        forms = negotiation.FORMS if call.subresource == "scale" else negotiation.WITHOUT_TABLE
        output = negotiation.negotiate(request.headers.get("Accept", ""), False, forms)
        ask = SubresourceRequest()
        if call.verb in ("create", "update"):
            self._write_options(request, target, call, "CreateOptions" if call.verb == "create" else "UpdateOptions")
            ask.body, ask.duplicates = await request_bodies.read_object(request, call)
        elif call.verb == "patch":
            self._write_options(request, target, call, "PatchOptions")
            ask.patch_type = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            accepted = patch.patch_types(call)
            if ask.patch_type not in accepted:
                raise patch.unsupported_type(accepted)
            data = await request_bodies.read_limited(request)
            if found := patch.option_errors(call, ask.patch_type):
                raise errors.invalid("meta.k8s.io", "PatchOptions", "", found)
            ask.body, ask.duplicates = await request_bodies.parse_patch(data, ask.patch_type)
        if call.verb == "get":
            answer = await self.subresources.run(call, ask)
        else:
            async with self.flow.writes.seat(call.user.name):
                answer = await self.subresources.run(call, ask)
        if output.as_ and answer.body.get("kind") == "Scale":
            inner = self.subresources.on_scale(call)
            revision = int(answer.body["metadata"].get("resourceVersion") or 0)
            entry = Entry("", call.namespace, call.name, revision, encode(answer.body))
            return await self.answer(request, target, inner, entry, output, answer.status)
        return await self._unstored(request, target, call, output, answer)

    async def _unstored(
        self, request: web.BaseRequest, target: paths.Target, call: Call, output: Output, answer: SubresourceResponse
    ) -> web.Response:
        """An answer that is no stored object. A Status has no other form."""
        body = answer.body
        if output.as_ and body.get("kind") != "Status":
            check_metadata_form(call.version, output.as_, collection=False)
            body = MetadataShape(output.table_version).of(body)
        pretty = responses.wants_pretty(request, target.query)
        return await responses.body(request, jsonio.dumps(body) + b"\n", answer.status, output.media_type, pretty)

    # --- watch ---------------------------------------------------------------------------------------------------------

    async def _watch(self, request: web.BaseRequest, target: paths.Target, call: Call) -> web.StreamResponse:
        output = negotiation.negotiate_stream(request.headers.get("Accept", ""))
        listed = query_options.list_options(target.query)
        selection = watch.selection_of(call, listed)
        wire = watch_wire(request)
        stream = WatchStream(call.version, self._shape(target, output), wire.frame)
        try:
            begin = await watch.start(self.api, self.feeds, call, listed, selection, stream)
        except ApiError as failure:
            if failure.code not in (410, 504):
                raise
            # After the request itself is checked, its errors come as an event.
            return await wire.whole(request, framed(ERROR, jsonio.dumps(failure.status())))
        connection = request.protocol
        assert isinstance(connection, Connection)
        connection.on_lost[stream.end] = None
        self.streams.add(stream)
        seconds = listed.timeout_seconds or _MIN_WATCH_SECONDS * (1 + self.api.rng.uniform(0, 1))
        timer = self.api.clock.call_later(seconds, stream.end)
        responses.add_warnings(wire.response, call.warnings)
        unfollow: Callable[[], None] = _nothing
        try:
            for first in range(0, len(begin.events), SLICE):
                stream.hold(begin.events[first : first + SLICE])
                await yield_to_loop()
            if begin.bookmark is not None:
                stream.bookmark(begin.bookmark, {watch.INITIAL_EVENTS_END: "true"})
            begin.watcher.go()
            stream.bookmarks_for = begin.watcher if listed.bookmarks else None
            unfollow = watch.follow_sight(selection, stream)
            if self.stopping or connection.transport is None:
                stream.end()
            await wire.carry(request, stream)
        except (ConnectionError, RuntimeError):
            # The client is gone; uvloop raises RuntimeError for a write to a closed connection.
            pass
        finally:
            unfollow()
            timer.cancel()
            stream.end()
            # The watcher refers to the stream, too: a cycle would keep the connection with its TLS state after its end.
            stream.bookmarks_for = None
            begin.watcher.leave()
            self.streams.discard(stream)
            connection.on_lost.pop(stream.end, None)
        return wire.response

    def _shape(self, target: paths.Target, output: Output) -> Shape:
        if output.as_ == "Table":
            return self._table(target, output)
        return MetadataShape(output.table_version) if output.as_ else JSON

    def _table(self, target: paths.Target, output: Output) -> TableShape:
        include = target.query.get("includeObject") or "Metadata"
        if include not in ("None", "Metadata", "Object"):
            why = f"Invalid value: {errors.go_quote(include)}: must be 'Metadata', 'Object', 'None', or empty"
            raise errors.bad_request(f"Unable to convert to Table as requested: includeObject: {why}")
        return TableShape(output.table_version, include, self.api.clock)

    # --- shared --------------------------------------------------------------------------------------------------------

    def _write_options(self, request: web.BaseRequest, target: paths.Target, call: Call, kind: str) -> None:
        found = query_options.WriteOptions(target.query, kind)
        call.dry_run = found.dry_run
        call.field_manager = found.field_manager
        call.field_validation = found.field_validation
        call.force = found.force
        call.manager = found.field_manager or manager_from_user_agent(request.headers.get("User-Agent", ""))

    async def answer(
        self,
        request: web.BaseRequest,
        target: paths.Target,
        call: Call,
        entry: Entry,
        output: Output,
        status: int = 200,
    ) -> web.Response:
        version = call.version
        await version.prepare([entry])
        if output.as_ == "Table":
            data = self._table(target, output).single(version, entry, self.api.clock.time())
        elif output.as_:
            check_metadata_form(version, output.as_, collection=False)
            data = MetadataShape(output.table_version).single(version, entry)
        else:
            data = version.body(entry) + b"\n"
        pretty = responses.wants_pretty(request, target.query)
        if output.media_type == negotiation.JSON and len(data) < responses.GZIP_FROM and not pretty:
            return responses.plain(data, status)
        return await responses.body(request, data, status, output.media_type, pretty)

    _verbs: dict[str, Callable[..., Awaitable[web.StreamResponse]]] = {
        "get": _get,
        "list": _list,
        "watch": _watch,
        "create": _create,
        "update": _update,
        "patch": _patch,
        "delete": _delete,
        "deletecollection": _deletecollection,
    }


def _nothing() -> None:
    pass
