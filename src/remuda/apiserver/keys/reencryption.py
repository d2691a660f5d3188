"""Re-encryption: every value that is sealed with an older key is rewritten with the current one. Objects do not change.

It works directly in the store, on condition of the revision that was read: a client's concurrent write wins, and is
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
# Written concurrently: they share a commit.
_TOGETHER = 32


async def rewrite(server: Server) -> int:
    """Rewrite all; the number of values. Afterwards none is left that was sealed otherwise at the beginning."""
    total = 0
    for prefix in SEALED:
        while count := await _pass(server, prefix):
            total += count
    if total:
        log.info("%d Secrets are sealed with the new key", total)
    return total


async def _pass(server: Server, prefix: str) -> int:
    """The number of values to rewrite that were found, including those rewritten by another writer meanwhile."""
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
        # The next pass reads it again.
        return
