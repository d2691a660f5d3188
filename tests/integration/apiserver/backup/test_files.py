"""The file appears whole or not at all, and takes nobody else's place."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from remuda.apiserver.backup.format import BackupError
from remuda.apiserver.backup.take import appearing
from remuda.kube.clock import Entropy

DYING = """
import os, sys
from pathlib import Path
from remuda.apiserver.backup.take import appearing
from remuda.kube.clock import Entropy
with appearing(Path(sys.argv[1]), Entropy(), True) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), 9)
"""


def put(path: Path, content: bytes, force: bool = False) -> None:
    with appearing(path, Entropy(), force) as file:
        file.write(content)


def test_only_its_owner_may_read_it_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        put(tmp_path / "x", b"1")
    finally:
        os.umask(before)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_file_is_replaced_only_when_asked_to(tmp_path: Path) -> None:
    put(tmp_path / "x", b"1")
    with pytest.raises(BackupError, match="is there already: say another name, or --force"):
        put(tmp_path / "x", b"2")
    assert (tmp_path / "x").read_bytes() == b"1"
    put(tmp_path / "x", b"2", force=True)
    assert (tmp_path / "x").read_bytes() == b"2"


def test_one_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="is there already"), appearing(tmp_path / "x", Entropy()) as file:
        file.write(b"2")
        (tmp_path / "x").write_bytes(b"1")
    assert (tmp_path / "x").read_bytes() == b"1"


def test_what_fails_leaves_the_old_file_and_nothing_beside(tmp_path: Path) -> None:
    put(tmp_path / "x", b"1")
    with pytest.raises(ZeroDivisionError), appearing(tmp_path / "x", Entropy(), True) as file:
        file.write(b"2")
        _ = 1 / 0
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"x": b"1"}


def test_a_killed_writer_leaves_the_old_file_and_the_next_one_clears_up(tmp_path: Path) -> None:
    path = tmp_path / "a[b]*.backup"
    put(path, b"1")
    done = subprocess.run([sys.executable, "-c", DYING, str(path)], timeout=120)
    assert done.returncode == -9 and path.read_bytes() == b"1" and len(list(tmp_path.iterdir())) == 2
    put(path, b"2", force=True)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {path.name: b"2"}


@pytest.mark.parametrize(("name", "why"), [("missing/x", "make the directory first"), (".", "is a directory")])
def test_a_place_that_can_t_be_is_told(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(BackupError, match=why):
        put(tmp_path / name, b"1")
