"""Controllers that delete the tokens of removed and disabled users, and expired tokens.

A removed or disabled user loses every token at once; a user who is enabled again needs new ones. Expired tokens are deleted, and
so are those of users that do not exist. The gateway refuses all of these anyway (it checks both objects on each request): this
only cleans up credentials that were once valid.
"""

from __future__ import annotations

from collections.abc import Iterable

from remuda.api.management_cattle_io import TOKENS, USERS
from remuda.client.idempotent import find, remove
from remuda.client.interface import Client, Obj
from remuda.kube.clock import Clock, SettledTime
from remuda.kube.objects import Key, is_being_deleted, name_of, resource_version_of
from remuda.runtime import DONE, Controller, Informers, Result, Watch, logger

from .passwords import PasswordSecrets
from .tokens import ends_at
from .user_objects import is_enabled, local_principal

log = logger(__name__)

_BY_USER = "user"
# A clock that was set wrong for a moment must not empty the store; an expired token is refused meanwhile.
_GRACE_SECONDS = 60.0
_LONGEST_PAUSE = 3600.0


def user_of_token(token: Obj) -> Iterable[str]:
    """Key function of an index of tokens by their user's id."""
    user = token.get("userId")
    return (user,) if isinstance(user, str) and user else ()


def _its_user(token: Obj) -> Iterable[Key]:
    return [Key("", user) for user in user_of_token(token)]


class UserController:
    """A disabled or removed user has no tokens; an enabled one is known to the local login provider."""

    controller = Controller("user", USERS, watches=(Watch(TOKENS, _its_user),))

    def __init__(self, client: Client, informers: Informers) -> None:
        self._client = client
        self._users = informers.of(USERS)
        self._tokens = informers.of(TOKENS)
        self._tokens.add_index(_BY_USER, user_of_token)
        self._passwords = PasswordSecrets(client)

    async def reconcile(self, key: Key) -> Result:
        user = self._users.get("", key.name)
        if user is not None and is_enabled(user):
            await self._ensure_principal(user)
            return DONE
        # Certain: the cache of tokens may be newer than that of users.
        if user is None and await find(self._client, USERS, key.name) is not None:
            return DONE
        tokens = self._tokens.indexed(_BY_USER, key.name)
        for token in tokens:
            await remove(self._client, TOKENS, token)
        if tokens:
            log.info("%d tokens were deleted with the user, who is %s", len(tokens), "gone" if user is None else "disabled")
        if user is None or is_being_deleted(user):
            await self._passwords.remove(key.name)
        return DONE

    async def _ensure_principal(self, user: Obj) -> None:
        wanted = local_principal(name_of(user))
        held = user.get("principalIds") or []
        if wanted in held:
            return
        change = {"metadata": {"resourceVersion": resource_version_of(user)}, "principalIds": [*held, wanted]}
        await self._client.patch(USERS, name_of(user), change)


class TokenController:
    """Deletes expired tokens."""

    controller = Controller("token", TOKENS)

    def __init__(self, client: Client, informers: Informers, clock: Clock) -> None:
        self._client = client
        # The clock refuses an expired token; it is deleted once the clock is known to be right.
        self._settled = SettledTime(clock)
        self._tokens = informers.of(TOKENS)

    async def reconcile(self, key: Key) -> Result:
        token = self._tokens.get("", key.name)
        if token is None or is_being_deleted(token):
            return DONE
        ends = ends_at(token)
        if ends is None:
            return DONE
        left = ends + _GRACE_SECONDS - self._settled.time()
        if left > 0:
            return Result(after=min(left, _LONGEST_PAUSE))
        await remove(self._client, TOKENS, token)
        return DONE
