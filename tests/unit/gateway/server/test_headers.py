"""Headers: nobody says who they are but us, what is of one connection ends there, no cluster speaks to a browser as us."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.gateway.server.headers import (
    HOP_BY_HOP,
    OWN_ANSWER,
    for_cluster,
    framing_problem,
    from_cluster,
    is_known_host,
    says_identity,
    upgrade_of,
)

# --- what a client may not say --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "X-Remote-User",
        "x-remote-group",
        "X-REMOTE-EXTRA-scopes",
        "X-Remote_User",
        "X_Remote_User",
        "Impersonate_User",
        "IMPERSONATE_GROUP",
        "Impersonate-User ",
        " Impersonate-User",
        "X-Forwarded-For",
        "X-Forwarded-Client-Cert",
        "X-Forwarded-Host",
        "Forwarded",
        "X-Real-IP",
        "X-Api-Tunnel-Token",
        "X-API-Tunnel-Params",
        "X-Cattle-Id",
        "X-Auth-Request-User",
        "X-SSL-Client-Cert",
        "X-Original-URL",
        "X-HTTP-Method-Override",
        "X-API-URL-Prefix",
    ],
)
def test_a_forged_identity_does_not_go_on_and_is_told(name: str) -> None:
    found = for_cluster([(name, "system:masters"), ("Accept", "*/*")])
    assert found.headers == [("Accept", "*/*")]
    assert found.impersonation == []
    assert found.forged == [name.lower()]


@pytest.mark.parametrize("name", ["Authorization", "COOKIE", "Proxy-Authorization", "X-API-CSRF", "Host"])
def test_our_own_headers_are_not_passed_on(name: str) -> None:
    found = for_cluster([(name, "secret")])
    assert (found.headers, found.impersonation, found.forged) == ([], [], [])


def test_what_a_caller_wants_to_impersonate_is_handed_over_to_be_authorised() -> None:
    asked = [("Impersonate-User", "jane"), ("impersonate-group", "a"), ("Impersonate-Extra-x%2Fy", "1"), ("Impersonate-Uid", "7")]
    found = for_cluster([*asked, ("Accept", "*/*")])
    assert (found.headers, found.impersonation) == ([("Accept", "*/*")], asked)


def test_connection_does_not_hide_what_is_asked_for() -> None:
    found = for_cluster([("Connection", "Impersonate-User, X-Remote-User"), ("Impersonate-User", "x"), ("X-Remote-User", "y")])
    assert found.impersonation == [("Impersonate-User", "x")]
    assert found.forged == ["x-remote-user"]


@pytest.mark.parametrize("value", ["a\r\nX-Remote-User: root", "a\nb", "a\0b", "a\x7f", "\x1b[2J"])
def test_a_value_with_a_line_of_its_own_does_not_go_on(value: str) -> None:
    found = for_cluster([("Accept", value), ("Impersonate-User", value)])
    assert (found.headers, found.impersonation) == ([], [])
    assert from_cluster([("X-Any", value)]) == from_cluster([])
    assert framing_problem([("Host", "a"), ("X-Any", value)]) != ""


# --- what ends with its connection ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(HOP_BY_HOP))
def test_what_is_of_this_connection_only_ends_here_in_both_directions(name: str) -> None:
    assert for_cluster([(name.title(), "x")]).headers == []
    assert from_cluster([(name.title(), "x")]) == from_cluster([])


def test_what_connection_names_ends_here() -> None:
    listed = [
        ("Connection", "close, X-Internal"),
        ("connection", "x-other"),
        ("X-INTERNAL", "1"),
        ("X-Other", "2"),
        ("X-Kept", "3"),
    ]
    assert for_cluster(listed).headers == [("X-Kept", "3")]
    assert from_cluster(listed)[0] == ("X-Kept", "3")


@pytest.mark.parametrize(
    ("headers", "protocol"),
    [
        ([("Connection", "Upgrade"), ("Upgrade", "websocket")], "websocket"),
        ([("connection", "keep-alive, upgrade"), ("upgrade", "WebSocket")], "websocket"),
        ([("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1")], "SPDY/3.1"),
        ([("Upgrade", "websocket")], ""),
        ([("Connection", "close"), ("Upgrade", "websocket")], ""),
        ([("Connection", "Upgrade")], ""),
        ([("Connection", "Upgrade"), ("Upgrade", "h2c")], ""),
        ([("Connection", "Upgrade"), ("Upgrade", "websocket, h2c")], ""),
        ([("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Upgrade", "h2c")], ""),
    ],
)
def test_only_upgrades_that_we_know_are_passed_on(headers: list[tuple[str, str]], protocol: str) -> None:
    assert upgrade_of(headers) == protocol


# --- what a cluster may not do to a browser -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "Set-Cookie",
        "Clear-Site-Data",
        "Strict-Transport-Security",
        "WWW-Authenticate",
        "Access-Control-Allow-Origin",
        "Access-Control-Allow-Credentials",
        "Service-Worker-Allowed",
        "Refresh",
        "Link",
        "Alt-Svc",
        "Content-Security-Policy-Report-Only",
        "Cross-Origin-Opener-Policy",
    ],
)
def test_a_cluster_can_not_speak_to_a_browser_as_us(name: str) -> None:
    assert from_cluster([(name, "R_SESS=evil")]) == from_cluster([])


def test_every_proxied_answer_is_in_a_sandbox_whatever_the_cluster_says() -> None:
    found = from_cluster(
        [
            ("content-security-policy", "default-src *"),
            ("X-Frame-Options", "ALLOWALL"),
            ("Content-Type", "text/html"),
            ("Warning", '299 - "old"'),
        ]
    )
    assert found[:2] == [("Content-Type", "text/html"), ("Warning", '299 - "old"')]
    policies = [value for name, value in found if name.lower() == "content-security-policy"]
    assert policies == ["sandbox"]
    assert dict(found)["X-Content-Type-Options"] == "nosniff"
    assert [value for name, value in found if name.lower() == "x-frame-options"] == ["DENY"]


def test_our_own_page_can_not_be_framed_and_runs_no_foreign_script() -> None:
    policy = OWN_ANSWER["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe-eval" not in policy


# --- where a request ends -------------------------------------------------------------------------------------------------

HOST = ("Host", "remuda.example")


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [HOST, HOST],
        [HOST, ("host", "other.example")],
        [HOST, ("Content-Length", "5"), ("Transfer-Encoding", "chunked")],
        [HOST, ("Content-Length", "5"), ("content-length", "6")],
        [HOST, ("Content-Length", "5"), ("Content-Length", "5")],
        [HOST, ("Content-Length", "5, 5")],
        [HOST, ("Content-Length", "+5")],
        [HOST, ("Content-Length", "-5")],
        [HOST, ("Content-Length", "0x5")],
        [HOST, ("Content-Length", "5 ")],
        [HOST, ("Content-Length", "٥")],
        [HOST, ("Content-Length", "")],
        [HOST, ("Content-Length", "9" * 30)],
        [HOST, ("Transfer-Encoding", "chunked"), ("Transfer-Encoding", "identity")],
        [HOST, ("Transfer-Encoding", "gzip, chunked")],
        [HOST, ("Transfer-Encoding", "xchunked")],
        [HOST, ("Transfer-Encoding", "\x0bchunked")],
        [HOST, ("Transfer_Encoding", "chunked")],
        [HOST, ("Content_Length", "5")],
        [HOST, ("Transfer-Encoding ", "chunked")],
        [HOST, ("X y", "z")],
        [HOST, ("", "z")],
    ],
)
def test_a_request_whose_end_or_host_is_uncertain_is_refused(headers: list[tuple[str, str]]) -> None:
    assert framing_problem(headers) != ""


@pytest.mark.parametrize(
    "headers", [[HOST], [HOST, ("Content-Length", "0")], [HOST, ("transfer-encoding", "Chunked")], [HOST, ("X_under", "fine")]]
)
def test_an_ordinary_request_is_fine(headers: list[tuple[str, str]]) -> None:
    assert framing_problem(headers) == ""


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("remuda.example", True),
        ("REMUDA.example:8443", True),
        ("[2001:db8::1]:8443", True),
        ("[2001:db8::1]", True),
        ("fixed.example:444", True),
        ("fixed.example:445", False),
        ("evil.example", False),
        ("remuda.example.evil.example", False),
        ("remuda.example@evil.example", False),
        ("evil.example:8443", False),
        ("", False),
        (":8443", False),
    ],
)
def test_only_our_own_names_are_ours(host: str, known: bool) -> None:
    assert is_known_host(host, ["remuda.example", "2001:db8::1", "fixed.example:444"]) is known


# --- laws -----------------------------------------------------------------------------------------------------------------

_NAMES = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["Impersonate-User", "impersonate_user", "X-Remote-User", "Connection", "Authorization", "Accept", "Cookie"]),
)
_LISTS = st.lists(
    st.tuples(_NAMES, st.one_of(st.text(max_size=12), st.sampled_from(["close", "Authorization", "Accept"]))), max_size=8
)


@given(_LISTS)
def test_forwarded_headers_have_no_identity_and_no_line_ends(headers: list[tuple[str, str]]) -> None:
    found = for_cluster(headers)
    for name, value in found.headers:
        assert not says_identity(name)
        assert name.lower() not in HOP_BY_HOP
        assert not set(name + value) & set("\r\n\0")
    assert all(name.lower().startswith("impersonate-") for name, _ in found.impersonation)
    # Cleaning twice is cleaning once.
    assert for_cluster(found.headers).headers == found.headers


@given(_LISTS)
def test_every_answer_that_goes_back_has_one_policy(headers: list[tuple[str, str]]) -> None:
    names = [name.lower() for name, _ in from_cluster(headers)]
    assert names.count("content-security-policy") == 1
    assert "set-cookie" not in names
