"""Names that are put together of others and cut to fit, byte for byte as Rancher's library does it (capr.md §0.3).

Objects are looked up by computing their names again, so these must never change.
"""

from __future__ import annotations

import hashlib

_MAX = 63
_ALPHANUMERIC = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")


def safe_concat(*parts: str) -> str:
    """The parts with `-` between them; what would be longer than a label is cut and ends in a hash of the whole."""
    full = "-".join(parts)
    if len(full) <= _MAX:
        return full
    digest = hashlib.sha256(full.encode()).hexdigest()
    # A name must not end in a dash before its hash begins with one.
    if full[56] in _ALPHANUMERIC:
        return f"{full[:57]}-{digest[:5]}"
    return f"{full[:56]}-{digest[:6]}"


def safe_concat_within(most: int, *parts: str) -> str:
    """The same for a limit of one's own, such as that of a hostname."""
    full = "-".join(parts)
    if len(full) <= most:
        return full
    if most <= 5:
        return full[:most]
    digest = hashlib.sha256(full.encode()).hexdigest()
    if full[max(most - 7, 0)] in _ALPHANUMERIC:
        kept, hashed = full[: most - 6], digest[:5]
    else:
        kept, hashed = full[: max(most - 7, 0)], digest[:6]
    return f"{kept}-{hashed}" if kept else hashed
