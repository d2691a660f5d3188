"""`remuda backup` and `remuda restore` at the door: where the passphrase comes from, and what is refused at once."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import time
from pathlib import Path

import pytest

from tests.integration.apiserver.backup.small_backups import PASSPHRASE, fill
from tests.integration.cli.running import Shell


@pytest.fixture
def state(shell: Shell) -> Path:
    asyncio.run(fill(shell.home / "data", ["one"]))
    return shell.home / "data"


def typed(shell: Shell, arguments: list[str], *lines: str) -> tuple[int, str]:
    """On a terminal of its own: the exit code and all that was shown, with each line typed when it was asked for."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        shell.arguments(*arguments),
        env={**shell.environment(), "TERM": "xterm"},
        stdin=follower,
        stdout=follower,
        stderr=follower,
        start_new_session=True,
    )
    os.close(follower)
    shown, asked = "", 0
    end = time.monotonic() + 120
    try:
        while time.monotonic() < end and (chunk := os.read(leader, 65536)):
            shown += chunk.decode(errors="replace")
            while asked < len(lines) and shown.count("assphrase:") + shown.count("confirmation:") > asked:
                os.write(leader, lines[asked].encode() + b"\n")
                asked += 1
    except OSError:
        # It is closed with the last process that has it open.
        pass
    code = process.wait(60)
    os.close(leader)
    return code, shown


def test_on_a_terminal_the_passphrase_is_asked_for_twice_and_never_shown(shell: Shell, state: Path) -> None:
    path = shell.home / "x.backup"
    code, shown = typed(shell, ["backup", str(path)], PASSPHRASE, PASSPHRASE)
    assert code == 0 and PASSPHRASE not in shown and "objects" in shown, shown
    code, shown = typed(shell, ["restore", str(path), "--verify-only"], PASSPHRASE)
    assert code == 0 and "is valid" in shown and PASSPHRASE not in shown, shown


def test_the_passphrase_comes_from_a_file_that_only_its_owner_reads(shell: Shell, state: Path) -> None:
    path, file = shell.home / "x.backup", shell.home / "passphrase"
    file.write_text(f"{PASSPHRASE}\n")
    file.chmod(0o644)
    done = shell.run("backup", str(path), "--passphrase-file", str(file))
    assert done.returncode == 2 and f"others may read {file}: run chmod 600 {file}" in done.stderr
    file.chmod(0o600)
    assert shell.run("backup", str(path), "--passphrase-file", str(file)).returncode == 0
    shell.environ["REMUDA_PASSPHRASE"] = PASSPHRASE
    done = shell.run("restore", str(path), "--data-dir", str(shell.home / "new"))
    assert done.returncode == 0, done.stderr
    assert f"into {shell.home / 'new'}.\nStart the server: remuda serve" in done.stdout
    empty = shell.home / "empty"
    empty.touch(mode=0o600)
    for wrong, why in ((empty, "is empty"), (shell.home / "missing", "can't be read: No such file")):
        done = shell.run("restore", str(path), "--passphrase-file", str(wrong))
        assert done.returncode == 2 and why in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root restores for somebody else")
def test_who_restores_for_a_service_is_told_to_hand_the_files_over(shell: Shell, state: Path) -> None:
    shell.environ["REMUDA_PASSPHRASE"] = PASSPHRASE
    path, there = shell.home / "x.backup", shell.home / "new"
    assert shell.run("backup", str(path)).returncode == 0
    there.mkdir()
    os.chown(there, 54321, 54321)
    done = shell.run("restore", str(path), "--data-dir", str(there))
    assert done.returncode == 0 and f": chown -R 54321: {there}\nStart the server" in done.stdout, done
    assert "chown" not in shell.run("restore", str(path), "--data-dir", str(shell.home / "own")).stdout


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["backup", "x"], "give the passphrase of the backup, with --passphrase-file or in REMUDA_PASSPHRASE"),
        (["backup", "missing/x"], "make the directory first"),
        (["restore", "missing"], "missing: No such file or directory"),
        (["restore", "setup.txt"], "is not a backup of Remuda"),
    ],
)
def test_what_can_t_be_is_one_sentence(shell: Shell, arguments: list[str], why: str) -> None:
    (shell.home / "setup.txt").write_text("something else")
    command, name = arguments
    done = subprocess.run(
        shell.arguments(command, str(shell.home / name)),
        env=shell.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1 and why in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
