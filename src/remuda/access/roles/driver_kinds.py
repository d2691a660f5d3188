"""Kinds of node drivers, which come and go with their definitions: users of a cluster see that cluster's objects of them.

A label assigns a machine to its cluster; a cluster becomes the owner of a config as soon as it uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from remuda.api.crd_installation import CRDS
from remuda.kube.objects import GroupVersionResource, Key, dig
from remuda.runtime import Informer, Manager, Watch

from .role_caches import Views, cluster_of_secret

Obj = dict[str, Any]

MACHINES: Final = "rke-machine.cattle.io"
CONFIGS: Final = "rke-machine-config.cattle.io"
GROUPS: Final = frozenset({MACHINES, CONFIGS})
_LABELS: Final = "auth.cattle.io/cluster-indexed=true"
_VERSION: Final = "v1"


class DriverKinds:
    """Keeps `views` up to date with these kinds; the controller `follower` gets events of their objects if `matters` says so."""

    def __init__(self, manager: Manager, views: Views, follower: str, matters: Callable[[Obj | None, Obj | None], bool]) -> None:
        self._manager = manager
        self._views = views
        self._follower = follower
        self._matters = matters
        self._stops: dict[GroupVersionResource, Callable[[], None]] = {}
        manager.informers.of(CRDS, labels=_LABELS).on_change(self._changed)

    def _changed(self, new: Obj | None, old: Obj | None) -> None:
        spec = (new or old or {}).get("spec") or {}
        if spec.get("group") not in GROUPS:
            return
        resource = GroupVersionResource(spec["group"], _VERSION, dig(spec, "names", "plural") or "")
        if new is None:
            self._views.in_workspaces.pop(resource, None)
            if stop := self._stops.pop(resource, None):
                stop()
        elif resource not in self._stops:
            informer = self._informer(resource)
            self._views.in_workspaces[resource] = informer
            watch = Watch(resource, self._clusters, self._matters, metadata_only=True)
            self._stops[resource] = self._manager.follow(self._follower, watch, informer)

    def _informer(self, resource: GroupVersionResource) -> Informer:
        informer = self._manager.informers.of(resource, metadata_only=True)
        informer.add_index("cluster", cluster_of_secret)
        return informer

    def _clusters(self, obj: Obj) -> Iterable[Key]:
        return self._views.behind(cluster_of_secret(obj))
