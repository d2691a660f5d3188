"""The moment from which on a caller may see the past.

A right to read covers the present state. A user who gets access to a namespace today does not get to see objects deleted from it
yesterday; and a name (of a namespace, of an object) may have belonged to another before. So the past is shown as far back as the
caller has held the right without a break, by one binding and its role: their history tells since when. A binding that was
deleted and created again counts from then on.

Two see everything that is kept: system:masters, and users who may `get` the subresource `history` of the kind in all namespaces,
a right that cluster-admin's `*` includes and that can be given to auditors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remuda.kube.authorization.actions import Action
from remuda.kube.authorization.rbac import GROUP, Rbac, allows, binds
from remuda.kube.authorization.users import MASTERS
from remuda.kube.clock import yield_to_loop
from remuda.kube.objects import Key

from ..storage import key_layout
from ..storage.store import HistoryStore, KeyValue

Obj = dict[str, Any]

# A role is not followed further than this; if it changes all the time, older history is not shown.
_MOST_STATES = 2000
_PAGE = 100
_PAGE_BYTES = 4 * 1024 * 1024


class Rights:
    def __init__(self, rbac: Rbac, history: HistoryStore, read: Callable[[KeyValue], Obj]) -> None:
        self._rbac = rbac
        self._history = history
        self._read = read

    async def since(self, action: Action) -> int:
        """The revision since which the caller has held this right, which they have now; 0: all that is kept."""
        if MASTERS in action.user.groups:
            return 0
        everything = action.but(verb="get", subresource="history", namespace="", name="")
        if self._rbac.authorize(everything).allowed:
            return 0
        best = self._history.revision
        for grant in self._rbac.grants(action):
            held = await self._held(_binding_key(grant.binding), lambda binding: binds(binding, action.user))
            if held < best:
                role = Key(grant.binding.namespace if grant.role_kind == "Role" else "", grant.role_name)
                held = max(held, await self._held(_role_key(role), lambda found: allows(found.get("rules") or (), action)))
            best = min(best, held)
            if not best:
                break
        return best

    async def _held(self, key: str, gives: Callable[[Obj], bool]) -> int:
        """The revision since which the object has given the right without a break; 0 when that was before all that is kept."""
        since, before, looked = self._history.revision, 0, 0
        while looked < _MOST_STATES:
            page = await self._history.history(key, before=before, limit=_PAGE, most_bytes=_PAGE_BYTES)
            if not page:
                # Older states are not kept; the object existed before, since it was not created here.
                return 0 if looked else since
            for version in page:
                # Roles may be large, so other tasks get a turn between them.
                await yield_to_loop()
                if version.kv is None or not gives(self._read(version.kv)):
                    return since
                since = version.revision
                if version.kv.create_revision == version.revision:
                    return since
            looked += len(page)
            before = since
        return since


def _binding_key(binding: Key) -> str:
    return _key("rolebindings" if binding.namespace else "clusterrolebindings", binding)


def _role_key(role: Key) -> str:
    return _key("roles" if role.namespace else "clusterroles", role)


def _key(resource: str, of: Key) -> str:
    prefix = key_layout.prefix_for(GROUP, resource, builtin=True)
    return f"{prefix}{of.namespace}/{of.name}" if of.namespace else prefix + of.name
