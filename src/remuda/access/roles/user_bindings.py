"""Deletes the bindings of a removed user: a new user of the same name begins without permissions."""

from __future__ import annotations

from remuda.api.management_cattle_io import CLUSTER_ROLE_TEMPLATE_BINDINGS, GLOBAL_ROLE_BINDINGS, USERS
from remuda.client.idempotent import find, remove
from remuda.kube.objects import Key
from remuda.runtime import DONE, Controller, Manager, Result, Watch, logger

from .role_caches import Views, came_or_went, nothing

log = logger(__name__)

NAME = "user-bindings"


class DepartedUsers:
    """Only for users that existed and were deleted: a binding may be made before its user is."""

    def __init__(self, manager: Manager, views: Views) -> None:
        self._client = manager.client
        self._views = views
        self._kinds = {CLUSTER_ROLE_TEMPLATE_BINDINGS: views.bindings, GLOBAL_ROLE_BINDINGS: views.global_bindings}
        known = tuple(Watch(resource, nothing) for resource in self._kinds)
        self.controller = Controller(NAME, USERS, when=came_or_went, watches=known, resync=0)

    async def reconcile(self, key: Key) -> Result:
        if self._views.users.get(*key) is not None or await find(self._client, USERS, key.name) is not None:
            return DONE
        for resource, informer in self._kinds.items():
            for binding in informer.indexed("user", key.name):
                await remove(self._client, resource, binding)
                log.info("%s %s went with its user", resource.resource, Key.of(binding))
        return DONE
