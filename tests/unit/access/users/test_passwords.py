"""Passwords: what is refused, what is kept, what is found right."""

from __future__ import annotations

import asyncio
import hashlib
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.access.users import passwords
from remuda.access.users.passwords import (
    LONGEST_BYTES,
    Busy,
    Hashing,
    PasswordCheck,
    PasswordError,
    ScryptCost,
    bootstrap_password,
    check_new,
    hashed,
    verify,
    verify_nobody,
)
from remuda.kube.clock import Entropy

CHEAP = ScryptCost(4, 1, 1)
RIGHT = "correct horse battery"


# --- the attacker's side --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stored",
    [
        "",
        RIGHT,
        "$scrypt$",
        "$scrypt$ln=4,r=1,p=1$$",
        # Numbers that would take gigabytes, hours, or nothing at all.
        "$scrypt$ln=40,r=8,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "$scrypt$ln=18,r=99,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "$scrypt$ln=4,r=1,p=99$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "$scrypt$ln=0,r=1,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "$scrypt$ln=4,r=0,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        # A hash of so few bytes that somebody would find it by trying.
        "$scrypt$ln=4,r=1,p=1$AAAAAAAAAAAAAAAAAAAAAA$AA",
        "$scrypt$ln=4,r=1,p=1$AAAAAAAAAAAAAAAAAAAAAA$" + "A" * 25,
        "$scrypt$ln=٤,r=1,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "$2a$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy",
    ],
)
def test_a_forged_or_broken_hash_is_never_right_and_costs_no_more_than_an_ordinary_one(
    stored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = spied(monkeypatch)
    assert verify(RIGHT, stored, CHEAP) == PasswordCheck(False)
    assert verify("", stored, CHEAP) == PasswordCheck(False)
    assert costs == [CHEAP, CHEAP]


def spied(monkeypatch: pytest.MonkeyPatch) -> list[ScryptCost]:
    costs: list[ScryptCost] = []
    stretched = passwords._stretched

    def spy(data: bytes, salt: bytes, cost: ScryptCost, length: int) -> bytes:
        costs.append(cost)
        return stretched(data, salt, cost, length)

    monkeypatch.setattr(passwords, "_stretched", spy)
    return costs


@pytest.mark.parametrize("password", ["", "a\0b", "x" * (LONGEST_BYTES + 1), "é" * LONGEST_BYTES, "\ud800", "y" * 1_000_000])
def test_what_can_not_be_a_password_is_wrong_and_takes_as_long(password: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = hashed(RIGHT, Entropy(), CHEAP)
    costs = spied(monkeypatch)
    assert verify(password, stored, CHEAP) == PasswordCheck(False)
    assert costs == [CHEAP]


def test_an_unknown_user_takes_as_long_as_a_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = spied(monkeypatch)
    assert verify_nobody("\ud800" * 5000, CHEAP) == PasswordCheck(False)
    assert costs == [CHEAP]


def test_what_follows_a_nul_is_not_dropped() -> None:
    with pytest.raises(PasswordError, match="NUL"):
        hashed(f"{RIGHT}\0{RIGHT}", Entropy(), CHEAP)


@pytest.mark.parametrize(
    ("password", "user", "why"),
    [
        ("short", "", "at least 12"),
        ("", "", "empty"),
        ("\0" * 20, "", "NUL"),
        ("x" * 2000, "", "at most 1024 bytes"),
        ("\ud800" * 20, "", "UTF-8"),
        ("aaaaaaaaaaaaaaaa", "", "same few"),
        ("ababababababababab", "", "same few"),
        ("Administrator", "administrator", "user's name"),
    ],
)
def test_a_new_password_that_is_refused_is_not_repeated(password: str, user: str, why: str) -> None:
    with pytest.raises(PasswordError, match=why) as caught:
        check_new(password, user)
    assert not password or password not in str(caught.value)


# --- what is kept ---------------------------------------------------------------------------------------------------------


@given(st.text(min_size=1, max_size=40).filter(lambda text: "\0" not in text), st.text(max_size=40))
@settings(max_examples=60)
def test_only_the_password_itself_is_right(password: str, other: str) -> None:
    try:
        stored = hashed(password, Entropy(), CHEAP)
    except PasswordError:
        return
    assert verify(password, stored, CHEAP) == PasswordCheck(True)
    assert verify(password + "x", stored, CHEAP).right is False
    if other and passwords.unicodedata.normalize("NFC", other) != passwords.unicodedata.normalize("NFC", password):
        assert verify(other, stored, CHEAP).right is False


def test_the_same_sign_from_another_keyboard_is_the_same() -> None:
    assert verify("cafe\u0301 au lait!", hashed("caf\u00e9 au lait!", Entropy(), CHEAP), CHEAP).right


def test_no_two_hashes_are_alike_and_none_shows_the_password() -> None:
    one, two = (hashed(RIGHT, Entropy(), CHEAP) for _ in range(2))
    assert one != two
    assert RIGHT not in one


def test_a_hash_is_scrypt_as_others_know_it() -> None:
    stored = hashed("password", Entropy(seed=1), CHEAP)
    _, name, numbers, salt, value = stored.split("$")
    assert (name, numbers) == ("scrypt", "ln=4,r=1,p=1")
    raw = hashlib.scrypt(b"password", salt=passwords._bytes(salt), n=16, r=1, p=1, dklen=32)
    assert passwords._bytes(value) == raw


@pytest.mark.parametrize(
    ("used", "wanted", "rehash"),
    [
        (ScryptCost(4, 1, 1), ScryptCost(4, 1, 1), False),
        (ScryptCost(4, 1, 1), ScryptCost(5, 1, 1), True),
        (ScryptCost(4, 1, 1), ScryptCost(4, 2, 1), True),
        (ScryptCost(4, 1, 1), ScryptCost(4, 1, 2), True),
        (ScryptCost(6, 1, 1), ScryptCost(5, 1, 1), False),
        (ScryptCost(5, 1, 1), ScryptCost(4, 1, 2), False),
        # More work in all does not make up for less memory.
        (ScryptCost(4, 1, 8), ScryptCost(5, 1, 1), True),
    ],
)
def test_a_hash_weaker_than_what_we_write_today_is_to_be_written_anew(used: ScryptCost, wanted: ScryptCost, rehash: bool) -> None:
    assert verify(RIGHT, hashed(RIGHT, Entropy(), used), wanted) == PasswordCheck(True, rehash)


def test_a_wrong_password_never_asks_for_a_new_hash() -> None:
    assert verify("wrong", hashed(RIGHT, Entropy(), CHEAP), ScryptCost(5, 1, 1)) == PasswordCheck(False, False)


# --- the first password ---------------------------------------------------------------------------------------------------


def test_the_first_password_is_random_and_does_not_show_in_a_repr() -> None:
    one, two = (bootstrap_password(Entropy(), {}) for _ in range(2))
    assert one.password != two.password
    assert not one.given
    check_new(one.password, "admin")
    assert one.password not in f"{one!r} {one}"


@pytest.mark.parametrize(
    ("environment", "password"),
    [
        ({"REMUDA_BOOTSTRAP_PASSWORD": "ours", "CATTLE_BOOTSTRAP_PASSWORD": "theirs"}, "ours"),
        ({"REMUDA_BOOTSTRAP_PASSWORD": "", "CATTLE_BOOTSTRAP_PASSWORD": "theirs"}, "theirs"),
    ],
)
def test_the_first_password_may_be_given(environment: dict[str, str], password: str) -> None:
    assert bootstrap_password(Entropy(), environment) == (password, True)


def test_a_given_first_password_must_be_one() -> None:
    with pytest.raises(PasswordError):
        bootstrap_password(Entropy(), {"REMUDA_BOOTSTRAP_PASSWORD": "a\0b"})


# --- in threads -----------------------------------------------------------------------------------------------------------


async def test_a_flood_of_logins_is_done_a_few_at_a_time_and_the_rest_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    held, going, most, lock = threading.Event(), 0, 0, threading.Lock()

    def slow(password: str, cost: ScryptCost) -> PasswordCheck:
        nonlocal going, most
        with lock:
            going += 1
            most = max(most, going)
        held.wait(60)
        with lock:
            going -= 1
        return PasswordCheck(False)

    monkeypatch.setattr(passwords, "verify_nobody", slow)
    hashing = Hashing(Entropy(), CHEAP, at_once=2, waiting=3)
    tasks = [asyncio.create_task(hashing.verify("x", None)) for _ in range(20)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    held.set()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(isinstance(one, Busy) for one in done) == 15
    assert most <= 2
    # Afterwards there is room again.
    assert await hashing.verify("x", None) == PasswordCheck(False)


async def test_who_hangs_up_makes_no_room_while_their_comparison_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    held = threading.Event()
    monkeypatch.setattr(passwords, "verify_nobody", lambda password, cost: held.wait(60) and PasswordCheck(False))
    hashing = Hashing(Entropy(), CHEAP, at_once=1, waiting=1)
    first, second = (asyncio.create_task(hashing.verify("x", None)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    with pytest.raises(Busy):
        await hashing.hashed(RIGHT)
    # One that only waited in line does make room.
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    third = asyncio.create_task(hashing.hashed(RIGHT))
    await asyncio.sleep(0)
    assert not third.done()
    held.set()
    assert await hashing.verify(RIGHT, await third) == PasswordCheck(True)


async def test_a_password_that_can_not_be_one_is_told_from_the_thread() -> None:
    with pytest.raises(PasswordError):
        await Hashing(Entropy(), CHEAP).hashed("a\0b")
