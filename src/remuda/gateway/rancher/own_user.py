"""What belongs to the caller alone: who they are, and the preferences of their pages.

Pages ask first who is logged in, also before the user has changed their first password. Preferences are a map of texts. They are
kept in a ConfigMap for each user, which is deleted with the user; the gateway reads and writes it, and only for its owner.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from remuda.access.users.first_user import SYSTEM_NAMESPACE
from remuda.api.management_cattle_io import API_VERSION, GROUP, USERS
from remuda.client.idempotent import find
from remuda.kube.builtin_resources import CONFIG_MAPS
from remuda.kube.encoding import jsonio
from remuda.kube.errors import not_found
from remuda.kube.objects import uid_of

from ..server import norman
from ..server.dependencies import Services
from ..server.routing import Access, RequestContext

Obj = dict[str, Any]

ROOT: Final = "/v1"
SELF_USER: Final = "ext.cattle.io.selfuser"
PREFERENCE: Final = "userpreference"
_USER: Final = "management.cattle.io.user"
_KEY: Final = "preferences.json"
_MOST: Final = 512
_SHOWN: Final[tuple[str, ...]] = (
    "apiVersion",
    "kind",
    "username",
    "displayName",
    "description",
    "enabled",
    "mustChangePassword",
    "principalIds",
)
_SHOWN_METADATA: Final = ("name", "uid", "creationTimestamp", "resourceVersion")


class OwnUser:
    """`others` answers for users other than the caller."""

    def __init__(self, services: Services, others: Callable[[RequestContext], Awaitable[web.StreamResponse]]) -> None:
        self._services = services
        self._others = others
        add, small = services.routes.add, norman.LARGEST_BODY
        for name in (SELF_USER, f"{SELF_USER}s"):
            add("POST", f"{ROOT}/{name}", norman.told(self.self_user), Access.PASSWORD_CHANGE, largest=small)
        add("GET", f"{ROOT}/{_USER}/{{namespace}}", norman.told(self.user), Access.PASSWORD_CHANGE, largest=0)
        for name in (PREFERENCE, f"{PREFERENCE}s"):
            add("GET", f"{ROOT}/{name}", norman.told(self.preferences), Access.USER, largest=0)
            add("GET", f"{ROOT}/{name}/{{name}}", norman.told(self.preference), Access.USER, largest=0)
            add("PUT", f"{ROOT}/{name}/{{name}}", norman.told(self.set), Access.USER, largest=small)

    # --- the user --------------------------------------------------------------------------------------------------------

    async def self_user(self, asked: RequestContext) -> web.StreamResponse:
        status = {"userID": asked.user.name}
        return norman.shown({"apiVersion": "ext.cattle.io/v1", "kind": "SelfUser", "type": SELF_USER, "status": status}, 201)

    async def user(self, asked: RequestContext) -> web.StreamResponse:
        """The caller's own user, for which no role is needed; another one as at any path."""
        assert asked.caller is not None
        name = asked.parameters["namespace"]
        if name != asked.user.name:
            if asked.caller.must_change_password:
                raise not_found(GROUP, USERS.resource, name)
            return await self._others(asked)
        found = await find(self._services.client, USERS, name)
        if found is None:
            raise not_found(GROUP, USERS.resource, name)
        itself = f"{norman.base_url(asked, self._services)}{ROOT}/{_USER}s/{name}"
        kept: Obj = {"apiVersion": API_VERSION, "kind": "User", **{key: found[key] for key in _SHOWN if key in found}}
        metadata = {key: found["metadata"][key] for key in _SHOWN_METADATA if key in found["metadata"]}
        return norman.shown({"id": name, "type": _USER, "links": {"self": itself}, "actions": {}, **kept, "metadata": metadata})

    # --- preferences -----------------------------------------------------------------------------------------------------

    async def preferences(self, asked: RequestContext) -> web.StreamResponse:
        itself = f"{norman.base_url(asked, self._services)}{ROOT}/{PREFERENCE}s"
        return norman.shown(norman.collection(PREFERENCE, [self._shown(asked, await self._stored(asked))], itself))

    async def preference(self, asked: RequestContext) -> web.StreamResponse:
        self._check_own(asked)
        return norman.shown(self._shown(asked, await self._stored(asked)))

    async def set(self, asked: RequestContext) -> web.StreamResponse:
        """Replace all preferences by `data`."""
        self._check_own(asked)
        data = (await norman.body_of(asked)).get("data")
        if data is None:
            data = {}
        if not isinstance(data, dict) or not all(isinstance(value, str) for value in data.values()):
            raise norman.invalid("data must be a map of texts")
        if len(data) > _MOST:
            raise norman.invalid(f"data must have at most {_MOST} keys")
        name = place_of(asked.user.name)
        owner = await find(self._services.client, USERS, asked.user.name)
        reference = {"apiVersion": API_VERSION, "kind": "User", "name": asked.user.name, "uid": uid_of(owner)} if owner else None
        wanted = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": SYSTEM_NAMESPACE, **({"ownerReferences": [reference]} if reference else {})},
            "data": {_KEY: jsonio.dumps_text(data)},
        }
        await self._services.client.apply(CONFIG_MAPS, wanted, field_manager="remuda-preferences", force=True)
        return norman.shown(self._shown(asked, data))

    @staticmethod
    def _check_own(asked: RequestContext) -> None:
        """The preferences of others are answered like those of a user who does not exist."""
        if asked.parameters["name"] != asked.user.name:
            raise not_found("", f"{PREFERENCE}s", asked.parameters["name"])

    async def _stored(self, asked: RequestContext) -> Obj:
        found = await find(self._services.client, CONFIG_MAPS, place_of(asked.user.name), SYSTEM_NAMESPACE)
        text = ((found or {}).get("data") or {}).get(_KEY)
        try:
            data = jsonio.loads(text) if text else {}
        except jsonio.JsonError:
            # Edited by hand.
            return {}
        return data if isinstance(data, dict) else {}

    def _shown(self, asked: RequestContext, data: Obj) -> Obj:
        name = asked.user.name
        itself = f"{norman.base_url(asked, self._services)}{ROOT}/{PREFERENCE}s/{name}"
        links = {"self": itself, "update": itself}
        return {"id": name, "type": PREFERENCE, "links": links, "actions": {}, "metadata": {"name": name}, "data": data}


def place_of(user: str) -> str:
    """The name of a user's ConfigMap. User names may have characters that names of objects may not."""
    return f"user-preferences-{hashlib.sha256(user.encode()).hexdigest()[:32]}"
