"""The database of a snapshot of etcd, read from the file itself. `tests/integration` reads one that a real etcd has written."""

from __future__ import annotations

import io
import struct
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.lab.sim.saved_snapshots import database
from remuda.provisioning.etcd.database_reader import DamagedDatabase, contents, unpacked

SMALL = database([(b"/registry/a", b"1"), (b"/registry/b", b"2"), (b"/registry/a", b"3")])


def test_each_key_counts_once_and_the_newest_revision_is_that_of_etcd() -> None:
    assert contents(io.BytesIO(SMALL)) == (4, 2, "")
    large = database([(b"/registry/%d" % number, b"x" * 500) for number in range(1000)])
    assert contents(io.BytesIO(large)) == (1001, 1000, "")
    assert contents(io.BytesIO(database([]))) == (0, 0, "")


@pytest.mark.parametrize(
    "value",
    [
        b'{"metadata":{"annotations":{"made-by":"00000000-0000-4000-8000-000000000000"},"name":"kube-system","uid":"%s"}}',
        b'k8s\x00\n\x0f\n\x02v1\x12\tNamespace\x12\xa1\x01\n\x0bkube-system\x12\x00\x1a\x00"\x00*$%s2\x008\x00B\x08',
    ],
    ids=["JSON", "protobuf"],
)
def test_it_says_whose_it_is(value: bytes) -> None:
    uid = "6d3f0f5c-2b1e-4a79-808d-2d7f6c5b4a39"
    stored = database([(b"/registry/namespaces/kube-system", value % uid.encode())])
    assert contents(io.BytesIO(stored)).cluster_id == uid


def test_one_in_an_archive_is_read_the_same() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("on-demand-n1-1", SMALL)
    assert contents(unpacked(packed)) == (4, 2, "")


@pytest.mark.parametrize("content", [b"", b"x" * 9000, SMALL[:8192], SMALL[:4096], b"PK\x03\x04broken"])
def test_what_is_no_database_or_is_cut_off_is_said(content: bytes) -> None:
    with pytest.raises(DamagedDatabase):
        contents(unpacked(io.BytesIO(content)))


@given(st.integers(0, len(SMALL) - 33), st.integers(0, 255))
def test_whatever_one_byte_is_changed_to_it_ends(at: int, byte: int) -> None:
    changed = bytearray(SMALL)
    changed[at] = byte
    try:
        revision, keys, _ = contents(io.BytesIO(bytes(changed)))
    except (DamagedDatabase, struct.error):
        return
    assert revision >= 0 and keys <= 3
