"""Integers as strconv reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.encoding.go_format import IntegerError, atoi, parse_int, parse_int32, parse_uint


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_every_signed_number_is_read_back(value: int) -> None:
    assert parse_int(str(value)) == value
    assert parse_int(f"{value:+025d}") == value


@given(st.integers(0, (1 << 64) - 1))
def test_every_unsigned_number_is_read_back(value: int) -> None:
    assert parse_uint(f"{value:030d}") == value


@pytest.mark.parametrize("text", ["", "-", "+", "1_0", " 1", "1 ", "0x1", "1.0", "٣", "1\n", "--1"])
def test_what_is_no_number(text: str) -> None:
    with pytest.raises(IntegerError, match=r"strconv.ParseInt: parsing .*: invalid syntax"):
        parse_int(text)


@pytest.mark.parametrize("text", ["9223372036854775808", "-9223372036854775809", "9" * 5000])
def test_what_is_too_large(text: str) -> None:
    with pytest.raises(IntegerError, match="value out of range"):
        parse_int(text)


@pytest.mark.parametrize(
    ("text", "why"), [("-1", "invalid syntax"), ("+1", "invalid syntax"), ("18446744073709551616", "value out of range")]
)
def test_unsigned_numbers_have_no_sign(text: str, why: str) -> None:
    with pytest.raises(IntegerError) as caught:
        parse_uint(text)
    assert str(caught.value) == f'strconv.ParseUint: parsing "{text}": {why}'


@pytest.mark.parametrize("text", ["2147483648", "-2147483649"])
def test_what_is_too_large_for_32_bits(text: str) -> None:
    assert (parse_int32("2147483647"), parse_int32("-2147483648")) == (2147483647, -2147483648)
    with pytest.raises(IntegerError, match=rf'^strconv.ParseInt: parsing "{text}": value out of range$'):
        parse_int32(text)


def test_the_short_function_says_its_own_name() -> None:
    assert atoi("-7") == -7
    with pytest.raises(IntegerError, match=r'^strconv.Atoi: parsing "x": invalid syntax$'):
        atoi("x")
