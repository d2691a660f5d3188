"""Output of a command: tables on narrow terminals, and any text in any encoding."""

from __future__ import annotations

import io
import json

import pytest

from remuda.cli.demo.stage import DONE, FAILED, PACE, spinner
from remuda.cli.views.cluster_tree import Branch, Piece, drawn, plain
from remuda.cli.views.output import JSON, YAML, Column, Output, encodable, folded, write_utf8
from remuda.kube.encoding import yamlio


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")


def ascii_stream() -> io.TextIOWrapper:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    encodable(stream)
    return stream


def written(stream: io.TextIOWrapper) -> str:
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()


# --- encodings --------------------------------------------------------------------------------------------------------------


def test_signs_become_ascii_of_the_same_width() -> None:
    signs = "├─ └─ │ ✔ ✘ ▰▱ … → ·" + "".join(spinner(at / PACE) for at in range(10)) + DONE + FAILED
    stream = ascii_stream()
    stream.write(signs)
    assert len(written(stream)) == len(signs)
    assert "?" not in written(stream)


def test_other_characters_become_a_question_mark() -> None:
    stream = ascii_stream()
    print("Zürich \udcff 東", file=stream)
    assert written(stream) == "Z?rich ? ?\n"


def test_an_encoding_keeps_the_signs_that_it_has() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="latin-1", write_through=True)
    encodable(stream)
    stream.write("Zürich ✔ ·")
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    assert buffer.getvalue().decode("latin-1") == "Zürich + ·"


@pytest.mark.parametrize("form", [JSON, YAML])
def test_data_for_programs_is_utf8_in_any_locale(form: str) -> None:
    stream = ascii_stream()
    data = {"name": "Zürich ✔"}
    Output(form, stream).value(data)
    assert (json.loads if form == JSON else yamlio.loads)(written(stream)) == data


def test_what_was_written_before_stays_before() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    stream.write("one\n")
    write_utf8("zwölf\n", stream)
    stream.write("two\n")
    stream.flush()
    assert written(stream) == "one\nzwölf\ntwo\n"


# --- narrow terminals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("widths", "most", "expected"),
    [
        ([10, 10, 10], 0, [(0, 3)]),
        ([10, 10, 10], 36, [(0, 3)]),
        ([10, 10, 10], 35, [(0, 2), (2, 3)]),
        ([10, 10, 10], 22, [(0, 1), (1, 2), (2, 3)]),
        ([50, 10, 10], 40, [(0, 1), (1, 3)]),
        ([10, 50, 10], 40, [(0, 1), (1, 2), (2, 3)]),
    ],
)
def test_columns_that_do_not_fit_go_to_the_next_line(widths: list[int], most: int, expected: list[tuple[int, int]]) -> None:
    assert folded(widths, most) == expected


COLUMNS = (Column("NAME"), Column("STATE"), Column("NODE"))
ROWS = (["demo-servers-w5wrb-kc2n9", "ready", "demo-servers-w5wrb-kc2n9"], ["a", "b", "c"])


def test_a_table_is_folded_on_a_narrow_terminal(narrow: None) -> None:
    terminal = Terminal()
    Output(stream=terminal).table(COLUMNS, ROWS)
    assert terminal.getvalue().splitlines() == [
        "NAME                       STATE",
        "    NODE",
        "demo-servers-w5wrb-kc2n9   ready",
        "    demo-servers-w5wrb-kc2n9",
        "a                          b",
        "    c",
    ]


def test_a_table_in_a_pipe_has_one_line_for_each_row(narrow: None) -> None:
    pipe = io.StringIO()
    Output(stream=pipe).table(COLUMNS, ROWS)
    assert len(pipe.getvalue().splitlines()) == 1 + len(ROWS)


def test_a_paragraph_is_wrapped_and_keeps_its_indent(narrow: None) -> None:
    terminal = Terminal()
    Output(stream=terminal).paragraph("one two three four five six seven eight nine ten", "- ")
    assert terminal.getvalue() == "- one two three four five six seven\n  eight nine ten\n"


TREE = Branch(
    (Piece("cluster "), Piece("demo  ", "bold"), Piece("waits")),
    (),
    (
        Branch((Piece("one two three four five six seven eight nine"),), ((Piece("more of that, and still more of it"),),)),
        Branch((Piece("last"),), (), (Branch((Piece("a-word-that-is-longer-than-all-of-the-terminal and more"),)),)),
    ),
)


def test_a_tree_is_wrapped_between_its_branches() -> None:
    assert [plain(line) for line in drawn(TREE, 30)] == [
        "cluster demo  waits",
        "├─ one two three four five six",
        "│     seven eight nine",
        "│     more of that, and still",
        "│     more of it",
        "└─ last",
        "   └─ a-word-that-is-longer-than-all-of-the-terminal",
        "         and more",
    ]


def test_a_tree_in_a_pipe_is_not_wrapped() -> None:
    assert len(drawn(TREE)) == 5
