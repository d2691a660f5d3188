"""The initial objects of a new server: a client that waits until the server is ready finds them all.

The controllers of :mod:`remuda.gateway.gateway` create these objects independently of each other. This module only tells when the
last one is there; objects of deselected controllers are not waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from remuda.access.clusters import Server
from remuda.access.clusters.management_cluster import SYSTEM_NAMESPACES
from remuda.access.clusters.well_known import FLEET_LOCAL, LOCAL
from remuda.access.roles.builtin_roles import BUILTIN, KINDS
from remuda.access.settings.settings import FEATURES as KNOWN_FEATURES
from remuda.access.settings.settings import SETTINGS as KNOWN_SETTINGS
from remuda.api.management_cattle_io import CLUSTERS, FEATURES, FLEET_WORKSPACES, SETTINGS
from remuda.kube.builtin_resources import NAMESPACES
from remuda.kube.objects import GroupVersionResource
from remuda.runtime import Informers

from .parts import Parts

Obj = dict[str, Any]
Names = Callable[[], Iterable[str]]


async def furnished(parts: Parts, wanted: Collection[str]) -> None:
    """Until all is there that a new server has, also its first user, which the gateway makes."""
    await all_there(parts.informers, first_objects(parts.server, wanted))
    await parts.gateway.identity.first.made.wait()


def first_objects(server: Server, only: Collection[str]) -> list[tuple[GroupVersionResource, Names]]:
    """The cluster-scoped kinds, and the names of the objects of each once the controllers in `only` have begun."""

    def workspaces() -> Iterable[str]:
        return (FLEET_LOCAL, server.facts().workspace)

    made_by: Mapping[str, list[tuple[GroupVersionResource, Names]]] = {
        "settings": [(SETTINGS, lambda: KNOWN_SETTINGS), (FEATURES, lambda: KNOWN_FEATURES)],
        **{f"builtin-{kind.lower()}s": [(resource, _builtin(kind))] for kind, resource in KINDS.items()},
        "system-namespace": [(NAMESPACES, lambda: SYSTEM_NAMESPACES)],
        "local-cluster": [(CLUSTERS, lambda: (LOCAL,))],
        "fleetworkspace-default": [(FLEET_WORKSPACES, workspaces)],
    }
    found = [each for name, kinds in made_by.items() if name in only for each in kinds]
    if {"fleetworkspace", "fleetworkspace-default"} <= set(only):
        found.append((NAMESPACES, workspaces))
    return found


def _builtin(kind: str) -> Names:
    return lambda: [name for of, name in BUILTIN if of == kind]


async def all_there(informers: Informers, wanted: Iterable[tuple[GroupVersionResource, Names]]) -> None:
    """Until the caches have an object of each name."""
    followed = [(informers.of(resource), names) for resource, names in wanted]
    changed = asyncio.Event()

    def wake(new: Obj | None, old: Obj | None) -> None:
        changed.set()

    stops = [informer.on_change(wake) for informer, _ in followed]
    try:
        while any(informer.get("", name) is None for informer, names in followed for name in names()):
            changed.clear()
            await changed.wait()
    finally:
        for stop in stops:
            stop()
