"""The controller of built-in roles: creates them at the first start, restores removed ones, and updates them with a new version
of Remuda. :mod:`.builtin_roles` defines them."""

from __future__ import annotations

import asyncio
from typing import Any

from remuda.api.management_cattle_io import GLOBAL_ROLES, ROLE_TEMPLATES
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, Key, is_being_deleted
from remuda.runtime import DONE, Controller, Manager, Result

from .builtin_roles import BUILTIN, restored

Obj = dict[str, Any]

KINDS = {"GlobalRole": GLOBAL_ROLES, "RoleTemplate": ROLE_TEMPLATES}


class BuiltinRoles:
    """The built-in objects of one kind."""

    def __init__(self, manager: Manager, kind: str) -> None:
        self._client = manager.client
        self._kind = kind
        self._resource: GroupVersionResource = KINDS[kind]
        self._objects = manager.informers.of(self._resource)
        self._manager = manager
        self.controller = Controller(f"builtin-{kind.lower()}s", self._resource)
        manager.beside(self._begin)

    async def _begin(self) -> None:
        """Queue all of them: no event announces a role that never existed."""
        working = self._manager.working(self.controller.name)
        for kind, name in BUILTIN:
            if kind == self._kind and working is not None:
                working.queue.add(Key("", name))
        await asyncio.get_running_loop().create_future()

    async def reconcile(self, key: Key) -> Result:
        expected = BUILTIN.get((self._kind, key.name))
        existing = self._objects.get(*key)
        if expected is None or (existing is not None and is_being_deleted(existing)):
            return DONE
        wanted = restored(existing, expected)
        if wanted is None:
            return DONE
        try:
            await (self._client.create if existing is None else self._client.update)(self._resource, wanted)
        except ApiError as error:
            # Another server on the same store was faster.
            if error.reason != "AlreadyExists":
                raise
        return DONE
