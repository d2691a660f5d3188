"""What others say is cut to a size, always in the same way."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.kube.bounding import SizeLimits, bounded
from remuda.kube.encoding import jsonio


def deep(levels: int) -> Any:
    found: Any = "x"
    for _ in range(levels):
        found = {"a": found}
    return found


def test_what_fits_stays_the_same_object() -> None:
    value = {"a": ["b", 1, None, True, 1.5], "c": {"d": "e"}}
    assert bounded(value) == (value, False)
    assert bounded(value)[0] is value


@pytest.mark.parametrize(
    "value",
    [
        "x" * 100_000,
        ["x" * 1000] * 1000,
        {f"key-{number}": "x" for number in range(100_000)},
        {"k" * 100_000: "x"},
        deep(100),
        [[[["x" * 900] * 100] * 100] * 100],
        10**1000,
        ["é" * 5000] * 50,
    ],
    ids=["a text", "texts", "keys", "a key", "depth", "nested", "a number", "characters"],
)
def test_nothing_is_larger_than_its_bounds(value: Any) -> None:
    bounds = SizeLimits(text=1024, items=128, depth=8, total=16 << 10)
    found, cut = bounded(value, bounds)
    assert cut
    assert len(jsonio.dumps(found).decode()) < 2 * bounds.total
    assert bounded(value, bounds) == (found, cut), "the same each time, so that it is not written anew"


def test_a_text_that_was_cut_says_so() -> None:
    assert bounded({"a": "x" * 20}, SizeLimits(text=10)) == ({"a": "x" * 10 + "…"}, True)
