"""How the demo is told: moving pictures on a terminal, clean lines in a pipe."""

from __future__ import annotations

import io

import pytest

from remuda.cli.demo.stage import Stage, header, spinner
from remuda.cli.views.cluster_tree import Piece, plain
from remuda.kube.clock import VirtualClock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def test_a_pipe_gets_a_line_for_each_change_with_its_time() -> None:
    pipe, clock = io.StringIO(), VirtualClock()
    stage = Stage(pipe, clock)
    act = stage.begin("Machines come up")
    act.show([(Piece("a picture"),)], {"machine a": "waiting"})
    await clock.advance(1.5)
    act.show()
    act.show([(Piece("another"),)], {"machine a": "ready", "machine b": "waiting"})
    await clock.advance(10)
    assert act.end() == 11.5
    # What was told before is not told again.
    stage.begin("More").show((), {"machine a": "ready"})
    assert pipe.getvalue().splitlines() == [
        "[   0.0 s] Machines come up",
        "[   0.0 s]   machine a: waiting",
        "[   1.5 s]   machine a: ready",
        "[   1.5 s]   machine b: waiting",
        "[  11.5 s] ✔ Machines come up  11.5 s",
        "[  11.5 s] More",
        "[  11.5 s]   machine b: gone",
    ]


async def test_a_terminal_gets_a_picture_that_moves_and_stays_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("TERM", "xterm"), ("COLUMNS", "60"), ("LINES", "10"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    terminal, clock = Terminal(), VirtualClock()
    stage = Stage(terminal, clock)
    act = stage.begin("Machines come up")
    act.show([(Piece("a"),), (Piece("b"),)], {"never": "told"})
    await clock.advance(0.25)
    act.show()
    await clock.advance(1)
    act.end(failed=True)
    first, second, last = terminal.getvalue().split("\x1b[J")[:3]
    assert first == f"\r{spinner(0)} Machines come up  0.0 s\x1b[K\n\ra\x1b[K\n\rb\x1b[K\n"
    assert second == f"\x1b[3A\r{spinner(0.25)} Machines come up  0.2 s\x1b[K\n\ra\x1b[K\n\rb\x1b[K\n"
    assert last == "\x1b[3A\r✘ Machines come up  1.2 s\x1b[K\n\ra\x1b[K\n\rb\x1b[K\n"


def test_it_continues_when_its_output_is_closed() -> None:
    class Gone(io.StringIO):
        def flush(self) -> None:
            raise BrokenPipeError

    told: list[str] = []
    stage = Stage(Gone(), VirtualClock(), lambda: told.append("gone"))
    act = stage.begin("Machines come up")
    act.show((), {"machine a": "waiting"})
    act.end()
    assert told == ["gone"]


def test_words_are_coloured_on_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for stream, shown in ((Terminal(), "\x1b[32m$ ls\x1b[0m\n"), (io.StringIO(), "$ ls\n")):
        Stage(stream, VirtualClock()).command("ls")
        assert stream.getvalue() == shown


def test_the_spinner_turns_and_the_header_tells_the_time() -> None:
    assert len({spinner(tenths / 10) for tenths in range(10)}) == 10
    assert plain(header("✔", "Done", 1.04, "green")) == "✔ Done  1.0 s"
