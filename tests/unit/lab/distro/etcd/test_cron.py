"""When the next snapshot is due."""

from __future__ import annotations

import pytest

from remuda.kube.clock import parse_rfc3339, rfc3339
from remuda.lab.distro.etcd.cron import BadSchedule, Schedule


@pytest.mark.parametrize(
    ("text", "now", "then"),
    [
        ("0 */12 * * *", "2026-02-03T11:59:59Z", "2026-02-03T12:00:00Z"),
        ("0 */12 * * *", "2026-02-03T12:00:00Z", "2026-02-04T00:00:00Z"),
        ("*/5 * * * *", "2026-02-03T23:57:10Z", "2026-02-04T00:00:00Z"),
        ("30 1,3-4 * * *", "2026-02-03T03:30:00Z", "2026-02-03T04:30:00Z"),
        ("0 0 29 2 *", "2026-02-03T00:00:00Z", "2028-02-29T00:00:00Z"),
        ("0 0 * * mon", "2026-02-03T00:00:00Z", "2026-02-09T00:00:00Z"),
        ("0 0 * * 7", "2026-02-03T00:00:00Z", "2026-02-08T00:00:00Z"),
        ("0 0 5 * sun", "2026-02-03T00:00:00Z", "2026-02-05T00:00:00Z"),
        ("0 0 1 jun *", "2026-02-03T00:00:00Z", "2026-06-01T00:00:00Z"),
        ("10/20 * * * *", "2026-02-03T00:11:00Z", "2026-02-03T00:30:00Z"),
        ("@hourly", "2026-02-03T00:11:00Z", "2026-02-03T01:00:00Z"),
    ],
)
def test_the_next_moment(text: str, now: str, then: str) -> None:
    found = Schedule(text).after(parse_rfc3339(now))
    assert found is not None
    assert rfc3339(found) == then


def test_a_day_that_never_comes() -> None:
    assert Schedule("0 0 30 2 *").after(0) is None


@pytest.mark.parametrize("text", ["", "* * * *", "60 * * * *", "a * * * *", "5-1 * * * *", "*/0 * * * *", "0 0 0 * *"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(BadSchedule):
        Schedule(text)
