"""How data leaves a command: a table for people, JSON or YAML for programs, names for pipes.

Tables are plain columns, as kubectl's: the same on a terminal and in a pipe, so that what one reads one can also cut. Colour
and progress are for terminals only, and `NO_COLOR` is honoured.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TextIO, TypeVar

import click

TABLE, WIDE, JSON, YAML, NAME = "table", "wide", "json", "yaml", "name"

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

            self.stream.write(yamlio.dumps(data))
            return
        import json

        self.stream.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
        kept = [index for index, column in enumerate(columns) if self.form == WIDE or not column.wide]
        lines = [[columns[index].title for index in kept], *([row[index] for index in kept] for row in rows)]
        widths = [max(len(plain(line[position])) for line in lines) for position in range(len(kept))]
        for line in lines:
            cells = [cell + " " * (width - len(plain(cell))) for cell, width in zip(line, widths, strict=True)]
            self.line("   ".join(cells).rstrip())

    def line(self, text: str = "") -> None:
        print(text, file=self.stream)

    def paint(self, text: str, colour: str) -> str:
        return paint(text, colour, self.stream)


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
