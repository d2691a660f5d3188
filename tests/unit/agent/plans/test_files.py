"""Files of a plan, and the root they must stay in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from remuda.agent.errors import OutsideRoot, PlanError
from remuda.agent.paths import Layout
from remuda.agent.plans import apply
from remuda.agent.plans.plan import File


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def put(path: Path, root: Path, content: str = "eA==", **more: object) -> None:
    apply.ensure_file(File(str(path), content, uid=-1, gid=-1, **more), Layout(str(root)))  # type: ignore[arg-type]


def test_content_mode_and_parents(tmp_path: Path) -> None:
    put(tmp_path / "a/b/c", tmp_path, permissions="0640")
    assert (tmp_path / "a/b/c").read_bytes() == b"x"
    assert (mode(tmp_path / "a/b/c"), mode(tmp_path / "a/b")) == (0o640, 0o755)
    put(tmp_path / "d", tmp_path)
    assert mode(tmp_path / "d") == 0o600


def test_equal_content_is_not_written_but_its_mode_is_put_right(tmp_path: Path) -> None:
    path = tmp_path / "f"
    put(path, tmp_path)
    os.utime(path, (1, 1))
    path.chmod(0o777)
    put(path, tmp_path)
    assert path.stat().st_mtime == 1
    assert mode(path) == 0o600


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    put(tmp_path / "link", tmp_path)
    assert (tmp_path / "real").read_text() == "x"
    assert (tmp_path / "link").is_symlink()


def test_directories_and_deletion(tmp_path: Path) -> None:
    put(tmp_path / "d/e", tmp_path, content="", directory=True, permissions="0700")
    assert mode(tmp_path / "d/e") == 0o700
    put(tmp_path / "d/e/f", tmp_path)
    put(tmp_path / "d", tmp_path, directory=True, action="delete")
    put(tmp_path / "missing", tmp_path, action="delete")
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("bad", [{"content": "%"}, {"permissions": "rw"}, {"permissions": "77777"}])
def test_what_can_not_be_read_is_refused(tmp_path: Path, bad: dict[str, str]) -> None:
    with pytest.raises(PlanError):
        put(tmp_path / "f", tmp_path, **bad)
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize("name", ["../outside", "inside/../../outside", "link/outside", "out"])
@pytest.mark.parametrize("more", [{}, {"directory": True}, {"action": "delete"}])
def test_nothing_outside_of_the_root_is_touched(tmp_path: Path, name: str, more: dict[str, object]) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "outside").write_text("mine")
    (root / "link").symlink_to(tmp_path)
    (root / "out").symlink_to(tmp_path / "outside")
    if name == "out" and more.get("action"):
        put(root / name, root, **more)  # removing the link itself is fine
    else:
        with pytest.raises(OutsideRoot):
            apply.ensure_file(File(f"{root}/{name}", "eA==", uid=-1, gid=-1, **more), Layout(str(root)))  # type: ignore[arg-type]
    assert (tmp_path / "outside").read_text() == "mine"


def test_the_root_itself_is_not_removed(tmp_path: Path) -> None:
    with pytest.raises(OutsideRoot):
        put(tmp_path, tmp_path, directory=True, action="delete")
    with pytest.raises(PlanError):
        apply.ensure_file(File("relative", ""), Layout("/"))


def test_a_full_disk_leaves_the_old_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PlanError, match="No space left"):
        put(path, tmp_path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["f"]
