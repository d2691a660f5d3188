"""Whose request a write belongs to: told to stores that keep history, for `remuda history`.

The HTTP door says it around each request that may write; what the server does by itself says nothing, and is told apart by its
field manager.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# Names are short; a header may be long.
_LONGEST = 256

_writer: ContextVar[str] = ContextVar("writer", default="")


@contextmanager
def writing(who: str) -> Iterator[None]:
    """What is written inside is written by `who`."""
    token = _writer.set(who[:_LONGEST])
    try:
        yield
    finally:
        _writer.reset(token)


def writer() -> str:
    return _writer.get()
