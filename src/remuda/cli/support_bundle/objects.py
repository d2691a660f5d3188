"""Data from the server: the number of objects of each kind, their conditions and events, and its metrics.

Of an object only fields are taken that say how it is. Objects of unknown kinds are only counted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from remuda.client.https import HttpsClient
from remuda.kube.builtin_resources import NAMESPACES
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersion, GroupVersionResource, annotations_of, dig, name_of

from .scrubbing import HIDDEN, Scrubber

Obj = dict[str, Any]

EVENTS = GroupVersionResource("", "v1", "events")
SECRETS = GroupVersionResource("", "v1", "secrets")

CLUSTERS = GroupVersionResource("provisioning.cattle.io", "v1", "clusters")
SETTINGS = GroupVersionResource("management.cattle.io", "v3", "settings")
# Kinds of these groups, and of groups below them, say how they are.
_GROUPS = (
    *("cluster.x-k8s.io", "management.cattle.io", "provisioning.cattle.io", "rke.cattle.io", "rke-machine.cattle.io"),
    *("fleet.cattle.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "batch", "apps"),
)
_CORE = ("nodes", "namespaces")
# Users and what lets them in are counted and no more.
_NOT = ("users", "tokens", "groupmembers", "groups", "userattributes", "authconfigs", "settings", "features", "preferences")
_STATUS = (
    "phase",
    "ready",
    "replicas",
    "readyReplicas",
    "availableReplicas",
    "observedGeneration",
    "active",
    "failed",
    "succeeded",
)
_METADATA = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "generation", "finalizers")
_EVENT = ("type", "reason", "message", "count", "firstTimestamp", "lastTimestamp", "reportingComponent")
_LABELS = ("cluster.x-k8s.io/", "rke.cattle.io/", "cattle.io/", "kubernetes.io/")
_SECRET_SETTING = ("secret", "token", "password", "credential", "private", "-key")
_PAGE = 200


class Kind:
    """A kind as discovery shows it."""

    def __init__(self, resource: GroupVersionResource, kind: str) -> None:
        self.resource = resource
        self.kind = kind

    @property
    def name(self) -> str:
        return f"{self.resource.resource}.{self.resource.group}".rstrip(".")

    @property
    def is_told(self) -> bool:
        group, resource = self.resource.group, self.resource.resource
        if not group:
            return resource in _CORE
        return resource not in _NOT and any(group == each or group.endswith(f".{each}") for each in _GROUPS)


async def kinds(client: HttpsClient) -> list[Kind]:
    """Everything that can be listed, in one version each."""
    found = [Kind(GroupVersionResource("", "v1", each["name"]), each["kind"]) for each in await _resources(client, "/api/v1")]
    for group in (await client.raw("GET", "/apis"))["groups"]:
        preferred = group["preferredVersion"]["groupVersion"]
        name, version = GroupVersion.parse(preferred)
        for each in await _resources(client, f"/apis/{preferred}"):
            found.append(Kind(GroupVersionResource(name, version, each["name"]), each["kind"]))
    return found


async def _resources(client: HttpsClient, path: str) -> list[Obj]:
    try:
        told = (await client.raw("GET", path))["resources"]
    except ApiError:
        # A group whose own server is away.
        return []
    # Endpoints are what EndpointSlices say once more, and asking for them is warned of.
    return [each for each in told if "/" not in each["name"] and "list" in each["verbs"] and each["name"] != "endpoints"]


async def count(client: HttpsClient, kind: Kind) -> int:
    answer = await client.list(kind.resource, limit=1, metadata_only=True)
    items, rest = len(answer.get("items") or ()), dig(answer, "metadata", "remainingItemCount")
    if dig(answer, "metadata", "continue") and rest is None:
        # A server that does not say how many more there are.
        return len([None async for _ in pages(client, kind.resource, metadata_only=True)])
    return items + int(rest or 0)


async def pages(client: HttpsClient, resource: GroupVersionResource, *, metadata_only: bool = False) -> AsyncIterator[Obj]:
    """All objects, a page at a time."""
    token = ""
    while True:
        answer = await client.list(resource, limit=_PAGE, continue_=token, metadata_only=metadata_only)
        for item in answer.get("items") or ():
            yield item
        token = dig(answer, "metadata", "continue") or ""
        if not token:
            return


async def learn_secrets(client: HttpsClient, scrubber: Scrubber) -> int:
    """Learns the values that must appear nowhere; returns the number of Secrets."""
    number = 0
    async for secret in pages(client, SECRETS):
        number += 1
        scrubber.learn_data(secret.get("data") or {})
        for value in annotations_of(secret).values():
            if value.startswith("{"):
                # What kubectl applied last, in full.
                scrubber.learn(value)
    names: list[str] = []
    for resource in (NAMESPACES, CLUSTERS):
        try:
            names += [name_of(obj) async for obj in pages(client, resource, metadata_only=True)]
        except ApiError as error:
            if not error.is_not_found:
                raise
    scrubber.forget(names)
    return number


def condition_view(obj: Obj, scrubber: Scrubber) -> Obj:
    """The status of an object."""
    metadata = obj.get("metadata") or {}
    labels = metadata.get("labels") or {}
    kept = {key: value for key, value in labels.items() if any(each in key for each in _LABELS)}
    owners = [{key: each.get(key) for key in ("kind", "name")} for each in metadata.get("ownerReferences") or ()]
    status = obj.get("status")
    told = status if isinstance(status, dict) else {}
    view = {
        **{key: metadata[key] for key in _METADATA if key in metadata},
        **({"labels": kept} if kept else {}),
        **({"owners": owners} if owners else {}),
        "status": {key: told[key] for key in _STATUS if isinstance(told.get(key), str | int | bool)},
        "conditions": _conditions(told),
    }
    # Cluster API's kinds have two sets of them.
    if both := _conditions(dig(told, "v1beta2")) or _conditions(dig(told, "deprecated", "v1beta1")):
        view["otherConditions"] = both
    found: Obj = scrubber.value(view)
    return found


def _conditions(status: Any) -> list[Obj]:
    told = status.get("conditions") if isinstance(status, dict) else None
    keys = ("type", "status", "reason", "message", "severity", "lastTransitionTime", "lastUpdateTime", "observedGeneration")
    return [{key: each[key] for key in keys if key in each} for each in told or () if isinstance(each, dict)]


def event_view(event: Obj, scrubber: Scrubber) -> Obj:
    of = event.get("involvedObject") or {}
    view = {
        "object": {key: of[key] for key in ("kind", "namespace", "name") if key in of},
        **{key: event[key] for key in _EVENT if event.get(key)},
    }
    found: Obj = scrubber.value(view)
    return found


def setting_view(setting: Obj, scrubber: Scrubber) -> Obj:
    name = str(dig(setting, "metadata", "name") or "")
    values = {key: str(setting.get(key) or "") for key in ("value", "default")}
    if any(part in name for part in _SECRET_SETTING):
        values = {key: HIDDEN if value and not value.isdecimal() else value for key, value in values.items()}
    return {"name": name, "source": setting.get("source"), **{key: scrubber.text(value) for key, value in values.items()}}
