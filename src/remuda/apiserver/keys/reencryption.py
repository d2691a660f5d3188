"""Every value that is sealed with another key than the one that is used now, written anew. Objects stay what they are.

Straight in the store, and each with the revision that was read as the condition: what a client writes meanwhile wins, and is
sealed with the new key anyway. Watchers see another resourceVersion and no other change, as from Kubernetes' own migrations.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..storage import key_layout
from ..storage.store import KeyValue, Mismatch, Put, Unknown

if TYPE_CHECKING:
    from ..server import Server

log = logging.getLogger(__name__)

SEALED = (key_layout.prefix_for("", "secrets", builtin=True),)
_PAGE = 500
# Written at once: they share a commit.
_TOGETHER = 32


async def rewrite(server: Server) -> int:
    """How many were written. Afterwards none is left that was sealed otherwise when this began."""
    total = 0
    for prefix in SEALED:
        while count := await _pass(server, prefix):
            total += count
    if total:
        log.info("%d Secrets are sealed with the new key", total)
    return total


async def _pass(server: Server, prefix: str) -> int:
    """How many were found to be written, by us or by somebody who was faster."""
    count, start = 0, ""
    while True:
        page = await server.store.range(prefix, start=start, limit=_PAGE)
        count += await _page(server, page.items)
        if not page.more:
            return count
        start = page.items[-1].key + "\0"


async def _page(server: Server, items: Sequence[KeyValue]) -> int:
    stale = [(kv, sealed) for kv in items if (sealed := server.cache.resealed(kv)) is not None]
    for first in range(0, len(stale), _TOGETHER):
        await asyncio.gather(*(_write(server, kv, sealed) for kv, sealed in stale[first : first + _TOGETHER]))
    return len(stale)


async def _write(server: Server, kv: KeyValue, sealed: bytes) -> None:
    try:
        await server.store.write([Put(kv.key, sealed, kv.mod_revision)])
    except (Mismatch, Unknown):
        # The next pass looks at what is there then.
        return
