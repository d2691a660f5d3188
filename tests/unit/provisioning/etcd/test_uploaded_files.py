"""Uploads on the disk of the management server: in pieces, checked, bounded, and removed when no ETCDSnapshot stands for them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from remuda.kube.clock import VirtualClock
from remuda.kube.errors import ApiError
from remuda.lab.sim.saved_snapshots import database
from remuda.provisioning.etcd.snapshot_content import InvalidSnapshot
from remuda.provisioning.etcd.uploaded_files import LARGEST, MOST, Upload, UploadedFiles, upload_of

WHOLE = database([(b"/registry/a", b"1"), (b"/registry/b", b"2")])
NOW = 1_800_000_000.0


def upload(content: bytes, cluster: str = "uid") -> Upload:
    return upload_of(cluster, hashlib.sha256(content).hexdigest())


@pytest.fixture
def files(tmp_path: Path) -> UploadedFiles:
    return UploadedFiles(tmp_path / "snapshots", VirtualClock(NOW), room=0)


def test_pieces_become_a_file_that_only_its_cluster_has(files: UploadedFiles, tmp_path: Path) -> None:
    one = upload(WHOLE)
    assert files.received(one) == 0 and files.is_empty()
    assert files.add(one, 0, len(WHOLE), WHOLE[:5000]) == 5000
    assert files.path(one) is None, "it is not complete"
    again = UploadedFiles(tmp_path / "snapshots", VirtualClock(NOW), room=0)
    assert again.received(one) == 5000, "another process goes on with it"
    assert again.add(one, 5000, len(WHOLE), WHOLE[5000:]) == len(WHOLE)
    assert files.path(one) is None, "it is not checked"
    assert files.check(one) == (3, 2, "")
    path = files.path(one)
    assert path is not None and path.read_bytes() == WHOLE and path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert files.path(upload(WHOLE, "another")) is None
    assert files.received(one) == len(WHOLE) and files.check(one).keys == 2, "it can be checked again"
    files.remove(one)
    assert files.path(one) is None and files.is_empty()


def test_a_piece_that_does_not_follow_is_refused_with_the_place_to_go_on_from(files: UploadedFiles) -> None:
    one = upload(WHOLE)
    files.add(one, 0, len(WHOLE), WHOLE[:100])
    for offset in (0, 50, 101):
        with pytest.raises(ApiError, match="100 bytes of it are here: go on from there"):
            files.add(one, offset, len(WHOLE), WHOLE[offset : offset + 10])
    for size in (0, 99, LARGEST + 1):
        with pytest.raises(ApiError, match=f"a snapshot has at most {LARGEST} bytes"):
            files.add(one, 100, size, b"x")


@pytest.mark.parametrize(
    ("content", "why"),
    [(WHOLE[:-1] + b"x", "it is damaged"), (b"x" * 9000, "it is no database of etcd"), (WHOLE[:8192], "a page of it is missing")],
)
def test_what_is_no_snapshot_is_not_kept(files: UploadedFiles, content: bytes, why: str) -> None:
    one = upload(content)
    files.add(one, 0, len(content), content)
    with pytest.raises(InvalidSnapshot, match=why):
        files.check(one)
    assert files.received(one) == 0 and files.is_empty()


def test_what_changed_on_the_way_is_not_kept(files: UploadedFiles) -> None:
    one = upload(WHOLE)
    files.add(one, 0, len(WHOLE), WHOLE[:-1] + b"x")
    with pytest.raises(InvalidSnapshot, match="its SHA-256 differs"):
        files.check(one)
    assert files.received(one) == 0


def test_a_full_disk_and_a_name_that_is_no_hash_are_refused(tmp_path: Path) -> None:
    files = UploadedFiles(tmp_path / "snapshots", VirtualClock(NOW), room=1 << 60)
    with pytest.raises(ApiError, match="the disk of the management server has no room"):
        files.add(upload(WHOLE), 0, len(WHOLE), WHOLE)
    for name in ("../../etc/passwd", "", "A" * 64, "0" * 63):
        with pytest.raises(ApiError, match="a file is named by its SHA-256"):
            upload_of("uid", name)


def test_a_cluster_has_a_few_and_one_that_was_given_up_makes_room(files: UploadedFiles) -> None:
    kept = [database([(b"/registry/%d" % number, b"1")]) for number in range(MOST)]
    for content in kept[:-1]:
        files.add(upload(content), 0, len(content), content)
        files.check(upload(content))
    files.add(upload(kept[-1]), 0, len(kept[-1]), kept[-1][:10])
    files.add(upload(WHOLE), 0, len(WHOLE), WHOLE)
    assert files.received(upload(kept[-1])) == 0, "it had not come in full"
    files.check(upload(WHOLE))
    with pytest.raises(ApiError, match=f"keeps {MOST} uploaded snapshots of a cluster"):
        files.add(upload(b"more"), 0, 4, b"more")
    assert files.add(upload(b"more", "another"), 0, 4, b"more") == 4


def test_what_no_object_stands_for_goes_after_a_day(files: UploadedFiles) -> None:
    stands, forgotten, part = (database([(b"/registry/%d" % number, b"1")]) for number in range(3))
    for content in (stands, forgotten):
        files.add(upload(content), 0, len(content), content)
        files.check(upload(content))
    files.add(upload(part), 0, len(part), part[:10])

    def aged(seconds: float) -> None:
        for content in (stands, forgotten, part):
            path = files.path(upload(content)) or files._part(upload(content))
            os.utime(path, (NOW - seconds, NOW - seconds))

    aged(23 * 3600)
    files.forget_all_but({upload(stands)})
    assert files.received(upload(forgotten)) and files.received(upload(part)) == 10
    aged(25 * 3600)
    files.forget_all_but({upload(stands)})
    assert files.path(upload(stands)) is not None
    assert files.received(upload(forgotten)) == files.received(upload(part)) == 0
