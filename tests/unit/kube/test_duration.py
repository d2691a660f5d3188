"""Durations as Go writes them; those of tables are compared with a real API server elsewhere."""

from __future__ import annotations

import pytest

from remuda.kube.duration import go_duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59, "59s"), (60, "1m0s"), (600, "10m0s"), (3600, "1h0m0s"), (90061, "25h1m1s"), (-61, "-1m1s")],
)
def test_all_units_from_the_first_that_counts_are_shown(seconds: int, text: str) -> None:
    assert go_duration(seconds) == text
