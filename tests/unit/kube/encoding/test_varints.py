"""Varints: what is written is read again, wherever it stands, and what is none is told apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.encoding import varints


@pytest.mark.parametrize(
    ("value", "raw"),
    [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (varints.WORD, "ffffffffffffffffff01"), (-1, "ffffffffffffffffff01")],
)
def test_as_protocol_buffers_write_them(value: int, raw: str) -> None:
    assert varints.write_varint(value).hex() == raw
    assert varints.read_varint(bytes.fromhex(raw), 0) == (value & varints.WORD, len(raw) // 2)


@given(st.integers(0, varints.WORD), st.binary(max_size=3), st.binary(max_size=3))
def test_what_is_written_is_read_again(value: int, before: bytes, after: bytes) -> None:
    raw = varints.write_varint(value)
    data, read = before + raw + after, (value, len(before) + len(raw))
    assert varints.read_varint(data, len(before)) == read
    assert varints.read_varint(memoryview(data), len(before)) == read


@given(st.integers(0x80, varints.WORD))
def test_one_that_is_cut_off_is_no_number(value: int) -> None:
    with pytest.raises(IndexError):
        varints.read_varint(varints.write_varint(value)[:-1], 0)


def test_one_that_does_not_end_is_no_number() -> None:
    with pytest.raises(varints.TooLong):
        varints.read_varint(b"\xff" * varints.LONGEST + b"\x01", 0)
    # What is beyond 64 bits is up to whoever reads.
    assert varints.read_varint(b"\xff" * 9 + b"\x7f", 0) == ((1 << 70) - 1, 10)
