"""The file itself: what was put in comes out, and nothing comes out of a file that is not as it was written."""

from __future__ import annotations

import hashlib
import os
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.apiserver.backup import format
from remuda.apiserver.backup.format import Backup, BackupError, Damaged, File, NotABackup, Note, Object, TooNew, WrongPassphrase

from .small_backups import PASSPHRASE, write

EVERY_BYTE = os.environ.get("REMUDA_SOAK") == "1"
RECORDS: list[File | Note | Object] = [
    File("keys/ca.key", b"secret"),
    Note("/remuda/rotation", b"{}"),
    *(Object(f"/registry/configmaps/a/{number}", os.urandom(300), number) for number in range(40)),
]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A backup of several chunks."""
    monkeypatch.setattr(format, "CHUNK", 2000)
    made = tmp_path / "x.backup"
    write(made, RECORDS)
    return made


def read(path: Path, passphrase: str = PASSPHRASE) -> list[File | Note | Object]:
    backup = Backup.open(path)
    return list(backup.records(backup.key(passphrase)))


def test_what_was_put_in_comes_out_in_its_order(path: Path) -> None:
    assert read(path) == RECORDS
    backup = Backup.open(path)
    assert backup.verify(backup.key(PASSPHRASE)) == 40


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.builds(File, st.text(max_size=9), st.binary(max_size=99)),
            st.builds(Object, st.text(max_size=9), st.binary(max_size=99), st.floats(0, 2e9)),
        )
    )
)
def test_any_records_come_out(tmp_path_factory: pytest.TempPathFactory, records: list[File | Note | Object]) -> None:
    path = tmp_path_factory.mktemp("any") / "x.backup"
    write(path, records)
    assert read(path) == records


def test_the_header_is_read_without_the_passphrase_and_nothing_else_is(path: Path) -> None:
    header = Backup.open(path).header
    assert (header.store, header.revision, header.objects, header.time) == ("sqlite", 7, 40, "2026-11-16T12:00:00Z")
    first, second = path.read_bytes().split(b"\n")[:2]
    assert first == b"remuda backup, format 1" and second.startswith(b'{"remuda":')
    assert b"ca.key" not in path.read_bytes() and b"configmaps" not in path.read_bytes()


def test_another_passphrase_is_told_from_damage(path: Path) -> None:
    with pytest.raises(WrongPassphrase, match=r"not the one that .*x.backup was sealed with"):
        read(path, "another passphrase")


@pytest.mark.parametrize("passphrase", ["", "short", "eleven char"])
def test_a_short_passphrase_seals_nothing(passphrase: str) -> None:
    with pytest.raises(BackupError, match="must have at least 12"):
        format.check_passphrase(passphrase)


def test_a_newer_format_is_named(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"format 1", b"format 3", 1))
    with pytest.raises(TooNew, match="format 3, and this Remuda knows up to 1"):
        Backup.open(path)


@pytest.mark.parametrize("content", [b"", b"\n", b"SQLite format 3\0" * 9, b"remuda backup, format x\n"])
def test_another_file_is_no_backup(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(NotABackup, match="is not a backup of Remuda"):
        Backup.open(path)


def test_a_changed_byte_is_found_wherever_it_is(path: Path) -> None:
    whole = path.read_bytes()
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    header = whole.index(b"\n", whole.index(b"\n") + 1)
    places = range(len(whole)) if EVERY_BYTE else [*range(0, header, 3), *chance.sample(range(len(whole)), 200)]
    for place in places:
        changed = bytearray(whole)
        changed[place] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        with pytest.raises(BackupError):
            read(path)
            pytest.fail(f"seed {seed}: byte {place} was not missed")


def test_an_end_that_is_missing_is_found_wherever_it_was_cut(path: Path) -> None:
    whole = path.read_bytes()
    for length in [*range(0, len(whole), 1 if EVERY_BYTE else 97), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(BackupError):
            read(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(Damaged):
        read(path)


def frames(path: Path) -> tuple[bytes, list[bytes]]:
    """The lines at the beginning, and the chunks."""
    whole = path.read_bytes()[:-32]
    start = whole.index(b"\n", whole.index(b"\n") + 1) + 1
    head, found = whole[:start], []
    while start < len(whole):
        end = start + 5 + int.from_bytes(whole[start + 1 : start + 5], "big")
        found.append(whole[start:end])
        start = end
    return head, found


def forge(path: Path, head: bytes, chunks: list[bytes]) -> None:
    """As somebody who does not know the passphrase, but can count a checksum."""
    whole = head + b"".join(chunks)
    path.write_bytes(whole + hashlib.sha256(whole).digest())


@pytest.mark.parametrize("what", ["swapped", "dropped", "repeated", "cut", "early end", "other header", "of another file"])
def test_a_forged_file_is_found_though_its_checksum_is_right(path: Path, what: str) -> None:
    head, chunks = frames(path)
    assert len(chunks) > 4
    other = path.with_name("other.backup")
    write(other, RECORDS, revision=8)
    forged = {
        "swapped": (head, [chunks[1], chunks[0], *chunks[2:]]),
        "dropped": (head, [chunks[0], *chunks[2:]]),
        "repeated": (head, [chunks[0], *chunks]),
        "cut": (head, chunks[:-1]),
        "early end": (head, [*chunks[:2], b"\1" + chunks[2][1:]]),
        "other header": (head.replace(b'"revision":7', b'"revision":9'), chunks),
        "of another file": (head, [chunks[0], frames(other)[1][1], *chunks[2:]]),
    }[what]
    forge(path, *forged)
    with pytest.raises(Damaged):
        read(path)


@pytest.mark.parametrize(
    ("n", "r", "p", "sentence"),
    [
        (2**30, 1, 1, "its scrypt settings need 131,072 MiB of memory; at most 256 MiB are allowed"),
        # Each alone is small enough.
        (2**20, 64, 1, "its scrypt settings need 8,192 MiB of memory"),
        (2**20, 1, 64, "its scrypt settings need 64 rounds; at most 8 are allowed"),
        (2**18, 8, 9, "its scrypt settings need 9 rounds"),
        (2**18, 9, 1, "its scrypt settings need 288 MiB of memory"),
        (1000, 8, 1, "scrypt has no such numbers as n 1000, r 8, p 1"),
        (-16, 1, 1, "scrypt has no such numbers"),
        (16, 0, 1, "scrypt has no such numbers"),
        (16, 1, 0, "scrypt has no such numbers"),
    ],
)
def test_a_header_can_t_ask_for_all_memory(path: Path, n: int, r: int, p: int, sentence: str) -> None:
    head, chunks = frames(path)
    asked = head.replace(b'"n":16,"r":1,"p":1', b'"n":%d,"r":%d,"p":%d' % (n, r, p))
    assert asked != head
    forge(path, asked, chunks)
    with pytest.raises(Damaged) as refused:
        Backup.open(path)
    assert str(refused.value).startswith(f"{path} is damaged: its header can't be right, {sentence}")
