"""How the C library hands out large pieces of memory, in a process with many TLS connections.

uvloop takes a buffer of 256 KiB for each of them and touches a few KiB of it, so most of it need never be there. glibc maps such
a piece by itself at first. But as soon as one of them was given back it takes the next ones from its heap, in the place of what
was there before: pages that have been used, and now belong to a connection that needs nothing of them. Told once to map pieces of
this size, come what may, it keeps about 100 KB less for an agent with two tunnels.

:mod:`.loops` calls this beside uvloop. With another C library there is nothing to tell. The agent's image has no `ctypes`: there
the C library is told the same by the image's environment (:mod:`remuda.images.recipe`).
"""

from __future__ import annotations

import os

# From malloc.h; neither the names nor the numbers have changed since 1999.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

MAPPED_FROM = 256 * 1024
# Said once, the C library adapts neither of the two any more; what it would free and ask for again all the time is below this.
_KEPT_FREE = 4 * 1024 * 1024


def map_large_pieces() -> bool:
    """Whether the C library could be told. It is harmless to say it again."""
    if not _is_glibc():
        return False
    try:
        import ctypes

        mallopt = ctypes.CDLL(None).mallopt
    except (ImportError, OSError, AttributeError):
        return False
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    return bool(mallopt(_M_MMAP_THRESHOLD, MAPPED_FROM) and mallopt(_M_TRIM_THRESHOLD, _KEPT_FREE))


def _is_glibc() -> bool:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (AttributeError, ValueError, OSError):
        return False
