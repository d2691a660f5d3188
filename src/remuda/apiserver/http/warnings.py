"""Warning headers: kube-apiserver's limits on how much a response may warn.

The HTTP edge gives every text that was collected during a request and gets the header values to send.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

MAX_TOTAL = 4 * 1024
MAX_ITEM = 256


def warning_headers(texts: Iterable[str]) -> list[str]:
    """`Warning` header values: each text once; when all together are too long, each is cut and the rest dropped."""
    unique = [text for text in dict.fromkeys(texts) if text]
    if sum(len(text) for text in unique if _printable(text)) <= MAX_TOTAL:
        return [_header(text) for text in unique if _printable(text)]
    headers: list[str] = []
    written = 0
    for text in unique:
        if written >= MAX_TOTAL:
            break
        cut = text[:MAX_ITEM]
        if _printable(cut):
            headers.append(_header(cut))
            written += len(cut)
    return headers


def _printable(text: str) -> bool:
    # A lone surrogate is what invalid UTF-8 looks like here.
    return not any(unicodedata.category(char) in ("Cc", "Cs") for char in text)


def _header(text: str) -> str:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{quoted}"'
