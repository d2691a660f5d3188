"""How far long work is, on a terminal; nothing anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from .output import is_terminal


class Counter:
    """Called with what is done and how much there is; tells a hundredth at a time."""

    def __init__(self, doing: str, stream: TextIO) -> None:
        self._doing = doing
        self._stream = stream
        self._shows = is_terminal(stream)
        self._told = -1

    def __call__(self, done: int, of: int) -> None:
        part = 100 * done // of if of else 100
        if self._shows and part != self._told:
            self._told = part
            self._stream.write(f"\r{self._doing}: {done:,} of {of:,} objects\x1b[K")
            self._stream.flush()

    def clear(self) -> None:
        if self._told >= 0:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


@contextmanager
def counting(doing: str) -> Iterator[Counter]:
    made = Counter(doing, sys.stderr)
    try:
        yield made
    finally:
        made.clear()
