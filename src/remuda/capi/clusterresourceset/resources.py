"""The objects in a Secret or ConfigMap, and how they get into a workload cluster."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from remuda.client.interface import Client
from remuda.kube.encoding import yamlio
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersion, GroupVersionResource, dig, name_of, namespace_of

Obj = dict[str, Any]

SECRET_TYPE: Final = "addons.cluster.x-k8s.io/resource-set"
FIELD_MANAGER: Final = "clusterresourceset"
# Others need them.
_FIRST: Final = ("Namespace", "CustomResourceDefinition")


class UnusableResource(Exception):
    """A Secret or ConfigMap without usable objects, with the reason of the condition; the text says why."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ResourceContent:
    """The objects of one Secret or ConfigMap in the order in which they are applied, and a digest of their source."""

    objects: tuple[Obj, ...]
    digest: str


def content_of(source: Obj, kind: str) -> ResourceContent:
    """Raises UnusableResource."""
    if kind == "Secret" and source.get("type") != SECRET_TYPE:
        raise UnusableResource("WrongSecretType", f"Secret {name_of(source)} must have the type {SECRET_TYPE}")
    texts = [text for _, text in sorted(_texts(source, kind).items())]
    if not texts:
        raise UnusableResource("ApplyFailed", f"{kind} {name_of(source)} has no data")
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()
    try:
        found = [each for text in texts for each in _flat(yamlio.loads_all(text))]
    except yamlio.YamlError as error:
        raise UnusableResource("ApplyFailed", f"{kind} {name_of(source)}: {error}") from None
    for obj in found:
        if not (isinstance(obj.get("apiVersion"), str) and isinstance(obj.get("kind"), str) and name_of(obj)):
            raise UnusableResource("ApplyFailed", f"{kind} {name_of(source)} has an object without apiVersion, kind or name")
    return ResourceContent(tuple(sorted(found, key=_order)), f"sha256:{digest}")


def _texts(source: Obj, kind: str) -> dict[str, str]:
    data = source.get("data") or {}
    if kind == "ConfigMap":
        return dict(data)
    try:
        return {key: base64.b64decode(value).decode() for key, value in data.items()}
    except ValueError:
        raise UnusableResource("ApplyFailed", f"Secret {name_of(source)} has data that is no text") from None


def _flat(documents: Iterable[Any]) -> Iterable[Obj]:
    for document in documents:
        if isinstance(document, dict) and document.get("kind") == "List":
            yield from _flat(document.get("items") or ())
        elif isinstance(document, dict):
            yield document


def _order(obj: Obj) -> int:
    return _FIRST.index(obj["kind"]) if obj["kind"] in _FIRST else len(_FIRST)


async def put(client: Client, content: ResourceContent, *, update: bool) -> None:
    """Create the objects; those that exist are left alone, or, with `update`, get the wanted fields. Raises ApiError."""
    known: dict[str, list[Obj]] = {}
    for obj in content.objects:
        resource, namespaced = await _resource_of(client, obj, known)
        namespace = (namespace_of(obj) or "default") if namespaced else ""
        try:
            await client.create(resource, obj, namespace, field_manager=FIELD_MANAGER)
        except ApiError as error:
            if not error.is_already_exists:
                raise
            if update:
                await client.patch(resource, name_of(obj), obj, namespace, field_manager=FIELD_MANAGER)


async def _resource_of(client: Client, obj: Obj, known: dict[str, list[Obj]]) -> tuple[GroupVersionResource, bool]:
    """Its resource, and whether it is namespaced. Raises ApiError, also for a definition that is served only in a moment."""
    version = obj["apiVersion"]
    if version not in known:
        path = f"/apis/{version}" if "/" in version else f"/api/{version}"
        known[version] = dig(await client.raw("GET", path), "resources") or []
    found = next((each for each in known[version] if each["kind"] == obj["kind"] and "/" not in each["name"]), None)
    if found is None:
        raise ApiError(404, "NotFound", f"{version} has no kind {obj['kind']} in the cluster", {})
    parsed = GroupVersion.parse(version)
    return GroupVersionResource(parsed.group, parsed.version, found["name"]), bool(found["namespaced"])
