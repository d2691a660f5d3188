"""One server and two ways into it, each writing down what it was told, so that both can be compared.

:class:`Way` passes every call to the client it stands for and keeps the outcome under masks: what differs from one
run to the next anyway (names of namespaces, uids, times, revisions) and nothing else.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

from remuda.client.interface import Client, WatchEvent
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource

Obj = dict[str, Any]

CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")
SECRETS = GroupVersionResource("", "v1", "secrets")
PODS = GroupVersionResource("", "v1", "pods")
NODES = GroupVersionResource("", "v1", "nodes")
NAMESPACES = GroupVersionResource("", "v1", "namespaces")
ACCOUNTS = GroupVersionResource("", "v1", "serviceaccounts")
DEPLOYMENTS = GroupVersionResource("apps", "v1", "deployments")
JOBS = GroupVersionResource("batch", "v1", "jobs")
LEASES = GroupVersionResource("coordination.k8s.io", "v1", "leases")
CRDS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
HORSES = GroupVersionResource("ranch.example.com", "v1", "horses")
ACCESS_REVIEWS = GroupVersionResource("authorization.k8s.io", "v1", "selfsubjectaccessreviews")

_TIMES = ("creationTimestamp", "deletionTimestamp", "time", "lastTransitionTime", "lastUpdateTime", "expirationTimestamp")
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_GENERATED = re.compile(r"(kube-api-access-)[a-z0-9]{5}")
# How the body began on the wire, where there was a wire.
_QUOTED = re.compile(r" \((<empty>|\{.* \.\.\.)\)$")
_NUMBERS = re.compile(r"(resource version: |too old: |current: |\(|ResourceVersion: )\d+")


class Way:
    """One client, one namespace of its own, and the story of what happened."""

    def __init__(self, name: str, client: Client, namespace: str) -> None:
        self.name = name
        self.ns = namespace
        self._client = client
        self.story: list[Any] = []

    def __getattr__(self, method: str) -> Callable[..., Any]:
        found = getattr(self._client, method)

        async def call(*args: Any, **kwargs: Any) -> Any:
            try:
                answer = await found(*args, **kwargs)
            except ApiError as error:
                self.tell(method, {"code": error.code, "retry": error.retry_after, **error.status()})
                raise
            self.tell(method, answer)
            return answer

        return call

    async def watch(self, *args: Any, count: int = 0, until: str = "", **kwargs: Any) -> list[WatchEvent]:
        """The first `count` events, or those up to the first of type `until`, or all when the server ends the watch."""
        return [event async for event in self.follow(*args, count=count, until=until, **kwargs)]

    async def follow(self, *args: Any, count: int = 0, until: str = "", **kwargs: Any) -> AsyncIterator[WatchEvent]:
        seen = 0
        stream = self._client.watch(*args, **kwargs)
        try:
            async with asyncio.timeout(90):
                async for event in stream:
                    # A mere mark of time comes when it comes.
                    if event.type == "BOOKMARK" and not event.object["metadata"].get("annotations"):
                        continue
                    self.tell("watched", list(event))
                    yield event
                    seen += 1
                    if seen == count or event.type == until:
                        return
        except ApiError as error:
            self.tell("watch", {"code": error.code, **error.status()})
            raise
        finally:
            await stream.aclose()  # type: ignore[attr-defined]

    def tell(self, what: str, value: Any) -> None:
        self.story.append((what, masked(value, self.ns)))


def masked(value: Any, namespace: str, key: str = "") -> Any:
    if isinstance(value, dict):
        # Over HTTP the list of a custom resource says that it does not go on; in-process it says nothing.
        kept = {name: each for name, each in value.items() if (name, each) != ("continue", "")}
        return {_UID.sub("UID", name): masked(each, namespace, name) for name, each in kept.items()}
    if key == "managedFields" and isinstance(value, list):
        # Sorted by time, so that two ways differ when one of them crosses a second.
        value = sorted(value, key=lambda entry: [str(entry.get(name)) for name in ("operation", "manager", "subresource")])
    if isinstance(value, list | tuple):
        return [masked(each, namespace, key) for each in value]
    if not isinstance(value, str):
        return value
    if key in _TIMES:
        return "TIME"
    if key == "resourceVersion":
        return "0" if value == "0" else "REVISION" if value else ""
    if key in ("continue", "token"):
        return key.upper() if value else ""
    text = _GENERATED.sub(r"\1RANDOM", _UID.sub("UID", value.replace(namespace, "NS")))
    return _QUOTED.sub("", _NUMBERS.sub(r"\1N", text)) if key == "message" else text


def difference(https: list[Any], in_process: list[Any]) -> str:
    sides = [json.dumps(story, indent=1, sort_keys=True, default=repr).splitlines() for story in (in_process, https)]
    return "\n".join(list(difflib.unified_diff(*sides, "in-process", "https", lineterm="", n=8))[:120])


def config_map(way: Way, name: str, labels: dict[str, str] | None = None, **data: str) -> Obj:
    metadata: Obj = {"name": name, "namespace": way.ns}
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def pod(way: Way, name: str, **spec: Any) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": way.ns},
        "spec": {"containers": [{"name": "main", "image": "example/image:1"}], **spec},
    }


def deployment(way: Way, name: str, replicas: int = 2) -> Obj:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": way.ns},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "example/image:1"}]}},
        },
    }


def horse(way: Way, name: str, **spec: Any) -> Obj:
    return {"apiVersion": "ranch.example.com/v1", "kind": "Horse", "metadata": {"name": name, "namespace": way.ns}, "spec": spec}


HORSE_CRD: Obj = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "horses.ranch.example.com"},
    "spec": {
        "group": "ranch.example.com",
        "scope": "Namespaced",
        "names": {"plural": "horses", "singular": "horse", "kind": "Horse", "listKind": "HorseList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "selectableFields": [{"jsonPath": ".spec.colour"}],
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.legs", "statusReplicasPath": ".status.legs"},
                },
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "colour": {"type": "string", "default": "bay"},
                                    "legs": {"type": "integer", "minimum": 0, "default": 4},
                                    "shoes": {
                                        "type": "array",
                                        "x-kubernetes-list-type": "map",
                                        "x-kubernetes-list-map-keys": ["leg"],
                                        "items": {
                                            "type": "object",
                                            "required": ["leg"],
                                            "properties": {"leg": {"type": "string"}, "size": {"type": "integer"}},
                                        },
                                    },
                                },
                                "x-kubernetes-validations": [{"rule": "self.colour != 'plaid'", "message": "no horse is plaid"}],
                            },
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}
