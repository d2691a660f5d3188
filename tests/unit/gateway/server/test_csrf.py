"""Cookies: another site's page gets nothing done in a session's name, our own does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.gateway.server.credentials import Presented, presented
from remuda.gateway.server.csrf import (
    added_by_browser_problem,
    cookie_counts,
    csrf_cookie,
    ended_cookies,
    is_issued,
    issue,
    origin_of,
    origin_problem,
    problem,
    session_cookie,
)
from remuda.gateway.server.path_validation import judge
from remuda.kube.clock import Entropy

OURS = ["https://remuda.example:8443", "https://remuda.example"]
SESSION = Presented("token-abcde", "s" * 54, from_cookie=True)
OTHER = Presented("token-other", "o" * 54, from_cookie=True)
TOKEN = issue(SESSION, Entropy())
ORIGIN = ("Origin", "https://remuda.example:8443")


def with_token(token: str = TOKEN, cookie: str | None = None) -> list[tuple[str, str]]:
    return [("X-API-CSRF", token), ("Cookie", f"a=b; CSRF={token if cookie is None else cookie}")]


# --- another site ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        [("Origin", "https://evil.example")],
        [("Origin", "null")],
        [("Origin", "")],
        [("Origin", "http://remuda.example")],
        [("Origin", "https://remuda.example:9999")],
        [("Origin", "https://remuda.example.evil.example")],
        [("Origin", "https://evil.example/https://remuda.example")],
        [("Origin", "https://remuda.example@evil.example")],
        [("Origin", "https://user@remuda.example")],
        [("Origin", "https://remuda.example/path")],
        [("Origin", "https://sub.remuda.example")],
        [("Origin", "file://")],
        [("Origin", "https://[::1")],
        [("Origin", "https://remuda.example:99999")],
        [ORIGIN, ("origin", "https://evil.example")],
        [ORIGIN, ("Sec-Fetch-Site", "cross-site")],
        [ORIGIN, ("Sec-Fetch-Site", "same-site")],
        [("Sec-Fetch-Site", "cross-site")],
        [("Referer", "https://evil.example/remuda.example")],
        [("Referer", "nonsense")],
        [("Referer", "")],
    ],
)
def test_a_page_of_another_origin_changes_nothing_even_with_the_token(headers: list[tuple[str, str]]) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE", "post", "ANYTHING"):
        assert problem(method, [*headers, *with_token()], SESSION, OURS) != ""
    assert problem("GET", headers, SESSION, OURS, upgrade=True) != ""
    assert problem("POST", headers, None, OURS) != "", "nor does it log anybody in"


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("X-API-CSRF", TOKEN)],
        [("Cookie", f"CSRF={TOKEN}")],
        with_token(cookie="other"),
        with_token(""),
        with_token("x"),
        with_token("0" * 96),
        with_token(TOKEN[:-1]),
        with_token(TOKEN + "0"),
        with_token(TOKEN.upper()),
        # A neighbouring host can plant a cookie, also one of a session of its own.
        with_token(issue(OTHER, Entropy())),
        [*with_token(), ("x-api-csrf", "second")],
        [("X-API-CSRF", "é" * 96), ("Cookie", "CSRF=x")],
    ],
)
def test_without_the_token_of_this_session_nothing_is_changed_even_from_our_origin(headers: list[tuple[str, str]]) -> None:
    assert problem("POST", [ORIGIN, *headers], SESSION, OURS) != ""


def test_a_websocket_must_say_where_it_comes_from() -> None:
    assert problem("GET", with_token(), SESSION, OURS, upgrade=True) != ""
    assert problem("GET", [ORIGIN], SESSION, OURS, upgrade=True) == ""


def test_no_origin_is_ours_when_we_do_not_know_our_own() -> None:
    assert origin_problem([ORIGIN], []) != ""
    assert origin_problem([("Origin", "")], [""]) != ""
    assert origin_problem([("Referer", "x")], ["", "nonsense"]) != ""


def test_a_browser_that_remembers_basic_is_asked_for_its_origin() -> None:
    basic = presented([("Authorization", "Basic dG9rZW4tYTpzZWNyZXQ=")], cookie=True)
    assert basic is not None
    assert problem("POST", [("Origin", "https://evil.example")], basic, OURS) != ""
    assert problem("GET", [("Origin", "https://evil.example")], basic, OURS, upgrade=True) != ""
    assert problem("POST", [], basic, OURS) == ""
    assert problem("GET", [], basic, OURS, upgrade=True) == ""


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        ("/dashboard/", True),
        ("/v1/clusters", True),
        ("/v3/settings", True),
        ("/v3-public/localProviders/local?action=login", True),
        ("/v1-public/login", True),
        ("/v1-rke2-release/releases", True),
        ("/v1-remuda/waits", True),
        ("/", False),
        ("/api/v1/secrets", False),
        ("/apis/management.cattle.io/v3/users", False),
        ("/k8s/clusters/local/v1/secrets", True),
        ("/k8s/clusters/local/api/v1/secrets", False),
        ("/k8s/clusters/local/v1x", False),
        ("/k8s/clusters/local", False),
        ("/k8s/clusters/c-1/v1/secrets", False),
        ("/k8s/proxy/local/v1/secrets", False),
        ("/k8s/clusters/c-1/api/v1/namespaces/x/services/y/proxy/evil.html", False),
        ("/k8s/v1", False),
        ("/v1-remuda/plan", True),
        ("/v1-remudax", False),
        ("/v2/", False),
        ("/v1x", False),
        ("/V1/clusters", False),
        ("/dashboard.evil", False),
    ],
)
def test_a_cookie_counts_only_where_our_page_needs_it(path: str, counts: bool) -> None:
    assert cookie_counts(judge(path)) is counts


# --- our own page ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        [ORIGIN],
        [("Origin", "https://REMUDA.example:8443")],
        [("Origin", "https://remuda.example:443")],
        [ORIGIN, ("Sec-Fetch-Site", "same-origin")],
        [("Referer", "https://remuda.example:8443/dashboard/x?y")],
        # Not a browser: a program that was given the cookie.
        [],
    ],
)
def test_our_own_page_may_change_what_its_user_may(headers: list[tuple[str, str]]) -> None:
    assert problem("POST", [*headers, *with_token()], SESSION, OURS) == ""


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_reading_needs_no_token(method: str) -> None:
    assert problem(method, [("Origin", "https://evil.example")], SESSION, OURS) == ""


def test_a_bearer_needs_nothing_of_this() -> None:
    bearer = Presented("token-abcde", "s" * 54)
    assert problem("POST", [("Origin", "https://evil.example")], bearer, OURS) == ""
    assert problem("GET", [("Origin", "https://evil.example")], bearer, OURS, upgrade=True) == ""


def test_a_login_without_a_browser_is_fine() -> None:
    assert problem("POST", [], None, OURS) == ""
    assert problem("POST", [ORIGIN], None, OURS) == ""


def test_cookies_are_set_for_tls_and_this_site_only_and_the_sessions_not_for_scripts() -> None:
    session, token = session_cookie(SESSION, 60), csrf_cookie(TOKEN, 60)
    for cookie in (session, token, *ended_cookies()):
        assert {"Secure", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
        assert "Domain" not in cookie
    assert "HttpOnly" in session
    assert "HttpOnly" not in token
    assert all("Max-Age=0" in cookie for cookie in ended_cookies())
    assert presented([("Cookie", session.partition(";")[0])], cookie=True) == SESSION


# --- laws -----------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32), st.text())
def test_a_token_is_good_for_its_session_and_no_other_and_shows_nothing_of_it(seed: int, text: str) -> None:
    token = issue(SESSION, Entropy(seed))
    assert is_issued(SESSION, token)
    assert not is_issued(OTHER, token)
    assert SESSION.secret not in token
    assert not is_issued(SESSION, text)


@given(st.text())
def test_an_origin_is_its_own_origin(text: str) -> None:
    origin = origin_of(text)
    assert not origin or origin_of(origin) == origin


@pytest.mark.parametrize("shown", [[], [("Authorization", "Basic dG9rZW4tYTpi")]])
@pytest.mark.parametrize("site", ["cross-site", "same-site", "Cross-Site"])
def test_a_foreign_page_does_nothing_with_what_its_browser_adds(shown: list[tuple[str, str]], site: str) -> None:
    told = [*shown, ("Sec-Fetch-Site", site)]
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert added_by_browser_problem(method, told)
        assert not added_by_browser_problem(method, [("authorization", "bearer token-a:b"), *told[-1:]])
        # A page that `kubectl proxy` shows, and whatever is no page.
        assert not added_by_browser_problem(
            method, [*shown, ("Sec-Fetch-Site", "same-origin"), ("Origin", "http://localhost:8001")]
        )
        assert not added_by_browser_problem(method, shown)
    assert not added_by_browser_problem("GET", told)
    assert added_by_browser_problem("GET", told, upgrade=True)
