"""Tokens: who is let in, who is not, and what nobody gets to see."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.access.users.token_hashes import hashed_secret, same_secret
from remuda.access.users.tokens import (
    HASHED_ANNOTATION,
    TokenSpec,
    ends_at,
    is_expired,
    last_use,
    make_token,
    owns,
    refusal,
)
from remuda.gateway.auth.tokens import token_resource
from remuda.gateway.server.credentials import BadCredential, Presented, cookie_values, parse_token, presented
from remuda.kube.clock import Entropy, parse_rfc3339, rfc3339

NOW = 1_800_000_000.0
HOUR = 3600.0


def made(**wish: Any) -> tuple[dict[str, Any], Presented]:
    """A token as the API server keeps it, and what its owner has."""
    new = make_token(TokenSpec(**{"user": "u-abcde", "ttl": HOUR, **wish}), NOW, Entropy())
    manifest = new.manifest
    return {**manifest, "metadata": {**manifest["metadata"], "creationTimestamp": rfc3339(NOW)}}, new.presented


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


# --- tokens that do not let in --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "at", "why"),
    [
        ({"enabled": False}, NOW, "the token is disabled"),
        ({"userId": ""}, NOW, "the token has no user"),
        ({"userId": None}, NOW, "the token has no user"),
        ({}, NOW + HOUR, "the token is expired"),
        ({"expired": True}, NOW, "the token is expired"),
        # A longer life can't be had by changing one of the two fields.
        ({"ttl": 0}, NOW + HOUR, "the token is expired"),
        ({"expiresAt": ""}, NOW + HOUR, "the token is expired"),
        ({"expiresAt": "2999-01-01T00:00:00Z"}, NOW + HOUR, "the token is expired"),
        ({"ttl": 10**15}, NOW + HOUR, "the token is expired"),
        # What can't be read counts against the token.
        ({"ttl": -1}, NOW, "the token is expired"),
        ({"ttl": "3600000"}, NOW, "the token is expired"),
        ({"ttl": True}, NOW, "the token is expired"),
        ({"ttl": float("nan")}, NOW, "the token is expired"),
        ({"ttl": float("inf")}, NOW, "the token is expired"),
        ({"expiresAt": "tomorrow"}, NOW, "the token is expired"),
        ({"expiresAt": "2999-01-01T00:00:00"}, NOW, "the token is expired"),
        ({"clusterName": "c-other"}, NOW, "the token is valid for another cluster only"),
        ({"token": ""}, NOW, "the secret is wrong"),
        ({"token": None}, NOW, "the secret is wrong"),
        ({"token": "$3:1:AAAA:"}, NOW, "the secret is wrong"),
        ({"metadata": None}, NOW, "the secret is wrong"),
        ({}, NOW, ""),
    ],
)
def test_a_token_is_refused_for_a_reason(change: dict[str, Any], at: float, why: str) -> None:
    token, shows = made()
    assert refusal({**token, **change}, shows, at, cluster="c-mine") == why


def test_a_token_without_a_time_of_making_can_not_have_a_time_to_live() -> None:
    token, shows = made()
    assert refusal({**token, "metadata": {**token["metadata"], "creationTimestamp": None}}, shows, NOW) == "the token is expired"


def test_a_token_being_deleted_is_refused() -> None:
    token, shows = made()
    token["metadata"]["deletionTimestamp"] = rfc3339(NOW)
    assert refusal(token, shows, NOW) == "the token is being deleted"


def test_a_token_of_one_cluster_is_good_at_that_cluster_only() -> None:
    token, shows = made(cluster="c-one")
    assert refusal(token, shows, NOW, cluster="c-one") == ""
    assert refusal(token, shows, NOW, cluster="c-two") != ""
    assert refusal(token, shows, NOW) != ""


def test_another_tokens_secret_or_name_does_not_open_this_one() -> None:
    one, shows_one = made()
    _, shows_two = made()
    assert refusal(one, shows_one, NOW) == ""
    assert refusal(one, shows_two, NOW) == "the secret is wrong"
    assert refusal(one, Presented(shows_two.name, shows_one.secret), NOW) == "the secret is wrong"


def test_what_is_stored_is_not_what_has_to_be_shown() -> None:
    token, shows = made()
    stolen = Presented(shows.name, token["token"])
    assert not owns(token, stolen)
    # Neither if the mark that it is a hash gets lost.
    unmarked = {**token, "metadata": {**token["metadata"], "annotations": {}}}
    assert not owns(unmarked, stolen)
    assert not owns(unmarked, shows)


def test_a_session_ends_when_it_is_idle_and_a_derived_token_does_not() -> None:
    session, shows = made(derived=False, ttl=10 * HOUR)
    assert refusal(session, shows, NOW + HOUR, idle=2 * HOUR) == ""
    assert refusal(session, shows, NOW + 3 * HOUR, idle=2 * HOUR) == "the session was idle for too long"
    used = {**session, "lastUsedAt": rfc3339(NOW + 2 * HOUR)}
    assert refusal(used, shows, NOW + 3 * HOUR, idle=2 * HOUR) == ""
    assert refusal({**session, "activityLastSeenAt": "x"}, shows, NOW, idle=HOUR) == "the session was idle for too long"
    derived, shows = made(ttl=10 * HOUR)
    assert refusal(derived, shows, NOW + 9 * HOUR, idle=HOUR) == ""


# --- secrets at rest ------------------------------------------------------------------------------------------------------

SECRET = "b" * 54


def old_hash(version: int) -> str:
    """As Rancher's older versions wrote it, made with nothing of ours."""
    salt = b"saltsalt"
    raw = lambda data: base64.b64encode(data).decode().rstrip("=")  # noqa: E731
    if version == 1:
        key = hashlib.scrypt(SECRET.encode(), salt=salt, n=1 << 10, r=8, p=1, dklen=64, maxmem=1 << 26)
        return f"$1:{salt.hex()}:10:8:1:{raw(key)}"
    if version == 2:
        return f"$2:{raw(salt)}:{raw(hashlib.sha256(salt + SECRET.encode()).digest())}"
    return f"$3:1:{raw(salt)}:{raw(hashlib.sha3_512(salt + SECRET.encode()).digest())}"


def short_hash(length: int) -> str:
    key = hashlib.scrypt(SECRET.encode(), salt=b"salt", n=1 << 10, r=8, p=1, dklen=length, maxmem=1 << 26)
    return f"$1:{b'salt'.hex()}:10:8:1:{base64.b64encode(key).decode().rstrip('=')}"


@pytest.mark.parametrize("version", [1, 2, 3])
def test_all_of_ranchers_hashes_are_read_and_only_the_newest_stays(version: int) -> None:
    stored = old_hash(version)
    assert same_secret(stored, True, SECRET)
    assert not same_secret(stored, True, SECRET + "b")
    assert not same_secret(stored, True, "")


@pytest.mark.parametrize(
    "stored",
    [
        "",
        "$",
        "$3:1::",
        "$3:2:AAAA:" + "A" * 86,
        "$2::",
        "$2:AAAA:AA",
        "$4:1:AAAA:" + "A" * 86,
        "$3:1:AAAA:" + "A" * 86 + "==",
        "$3:1:ÄÄÄÄ:" + "A" * 86,
        # Parts of the right hash, of which other secrets have the same; and numbers that take all memory.
        short_hash(1),
        short_hash(16),
        old_hash(2)[:-4],
        old_hash(3)[:-4],
        "$1:00:60:8:1:" + "A" * 86,
        "$1:00:10:99999999:1:" + "A" * 86,
        "$1:00:10:8:-1:" + "A" * 86,
        "$1:zz:10:8:1:" + "A" * 86,
        old_hash(3)[1:],
        old_hash(3) + ":",
    ],
)
def test_a_hash_that_can_not_be_read_is_refused(stored: str) -> None:
    assert not same_secret(stored, True, SECRET)
    assert not same_secret(stored, True, "\ud800")


@given(st.text(min_size=1), st.text(min_size=1))
def test_a_hash_is_of_one_secret(one: str, other: str) -> None:
    try:
        stored = hashed_secret(one, Entropy())
    except UnicodeEncodeError:
        return
    assert same_secret(stored, True, one)
    assert same_secret(stored, True, other) is (one == other)


def test_a_plain_secret_of_old_still_opens() -> None:
    token = {"metadata": {"name": "token-abcde"}, "token": SECRET}
    assert owns(token, Presented("token-abcde", SECRET))
    assert not owns(
        {**token, "metadata": {"name": "token-abcde", "annotations": {HASHED_ANNOTATION: "true"}}}, Presented("x", SECRET)
    )


# --- what a request shows -------------------------------------------------------------------------------------------------

GOOD = f"token-abcde:{SECRET}"


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ([("Authorization", f"Bearer {GOOD}"), ("authorization", "Bearer token-other:x")], "more than one Authorization"),
        ([("Authorization", f"Bearer {GOOD}"), ("AUTHORIZATION", f"Bearer {GOOD}")], "more than one Authorization"),
        ([("Authorization", "Bearer " + "x" * 5000)], "too long"),
        ([("Authorization", "Basic !!!")], "can't be decoded"),
        ([("Authorization", "Basic " + base64.b64encode(b"\xff\xfe:x").decode())], "can't be decoded"),
        ([("Authorization", basic("token-abcde"))], "no token"),
        ([("Cookie", f"R_SESS={GOOD}; R_SESS=token-other:x")], "several R_SESS cookies"),
        ([("Cookie", f"R_SESS={GOOD}"), ("Cookie", "R_SESS=token-other:x")], "several R_SESS cookies"),
    ],
)
def test_what_is_ambiguous_or_broken_is_refused_without_repeating_it(headers: list[tuple[str, str]], why: str) -> None:
    with pytest.raises(BadCredential, match=why) as caught:
        presented(headers, cookie=True)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer :",
        f"Bearer :{SECRET}",
        "Bearer token-abcde:",
        # Others' credentials: of a service account, of a cluster agent, of a registration.
        "Bearer eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln",
        f"Bearer stv-cluster-{SECRET}",
        f"Bearer {SECRET}",
        f"Bearer ext/token-abcde:{SECRET}",
        f"Bearer ../token-abcde:{SECRET}",
        f"Bearer TOKEN-abcde:{SECRET}",
        f"Bearer token-abcde:{SECRET} extra",
        f"Bearer token-abcde:{SECRET}\n",
        f"Bearer token-äbcde:{SECRET}",
        f"Negotiate {GOOD}",
        GOOD,
    ],
)
def test_what_is_no_token_of_ours_is_left_to_others(value: str) -> None:
    assert presented([("Authorization", value)], cookie=True) is None


@pytest.mark.parametrize(
    "value", [f"Bearer {GOOD}", f"bearer {GOOD}", f"  BEARER   {GOOD} ", basic(GOOD), "bAsIc" + basic(GOOD)[5:]]
)
def test_a_token_is_found_in_authorization(value: str) -> None:
    assert presented([("aUTHORIZATION", value)], cookie=False) == Presented("token-abcde", SECRET)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (f"R_SESS={GOOD}", True),
        (f"a=b; R_SESS={GOOD}; CSRF=x", True),
        (f"R_SESS={GOOD}; R_SESS={GOOD}", True),
        (f"r_sess={GOOD}", False),
        (f"XR_SESS={GOOD}", False),
        (f'R_SESS="{GOOD}"', False),
        (f"R_SESS={GOOD},R_SESS=x", True),
        ("R_SESS=", False),
        ("R_SESS", False),
        ("", False),
    ],
)
def test_a_token_is_found_in_the_cookie_where_that_counts(line: str, found: bool) -> None:
    session = presented([("Cookie", line)], cookie=True)
    assert (session is not None and session.from_cookie) is (found and "," not in line)
    assert presented([("Cookie", line)], cookie=False) is None


def test_authorization_comes_before_the_cookie_even_when_it_is_not_ours() -> None:
    cookie = ("Cookie", f"R_SESS={GOOD}")
    assert presented([cookie, ("Authorization", "Bearer token-other:x")], cookie=True) == Presented("token-other", "x")
    assert presented([cookie, ("Authorization", "Bearer eyJ.eyJ.sig")], cookie=True) is None


@given(st.lists(st.tuples(st.sampled_from(["Authorization", "Cookie", "X"]), st.text())))
def test_no_header_whatsoever_breaks_the_reader(headers: list[tuple[str, str]]) -> None:
    try:
        found = presented(headers, cookie=True)
    except BadCredential:
        return
    assert found is None or parse_token(found.text) == Presented(found.name, found.secret)


@given(st.text(), st.text())
def test_cookies_are_read_without_breaking(line: str, name: str) -> None:
    assert all(";" not in value for value in cookie_values([line], name))


# --- making and ageing ----------------------------------------------------------------------------------------------------


def test_a_new_token_has_its_owner_its_end_and_no_secret_in_sight() -> None:
    new = make_token(TokenSpec("u-abcde", HOUR, kind="kubeconfig", description="laptop", labels={"a": "b"}), NOW, Entropy())
    token, secret = new.manifest, new.presented.secret
    assert len(secret) == 54
    assert new.presented.text == f"{token['metadata']['name']}:{secret}"
    assert token["metadata"]["name"].startswith("token-")
    assert token["metadata"]["labels"] == {
        "a": "b",
        "authn.management.cattle.io/token-userId": "u-abcde",
        "authn.management.cattle.io/kind": "kubeconfig",
    }
    assert (token["ttl"], token["expiresAt"], token["isDerived"], token["description"]) == (
        3_600_000,
        rfc3339(NOW + HOUR),
        True,
        "laptop",
    )
    everything = f"{new!r} {new} {new.presented!r} {json.dumps(token)} {[new]}"
    assert secret not in everything


def test_labels_can_not_give_a_token_to_another_user() -> None:
    token, _ = made(labels={"authn.management.cattle.io/token-userId": "u-admin"})
    assert token["metadata"]["labels"]["authn.management.cattle.io/token-userId"] == "u-abcde"


@pytest.mark.parametrize("ttl", [-1, float("nan"), float("inf"), 1e30])
def test_a_time_to_live_that_is_none_is_refused(ttl: float) -> None:
    with pytest.raises(ValueError, match="time to live"):
        make_token(TokenSpec("u-abcde", ttl), NOW, Entropy())


def test_a_token_without_an_end_never_ends() -> None:
    token, shows = made(ttl=0)
    assert ends_at(token) is None
    assert refusal(token, shows, NOW + 1e10) == ""


@given(st.floats(0.001, 10**8), st.floats(0, 10**9))
def test_a_token_lives_as_long_as_was_said_and_no_longer(ttl: float, later: float) -> None:
    token, _ = made(ttl=ttl)
    if later >= ttl + 1:
        assert is_expired(token, NOW + later)
    if later < ttl - 1:
        assert not is_expired(token, NOW + later)


@given(st.floats(0, 10**6), st.floats(0, 10**6))
def test_the_last_use_goes_forward_by_the_minute_and_is_never_ahead(first: float, second: float) -> None:
    token: dict[str, Any] = {}
    token["lastUsedAt"] = last_use(token, NOW + first)
    seen = parse_rfc3339(token["lastUsedAt"])
    assert NOW + first - 60 < seen <= NOW + first
    again = last_use(token, NOW + second)
    if again is None:
        assert second < first + 60
    else:
        assert parse_rfc3339(again) >= seen + 60


def test_a_token_is_shown_without_its_hash() -> None:
    token, _ = made()
    seen = token_resource(token, "https://here", NOW + HOUR, current=token["metadata"]["name"])
    assert "token" not in seen
    assert token["token"] not in json.dumps(seen)
    assert (seen["expired"], seen["current"]) == (True, True)
