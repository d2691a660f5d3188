"""Login providers: they identify a user, by a password of ours or by a foreign identity provider. So far only `local` exists.

A provider gets the login request and returns the user; the session or token for the user is the same for all providers, and
:mod:`.tokens` makes it. Our own provider is here, too.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from remuda.access.users.passwords import Busy, Hashing, PasswordSecrets
from remuda.access.users.user_objects import identity_of, is_enabled, local_principal, meant_by, username_keys
from remuda.api.management_cattle_io import USERS
from remuda.kube.errors import unavailable

from ..server.dependencies import Services
from ..server.norman import Refused, text_of
from ..server.rate_limit import LoginThrottle

Obj = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Principal:
    """A user that a provider has authenticated: the User object, and their groups at the provider."""

    user: Obj
    id: str
    provider: str
    groups: tuple[Obj, ...] = ()

    def manifest(self) -> dict[str, Any]:
        """The principal as stored in a Token."""
        return {
            "metadata": {"name": self.id},
            "displayName": str(self.user.get("displayName") or ""),
            "loginName": str(self.user.get("username") or ""),
            "principalType": "user",
            "provider": self.provider,
            "me": True,
        }


class Provider(Protocol):
    """`name` is its id (`local`), `type` that of its resource (`localProvider`)."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str: ...

    async def login(self, body: dict[str, Any], address: str) -> Principal:
        """The user who sent this from `address`. Raises ApiError, whose text does not help to guess."""
        ...


class Providers:
    """All providers that users may log in with."""

    def __init__(self, *providers: Provider) -> None:
        self._by_name = {provider.name: provider for provider in providers}

    def __iter__(self) -> Iterator[Provider]:
        return iter(self._by_name.values())

    def named(self, name: str) -> Provider | None:
        return self._by_name.get(name)

    def of_type(self, type_: str) -> Provider | None:
        return next((provider for provider in self if provider.type == type_), None)


# --- local provider -------------------------------------------------------------------------------------------------------
#
# The login provider `local`: a user name and a password that we keep.
#
# An attacker who guesses learns nothing but "no": an unknown name, a wrong password and a disabled user get the same answer after
# the same work, and the same waiting time (:mod:`..server.rate_limit`).

log = logging.getLogger(__name__)

BY_USERNAME = "username"
# A name that no user can have, looked up in place of a missing one.
_NOBODY = "nobody-x"
_BUSY_SECONDS = 3


class LocalProvider:
    name = "local"
    type = "localProvider"

    def __init__(self, services: Services, hashing: Hashing, throttle: LoginThrottle) -> None:
        self._services = services
        self._hashing = hashing
        self._throttle = throttle
        self._passwords = PasswordSecrets(services.client)
        self._users = services.informers.of(USERS)
        self._users.add_index(BY_USERNAME, username_keys)

    async def login(self, body: dict[str, Any], address: str) -> Principal:
        username, password = text_of(body, "username"), text_of(body, "password")
        if not self._users.synced.is_set():
            raise unavailable("the server has just started and does not know its users yet: try again", retry_after=1)
        user = meant_by(self._users.indexed(BY_USERNAME, username))
        await self.prove(user, password, username, address)
        assert user is not None
        return Principal(user, local_principal(identity_of(user)), self.name)

    async def prove(self, user: Any, password: str, username: str, address: str) -> None:
        """Raise unless `user` exists, is enabled and has this password. A missing user takes as long as an existing one."""
        wait = self._throttle.begin(username, address)
        if wait > 0:
            message = "there were too many failed logins: try again later"
            raise Refused(429, "TooManyRequests", message, "has to wait after failed logins", math.ceil(wait))
        stored = await self._passwords.read(identity_of(user) if user is not None else _NOBODY)
        try:
            verdict = await self._hashing.verify(password, stored)
        except Busy as error:
            raise unavailable(str(error), retry_after=_BUSY_SECONDS) from None
        why = _refusal(user, stored is not None, verdict.right)
        if why:
            raise Refused(401, "Unauthorized", "authentication failed", why)
        self._throttle.succeeded(username, address)
        if verdict.rehash:
            await self._strengthen(user, password)

    async def _strengthen(self, user: Any, password: str) -> None:
        try:
            await self._passwords.put(user, await self._hashing.hashed(password))
        except Busy:
            log.debug("the password of %s is hashed again at the next login", identity_of(user))


def _refusal(user: Any, has_password: bool, right: bool) -> str:
    """The reason for the audit log, without the typed name: some users type their password there."""
    if user is None:
        return "there is no user of that name"
    identity = identity_of(user)
    if not has_password:
        return f"{identity} has no password"
    if not right:
        return f"the password is not that of {identity}"
    return "" if is_enabled(user) else f"{identity} is disabled"
