"""How many unhealthy machines are too many."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.capi.machinehealthcheck.machine_health import RemediationBudget, TriggerError, budget

Obj = dict[str, Any]


def check(**trigger: Any) -> Obj:
    return {"spec": {"remediation": {"triggerIf": trigger}} if trigger else {}}


@pytest.mark.parametrize(
    ("most", "total", "healthy", "remaining"),
    [
        (None, 4, 0, 0),
        (None, 4, 3, 3),
        (2, 5, 3, 0),
        (3, 5, 3, 1),
        ("40%", 5, 3, 0),
        ("60%", 7, 4, 1),
        ("100%", 0, 0, 0),
        (0, 3, 3, 0),
    ],
)
def test_remediation_is_allowed_up_to_the_limit(most: Any, total: int, healthy: int, remaining: int) -> None:
    wanted = check() if most is None else check(unhealthyLessThanOrEqualTo=most)
    assert budget(wanted, total=total, healthy=healthy, unhealthy=total - healthy) == RemediationBudget(True, remaining)


@pytest.mark.parametrize(("most", "total", "healthy"), [(1, 5, 3), ("20%", 5, 3), ("39%", 5, 3), (0, 3, 2)])
def test_beyond_the_limit_it_is_not_and_the_message_has_the_numbers(most: Any, total: int, healthy: int) -> None:
    found = budget(check(unhealthyLessThanOrEqualTo=most), total=total, healthy=healthy, unhealthy=1)
    assert found == RemediationBudget(
        False,
        0,
        "Remediation is not allowed, the number of not started or unhealthy machines exceeds maxUnhealthy "
        f"(total: {total}, unhealthy: 1, maxUnhealthy: {most})",
    )


def test_machines_that_are_just_starting_use_up_the_budget_too() -> None:
    assert not budget(check(unhealthyLessThanOrEqualTo=1), total=4, healthy=1, unhealthy=1).allowed


@pytest.mark.parametrize(("healthy", "remaining"), [(3, 3), (1, 1), (0, 0)])
def test_a_range_allows_what_is_inside_of_it(healthy: int, remaining: int) -> None:
    found = budget(check(unhealthyInRange="[1-4]"), total=4, healthy=healthy, unhealthy=4 - healthy)
    assert found == RemediationBudget(True, remaining)


@pytest.mark.parametrize("healthy", [4, 0])
def test_a_range_allows_neither_less_nor_more(healthy: int) -> None:
    found = budget(check(unhealthyInRange="[1-3]"), total=4, healthy=healthy, unhealthy=4 - healthy)
    assert found == RemediationBudget(
        False,
        0,
        "Remediation is not allowed, the number of not started or unhealthy machines does not fall within the range "
        f"(total: 4, unhealthy: {4 - healthy}, unhealthyRange: [1-3])",
    )


def test_a_range_wins_over_a_limit() -> None:
    both = check(unhealthyInRange="[0-4]", unhealthyLessThanOrEqualTo=0)
    assert budget(both, total=4, healthy=0, unhealthy=4).allowed


@pytest.mark.parametrize(
    ("trigger", "why"),
    [
        ({"unhealthyInRange": "[3-1]"}, "max value 1 cannot be less than min value 3 for unhealthyRange"),
        ({"unhealthyInRange": "1-3"}, '"1-3" is not a range of machines such as [1-3]'),
        ({"unhealthyLessThanOrEqualTo": "abcdef"}, "invalid value for IntOrString: invalid type: string is not a percentage"),
        (
            {"unhealthyLessThanOrEqualTo": "x%"},
            'invalid value for IntOrString: invalid value "x%": strconv.Atoi: parsing "x": invalid syntax',
        ),
    ],
)
def test_what_can_not_be_understood_is_said(trigger: Obj, why: str) -> None:
    with pytest.raises(TriggerError) as caught:
        budget(check(**trigger), total=4, healthy=4, unhealthy=0)
    assert str(caught.value) == why
