"""Lists with the caller's own client, also where the caller may list only a part.

Kubernetes refuses such a list as a whole. Then the parts are listed that the caller's roles allow: single namespaces, single
names. Each of these requests is authorized by the API like any other, so that roles that changed in between show nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

from remuda.client.interface import Client
from remuda.kube.authorization.rbac import Permitted
from remuda.kube.errors import ApiError, bad_request
from remuda.kube.objects import Key

from .kinds import Kind
from .schemas import Permissions

Obj = dict[str, Any]

MOST_PARTS: Final = 2_000
_AT_ONCE: Final = 16


@dataclass(slots=True)
class Listed:
    """`revision` is that of the oldest part; `remaining` objects come after this page."""

    objects: list[Obj] = field(default_factory=list)
    revision: int = 0
    continue_: str = ""
    remaining: int = 0


@dataclass(frozen=True, slots=True)
class Selector:
    """The parameters of a list that the API applies itself."""

    labels: str = ""
    fields: str = ""
    limit: int = 0
    continue_: str = ""
    metadata_only: bool = False

    def named(self, name: str) -> Selector:
        fields = f"{self.fields},metadata.name={name}" if self.fields else f"metadata.name={name}"
        return Selector(self.labels, fields, metadata_only=self.metadata_only)

    def unlimited(self) -> Selector:
        return Selector(self.labels, self.fields, metadata_only=self.metadata_only)


async def listed(client: Client, permissions: Permissions, kind: Kind, namespace: str, selector: Selector) -> Listed:
    """The objects that the caller may list. Raises ApiError (403) if there is no right to any."""
    try:
        return await _page(client, kind, namespace, selector)
    except ApiError as error:
        if error.code != 403:
            raise
        part = permissions.part(kind, "list", namespace)
        if not part.anything:
            raise
        return await _parts(client, kind, namespace, selector.unlimited(), part)


async def _page(client: Client, kind: Kind, namespace: str, selector: Selector) -> Listed:
    page = await client.list(
        kind.gvr,
        namespace,
        labels=selector.labels,
        fields=selector.fields,
        limit=selector.limit,
        continue_=selector.continue_,
        metadata_only=selector.metadata_only,
    )
    metadata = page.get("metadata") or {}
    return Listed(
        page.get("items") or [],
        revision_of(metadata.get("resourceVersion")),
        metadata.get("continue") or "",
        metadata.get("remainingItemCount") or 0,
    )


def revision_of(text: Any) -> int:
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() else 0


def parts_of(kind: Kind, namespace: str, part: Permitted) -> list[tuple[str, str]]:
    """The requests that together read a part: each a namespace, and a name or "" for all."""
    requests = [(namespace, name) for name in sorted(part.everywhere)]
    for inner, names in sorted(part.by_namespace.items()):
        if kind.namespaced:
            requests += [(inner, name) for name in (("",) if names is None else sorted(names))]
    return requests


async def _parts(client: Client, kind: Kind, namespace: str, selector: Selector, part: Permitted) -> Listed:
    requests = [(place, selector.named(name) if name else selector) for place, name in parts_of(kind, namespace, part)]
    if len(requests) > MOST_PARTS:
        raise bad_request(f"the list has more than {MOST_PARTS} parts; list one namespace at a time")
    found = Listed()
    seen: dict[Key, Obj] = {}
    for first in range(0, len(requests), _AT_ONCE):
        pages = await asyncio.gather(*(_page_or_none(client, kind, *each) for each in requests[first : first + _AT_ONCE]))
        for page in pages:
            if page is not None:
                seen.update((Key.of(obj), obj) for obj in page.objects)
                found.revision = min(found.revision or page.revision, page.revision)
    found.objects = [seen[key] for key in sorted(seen)]
    return found


async def _page_or_none(client: Client, kind: Kind, namespace: str, selector: Selector) -> Listed | None:
    try:
        return await _page(client, kind, namespace, selector)
    except ApiError as error:
        # A right that has just ended.
        if error.code in (403, 404):
            return None
        raise
