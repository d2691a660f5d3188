"""Every request on the one listener, from its first check to its line in the audit log.

In this order: is there one way to read it (:mod:`.server.headers`, :mod:`.server.path_validation`), is the path ours or the
management API's (:mod:`.server.routing`), who is the caller (:mod:`.auth.authenticator`) and is the request their own
(:mod:`.server.csrf`), has the token room for a request, is the body not too large or too slow; then the route or the API answers,
with the headers that every answer carries. Errors become a Kubernetes Status with no more detail than necessary; the audit log
has the reason.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import parse_qs

from aiohttp import web

from remuda.apiserver.http import responses
from remuda.apiserver.http.connection_limits import ConnectionLimits, address_of
from remuda.apiserver.http.listener import Connection, Request
from remuda.apiserver.limits.caller_caps import ConnectionCaps, Seat
from remuda.kube import errors
from remuda.kube.clock import deadline
from remuda.kube.errors import ApiError

from .auth.authenticator import Callers, NotLetIn
from .server import csrf, dashboard
from .server.audit_log import Record, Result
from .server.dependencies import Services
from .server.headers import OWN_ANSWER, PROXIED_ANSWER, framing_problem, is_known_host, says_identity, upgrade_of
from .server.path_validation import BadTarget, Target, judge
from .server.routing import Access, Backend, RequestContext, Route

log = logging.getLogger(__name__)

BODY_SECONDS = 60.0
PER_TOKEN = 4096
_REQUESTS_IN_ALL = 100_000
# Paths of the management API: it alone decides about odd paths below these.
_KUBERNETES = frozenset(
    ("api", "apis", "history", "openapi", "version", "healthz", "livez", "readyz", "metrics", "logs", ".well-known")
)
_QUIET = frozenset(("healthz", "livez", "readyz", "version", "metrics"))
_REFUSALS = frozenset((400, 401, 403, 405, 408, 411, 413, 414, 415, 421, 426, 429, 431))
_TRUE = frozenset(("1", "true", "True", "TRUE", "t", "T"))
_NOWHERE = Target("/", ())
# Any word can be in the place of a method, also one of a body that is taken for the next request.
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"))
_OTHER = "other"
# Rancher's pages show their login when they read that they are not authenticated.
_AUTHENTICATED = "X-API-Cattle-Auth"
_IDENTIFIED = {**OWN_ANSWER, _AUTHENTICATED: "true"}
_NOT_IDENTIFIED = {**OWN_ANSWER, _AUTHENTICATED: "false"}


class Auditing(Protocol):
    def record(self, record: Record) -> bool: ...


class Unaudited:
    """The audit log of a gateway without one."""

    def record(self, record: Record) -> bool:
        return True


class Misread(ApiError):
    """A request that can be read in two ways: 400, and the connection ends, since the start of the next one is uncertain."""

    def __init__(self, why: str) -> None:
        super().__init__(400, "BadRequest", why)


class WrongMethod(ApiError):
    """405 for a path of ours, with the allowed methods."""

    def __init__(self, methods: Iterable[str]) -> None:
        super().__init__(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})
        self.allowed = ", ".join(sorted(methods))


@dataclass(slots=True)
class _Visit:
    asked: RequestContext
    began: float
    upgrade: str
    quiet: bool = False
    started: bool = False
    seat: Seat | None = None
    ended: Callable[[], None] | None = None


class GatewayHandler:
    """`names` returns those of the listener's certificate, by which clients may address us."""

    def __init__(
        self,
        services: Services,
        callers: Callers,
        behind: Backend,
        audit: Auditing,
        lines: ConnectionLimits,
        names: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._services = services
        self._clock = services.clock
        self._callers = callers
        self._behind = behind
        self._audit = audit
        self._names = names
        self._by_token = ConnectionCaps(PER_TOKEN, _REQUESTS_IN_ALL)
        lines.on_misread = self._misread
        lines.on_refused = self._cut

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        address = address_of(connection) if isinstance(connection, Connection) else ""
        visit = _Visit(RequestContext(request, _NOWHERE, address), self._clock.monotonic(), upgrade_of(request.headers.items()))
        try:
            response = await self._answer(visit)
        except ApiError as failure:
            response = self._told(visit, failure)
        except web.HTTPException as answer:
            self._note(visit, answer.status)
            raise
        except Exception as error:
            if isinstance(error, ConnectionError) or (request.transport is None):
                visit.asked.why = visit.asked.why or "the connection was lost"
                self._note(visit, 0, Result.FAILED)
                raise
            log.exception("a request failed")
            response = self._told(visit, errors.internal("an internal error occurred; the server's log has the details"))
        except BaseException:
            visit.asked.why = visit.asked.why or "the connection was lost"
            self._note(visit, 0, Result.FAILED)
            raise
        finally:
            if visit.seat is not None:
                visit.seat.leave()
            if visit.ended is not None:
                visit.ended()
        self._note(visit, response.status)
        return response

    # --- requests --------------------------------------------------------------------------------------------------------

    async def _answer(self, visit: _Visit) -> web.StreamResponse:
        asked = visit.asked
        request = asked.request
        if problem := framing_problem(request.headers.items()):
            raise Misread(problem)
        asked.forged = tuple([name.lower() for name in request.headers if name[:1] in "XxIi" and _is_forged(name.lower())])
        own = self._aim(asked)
        if dashboard.is_visit(request.method, asked.target, request.headers.get("Accept", "")):
            _carry(request, OWN_ANSWER)
            return dashboard.to_home()
        if not own:
            return await self._behind_it(visit)
        _carry(request, OWN_ANSWER)
        route = self._route(asked)
        visit.quiet = route.quiet
        if route.access is Access.ANYONE:
            await self._recognize(visit)
        elif route.access is not Access.PUBLIC:
            _carry(request, _NOT_IDENTIFIED)
            await self._identify(visit, route)
            _carry(request, _IDENTIFIED)
        if route.largest is not None:
            await self._receive(request, route.largest)
        self._begin(visit, lasting=route.largest is None)
        return await route.answer(asked)

    def _aim(self, asked: RequestContext) -> bool:
        """Validates the target; True if it is one of the gateway's own."""
        raw = asked.request.raw_path
        try:
            asked.target = judge(raw)
        except BadTarget as error:
            first = raw.partition("?")[0].strip("/").partition("/")[0]
            if first not in _KUBERNETES or _climbs(raw):
                raise Misread(str(error)) from None
            asked.target = Target(raw.partition("?")[0], (first,), raw.partition("?")[2])
            return False
        return self._services.routes.owns(asked.target)

    def _route(self, asked: RequestContext) -> Route:
        found = self._services.routes.find(asked.request.method, asked.target)
        if isinstance(found, tuple):
            route, asked.parameters = found
            return route
        if not found:
            raise errors.no_such_path()
        raise WrongMethod(found)

    async def _behind_it(self, visit: _Visit) -> web.StreamResponse:
        asked = visit.asked
        _carry(asked.request, PROXIED_ANSWER)
        visit.quiet = bool(asked.target.segments) and asked.target.segments[0] in _QUIET
        headers = asked.request.headers
        if problem := csrf.added_by_browser_problem(asked.request.method, headers.items(), upgrade=bool(visit.upgrade)):
            raise errors.forbidden("", "", "", problem)
        asked.caller = await self._callers.identify_behind(asked)
        if asked.caller is not None:
            self._admit(visit, Access.USER)
        self._begin(visit)
        return await self._behind.answer(asked)

    async def _recognize(self, visit: _Visit) -> None:
        """Like :meth:`_identify`, for routes that answer everyone: a credential that is not accepted is none."""
        _carry(visit.asked.request, _NOT_IDENTIFIED)
        try:
            found = await self._callers.identify(visit.asked)
        except NotLetIn:
            return
        if found is not None and not found.must_change_password:
            visit.asked.caller = found
            self._admit(visit, Access.USER)
            _carry(visit.asked.request, _IDENTIFIED)

    async def _identify(self, visit: _Visit, route: Route) -> None:
        asked = visit.asked
        asked.caller = await self._callers.identify(asked, _cluster_in(asked.target))
        if asked.caller is None:
            raise NotLetIn("no token of this server was sent")
        self._admit(visit, route.access)
        headers = asked.request.headers
        problem = csrf.problem(
            asked.request.method,
            headers.items(),
            asked.caller.presented,
            self._origins(headers.get("Host", "")),
            upgrade=bool(visit.upgrade),
        )
        if problem:
            raise errors.forbidden("", "", "", problem)

    def _admit(self, visit: _Visit, access: Access) -> None:
        caller = visit.asked.caller
        assert caller is not None
        if caller.must_change_password and access is not Access.PASSWORD_CHANGE:
            raise errors.forbidden("", "", "", "the password must be changed first")
        if caller.presented is not None:
            visit.seat = self._by_token.enter(caller.presented.name)
            if visit.seat is None:
                raise errors.too_many_requests("this token has too many requests in progress")

    def _origins(self, host: str) -> tuple[str, ...]:
        """The allowed origins of our own page: the server's address, and the requested one if it is in our certificate."""
        said = self._services.settings().text("server-url")
        here = f"https://{host}" if is_known_host(host, self._names()) else ""
        return tuple(origin for origin in (said, here) if origin)

    async def _receive(self, request: web.BaseRequest, largest: int) -> None:
        """Reads the whole body, within a size and a time; from then on `request.read()` has it."""
        declared = request.content_length
        if declared is not None and declared > largest:
            raise errors.too_large(f"limit is {largest}")
        if not request.can_read_body:
            return
        pieces: list[bytes] = []
        size = 0
        try:
            async with deadline(self._clock, BODY_SECONDS):
                while piece := await request.content.readany():
                    size += len(piece)
                    if size > largest:
                        raise errors.too_large(f"limit is {largest}")
                    pieces.append(piece)
        except TimeoutError:
            raise ApiError(408, "Timeout", "the body of the request took too long") from None
        request._read_bytes = b"".join(pieces)

    # --- answers ---------------------------------------------------------------------------------------------------------

    def _told(self, visit: _Visit, failure: ApiError) -> web.StreamResponse:
        asked = visit.asked
        asked.why = asked.why or str(getattr(failure, "why", "") or failure.message)
        response = responses.error(failure, asked.request)
        if failure.code == 401:
            response.headers["WWW-Authenticate"] = "Bearer"
        if isinstance(failure, WrongMethod):
            response.headers["Allow"] = failure.allowed
        if isinstance(failure, Misread) or failure.code in (408, 413):
            response.force_close()
        return response

    def _begin(self, visit: _Visit, *, lasting: bool = True) -> None:
        """A request that may run for hours is also audited when it begins, and ends with its token if it really does (`lasting`):
        the answer to a logout must still be sent, also if it asks for an upgrade."""
        if visit.quiet or not (visit.upgrade or _is_long(visit.asked.target)):
            return
        visit.started = True
        if lasting:
            visit.ended = self._callers.ongoing.begin(visit.asked)
        self._audit.record(self._record(visit, 0, Result.STARTED))

    def _note(self, visit: _Visit, status: int, result: Result | None = None) -> None:
        result = result or _result(status)
        if visit.quiet and result is Result.ALLOWED:
            return
        self._audit.record(self._record(visit, status, result))

    def _record(self, visit: _Visit, status: int, result: Result) -> Record:
        asked = visit.asked
        caller = asked.caller
        taken = self._clock.monotonic() - visit.began
        return Record(
            method=asked.request.method if asked.request.method in _METHODS else _OTHER,
            path=asked.request.raw_path,
            result=result,
            status=status,
            user=caller.user.name if caller is not None else "",
            groups=caller.user.groups if caller is not None else (),
            token=caller.presented.name if caller is not None and caller.presented is not None else "",
            impersonated=asked.impersonated,
            address=asked.address,
            cluster=asked.cluster or _cluster_in(asked.target),
            why=asked.why,
            agent=asked.request.headers.get("User-Agent", ""),
            milliseconds=round(taken * 1000, 3),
            forged=asked.forged,
            annotations=asked.annotations,
        )

    def _misread(self, address: str, why: str) -> None:
        self._audit.record(Record("", "", Result.REFUSED, 400, address=address, why=why))

    def _cut(self, address: str, why: str) -> None:
        self._audit.record(Record("", "", Result.REFUSED, address=address, why=why))


def _result(status: int) -> Result:
    if status >= 500:
        return Result.FAILED
    return Result.REFUSED if status in _REFUSALS else Result.ALLOWED


def _is_forged(lower: str) -> bool:
    """Identity headers that are never sent by accident; a proxy in front of us may well send X-Forwarded-For."""
    return lower.startswith(("x-remote-", "impersonate_", "x-auth-request-", "x-webauth-")) and says_identity(lower)


def _climbs(raw: str) -> bool:
    path = raw.partition("?")[0].lower()
    return ".." in path or "%2e" in path or "\\" in path or "%5c" in path or "%00" in path


def _cluster_in(target: Target) -> str:
    """The cluster in the path: some tokens are valid for one only."""
    segments = target.segments
    return segments[2] if len(segments) > 2 and segments[:2] in (("k8s", "clusters"), ("k8s", "proxy")) else ""


def _is_long(target: Target) -> bool:
    if "watch" not in target.query and "follow" not in target.query:
        return False
    said = parse_qs(target.query, max_num_fields=200) if target.query.count("&") < 200 else {}
    return any(value in _TRUE for name in ("watch", "follow") for value in said.get(name, ()))


def _carry(request: web.BaseRequest, headers: Mapping[str, str]) -> None:
    """Add these headers to every answer to this request, unless the answer sets them itself."""

    def put(response: web.StreamResponse) -> None:
        # Do not reveal versions of our components.
        response.headers.pop("Server", None)
        for name, value in headers.items():
            if name not in response.headers:
                response.headers[name] = value

    if isinstance(request, Request):
        request.before_headers = put
