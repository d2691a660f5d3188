"""The output of commands: a table for people, JSON or YAML for programs, names for pipes.

Tables are plain columns, as kubectl's: the same on a terminal and in a pipe, so that what one reads one can also cut. Only a
terminal that is too narrow for a row gets it in several lines. Colour and progress are for terminals only, and `NO_COLOR` is
honoured.

Signs that the stream's encoding lacks become ASCII (:func:`encodable`), and JSON and YAML are UTF-8 in any locale: no output
ends in a UnicodeEncodeError.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TextIO, TypeVar

import click

TABLE, WIDE, JSON, YAML, NAME = "table", "wide", "json", "yaml", "name"

# One character for one, so that columns and trees keep their shape.
_ASCII = str.maketrans(
    {
        **dict.fromkeys("│┃", "|"),
        **dict.fromkeys("├└", "+"),
        **dict.fromkeys("─—–", "-"),
        **dict.fromkeys("⠋⠹⠼⠦⠇", "|"),
        **dict.fromkeys("⠙⠸⠴⠧⠏", "-"),
        "✔": "+",
        "✘": "x",
        "▰": "#",
        "▱": ".",
        "…": "~",
        "→": ">",
        "·": "-",
        "‘": "'",
        "’": "'",
        "“": '"',
        "”": '"',
    }
)
_ERRORS = "remuda-ascii"
_GAP, _INDENT = "   ", "    "
_NARROWEST = 40

_Function = TypeVar("_Function", bound=Callable[..., Any])
_COLOURS = {"green": "32", "yellow": "33", "red": "31", "bold": "1", "dim": "2"}


class Column(NamedTuple):
    title: str
    wide: bool = False


def output_option(*formats: str, default: str = TABLE) -> Callable[[_Function], _Function]:
    """`-o`, with the formats that make sense for a command; the function gets an :class:`Output` named `output`."""

    def chosen(_ctx: click.Context, _param: click.Parameter, value: str | None) -> Output:
        return Output(value or default)

    return click.option(
        "-o", "--output", type=click.Choice(formats), callback=chosen, metavar="|".join(formats), help="Output format."
    )


class Output:
    def __init__(self, form: str = TABLE, stream: TextIO | None = None) -> None:
        self.form = form
        self._stream = stream

    @property
    def stream(self) -> TextIO:
        return self._stream or sys.stdout

    @property
    def structured(self) -> bool:
        return self.form in (JSON, YAML)

    def show(
        self, data: Any, columns: Sequence[Column] = (), rows: Iterable[Sequence[str]] = (), names: Iterable[str] = ()
    ) -> None:
        """`data` in full for programs; its `rows` for people; its `names`, one a line, for pipes."""
        if self.structured:
            self.value(data)
        elif self.form == NAME:
            for name in names:
                self.line(name)
        else:
            self.table(columns, rows)

    def value(self, data: Any) -> None:
        if self.form == YAML:
            from remuda.kube.encoding import yamlio

            write_utf8(yamlio.dumps(data), self.stream)
            return
        import json

        write_utf8(json.dumps(data, indent=2, ensure_ascii=False) + "\n", self.stream)

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
        kept = [index for index, column in enumerate(columns) if self.form == WIDE or not column.wide]
        lines = [[columns[index].title for index in kept], *([row[index] for index in kept] for row in rows)]
        widths = [max(len(plain(line[position])) for line in lines) for position in range(len(kept))]
        folds = folded(widths, self.width)
        for line in lines:
            cells = [cell + " " * (width - len(plain(cell))) for cell, width in zip(line, widths, strict=True)]
            for at, (start, end) in enumerate(folds):
                self.line((_INDENT if at else "") + _GAP.join(cells[start:end]).rstrip())

    def line(self, text: str = "") -> None:
        print(text, file=self.stream)

    def paragraph(self, text: str, first: str = "") -> None:
        """Text in as many lines as a terminal needs; the later ones are indented like the first one after `first`."""
        if not self.width:
            self.line(first + text)
            return
        from textwrap import TextWrapper

        indent = " " * len(first)
        wrapper = TextWrapper(self.width, first, indent, break_long_words=False, break_on_hyphens=False)
        for line in wrapper.wrap(text) or [first]:
            self.line(line)

    @property
    def width(self) -> int:
        return width_of(self.stream)

    def paint(self, text: str, colour: str) -> str:
        return paint(text, colour, self.stream)


def folded(widths: Sequence[int], most: int) -> list[tuple[int, int]]:
    """Splits the columns of a table into lines that are no wider than `most`, if any single column is not; 0 is no limit."""
    folds, start, used = [], 0, 0
    for at, width in enumerate(widths):
        needed = used + len(_GAP) + width if at > start else width + (len(_INDENT) if start else 0)
        if most and at > start and needed > most:
            folds.append((start, at))
            start, needed = at, width + len(_INDENT)
        used = needed
    return [*folds, (start, len(widths))]


def width_of(stream: TextIO) -> int:
    """The columns of a terminal; 0 for anything else, which is never wrapped."""
    if not is_terminal(stream):
        return 0
    import shutil

    return max(shutil.get_terminal_size().columns, _NARROWEST)


def write_utf8(text: str, stream: TextIO | None = None) -> None:
    """Writes what programs read (JSON, YAML, kubeconfigs), which is UTF-8 in any locale."""
    stream = stream or sys.stdout
    binary = getattr(stream, "buffer", None)
    if binary is None:
        stream.write(text)
        return
    stream.flush()
    binary.write(text.encode(errors="replace"))
    binary.flush()


def encodable(*streams: TextIO) -> None:
    """Lets a stream take any text: characters that its encoding lacks become ASCII signs, or a question mark."""
    codecs.register_error(_ERRORS, _in_ascii)
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ERRORS)


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end].translate(_ASCII)
    return "".join(sign if sign.isascii() else "?" for sign in signs), error.end


def is_terminal(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str, stream: TextIO) -> str:
    """`text` in a colour where colours are wanted."""
    if os.environ.get("NO_COLOR") or not is_terminal(stream):
        return text
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def plain(text: str) -> str:
    """`text` without our own escape sequences, which take no room on the screen."""
    if "\x1b" not in text:
        return text
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", text)
