"""How many objects of each kind a caller may list, for the numbers in menus.

The API tells the size of a list with its first object, so that nothing else is read. By namespace only short lists are counted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from remuda.client.interface import Client
from remuda.kube.errors import ApiError
from remuda.kube.objects import namespace_of

from .kinds import Kind
from .reading import Listed, Selector, listed
from .schemas import Permissions, Usable

Obj = dict[str, Any]

_AT_ONCE: Final = 16
_COUNTED_BY_NAMESPACE: Final = 500
_FIRST: Final = Selector(limit=1, metadata_only=True)
_ALL: Final = Selector(metadata_only=True)


async def counts(client: Client, permissions: Permissions, usable: Iterable[Usable]) -> tuple[dict[str, Obj], int]:
    """By type, and the revision at which counting began."""
    kinds = [each.kind for each in usable if {"list", "watch"} <= each.verbs]
    found: dict[str, Obj] = {}
    revision = 0
    for first in range(0, len(kinds), _AT_ONCE):
        batch = kinds[first : first + _AT_ONCE]
        for kind, count in zip(batch, await asyncio.gather(*(_count(client, permissions, each) for each in batch)), strict=True):
            if count is not None:
                found[kind.id], reached = count
                revision = min(revision or reached, reached)
    return found, revision


async def _count(client: Client, permissions: Permissions, kind: Kind) -> tuple[Obj, int] | None:
    try:
        page = await listed(client, permissions, kind, "", _FIRST)
        total = len(page.objects) + page.remaining
        if kind.namespaced and 0 < total <= _COUNTED_BY_NAMESPACE and page.continue_:
            page = await listed(client, permissions, kind, "", _ALL)
    except ApiError:
        # Gone, or not allowed any more, since its kind was found.
        return None
    return shown(kind, page, total), page.revision


def shown(kind: Kind, page: Listed, total: int) -> Obj:
    """The numbers of one kind."""
    whole = kind.namespaced and len(page.objects) == total
    by_namespace = Counter(map(namespace_of, page.objects)) if whole else {}
    return {"summary": {"count": total}, "namespaces": {name: {"count": count} for name, count in sorted(by_namespace.items())}}
