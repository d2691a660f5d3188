"""The caches that both directions of the mirror read, with the indexes of each Cluster."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from remuda.access.clusters.well_known import is_legacy
from remuda.access.roles.role_names import CREATOR
from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.kube.objects import Key, annotations_of, dig, metadata, name_of
from remuda.kube.wrangler import origin_of
from remuda.runtime import Informers

from ..well_known import FROM_MANAGED, FROM_WANTED, is_administrated, managed_name_of

Obj = dict[str, Any]

_BY_ORIGIN, _BY_ID, _ADMINISTRATED, _BY_WORKSPACE = "made from", "management cluster", "administrated", "workspace"


class MirrorCaches:
    def __init__(self, informers: Informers) -> None:
        self.wanted = informers.of(provisioning.CLUSTERS)
        self.managed = informers.of(management.CLUSTERS)
        self.workspaces = informers.of(management.FLEET_WORKSPACES)
        self.wanted.add_index(_BY_ID, _ids)
        self.wanted.add_index(_ADMINISTRATED, lambda obj: (True,) if is_administrated(obj) else ())
        self.managed.add_index(_BY_ORIGIN, _origins)
        self.managed.add_index(_BY_WORKSPACE, lambda obj: filter(None, (dig(obj, "spec", "fleetWorkspaceName"),)))
        self.caches = (self.wanted, self.managed, self.workspaces)

    def managed_of(self, wanted: Obj) -> list[Obj]:
        """The management Clusters that were made from it: one, unless a user interfered."""
        found = self.managed.indexed(_BY_ORIGIN, Key.of(wanted))
        return sorted((each for each in found if not _is_of_another(each, wanted)), key=name_of)

    def wanted_of(self, managed: Obj) -> list[Obj]:
        """The Clusters that a management Cluster was made from, or that were made from it; not those that only claim it."""
        name, origin = name_of(managed), origin_of(managed, FROM_WANTED)
        if is_legacy(name):
            return sorted((each for each in self.wanted.indexed(_BY_ID, name) if name_of(each) == name), key=Key.of)
        found = None if origin is None else self.wanted.get(*origin)
        return [found] if found is not None and managed_name_of(found) in ("", name) else []

    def any_administrated(self, but: Key) -> bool:
        found = self.wanted.indexed(_ADMINISTRATED, True)
        return len(found) > 1 or any(Key.of(each) != but for each in found)

    def in_workspace(self, name: str) -> list[Obj]:
        return self.managed.indexed(_BY_WORKSPACE, name)


def _is_of_another(managed: Obj, wanted: Obj) -> bool:
    """True if a management Cluster was made from an older one of the same name, which another user created and removed by
    force. One without a creator may be in creation from this one."""
    had, has = (annotations_of(each).get(CREATOR) or "" for each in (managed, wanted))
    return had != has and (bool(had) or _made(managed) < _made(wanted))


def _made(obj: Obj) -> str:
    return str(metadata(obj).get("creationTimestamp") or "")


def _ids(wanted: Obj) -> Iterable[Hashable]:
    """Its own id, its name if that is an id, and its origin."""
    origin = origin_of(wanted, FROM_MANAGED)
    found = {managed_name_of(wanted), name_of(wanted) if is_legacy(name_of(wanted)) else "", origin.name if origin else ""}
    return found - {""}


def _origins(managed: Obj) -> Iterable[Hashable]:
    origin = origin_of(managed, FROM_WANTED)
    return () if origin is None else (origin,)
