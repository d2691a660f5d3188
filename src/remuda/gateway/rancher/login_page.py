"""What Rancher's login page reads, for callers without a credential: settings, and the list of the page's extensions.

The settings are a closed list about the page itself: a new one is not public because of its name. Users get the settings that
they may see.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from remuda.access.settings.settings import Effective
from remuda.api.management_cattle_io import API_VERSION

from ..server import norman
from ..server.dependencies import Services
from ..server.routing import Access, RequestContext

Obj = dict[str, Any]

TYPE: Final = "management.cattle.io.setting"
PATH: Final = f"/v1/{TYPE}s"
PLUGINS: Final = "/v1/uiplugins"
PUBLIC: Final = (
    "eula-agreed",
    "first-login",
    "ui-banners",
    "ui-brand",
    "ui-community-links",
    "ui-content-enabled",
    "ui-custom-links",
    "ui-issues",
    "ui-performance",
    "ui-pl",
)


class LoginPage:
    """`users` answers for callers who are logged in."""

    def __init__(self, services: Services, users: Callable[[RequestContext], Awaitable[web.StreamResponse]]) -> None:
        self._services = services
        self._users = users
        services.routes.add("GET", PLUGINS, norman.told(self.plugins), Access.PUBLIC, largest=0, quiet=True)
        services.routes.add("GET", PATH, norman.told(self.settings), Access.ANYONE, largest=0, quiet=True)

    async def plugins(self, asked: RequestContext) -> web.StreamResponse:
        """Extensions of Rancher's page: this server has none."""
        return norman.shown({"entries": {}})

    async def settings(self, asked: RequestContext) -> web.StreamResponse:
        if asked.caller is not None:
            return await self._users(asked)
        itself = f"{norman.base_url(asked, self._services)}{PATH}"
        settings = self._services.settings()
        return norman.shown(norman.collection(TYPE, [_shown(settings.effective(name), itself) for name in PUBLIC], itself))


def _shown(setting: Effective, itself: str) -> Obj:
    return {
        "id": setting.name,
        "type": TYPE,
        "links": {"self": f"{itself}/{setting.name}"},
        "actions": {},
        "apiVersion": API_VERSION,
        "kind": "Setting",
        "metadata": {"name": setting.name, "state": {"name": "active", "error": False, "transitioning": False, "message": ""}},
        "value": setting.value,
        "default": setting.default,
        "customized": setting.value != setting.default,
        "source": setting.source,
    }
