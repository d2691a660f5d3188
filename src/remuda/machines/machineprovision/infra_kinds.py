"""The kinds of drivers' machines, which exist as long as their definitions; each has an informer while it is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from remuda.capi.contracts import Contracts, group_kind
from remuda.kube.objects import GroupVersionResource, Key, dig
from remuda.provisioning.well_known import MACHINE_GROUP
from remuda.runtime import Informer, Manager, Watch
from remuda.runtime.controller import Mapping, Predicate, any_change, itself

Obj = dict[str, Any]

_SUFFIX, _VERSION = "Machine", "v1"


class Found(NamedTuple):
    """An infrastructure machine, and where it is."""

    obj: Obj
    resource: GroupVersionResource
    informer: Informer


class MachineKinds:
    """`follower` is the controller that is woken by their objects; `to` says for which keys."""

    def __init__(self, manager: Manager, follower: str, to: Mapping = itself, when: Predicate = any_change) -> None:
        self._manager = manager
        self._when = when
        self._follower = follower
        self._to = to
        self._informers: dict[str, Informer] = {}
        self._stops: dict[str, Callable[[], None]] = {}
        self.crds = Contracts(manager.informers).crds
        self.crds.on_change(self._changed)

    def find(self, namespace: str, name: str) -> list[Found]:
        """All machines of this name, of any kind; usually there is one at most."""
        found = ((each.get(namespace, name), each) for each in self._informers.values())
        return [Found(obj, informer.resource, informer) for obj, informer in found if obj is not None]

    def get(self, kind: str, key: Key) -> Found | None:
        informer = self._informers.get(kind)
        obj = informer.get(*key) if informer is not None else None
        return Found(obj, informer.resource, informer) if obj is not None and informer is not None else None

    def _changed(self, new: Obj | None, old: Obj | None) -> None:
        group, kind = group_kind(new or old or {})
        # CustomMachines are hosts that are there already; they are of another group, but Rancher's had them here.
        if group != MACHINE_GROUP or not kind.endswith(_SUFFIX) or kind == "CustomMachine":
            return
        if new is None:
            self._informers.pop(kind, None)
            if stop := self._stops.pop(kind, None):
                stop()
        elif kind not in self._informers:
            resource = GroupVersionResource(group, _VERSION, dig(new, "spec", "names", "plural") or "")
            informer = self._informers[kind] = self._manager.informers.of(resource)
            self._stops[kind] = self._manager.follow(self._follower, Watch(resource, self._to, self._when), informer)
