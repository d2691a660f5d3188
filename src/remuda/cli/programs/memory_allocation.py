"""How the C library hands out large pieces of memory, and gives free ones back, in a process with many TLS connections.

uvloop takes a buffer of 256 KiB for each of them and touches a few KiB of it, so most of it need never be there. glibc maps such
a piece by itself at first. But as soon as one of them was given back it takes the next ones from its heap, in the place of what
was there before: pages that have been used, and now belong to a connection that needs nothing of them. Told once to map pieces of
this size, come what may, it keeps about 100 KB less for an agent with two tunnels.

By itself it gives back only what is free at the end of its heap, and after a crowd there is always somebody left who has a
piece there: three thousand watches that had come and gone left 94 MiB behind of which nothing was in use. Told to, it looks
for free pages everywhere; that took 15 ms then, and a few when there is nothing.

:mod:`.event_loop` calls this beside uvloop, and now and then. With another C library there is nothing to tell. The agent's
image has no `ctypes`: there the C library is told the first by the image's environment (:mod:`remuda.images.recipe`).
"""

from __future__ import annotations

import os
from collections.abc import Callable

# From malloc.h; neither the names nor the numbers have changed since 1999.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

MAPPED_FROM = 256 * 1024
# Said once, the C library adapts neither of the two any more; what it would free and ask for again all the time is below this.
_KEPT_FREE = 4 * 1024 * 1024


def map_large_pieces() -> bool:
    """Whether the C library could be told. It is harmless to say it again."""
    mallopt = _of_glibc("mallopt")
    return mallopt is not None and bool(mallopt(_M_MMAP_THRESHOLD, MAPPED_FROM) and mallopt(_M_TRIM_THRESHOLD, _KEPT_FREE))


def can_give_back() -> bool:
    return _of_glibc("malloc_trim") is not None


def give_back() -> bool:
    """Whether any memory that was free went back to the system. Meant for a thread: others go on meanwhile."""
    malloc_trim = _of_glibc("malloc_trim")
    return malloc_trim is not None and bool(malloc_trim(_KEPT_FREE))


def _of_glibc(name: str) -> Callable[..., int] | None:
    """One of its functions on whole numbers; None where there is another C library, or no way to call it."""
    if not _is_glibc():
        return None
    try:
        import ctypes

        function: Callable[..., int] = getattr(ctypes.CDLL(None), name)
    except (ImportError, OSError, AttributeError):
        return None
    return function


def _is_glibc() -> bool:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (AttributeError, ValueError, OSError):
        return False
