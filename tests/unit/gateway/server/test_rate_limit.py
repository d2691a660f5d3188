"""Throttling: those who guess wait ever longer, those who do not are left alone, and nothing grows without bound."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.apiserver.limits.caller_caps import ConnectionCaps, network_of
from remuda.gateway.server.rate_limit import LoginThrottle, Pace
from remuda.kube.clock import VirtualClock

HOME, EVIL = "192.0.2.1", "198.51.100.66"


def tries(throttle: LoginThrottle, user: str, address: str, times: int) -> int:
    """How many of so many attempts at one moment were let through."""
    return sum(throttle.begin(user, address) == 0 for _ in range(times))


def strict(clock: VirtualClock, size: int = 100) -> LoginThrottle:
    return LoginThrottle(clock, size, Pace(3, 1, 60), Pace(6, 1, 900), Pace(3, 1, 300))


# --- those who guess ------------------------------------------------------------------------------------------------------


def test_a_hundred_guesses_at_once_are_a_hundred_guesses() -> None:
    throttle = strict(VirtualClock())
    assert tries(throttle, "admin", EVIL, 100) == 3


def test_each_further_guess_waits_twice_as_long_up_to_a_bound() -> None:
    clock = VirtualClock()
    throttle = strict(clock)
    tries(throttle, "admin", EVIL, 3)
    waits = []
    for _ in range(10):
        wait = throttle.begin("admin", EVIL)
        waits.append(round(wait))
        asyncio.run(clock.advance(wait))
        assert throttle.begin("admin", EVIL) == 0
    # The name's wait ends at a minute; the address' began later and goes on.
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60, 64]


def test_many_addresses_guessing_one_name_wait_together() -> None:
    throttle = strict(VirtualClock())
    assert sum(tries(throttle, "admin", f"198.51.100.{number}", 1) for number in range(100)) == 3


def test_one_address_guessing_many_names_waits() -> None:
    throttle = strict(VirtualClock())
    assert sum(tries(throttle, f"user{number}", EVIL, 1) for number in range(100)) == 6


def test_one_ipv6_caller_with_all_its_addresses_waits() -> None:
    throttle = strict(VirtualClock())
    assert sum(tries(throttle, f"user{number}", f"2001:db8::{number:x}", 1) for number in range(100)) == 6


@pytest.mark.parametrize("name", ["admin", "Admin", "ADMIN", " admin "])
def test_other_letters_are_no_other_name(name: str) -> None:
    throttle = strict(VirtualClock())
    tries(throttle, "admin", EVIL, 3)
    assert throttle.begin(name, HOME) > 0


def test_made_up_names_do_not_push_out_the_one_under_attack() -> None:
    throttle = strict(VirtualClock(), size=10)
    tries(throttle, "admin", EVIL, 3)
    for number in range(1000):
        throttle.begin(f"nobody{number}", f"203.0.{number // 250}.{number % 250}")
    assert throttle.begin("admin", "203.0.113.250") > 0


def test_a_thief_with_an_account_of_their_own_does_not_wash_their_address_clean() -> None:
    throttle = strict(VirtualClock())
    guessed = 0
    for number in range(100):
        if throttle.begin("thief", EVIL) == 0:
            throttle.succeeded("thief", EVIL)
        guessed += throttle.begin(f"victim{number}", EVIL) == 0
    assert guessed <= 6


def test_an_owners_login_gives_a_guesser_no_new_guesses() -> None:
    throttle = strict(VirtualClock())
    tries(throttle, "admin", EVIL, 2)
    assert throttle.begin("admin", HOME) == 0
    throttle.succeeded("admin", HOME)
    assert tries(throttle, "admin", "203.0.113.9", 10) == 1


def test_who_is_told_to_wait_does_not_wait_longer_for_asking() -> None:
    clock = VirtualClock()
    throttle = strict(clock)
    tries(throttle, "admin", EVIL, 3)
    before = throttle.begin("admin", EVIL)
    tries(throttle, "admin", EVIL, 1000)
    assert throttle.begin("admin", EVIL) == before


# --- those who do not -----------------------------------------------------------------------------------------------------


def test_who_logged_in_from_here_before_is_not_locked_out_by_others() -> None:
    throttle = strict(VirtualClock())
    assert throttle.begin("admin", HOME) == 0
    throttle.succeeded("admin", HOME)
    for number in range(50):
        throttle.begin("admin", f"198.51.100.{number}")
    assert throttle.begin("admin", EVIL) > 0
    assert throttle.begin("admin", HOME) == 0
    # But there, too, guessing is slow.
    assert tries(throttle, "admin", HOME, 100) == 2


def test_logging_in_well_never_has_to_wait() -> None:
    throttle = strict(VirtualClock())
    for number in range(500):
        assert throttle.begin(f"user{number % 7}", HOME) == 0
        throttle.succeeded(f"user{number % 7}", HOME)


def test_everything_is_forgotten_after_a_rest() -> None:
    clock = VirtualClock()
    throttle = strict(clock)
    tries(throttle, "admin", EVIL, 3)
    asyncio.run(clock.advance(3600))
    assert tries(throttle, "admin", EVIL, 100) == 3


# --- laws -----------------------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.text(max_size=3), st.integers(0, 300), st.booleans(), st.floats(0, 100)),
        max_size=200,
    )
)
@settings(max_examples=50)
def test_whatever_happens_the_tables_stay_bounded_and_no_wait_is_longer_than_the_longest(
    attempts: list[tuple[str, int, bool, float]],
) -> None:
    clock = VirtualClock()
    throttle = strict(clock, size=5)
    for user, host, right, later in attempts:
        wait = throttle.begin(user, f"192.0.{host // 256}.{host % 256}")
        assert 0 <= wait <= 900
        if wait == 0 and right:
            throttle.succeeded(user, f"192.0.{host // 256}.{host % 256}")
        assert len(throttle) <= 5 * 7
        clock._now += later


@given(st.integers(0, 10**6))
def test_a_delay_grows_and_never_beyond_its_bound(failures: int) -> None:
    pace = Pace(5, 1, 300)
    assert 0 <= pace.delay(failures) <= pace.delay(failures + 1) <= 300


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("unix", "unix"),
    ],
)
def test_a_caller_is_known_by_what_they_own(address: str, network: str) -> None:
    assert network_of(address) == network


# --- connections ----------------------------------------------------------------------------------------------------------


def test_places_are_limited_for_each_client_and_in_total() -> None:
    caps = ConnectionCaps(each=2, in_all=3)
    first, second = caps.enter("a"), caps.enter("a")
    assert first and second
    assert caps.enter("a") is None
    assert caps.enter("b") is not None
    assert caps.enter("c") is None
    first.leave()
    first.leave()
    assert caps.held("a") == 1
    with caps.enter("c") as seat:  # type: ignore[union-attr]
        assert seat is not None
        assert len(caps) == 3
    assert len(caps) == 2


@given(st.lists(st.one_of(st.sampled_from("abc"), st.integers(0, 20)), max_size=100))
def test_places_add_up(steps: list[str | int]) -> None:
    caps = ConnectionCaps(each=3, in_all=7)
    seats = []
    left = set()
    for step in steps:
        if isinstance(step, str):
            seat = caps.enter(step)
            if seat is not None:
                seats.append(seat)
        elif step < len(seats):
            seats[step].leave()
            left.add(step)
    assert len(caps) == len(seats) - len(left) <= 7
    assert sum(caps.held(key) for key in "abc") == len(caps)
    assert all(caps.held(key) <= 3 for key in "abc")
    for seat in seats:
        seat.leave()
    assert len(caps) == 0
    assert caps._held == {}
