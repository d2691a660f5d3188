"""Quantities: canonical texts, order and sums as apimachinery's resource.Quantity gives them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube import quantity
from remuda.kube.quantity import Quantity, QuantityError, parse

CANONICAL = [
    ("1", "1"),
    ("100m", "100m"),
    ("1.5Gi", "1536Mi"),
    ("0.5", "500m"),
    ("1.500", "1.500"),
    ("1000", "1k"),
    ("1000k", "1M"),
    ("1024Ki", "1Mi"),
    ("12e6", "12e6"),
    ("1e-12", "1e-9"),
    ("-1.5", "-1500m"),
    ("+5", "+5"),
    ("0.1n", "1n"),
    ("100Ei", "9223372036854775807"),
    ("0.5Ki", "512"),
    ("1000E", "1"),
    ("123456789012345678901", "123456789012345678901"),
    ("1e1000000", "10e999999"),
    ("-0", "0"),
    (".", "0"),
    ("1000000Ki", "1000000Ki"),
    ("0", "0"),
]


@pytest.mark.parametrize(("text", "shown"), CANONICAL)
def test_canonical_text(text: str, shown: str) -> None:
    assert str(quantity.parse(text)) == shown


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", quantity.FORMAT_WRONG),
        ("abc", quantity.FORMAT_WRONG),
        ("1.2.3", quantity.FORMAT_WRONG),
        ("1 ", quantity.FORMAT_WRONG),
        ("1Kii", quantity.SUFFIX_WRONG),
        ("1e", quantity.SUFFIX_WRONG),
        ("1K", quantity.SUFFIX_WRONG),
    ],
)
def test_text_that_is_no_quantity(text: str, why: str) -> None:
    with pytest.raises(QuantityError) as caught:
        parse(text)
    assert str(caught.value) == why


@pytest.mark.parametrize(
    ("left", "right", "order"),
    [("1", "1000m", 0), ("1Ki", "1k", 1), ("100m", "1", -1), ("-1", "1", -1), ("1e1000000", "1", 1), ("0", "-1n", 1)],
)
def test_order(left: str, right: str, order: int) -> None:
    assert parse(left).compare(parse(right)) == order
    assert (parse(left) == parse(right)) is (order == 0)
    assert (parse(left) < parse(right)) is (order < 0)


def test_equal_quantities_have_equal_hashes() -> None:
    assert hash(parse("1")) == hash(parse("1000m"))
    assert len({parse("1Mi"), parse("1024Ki")}) == 1


@pytest.mark.parametrize(
    ("left", "right", "total", "difference"),
    [("1", "500m", "1500m", "500m"), ("1Gi", "1Mi", "1025Mi", "1023Mi"), ("0", "1Ki", "1Ki", "-1Ki")],
)
def test_sums(left: str, right: str, total: str, difference: str) -> None:
    assert str(parse(left).add(parse(right))) == total
    assert str(parse(left).sub(parse(right))) == difference


def test_values_round_away_from_zero() -> None:
    assert parse("1m").value == 1
    assert parse("-1m").value == -1
    assert parse("1500m").value == 2
    assert parse("1500m").milli_value == 1500
    assert parse("2Gi").value == 2 << 30


def test_integers_and_floats() -> None:
    assert parse("2k").is_integer
    assert not parse("1500m").is_integer
    assert not parse("1e100").is_integer
    assert parse("1500m").as_float() == 1.5
    assert quantity.from_json(3) == Quantity(3)
    assert str(quantity.from_json(0.5)) == "500m"
    with pytest.raises(QuantityError):
        quantity.from_json(True)


@given(st.text(alphabet="0123456789.eEinumkKMGTP+-", max_size=12))
def test_canonical_text_means_the_same(text: str) -> None:
    try:
        found = parse(text)
    except QuantityError:
        return
    shown = str(Quantity(found.unscaled, found.exponent, found.format))
    if -9 <= found.exponent <= 18 and abs(found.unscaled) < 10**15:
        again = parse(shown)
        if found.format != "DecimalSI" or abs(found.value) < 10**18:
            assert again == found
