"""The gateway's own paths, and the callers allowed on them. Everything else is the management API's.

A route gets the context of its request, and so does the audit line. :mod:`..handler` fills it step by step: the target, then the
caller, then the route's findings (which cluster, why not).

A pattern is a path whose segments are words, `{name}` for one segment, or, at its end, `{name*}` for all that follow (also
none). The first route that matches wins, so that more precise ones are added first.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from aiohttp import web

from remuda.apiserver.http.handler import ANNOTATIONS, VERIFIED, WHO
from remuda.apiserver.http.listener import Handler
from remuda.kube.authorization.users import ANONYMOUS_USER, User

from .credentials import Presented
from .path_validation import Target


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller: a user as the management API knows them, and their token (none for a client certificate)."""

    user: User
    presented: Presented | None = None
    # The Token object's clusterName: such a token is valid for that cluster only.
    bound_to: str = ""
    # The user must change their password first, and until then reaches routes for newcomers only.
    must_change_password: bool = False


@dataclass(slots=True)
class RequestContext:
    """`parameters` are the named parts of the route's path. The route fills in `cluster` and `why`."""

    request: web.BaseRequest
    target: Target
    address: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    caller: Caller | None = None
    # For the audit log.
    cluster: str = ""
    why: str = ""
    impersonated: str = ""
    forged: tuple[str, ...] = ()
    annotations: dict[str, str] = field(default_factory=dict)

    @property
    def user(self) -> User:
        """The caller's user, on routes that require authentication."""
        assert self.caller is not None
        return self.caller.user


Answer = Callable[[RequestContext], Awaitable[web.StreamResponse]]
# The largest body, unless a route says otherwise.
LARGEST_BODY = 1 << 20


class Access(enum.Enum):
    """The callers allowed on a route."""

    # No credentials are checked: the route reads its own (an agent's, a node's) or needs none.
    PUBLIC = "public"
    # Everyone; the route gets the caller if there is a valid credential of a user, and shows others less.
    ANYONE = "anyone"
    # A user of Remuda, by token, cookie (where cookies count) or client certificate; 401 without.
    USER = "user"
    # The same, and also a user who must change their password first; such a caller is allowed nothing else (403).
    PASSWORD_CHANGE = "password change"


@dataclass(frozen=True, slots=True)
class Route:
    """`largest` None: the body is streamed and never held. `quiet`: no audit line unless the request is refused."""

    methods: frozenset[str]
    pattern: tuple[str, ...]
    answer: Answer
    access: Access
    largest: int | None = LARGEST_BODY
    quiet: bool = False

    def fits(self, target: Target) -> Mapping[str, str] | None:
        """The pattern's parameters, or None for another path."""
        segments, found = target.segments, {}
        for at, part in enumerate(self.pattern):
            if part.endswith("*}"):
                found[part[1:-2]] = "/".join(segments[at:])
                return found
            if at >= len(segments):
                return None
            if part.startswith("{"):
                found[part[1:-1]] = segments[at]
            elif part != segments[at]:
                return None
        return found if len(segments) == len(self.pattern) else None


class Routes:
    """All routes, by their first segment."""

    def __init__(self) -> None:
        self._by_first: dict[str, list[Route]] = {}

    def add(
        self,
        methods: str,
        pattern: str,
        answer: Answer,
        access: Access,
        *,
        largest: int | None = LARGEST_BODY,
        quiet: bool = False,
    ) -> None:
        """`methods` are words, or `*` for every method."""
        parts = tuple(pattern.strip("/").split("/"))
        if parts[0].startswith("{"):
            raise ValueError(f"{pattern}: the first segment of a route must be a word, all others are the management API's")
        route = Route(frozenset(methods.split()), parts, answer, access, largest, quiet)
        self._by_first.setdefault(parts[0], []).append(route)

    def __iter__(self) -> Iterator[Route]:
        for routes in self._by_first.values():
            yield from routes

    def owns(self, target: Target) -> bool:
        """Tells whether the path is the gateway's own, by its first segment, with a route or not."""
        return bool(target.segments) and target.segments[0] in self._by_first

    def find(self, method: str, target: Target) -> tuple[Route, Mapping[str, str]] | frozenset[str]:
        """The route and its parameters; else the methods allowed for this path (none: the path does not exist)."""
        others: set[str] = set()
        for route in self._by_first.get(target.segments[0] if target.segments else "", ()):
            found = route.fits(target)
            if found is None:
                continue
            if method in route.methods or "*" in route.methods:
                return route, found
            others |= route.methods
        return frozenset(others)


# --- backend --------------------------------------------------------------------------------------------------------------
#
# The backend at `/`: the Kubernetes API that Remuda is managed through.
#
# Here it is in the same process (:class:`InProcess`); a foreign Kubernetes is reached over the network as the caller
# (:mod:`..proxy.kubernetes_backend`). Either way :mod:`..handler` passes it all requests for other paths than the gateway's own.


class Backend(Protocol):
    async def answer(self, asked: RequestContext) -> web.StreamResponse:
        """Set in `asked` the caller, as far as it is known here."""
        ...


class InProcess:
    """The API server's own handler. It authenticates by itself: certificates, service accounts, and, where a certificate comes
    with them, our tokens by :class:`~..auth.authenticator.TokenAuthenticator`; a token alone was verified in front of it."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def answer(self, asked: RequestContext) -> web.StreamResponse:
        if asked.caller is not None:
            asked.request[VERIFIED] = asked.caller.user
        try:
            return await self._handler(asked.request)
        finally:
            asked.annotations = asked.request.get(ANNOTATIONS) or {}
            found: tuple[User, User] | None = asked.request.get(WHO)
            if found is not None:
                asker, acting = found
                if asked.caller is None and asker is not ANONYMOUS_USER:
                    asked.caller = Caller(asker)
                if acting is not asker:
                    asked.impersonated = acting.name
