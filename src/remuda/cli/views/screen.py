"""Showing something that changes: redrawn in place on a terminal, and as one line for each change everywhere else."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TextIO

from .cluster_tree import Line, Piece, plain
from .output import is_terminal, paint


def painted(line: Line, stream: TextIO) -> str:
    text = "".join(paint(piece.text, piece.colour, stream) if piece.colour else piece.text for piece in line)
    return text if "\x1b" in text else text.rstrip()


def cut(line: Line, width: int) -> Line:
    """No wider than that: a line that wraps would be two."""
    kept: list[Piece] = []
    left = width
    if len(plain(line)) <= width:
        return line
    for piece in line:
        if len(piece.text) >= left:
            kept.append(piece._replace(text=f"{piece.text[: max(left - 1, 0)]}…"))
            break
        kept.append(piece)
        left -= len(piece.text)
    return tuple(kept)


def fitting(lines: Sequence[Line], width: int, height: int) -> list[Line]:
    """As much as a terminal shows, with a word about the rest."""
    if len(lines) > height:
        lines = [*lines[: max(height - 1, 0)], (Piece(f"… and {len(lines) - height + 1} more lines", "dim"),)]
    return [cut(line, width) for line in lines]


class Screen:
    """A picture that takes the place of the one before it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._drawn = 0
        self.live = is_terminal(stream)

    def show(self, lines: Sequence[Line]) -> None:
        """In one write, or it would flicker."""
        size = shutil.get_terminal_size()
        # The last line of the terminal is the cursor's.
        shown = fitting(lines, size.columns, size.lines - 1)
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        self._stream.write(up + "".join(f"\r{painted(line, self._stream)}\x1b[K\n" for line in shown) + "\x1b[J")
        self._stream.flush()
        self._drawn = len(shown)
