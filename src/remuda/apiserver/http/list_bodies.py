"""Lists as JSON, joined from the bytes of their items: whole, or piece by piece at the reader's pace.

A large list is never whole in memory. Until it is sent it consists of cached entries, so a client that asks for everything
again and again, or asks and does not read, costs a piece for each of its connections.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from remuda.kube.clock import yield_to_loop
from remuda.kube.encoding import jsonio

from ..cache.entries import Entry
from ..limits.flow_control import Turns
from ..registry.resources import Version
from ..verbs.list import Page
from ..watch.selection import SLICE

_LARGE = 1024 * 1024
_PIECE = 256 * 1024
_END = b"]}\n"


def _head(version: Version, page: Page) -> bytes:
    metadata = page.metadata()
    if not version.resource.builtin:
        # A list without a Go type always has a `continue` field.
        metadata.setdefault("continue", "")
    head = jsonio.dumps({"kind": version.resource.list_kind, "apiVersion": version.api_version, "metadata": metadata})
    return b'%s,"items":[' % head[:-1]


async def body(version: Version, page: Page) -> bytes:
    """The whole list."""
    prefix = version.item_prefix
    encoded = version.body
    items: list[bytes] = []
    for start in range(0, len(page.entries), SLICE):
        if start:
            await yield_to_loop()
        items += [encoded(entry, prefix) for entry in page.entries[start : start + SLICE]]
    return _head(version, page) + b",".join(items) + _END


def is_large(version: Version, page: Page) -> bool:
    """True if it should be sent in pieces. Not for a list converted by a webhook: its entries are cached for a limited time."""
    return version.resource.convert is None and sum(len(entry.stored) for entry in page.entries) > _LARGE


async def pieces(version: Version, page: Page, turns: Turns) -> AsyncIterator[bytes]:
    """The same as :func:`body`, piece by piece."""
    yield _head(version, page)
    prefix, between = version.item_prefix, b""
    for batch in _batches(page.entries):
        await turns.take()
        yield between + b",".join([version.body(entry, prefix) for entry in batch])
        between = b","
    yield _END


def _batches(entries: list[Entry]) -> Iterator[list[Entry]]:
    start = size = 0
    for end, entry in enumerate(entries):
        size += len(entry.stored)
        if size >= _PIECE:
            yield entries[start : end + 1]
            start, size = end + 1, 0
    if start < len(entries):
        yield entries[start:]
