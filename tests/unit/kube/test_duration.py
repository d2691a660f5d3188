"""Durations as Go writes them; those of tables are compared with a real API server elsewhere."""

from __future__ import annotations

import pytest

from remuda.kube.duration import go_duration, parse_go_duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59, "59s"), (60, "1m0s"), (600, "10m0s"), (3600, "1h0m0s"), (90061, "25h1m1s"), (-61, "-1m1s")],
)
def test_all_units_from_the_first_that_counts_are_shown(seconds: int, text: str) -> None:
    assert go_duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("-0", 0),
        ("1h30m", 5_400 * 10**9),
        ("-1.5s", -1_500_000_000),
        ("+.5ms", 500_000),
        ("1us2ns", 1_002),
        ("9223372036854775807ns", 2**63 - 1),
        ("9223372036854775808ns", None),
        ("", None),
        ("-", None),
        ("5", None),
        ("1h 30m", None),
        ("soon", None),
        ("0s" * 129, None),
    ],
)
def test_durations_are_read_as_go_reads_them(text: str, nanoseconds: int | None) -> None:
    assert parse_go_duration(text) == nanoseconds
