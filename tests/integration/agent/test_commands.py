"""Running one command."""

from __future__ import annotations

import os
from pathlib import Path

from remuda.agent.commands import KEPT, BoundedOutput, CommandResult, run
from tests.waiting import wait_until


def sh(script: str, directory: Path, timeout: float = 60) -> tuple[CommandResult, list[str]]:
    lines: list[str] = []
    result = run(
        ["sh", "-c", script], dict(os.environ), str(directory), timeout, lambda stream, line: lines.append(f"{stream}:{line}")
    )
    return result, lines


def test_streams_are_apart_and_line_ends_are_made_even(tmp_path: Path) -> None:
    result, lines = sh(r"printf 'a\r\nb'; echo err >&2; exit 3", tmp_path)
    assert (result.exit_code, result.stdout, result.stderr) == (3, b"a\nb\n", b"err\n")
    assert sorted(lines) == ["stderr:err", "stdout:a", "stdout:b"]


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    result = run(["/no/such"], {}, str(tmp_path), 1, lambda *_: None)
    assert result.exit_code == -1
    assert "/no/such" in result.why


def test_a_hanging_command_is_killed_with_everything_it_started(tmp_path: Path) -> None:
    for seconds in (3, 60):
        result, _ = sh("sleep 600 & echo $! > pid; echo before; wait", tmp_path, timeout=seconds)
        # A slow machine may not have come to its first word.
        if result.stdout:
            break
    assert (result.exit_code, result.stdout) == (-1, b"before\n")
    assert "killed" in result.why
    pid = int((tmp_path / "pid").read_text())

    def gone() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except (FileNotFoundError, ProcessLookupError):
            return True

    wait_until(gone, "the end of the grandchild")


def test_a_flood_of_output_is_kept_at_both_ends_without_blocking(tmp_path: Path) -> None:
    result, lines = sh("echo first; yes $(printf %099d 7) | head -c 9000000; echo last", tmp_path)
    assert result.exit_code == 0
    assert len(result.stdout) <= KEPT + 100
    assert result.stdout.startswith(b"first\n") and result.stdout.endswith(b"last\n")
    assert len(lines) < 6000


def test_a_line_without_end_does_not_block(tmp_path: Path) -> None:
    result, _ = sh("head -c 300000 /dev/zero | tr '\\0' x; echo; echo after", tmp_path)
    assert result.stdout == b"x" * 300000 + b"\nafter\n"


def test_kept_is_exact_until_it_is_full() -> None:
    kept = BoundedOutput(10)
    for piece in (b"abc", b"defg", b"hij"):
        kept.add(piece)
    assert kept.bytes() == b"abcdefghij"
    kept.add(b"klmnop")
    assert kept.bytes() == b"abcde" + BoundedOutput.MARK + b"lmnop"
