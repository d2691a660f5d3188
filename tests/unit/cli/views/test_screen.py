"""A picture on a terminal: no line wraps, none is lost without a word, and the next takes its place."""

from __future__ import annotations

import io

import pytest

from remuda.cli.views.cluster_tree import Piece, Screen, cut, fitting, painted, plain


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_that_is_too_wide_is_cut() -> None:
    line = (Piece("one "), Piece("two", "red"), Piece(" three"))
    assert plain(cut(line, 13)) == "one two three"
    assert plain(cut(line, 12)) == "one two thr…"
    assert cut(line, 6) == (Piece("one "), Piece("t…", "red"))


def test_what_does_not_fit_is_counted() -> None:
    lines = [(Piece(str(number)),) for number in range(10)]
    assert [plain(line) for line in fitting(lines, 80, 4)] == ["0", "1", "2", "… and 7 more lines"]
    assert len(fitting(lines, 80, 10)) == 10


def test_the_next_picture_takes_the_place_of_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "10")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    screen = Screen(terminal)
    assert screen.live and not Screen(io.StringIO()).live
    screen.show([(Piece("a", "red"),), (Piece("b"),)])
    screen.show([(Piece("c"),)])
    assert terminal.getvalue() == "\r\x1b[31ma\x1b[0m\x1b[K\n\rb\x1b[K\n\x1b[J" + "\x1b[2A\rc\x1b[K\n\x1b[J"


def test_a_pipe_gets_no_colour_and_no_blanks() -> None:
    assert painted((Piece("a  ", "red"),), io.StringIO()) == "a"
