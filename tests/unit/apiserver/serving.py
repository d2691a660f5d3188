"""A whole API server in memory, and short words for what these tests do with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from remuda.apiserver.cache.entries import Entry
from remuda.apiserver.cache.resource_cache import Change
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.registry.resources import Version
from remuda.apiserver.server import Config, Server
from remuda.apiserver.verbs import watch
from remuda.apiserver.verbs.context import Call, ListOptions
from remuda.apiserver.watch.watchers import Watcher
from remuda.kube.objects import GroupVersionResource, with_metadata

Obj = dict[str, Any]

CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")
SECRETS = GroupVersionResource("", "v1", "secrets")
CRDS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")


@asynccontextmanager
async def served(**config: Any) -> AsyncIterator[Server]:
    server = await Server.open(Config(config.pop("data_dir", None), **config))
    try:
        yield server
    finally:
        await server.close()


def config_map(name: str, namespace: str = "default", **data: str) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data}


def labelled(obj: Obj, **labels: str) -> Obj:
    return with_metadata(obj, labels=labels)


@dataclass
class Sink:
    """What a watcher is told."""

    told: list[tuple[str, str, int]] = field(default_factory=list)
    ended: bool = False
    room: int = 1_000_000

    def deliver(self, events: list[tuple[str, Change, Entry]]) -> bool:
        self.told += [(type_, entry.name, change.revision) for type_, change, entry in events]
        return len(self.told) <= self.room

    def end(self) -> None:
        self.ended = True

    @property
    def names(self) -> list[tuple[str, str]]:
        return [(type_, name) for type_, name, _ in self.told]


def version_of(server: Server, resource: GroupVersionResource) -> Version:
    found = server.registry.find(*resource)
    assert found is not None
    return found


async def begin(server: Server, resource: GroupVersionResource, sink: Sink, namespace: str = "", **options: Any) -> Watcher:
    """A watch whose first events and live ones all end up in `sink`."""
    call = Call(version_of(server, resource), "watch", namespace)
    listed = ListOptions(watch=True, **options)
    start = await watch.start(server.api, server.feeds, call, listed, watch.selection_of(call, listed), sink)
    sink.deliver(start.events)
    start.watcher.go()
    return start.watcher


def crd(plural: str, versions: list[Obj], scope: str = "Namespaced", **spec: Any) -> Obj:
    """An established CRD, as if its controller had been at work."""
    kind = plural.removesuffix("s").capitalize()
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {"group": "example.com", "names": names, "scope": scope, "versions": versions, **spec},
    }


def crd_version(name: str, storage: bool = False, **properties: Obj) -> Obj:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}
    return {"name": name, "served": True, "storage": storage, "schema": {"openAPIV3Schema": schema}}


async def establish(client: InProcessClient, definition: Obj) -> Obj:
    made = await client.create(CRDS, definition)
    conditions = [
        {"type": type_, "status": "True", "reason": "Test", "message": "", "lastTransitionTime": "2024-01-01T00:00:00Z"}
        for type_ in ("NamesAccepted", "Established")
    ]
    status = {**(made.get("status") or {}), "conditions": conditions, "acceptedNames": made["spec"]["names"]}
    return await client.update(CRDS, {**made, "status": status}, subresource="status")


def widget(version: str, name: str, namespace: str = "default", **spec: Any) -> Obj:
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": f"example.com/{version}", "kind": "Widget", "metadata": metadata, "spec": spec}


def widgets(version: str) -> GroupVersionResource:
    return GroupVersionResource("example.com", version, "widgets")
