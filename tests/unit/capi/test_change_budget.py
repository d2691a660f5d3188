"""Change budgets: their grammar, their windows, and the strictest of several."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.capi.change_budget import (
    KEYS,
    Act,
    Budget,
    BudgetError,
    Holder,
    Limit,
    Role,
    Subject,
    Window,
    format_budget,
    parse,
    refusal,
)


def at(text: str) -> float:
    """A time in UTC, such as `Thu 2026-11-19 20:00`."""
    return datetime.strptime(text, "%a %Y-%m-%d %H:%M").replace(tzinfo=UTC).timestamp()


THURSDAY = at("Thu 2026-11-19 20:00")
NIGHTS = "window=Mon-Fri 22:00-04:00 Europe/Berlin"

# --- grammar ------------------------------------------------------------------------------------------------------------------


def test_limits_and_windows_are_separated_by_commas() -> None:
    assert parse(f"replace=0, restart-etcd=1 ,drain=10%,{NIGHTS},window=Sat 00:00-24:00") == Budget(
        {"replace": Limit(0), "restart-etcd": Limit(1), "drain": Limit(10, percent=True)},
        (Window(frozenset(range(5)), 22 * 60, 4 * 60, "Europe/Berlin"), Window(frozenset({5}), 0, 0)),
    )
    assert parse("window=01:00-02:00").windows == (Window(frozenset(range(7)), 60, 120),)
    assert parse("window=Sat-Mon 01:00-02:00").windows[0].days == {5, 6, 0}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "'' must be a limit or a window"),
        ("replace", "'replace' must be a limit or a window"),
        ("replace=0,", "'' must be a limit or a window"),
        ("repair=0", "'repair' must be window, or one of restart, drain, replace, delete"),
        ("restart-master=1", "'restart-master' must be window"),
        ("replace=-1", "replace=-1 must be a number of machines or a percentage"),
        ("replace=1.5", "replace=1.5 must be a number"),
        ("drain=101%", "drain=101% must be at most 100%"),
        ("replace=0,replace=1", "replace must be set once"),
        ("window=always", "window=always must be days, hours and a time zone"),
        ("window=Mo 22:00-04:00", "Mo must be a day or a range of days of Mon, Tue"),
        ("window=Mon- 22:00-04:00", "Mon- must be a day"),
        ("window=22:60-23:00", "22:60 must be a time from 00:00 to 24:00"),
        ("window=22:00-24:01", "24:01 must be a time"),
        ("window=22:00-23:00 Mars/Olympus", "Mars/Olympus is not a known time zone"),
        ("window=22:00-23:00 ../../etc/passwd", "is not a known time zone"),
        (f"replace={'1' * 2000}", "must be at most 1024 characters"),
    ],
)
def test_what_is_no_budget_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(BudgetError) as refused:
        parse(text)
    assert why in str(refused.value)


days = st.tuples(st.integers(0, 6), st.integers(1, 7)).map(lambda span: frozenset((span[0] + n) % 7 for n in range(span[1])))
zones = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"])
windows = st.builds(Window, days, st.integers(0, 1439), st.integers(0, 1439), zones)
limits = st.one_of(st.builds(Limit, st.integers(0, 999)), st.builds(Limit, st.integers(0, 100), st.just(True)))
budgets = st.builds(
    Budget, st.dictionaries(st.sampled_from(sorted(KEYS)), limits, max_size=5), st.lists(windows, max_size=3).map(tuple)
).filter(lambda budget: budget.limits or budget.windows)


@given(budgets)
def test_what_is_written_is_read_again(budget: Budget) -> None:
    assert parse(format_budget(budget)) == budget


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse(text)
    except BudgetError as error:
        assert str(error)


# --- windows ------------------------------------------------------------------------------------------------------------------


def test_a_window_follows_the_clock_of_its_zone() -> None:
    (window,) = parse(NIGHTS).windows
    # 21:00 UTC is 22:00 in Berlin in winter, and 20:00 UTC in summer.
    assert not window.is_open(THURSDAY) and window.opens_at(THURSDAY) == at("Thu 2026-11-19 21:00")
    assert window.is_open(at("Thu 2026-07-16 20:00"))
    assert window.is_open(at("Sat 2026-11-21 02:59")), "Friday's night ends on Saturday"
    assert not window.is_open(at("Sat 2026-11-21 03:00")) and not window.is_open(at("Mon 2026-11-23 02:00"))
    assert window.opens_at(at("Sat 2026-11-21 03:00")) == at("Mon 2026-11-23 21:00")


@given(windows, st.integers(1_700_000_000, 1_900_000_000))
def test_a_window_opens_within_nine_days(window: Window, now: int) -> None:
    opens_at = window.opens_at(now)
    assert now < opens_at <= now + 9 * 86400


# --- judgement ----------------------------------------------------------------------------------------------------------------


def machine(name: str, role: Role = Role.WORKER, *acts: Act, pool: str = "p") -> Subject:
    return Subject(name, frozenset({role}), pool, frozenset(acts))


WORKERS = [machine(f"w{number}") for number in range(20)]


def why(act: Act, of: Subject, machines: list[Subject], *texts: str, now: float = THURSDAY) -> str:
    found = refusal(act, of, machines, [Holder("Cluster demo", text) for text in texts], now)
    return found.why if found else ""


def test_a_limit_is_about_machines_at_once() -> None:
    busy = machine("b", Role.WORKER, Act.RESTART)
    assert why(Act.RESTART, WORKERS[0], WORKERS, "restart=1") == ""
    assert (
        why(Act.RESTART, WORKERS[0], [*WORKERS, busy], "restart=1")
        == "the change budget of Cluster demo is restart=1: taken by b"
    )
    assert why(Act.RESTART, busy, [*WORKERS, busy], "restart=1") == "", "it has begun already"
    assert why(Act.DRAIN, WORKERS[0], [*WORKERS, busy], "restart=1") == ""
    assert why(Act.REPLACE, WORKERS[0], WORKERS, "replace=0") == "the change budget of Cluster demo is replace=0: not allowed"


def test_a_limit_of_a_role_counts_machines_with_it() -> None:
    busy = [machine("b", Role.ETCD, Act.RESTART), machine("w", Role.WORKER, Act.RESTART)]
    assert "restart-etcd=1: taken by b" in why(Act.RESTART, machine("e", Role.ETCD), busy, "restart-etcd=1")
    assert why(Act.RESTART, machine("v"), busy, "restart-etcd=1") == ""
    assert why(Act.RESTART, machine("v"), busy, "restart-worker=2,restart=3") == ""


def test_a_percentage_is_rounded_down_and_allows_one() -> None:
    two = [machine(f"b{number}", Role.WORKER, Act.DRAIN) for number in range(2)]
    assert why(Act.DRAIN, WORKERS[0], [*WORKERS[2:], *two], "drain=15%") == ""
    assert "drain=10%: taken by b0, b1" in why(Act.DRAIN, WORKERS[0], [*WORKERS[2:], *two], "drain=10%")
    assert why(Act.DRAIN, WORKERS[0], WORKERS[:3], "drain=10%") == ""
    assert why(Act.DRAIN, WORKERS[0], WORKERS, "drain=0%") != ""


def test_outside_of_its_windows_a_budget_allows_nothing() -> None:
    found = refusal(Act.DELETE, WORKERS[0], WORKERS, [Holder("Namespace x", NIGHTS)], THURSDAY)
    assert found is not None and found.opens_at == at("Thu 2026-11-19 21:00")
    assert found.why == "the change budget of Namespace x allows changes from 2026-11-19T21:00:00Z"
    assert why(Act.DELETE, WORKERS[0], WORKERS, NIGHTS, now=at("Thu 2026-11-19 21:00")) == ""


def test_a_pools_budget_is_about_its_machines() -> None:
    other = machine("o", Role.WORKER, Act.DELETE, pool="other")
    holder = Holder("machine pool p", "delete=1", "p")
    assert refusal(Act.DELETE, WORKERS[0], [*WORKERS, other], [holder], 0.0) is None
    busy = machine("b", Role.WORKER, Act.DELETE)
    assert refusal(Act.DELETE, WORKERS[0], [*WORKERS, busy], [holder], 0.0) is not None
    assert refusal(Act.DELETE, other, [*WORKERS, busy], [Holder("", "delete=0", "p")], 0.0) is None


@pytest.mark.parametrize("act", Act)
def test_a_budget_that_cannot_be_read_allows_nothing(act: Act) -> None:
    assert why(act, WORKERS[0], WORKERS, "garbage").startswith(
        "the change budget of Cluster demo is not valid: 'garbage' must be"
    )
    found = refusal(act, WORKERS[0], WORKERS, [Holder("Namespace x", problem="the server is away")], 0.0)
    assert found is not None and found.why == "the change budget of Namespace x can't be read: the server is away"


@given(
    st.lists(budgets, min_size=1, max_size=4),
    st.sampled_from(Act),
    st.lists(st.sets(st.sampled_from(Act)), max_size=6),
    st.data(),
)
def test_the_strictest_holds(several: list[Budget], act: Act, acts: list[set[Act]], data: st.DataObject) -> None:
    roles = st.sets(st.sampled_from(Role), min_size=1)
    machines = [Subject(f"m{n}", frozenset(data.draw(roles)), "p", frozenset(each)) for n, each in enumerate(acts)]
    one = Subject("one", frozenset(data.draw(roles)), "p")
    holders = [Holder(f"h{n}", format_budget(each)) for n, each in enumerate(several)]
    alone = [refusal(act, one, [one, *machines], [each], THURSDAY) is None for each in holders]
    together = refusal(act, one, [one, *machines], holders, THURSDAY) is None
    assert together == all(alone)
    assert (refusal(act, one, [one, *machines], holders[::-1], THURSDAY) is None) == together
    if together:
        busy = sum(act in each.acts for each in machines)
        assert all(busy < limit.of(len(machines) + 1) for each in several for key, limit in each.limits.items() if key == act)
