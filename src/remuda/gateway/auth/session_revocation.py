"""Long requests (a watch, a shell, a forwarded port) end with the token that started them.

Every request is authenticated, but a shell is one request for hours: it must end when its user is disabled or its token
revoked. :mod:`..handler` reports which requests begin and end; changes of users and tokens are noticed at once, expiry
within 15 seconds. The client's connection is cut, which ends everything that was done for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from remuda.access.users.tokens import is_expired
from remuda.access.users.user_objects import is_enabled
from remuda.api.management_cattle_io import TOKENS, USERS
from remuda.kube.objects import is_being_deleted, name_of

from ..server.dependencies import Services
from ..server.routing import RequestContext

Obj = dict[str, Any]

SWEEP: Final = 15.0
GONE: Final = "its token expired or was revoked during the request"


class Ongoing:
    def __init__(self, services: Services) -> None:
        self._clock = services.clock
        self._tokens = services.informers.of(TOKENS)
        users = services.informers.of(USERS)
        # By token, and by user: the requests in progress, in the order in which they began.
        self._by_token: dict[str, dict[int, RequestContext]] = {}
        self._by_user: dict[str, dict[int, RequestContext]] = {}
        self._number = 0
        self._tokens.on_change(self._token_changed)
        users.on_change(self._user_changed)
        services.beside.append(self._sweep)

    def __len__(self) -> int:
        return sum(map(len, self._by_token.values()))

    def begin(self, asked: RequestContext) -> Callable[[], None]:
        """Allow that the request is cut; call the result when it has ended."""
        caller = asked.caller
        if caller is None or caller.presented is None:
            return lambda: None
        self._number += 1
        number = self._number
        places = ((self._by_token, caller.presented.name), (self._by_user, caller.user.name))
        for held, name in places:
            held.setdefault(name, {})[number] = asked

        def end() -> None:
            for held, name in places:
                requests = held.get(name, {})
                requests.pop(number, None)
                if not requests:
                    held.pop(name, None)

        return end

    def _token_changed(self, new: Obj | None, old: Obj | None) -> None:
        found = new or old or {}
        if new is None or is_being_deleted(new) or new.get("enabled") is False:
            _cut(self._by_token.get(name_of(found), {}).values())

    def _user_changed(self, new: Obj | None, old: Obj | None) -> None:
        if new is None or not is_enabled(new):
            _cut(self._by_user.get(name_of(new or old or {}), {}).values())

    async def _sweep(self) -> None:
        while True:
            await self._clock.sleep(SWEEP)
            self.end_expired(self._clock.time())

    def end_expired(self, now: float) -> None:
        for name in list(self._by_token):
            token = self._tokens.get("", name)
            # A token that is not in the cache yet is too new to be expired.
            if token is not None and is_expired(token, now):
                _cut(self._by_token.get(name, {}).values())


def _cut(requests: Iterable[RequestContext]) -> None:
    for asked in list(requests):
        asked.why = asked.why or GONE
        transport = asked.request.transport
        if transport is not None:
            transport.abort()
