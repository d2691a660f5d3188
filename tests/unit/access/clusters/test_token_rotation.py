"""How a registration token ages, as a specification."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.access.clusters.clusterregistrationtoken import IssuedToken, TokenLifetime, aged, look_again, terms_of
from remuda.access.clusters.server_settings import ServerFacts

NOW = 1_800_000_000.0
TERMS = TokenLifetime(ttl=3600.0, grace=600.0, rotates=True)
STILL = replace(TERMS, rotates=False)


def after(
    found: IssuedToken, now: float = NOW, terms: TokenLifetime = TERMS, asked: bool = False, spread: float = 0.0
) -> IssuedToken:
    names = itertools.count(1)
    return aged(found, terms, now, asked=asked, fresh=lambda: f"new{next(names)}", spread=lambda most: min(spread, most))


def test_a_first_token_has_no_predecessor() -> None:
    assert after(IssuedToken()) == IssuedToken("new1", expires=NOW + 3600)
    assert after(IssuedToken(), terms=STILL) == IssuedToken("new1")


def test_a_good_token_is_left_alone() -> None:
    found = IssuedToken("t", expires=NOW + 60)
    assert after(found) == found


def test_a_token_whose_time_is_over_is_replaced_and_stays_good_for_a_while() -> None:
    found = after(IssuedToken("t", "before", NOW, NOW + 5))
    assert found == IssuedToken("new1", "t", NOW + 3600, NOW + 600)
    assert after(found, NOW + 599) == found
    assert after(found, NOW + 600) == IssuedToken("new1", expires=NOW + 3600)


def test_a_new_token_can_be_requested_where_tokens_do_not_expire() -> None:
    assert after(IssuedToken("t", expires=NOW + 60), asked=True) == IssuedToken("new1", "t", NOW + 3600, NOW + 600)
    assert after(IssuedToken("t"), terms=STILL, asked=True) == IssuedToken("new1", "t", None, NOW + 600)


def test_tokens_live_up_to_a_tenth_longer_and_never_more_than_a_day() -> None:
    assert after(IssuedToken(), spread=10**9).expires == NOW + 3960
    month = TokenLifetime(43200 * 60.0, 600.0, True)
    assert after(IssuedToken(), terms=month, spread=10**9).expires == NOW + 43200 * 60 + 86400


def test_a_shorter_time_counts_at_once_and_a_longer_one_from_the_next_token() -> None:
    assert after(IssuedToken("t", expires=NOW + 10**6)).expires == NOW + 3600
    assert after(IssuedToken("t", expires=NOW + 60), terms=replace(TERMS, ttl=10**6)).expires == NOW + 60


def test_switching_rotation_off_and_on() -> None:
    off = after(IssuedToken("t", "before", NOW + 60, NOW + 30), terms=STILL)
    assert off == IssuedToken("t", "before", None, NOW + 30)
    assert after(off, NOW + 31, terms=STILL) == IssuedToken("t")
    assert after(IssuedToken("t")).expires == NOW + 3600


def test_grace_without_an_end_has_none() -> None:
    assert after(IssuedToken("t", "before", NOW + 60, None)) == IssuedToken("t", "", NOW + 60, None)


def test_what_was_tampered_with_can_not_be_read_as_good_for_ever() -> None:
    data = {"token": "dA==", "previousToken": "Yg==", "expiresAt": "bmV2ZXI=", "gracePeriodExpiresAt": "!"}
    assert IssuedToken.of(data) == IssuedToken("t", "b")
    assert after(IssuedToken.of(data)) == IssuedToken("t", expires=NOW + 3600)
    assert IssuedToken.of({"token": 5}) == IssuedToken()


def test_it_is_looked_at_again_when_something_is_over() -> None:
    assert look_again(IssuedToken("t", "b", NOW + 60, NOW + 30), NOW) == 30
    assert look_again(IssuedToken("t", expires=NOW - 5), NOW) == 0
    assert look_again(IssuedToken("t"), NOW) is None


@pytest.mark.parametrize(
    ("spec", "ttl", "grace"),
    [
        ({}, 43200, 180),
        ({"ttl": 0, "gracePeriod": 0}, 43200, 180),
        ({"ttl": 60, "gracePeriod": 15}, 60, 15),
        ({"ttl": 1, "gracePeriod": 1}, 30, 10),
        ({"ttl": 60}, 60, 59),
        ({"ttl": "60", "gracePeriod": True}, 43200, 180),
    ],
)
def test_the_terms_are_what_was_asked_for_within_bounds(spec: dict[str, object], ttl: int, grace: int) -> None:
    assert terms_of(spec, ServerFacts()) == TokenLifetime(ttl * 60.0, grace * 60.0, True)


@given(
    st.lists(st.tuples(st.floats(0, 10_000), st.booleans()), max_size=30),
    st.booleans(),
)
def test_whatever_happens_there_is_a_token_and_the_one_before_ends(steps: list[tuple[float, bool]], rotates: bool) -> None:
    terms, now, found, made = replace(TERMS, rotates=rotates), NOW, IssuedToken(), itertools.count()
    for passed, asked in steps:
        now += passed
        before = found
        found = aged(found, terms, now, asked=asked, fresh=lambda: f"t{next(made)}", spread=lambda most: most / 2)
        assert found.token
        assert bool(found.previous) == (found.grace_ends is not None)
        if found.grace_ends is not None:
            assert now < found.grace_ends <= now + terms.grace
        if before.token and found.token != before.token:
            assert found.previous == before.token
        assert (found.expires is not None) == rotates
        assert aged(found, terms, now, asked=False, fresh=lambda: "never", spread=lambda most: 0.0) == found
        assert IssuedToken.of(found.data()) == found
