"""Logging in and out, and what those get who try to do it as somebody else."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from remuda.access.settings.settings import Settings
from remuda.access.users.passwords import NAMESPACE, SECRETS, PasswordSecrets, ScryptCost, hashed
from remuda.api.management_cattle_io import TOKENS, USERS
from remuda.gateway.auth.tokens import derived_seconds, session_seconds
from remuda.kube.clock import parse_rfc3339, rfc3339

from .logged_in_users import LOGIN, PASSWORD, house

Obj = dict[str, Any]
HOUR = 3600.0


# --- who gets in ------------------------------------------------------------------------------------------------------------


async def test_a_login_tells_a_token_as_ranchers_does() -> None:
    async with house() as here:
        await here.user("u-abcde", "jo")
        answer = await here.login("jo", description="my laptop")
        assert answer.status == 201
        told = answer.body
        assert (told["type"], told["baseType"], told["userId"]) == ("token", "token", "u-abcde")
        assert re.fullmatch(r"token-[a-z0-9]{5}:[a-z0-9]{54}", told["token"])
        assert told["id"] == told["name"] == told["token"].partition(":")[0]
        assert (told["isDerived"], told["description"], told["ttl"]) == (False, "my laptop", 16 * 3600 * 1000)
        assert told["userPrincipal"]["metadata"]["name"] == "local://u-abcde"
        assert answer.cookies == []
        assert answer.headers["Cache-Control"] == "no-store"
        (stored,) = await here.tokens()
        assert told["token"].partition(":")[2] not in json.dumps(stored)
        assert stored["metadata"]["labels"]["authn.management.cattle.io/kind"] == "session"
        assert (await here.ask("GET", "/api", token=told["token"])).body == {"user": "u-abcde"}


@pytest.mark.parametrize("kind", [{"type": "localProvider"}, {}])
async def test_the_newer_address_does_the_same(kind: Obj) -> None:
    async with house() as here:
        await here.user("u-abcde", "jo")
        answer = await here.ask("POST", "/v1-public/login", {**kind, "username": "jo", "password": PASSWORD})
        assert (answer.status, answer.body["type"]) == (201, "token")


async def test_a_page_gets_cookies_that_scripts_and_other_sites_do_not() -> None:
    async with house() as here:
        await here.user("u-abcde", "jo")
        answer = await here.login("jo", responseType="cookie", ttl=60_000)
        assert (answer.status, answer.body) == (200, None)
        session, csrf = answer.cookies
        assert session.startswith("R_SESS=token-")
        assert {"Secure", "HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=60"} <= set(session.split("; ")[1:])
        assert csrf.startswith("CSRF=") and "HttpOnly" not in csrf and "Secure" in csrf
        cookies = "; ".join(cookie.partition(";")[0] for cookie in answer.cookies)
        seen = await here.ask("GET", "/v3/users?me=true", headers={"Cookie": cookies})
        assert [user["id"] for user in seen.body["data"]] == ["u-abcde"]
        # A cookie is nobody on the Kubernetes API.
        assert (await here.ask("GET", "/api", headers={"Cookie": cookies})).body == {"user": None}
        refused = await here.ask("POST", "/v3/tokens", {}, headers={"Cookie": cookies})
        assert refused.status == 403
        right = {"Cookie": cookies, "X-API-CSRF": csrf.partition(";")[0].partition("=")[2]}
        assert (await here.ask("POST", "/v3/tokens", {}, headers=right)).status == 201


async def test_a_program_gets_a_token_of_its_own() -> None:
    async with house() as here:
        await here.user("u-abcde", "jo")
        everywhere = await here.login("jo", responseType="kubeconfig")
        one = await here.login("jo", responseType="kubeconfig_c-m-abcdefgh")
        assert everywhere.body["id"].startswith("kubeconfig-u-abcde-")
        assert (everywhere.body["isDerived"], everywhere.body["clusterId"]) == (True, None)
        assert everywhere.body["ttl"] == 30 * 24 * 3600 * 1000
        assert one.body["clusterId"] == "c-m-abcdefgh"
        # It opens its cluster and nothing else.
        assert (await here.ask("GET", "/v3/tokens", token=one.body["token"])).status == 401
        assert (await here.ask("GET", "/api", token=one.body["token"])).status == 401
        # The Kubernetes API here is the cluster `local`.
        local = await here.login("jo", responseType="kubeconfig_local")
        assert (await here.ask("GET", "/api", token=local.body["token"])).body == {"user": "u-abcde"}
        assert (await here.ask("GET", "/v3/tokens", token=local.body["token"])).status == 401


async def test_what_one_may_log_in_with_is_public() -> None:
    async with house() as here:
        for path in ("/v3-public/authProviders", "/v1-public/authproviders"):
            (provider,) = (await here.ask("GET", path)).body["data"]
            assert (provider["id"], provider["type"]) == ("local", "localProvider")
        one = (await here.ask("GET", "/v3-public/localProviders/local")).body
        assert one["actions"]["login"].endswith("/v3-public/localProviders/local?action=login")
        assert (await here.ask("GET", "/v3-public/githubProviders/github")).status == 404


# --- who does not -------------------------------------------------------------------------------------------------------------


async def test_answers_do_not_reveal_which_users_exist() -> None:
    async with house() as here:
        await here.user("u-abcde", "jo")
        await here.user("u-off", "off", enabled=False)
        await here.user("u-bare", "bare", password="")
        answers = [
            await here.login("jo", "wrong"),
            await here.login("nobody", "wrong"),
            await here.login("off"),
            await here.login("bare", ""),
            await here.login("", ""),
            await here.login("u-abcde"),
            await here.login("JO"),
        ]
        assert {(answer.status, json.dumps(answer.body)) for answer in answers} == {
            (401, json.dumps(answers[0].body)),
        }
        assert answers[0].message == "authentication failed"
        # The audit log tells them apart, and has nothing of what was typed.
        whys = [record.why for record in here.audit]
        assert whys[:4] == [
            "the password is not that of u-abcde",
            "there is no user of that name",
            "u-off is disabled",
            "u-bare has no password",
        ]
        assert "wrong" not in json.dumps(whys)


async def test_an_unknown_name_costs_as_much_work_as_a_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from remuda.access.users import passwords

    work: list[int] = []
    stretched = passwords._stretched

    def counted(data: bytes, salt: bytes, cost: Any, length: int) -> bytes:
        work.append(cost.log_n * cost.r * cost.p)
        return stretched(data, salt, cost, length)

    async with house() as here:
        await here.user("u-abcde", "jo")
        await here.user("u-off", "off", enabled=False)
        await here.user("u-bare", "bare", password="")
        monkeypatch.setattr(passwords, "_stretched", counted)
        spent: list[tuple[int, ...]] = []
        for name in ("jo", "nobody", "off", "bare", "x" * 5000, "\u202e", ""):
            work.clear()
            assert (await here.login(name, "wrong")).status == 401
            spent.append(tuple(work))
        assert set(spent) == {spent[0]} and len(spent[0]) == 1


async def test_failed_logins_delay_the_next_for_known_and_unknown_names() -> None:
    async with house() as here:
        await here.user("u-abcde", "jo")
        for name in ("jo", "nobody"):
            statuses = [(await here.login(name, "wrong")).status for _ in range(7)]
            assert statuses == [401] * 5 + [429] * 2
        waiting = await here.login("jo")
        assert waiting.status == 429
        assert int(waiting.headers["Retry-After"]) >= 1
        assert here.audit[-1].why == "has to wait after failed logins"
        await here.made.settle(61)
        assert (await here.login("jo")).status == 201


async def test_a_page_of_another_site_can_not_log_in() -> None:
    async with house() as here:
        await here.user("u-abcde", "jo")
        body = {"username": "jo", "password": PASSWORD, "responseType": "cookie"}
        for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
            answer = await here.ask("POST", LOGIN, body, headers=headers)
            assert (answer.status, answer.cookies) == (403, [])
        own = here.url.replace("http://", "https://")
        assert (await here.ask("POST", LOGIN, body, headers={"Origin": own})).status == 200


NO_LOGINS = [
    (b"{", 400),
    (b"[]", 400),
    (b'"jo"', 400),
    (b"\xff\xfe", 400),
    (b"[" * 30_000, 400),
    (b'{"a":' * 10_000, 400),
    (b'{"username":"jo","password":' + b"[" * 20_000, 400),
    (b'{"username":{"$ne":null},"password":{"$ne":null}}', 422),
    (b'{"username":["jo"],"password":"x"}', 422),
    (b'{"username":"jo","password":"x","ttl":-1}', 422),
    (b'{"username":"jo","password":"x","ttl":1e400}', 400),
    (b'{"username":"jo","password":"x","ttl":true}', 422),
    (b'{"username":"jo","password":"x","ttl":"9"}', 422),
    (b'{"username":"jo","password":"x","responseType":"saml"}', 422),
    (b'{"username":"jo","password":"x","responseType":"kubeconfig_../../etc"}', 422),
    (b'{"username":"jo","password":"x","description":"a\\r\\nSet-Cookie: a=b"}', 422),
    (b'{"username":"jo\\ud800","password":"x"}', 400),
    (b'{"username":"' + b"x" * (64 << 10) + b'"}', 413),
    (b" " * (1 << 20), 413),
    (b"", 401),
]


async def test_what_is_no_login_is_refused_without_harm() -> None:
    async with house() as here:
        await here.user("u-abcde", "jo")
        for body, status in NO_LOGINS:
            answer = await here.ask("POST", LOGIN, body, headers={"Content-Type": "application/json"})
            assert answer.status == status, (body[:100], answer.body)
            assert len(json.dumps(answer.body)) < 300
        assert (await here.login("jo")).status == 201


async def test_another_action_is_none() -> None:
    async with house() as here:
        for path in ("/v3-public/localProviders/local", LOGIN + "&action=logout", LOGIN.replace("login", "x")):
            assert (await here.ask("POST", path, {"username": "jo", "password": PASSWORD})).status == 400


async def test_of_two_users_of_one_name_the_later_does_not_take_it_over() -> None:
    async with house() as here:
        await here.user("u-zzzzz", "jo")
        await here.made.settle(5)
        await here.user("u-aaaaa", "jo", password="the usurper's password")
        assert (await here.login("jo", "the usurper's password")).status == 401
        assert (await here.login("jo")).body["userId"] == "u-zzzzz"


async def test_a_host_that_is_none_gets_no_answer_with_it_inside() -> None:
    async with house() as here:
        await here.user("u-abcde", "jo")
        answer = await here.ask("GET", "/v3-public/authProviders", headers={"Host": 'evil"><script>'})
        assert answer.status == 400
        assert "script" not in json.dumps(answer.body)


# --- logging out ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v3/tokens?action=logout", "/v1/logout"])
async def test_a_session_that_ended_can_not_be_replayed(path: str) -> None:
    async with house() as here:
        await here.user("u-abcde", "jo")
        token, other = await here.token("jo"), await here.token("jo")
        assert (await here.ask("GET", "/v3/tokens", token=token)).status == 200
        answer = await here.ask("POST", path, {}, token=token)
        assert answer.status == 200
        assert all("Max-Age=0" in cookie for cookie in answer.cookies) and len(answer.cookies) == 2
        # At once, in every form it may be shown in.
        assert (await here.ask("GET", "/v3/tokens", token=token)).status == 401
        assert (await here.ask("GET", "/api", token=token)).status == 401
        assert (await here.ask("GET", "/v3/tokens", headers={"Cookie": f"R_SESS={token}"})).status == 401
        assert (await here.ask("POST", path, {}, token=token)).status == 401
        assert (await here.ask("GET", "/v3/tokens", token=other)).status == 200


async def test_all_sessions_can_be_ended_at_once_and_tokens_for_programs_stay() -> None:
    async with house() as here:
        await here.user("u-abcde", "jo")
        token, other = await here.token("jo"), await here.token("jo")
        program = (await here.ask("POST", "/v3/tokens", {}, token=token)).body["token"]
        assert (await here.ask("POST", "/v3/tokens?action=logoutAll", {}, token=token)).status == 200
        assert [(await here.ask("GET", "/v3/tokens", token=each)).status for each in (token, other, program)] == [401, 401, 200]


async def test_the_tokens_of_a_removed_or_disabled_user_are_worth_nothing_at_once() -> None:
    async with house() as here:
        for identity in ("u-gone", "u-off"):
            await here.user(identity)
        gone, off = await here.token("u-gone"), await here.token("u-off")
        await here.made.client.delete(USERS, "u-gone")
        await here.made.client.patch(USERS, "u-off", {"enabled": False})
        await here.seen()
        for token in (gone, off):
            assert (await here.ask("GET", "/v3/tokens", token=token)).status == 401
            assert (await here.ask("POST", "/v3/tokens", {}, token=token)).status == 401


async def test_a_session_ends_by_itself() -> None:
    async with house() as here:
        await here.user("u-abcde", "jo")
        token = await here.token("jo", ttl=600_000)
        await here.made.settle(599)
        assert (await here.ask("GET", "/v3/tokens", token=token)).status == 200
        await here.made.settle(2)
        assert (await here.ask("GET", "/v3/tokens", token=token)).status == 401


# --- tokens for programs --------------------------------------------------------------------------------------------------------


async def test_tokens_are_made_listed_and_removed_by_their_owner() -> None:
    async with house() as here:
        await here.user("u-abcde", "jo")
        session = await here.token("jo")
        made = await here.ask("POST", "/v3/tokens", {"type": "token", "description": "ci", "ttl": 3_600_000}, token=session)
        assert (made.status, made.body["isDerived"], made.body["ttl"]) == (201, True, 3_600_000)
        listed = (await here.ask("GET", "/v3/tokens", token=session)).body["data"]
        assert {(token["id"], token["current"]) for token in listed} == {
            (session.partition(":")[0], True),
            (made.body["id"], False),
        }
        assert all("token" not in token or token["token"] == "" for token in listed)
        assert "$3:" not in json.dumps(listed)
        assert (await here.ask("DELETE", f"/v3/tokens/{made.body['id']}", token=session)).status == 200
        assert (await here.ask("GET", "/v3/tokens", token=made.body["token"])).status == 401
        assert (await here.ask("GET", f"/v3/tokens/{made.body['id']}", token=session)).status == 404


async def test_a_tenant_can_not_see_or_end_tokens_of_others() -> None:
    async with house() as here:
        await here.user("u-abcde", "jo")
        await here.user("u-other", "eve")
        theirs, mine = await here.token("jo"), await here.token("eve")
        name = theirs.partition(":")[0]
        assert len((await here.ask("GET", "/v3/tokens", token=mine)).body["data"]) == 1
        missing = await here.ask("GET", "/v3/tokens/token-nnnnn", token=mine)
        for method in ("GET", "DELETE"):
            refused = await here.ask(method, f"/v3/tokens/{name}", token=mine)
            assert refused.status == missing.status == 404
            assert refused.message == missing.message.replace("token-nnnnn", name)
        assert here.audit[-1].why == "the token belongs to another user"
        assert (await here.ask("GET", "/v3/tokens", token=theirs)).status == 200


async def test_a_user_who_may_remove_tokens_may_do_it_here_too() -> None:
    async with house() as here:
        admin = await here.admin()
        await here.user("u-abcde", "jo")
        token = await here.token("jo")
        assert (await here.ask("DELETE", f"/v3/tokens/{token.partition(':')[0]}", token=admin)).status == 200
        assert (await here.ask("GET", "/v3/tokens", token=token)).status == 401


async def test_a_token_that_ends_makes_none_that_outlasts_it() -> None:
    async with house() as here:
        await here.user("u-abcde", "jo")
        session = await here.token("jo")
        short = (await here.ask("POST", "/v3/tokens", {"ttl": 600_000}, token=session)).body
        child = (await here.ask("POST", "/v3/tokens", {"ttl": 0}, token=short["token"])).body
        assert parse_rfc3339(child["expiresAt"]) <= parse_rfc3339(short["expiresAt"])
        await here.made.settle(601)
        for token in (short["token"], child["token"]):
            assert (await here.ask("GET", "/v3/tokens", token=token)).status == 401
        assert (await here.ask("GET", "/v3/tokens", token=session)).status == 200


@pytest.mark.parametrize(
    ("chosen", "wished", "parent", "seconds"),
    [
        # Nothing is wished for: the longest there may be, which is ninety days, or for ever.
        ({}, 0, None, 90 * 24 * HOUR),
        ({"auth-token-max-ttl-minutes": "0"}, 0, None, 90 * 24 * HOUR),
        ({}, HOUR, None, HOUR),
        ({}, 1000 * 24 * HOUR, None, 90 * 24 * HOUR),
        ({"auth-token-max-ttl-minutes": "60"}, 24 * HOUR, None, HOUR),
        # A session may make tokens that outlast it.
        ({}, 24 * HOUR, {"isDerived": False, "ttl": 0, "expiresAt": rfc3339(1060)}, 24 * HOUR),
        # Others may not, and what does not say counts as one of them.
        ({}, 24 * HOUR, {"isDerived": True, "expiresAt": rfc3339(1060)}, 60),
        ({}, 24 * HOUR, {"expiresAt": rfc3339(1060)}, 60),
        ({}, 0, {"isDerived": True, "expiresAt": rfc3339(1060)}, 60),
        ({}, 0, {"isDerived": True, "expiresAt": rfc3339(900)}, 1),
        ({}, 0, {"isDerived": True, "expiresAt": "soon"}, 1),
    ],
)
def test_how_long_a_derived_token_lasts(chosen: dict[str, str], wished: float, parent: Obj | None, seconds: float) -> None:
    settings = Settings([{"metadata": {"name": name}, "value": value} for name, value in chosen.items()])
    if chosen.get("auth-token-max-ttl-minutes") == "0":
        seconds = 0
    assert derived_seconds(settings, wished, parent, 1000.0) == seconds


def test_a_session_lasts_as_long_as_was_wished_and_never_longer_than_the_setting() -> None:
    settings = Settings([{"metadata": {"name": "auth-user-session-ttl-minutes"}, "value": "60"}])
    assert [session_seconds(settings, wished) for wished in (0, 60, 7200)] == [3600, 60, 3600]


NO_TOKENS: list[Obj] = [
    {"description": "a\nb"},
    {"description": "x" * 2000},
    {"description": 7},
    {"ttl": -5},
    {"ttl": 1 << 60},
    {"clusterId": "../local"},
    {"clusterId": "a/b"},
]


async def test_a_token_that_can_be_none_is_not_made() -> None:
    async with house() as here:
        await here.user("u-abcde", "jo")
        token = await here.token("jo")
        for body in NO_TOKENS:
            assert (await here.ask("POST", "/v3/tokens", body, token=token)).status == 422, body
        assert len(await here.tokens()) == 1


async def test_one_user_can_not_fill_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.gateway.auth.tokens.MOST_TOKENS", 3)
    async with house() as here:
        await here.user("u-abcde", "jo")
        token = await here.token("jo")
        statuses = [(await here.ask("POST", "/v3/tokens", {}, token=token)).status for _ in range(4)]
        assert statuses == [201, 201, 201, 409]
        assert (await here.login("jo")).status == 201


async def test_who_logs_in_all_the_time_loses_the_oldest_sessions_and_is_not_locked_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.gateway.auth.tokens.MOST_SESSIONS", 2)
    async with house() as here:
        await here.user("u-abcde", "jo")
        tokens = []
        for _ in range(4):
            tokens.append(await here.token("jo"))
            await here.made.settle(2)
        statuses = [(await here.ask("GET", "/v3/tokens", token=token)).status for token in tokens]
        assert statuses == [401, 401, 200, 200]


async def test_a_weak_hash_is_replaced_at_the_next_login() -> None:
    async with house() as here:
        user = await here.user("u-abcde", "jo")
        passwords = PasswordSecrets(here.made.client)
        weak = hashed(PASSWORD, here.made.services.entropy, ScryptCost(1, 1, 1))
        await passwords.put(user, weak)
        assert (await here.login("jo", "wrong")).status == 401
        assert await passwords.read("u-abcde") == weak
        assert (await here.login("jo")).status == 201
        stored = await passwords.read("u-abcde")
        assert stored is not None and stored.startswith("$scrypt$ln=4,r=1,p=1$")
        assert (await here.login("jo")).status == 201


async def test_too_many_at_once_are_asked_to_come_back() -> None:
    async with house() as here:
        await here.user("u-abcde", "jo")
        here.identity.local._hashing._most = 0
        answer = await here.login("jo")
        assert (answer.status, answer.headers["Retry-After"]) == (503, "3")


async def test_a_hash_of_another_kind_is_refused() -> None:
    async with house() as here:
        await here.user("u-abcde", "jo")
        for data in ({"password": "", "salt": None}, {"password": "JDJhJDEwJHh4"}, {"password": None}):
            await here.made.client.patch(SECRETS, "u-abcde", {"data": data}, NAMESPACE)
            assert (await here.login("jo", "")).status == 401
        await here.made.settle(100)
        rancher = {"metadata": {"annotations": {"cattle.io/password-hash": "pbkdf2sha3512"}}}
        await here.made.client.patch(SECRETS, "u-abcde", rancher, NAMESPACE)
        assert (await here.login("jo")).status == 401


async def test_a_plain_word_is_no_token() -> None:
    async with house() as here:
        for shown in ("admin", "token-xxxxx", "token-xxxxx:", ":x", "token-xxxxx:y"):
            assert (await here.ask("GET", "/v3/tokens", token=shown)).status == 401
        await here.made.client.list(TOKENS)
