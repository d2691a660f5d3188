"""Users through Rancher's API: one's own password first, then other people's, which are nobody's business."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from remuda.access.users.first_user import FILE
from remuda.api.management_cattle_io import USERS

from .logged_in_users import PASSWORD, House, house, on

Obj = dict[str, Any]
BETTER = "a much better password"


async def change(here: House, token: str, current: str, new: str) -> Any:
    body = {"currentPassword": current, "newPassword": new}
    return await here.ask("POST", "/v3/users?action=changepassword", body, token=token)


# --- one's own ----------------------------------------------------------------------------------------------------------------


async def test_each_user_may_read_their_own_user() -> None:
    async with house() as here:
        await here.user("u-abcde", "jo")
        token = await here.token("jo")
        (me,) = (await here.ask("GET", "/v3/users?me=true", token=token)).body["data"]
        assert (me["id"], me["username"], me["me"], me["mustChangePassword"]) == ("u-abcde", "jo", True, False)
        assert me["principalIds"] == ["local://u-abcde"]
        assert "password" not in me
        assert (await here.ask("GET", "/v3/users/u-abcde", token=token)).body["id"] == "u-abcde"
        assert (await here.ask("GET", "/v3/users?me=true")).status == 401


async def test_a_password_change_needs_the_old_one_and_ends_other_sessions() -> None:
    async with house() as here:
        await here.user("u-abcde", "jo")
        token, other = await here.token("jo"), await here.token("jo")
        program = (await here.ask("POST", "/v3/tokens", {}, token=token)).body["token"]
        assert (await change(here, token, PASSWORD, BETTER)).status == 200
        assert (await here.login("jo")).status == 401
        assert (await here.login("jo", BETTER)).status == 201
        assert [(await here.ask("GET", "/v3/tokens", token=each)).status for each in (token, other, program)] == [200, 401, 200]


async def test_a_stolen_session_does_not_guess_the_password() -> None:
    async with house() as here:
        await here.user("u-abcde", "jo")
        token = await here.token("jo")
        statuses = [(await change(here, token, "wrong", BETTER)).status for _ in range(7)]
        assert statuses[:5] == [422] * 5 and statuses[6] == 429
        await here.made.settle(400)
        assert (await here.login("jo")).status == 201


async def test_what_can_be_no_password_is_none() -> None:
    async with house() as here:
        await here.user("u-abcde", "jo")
        token = await here.token("jo")
        for new in ("", "short", "x" * 20, "jo", "a\0b" * 8, "x" * 5000, PASSWORD):
            answer = await change(here, token, PASSWORD, new)
            assert answer.status == 422, new
            assert new not in answer.message or len(new) < 3
        here.settings["password-min-length"] = "40"
        assert (await change(here, token, PASSWORD, BETTER)).message == "the password must have at least 40 characters"
        assert (await here.login("jo")).status == 201


# --- newcomers ------------------------------------------------------------------------------------------------------------------


async def test_who_must_change_the_password_can_do_nothing_else_and_then_everything() -> None:
    async with house() as here:
        await here.user("user-first", "admin", mustChangePassword=True)
        answer = await here.login("admin")
        assert (answer.status, answer.body["mustChangePassword"]) == (201, True)
        token = answer.body["token"]
        allowed = [("GET", "/v3/users?me=true", None)]
        refused = [
            ("GET", "/v3/users", None),
            ("GET", "/v3/users/user-first", None),
            ("POST", "/v3/users", {"username": "x", "password": BETTER}),
            ("POST", "/v3/users/user-first?action=setpassword", {"newPassword": BETTER}),
            ("PUT", "/v3/users/user-first", {"mustChangePassword": False}),
            ("GET", "/v3/tokens", None),
            ("POST", "/v3/tokens", {}),
            ("POST", "/v3/clusters/local?action=generateKubeconfig", {}),
            ("POST", "/v3/clusters?action=generateKubeconfig", {}),
            ("GET", "/api/v1/secrets", None),
        ]
        assert [(await here.ask(*request, token=token)).status for request in allowed] == [200]
        assert {(await here.ask(*request, token=token)).status for request in refused} == {403}
        # Nor by asking for another kind of token, which would outlive the change.
        for kind in ("kubeconfig", "kubeconfig_local"):
            assert (await here.login("admin", responseType=kind)).status == 403
        cookie = (await here.login("admin", responseType="cookie")).cookies[0].partition(";")[0]
        assert (await here.ask("GET", "/v3/tokens", headers={"Cookie": cookie})).status == 403
        # Choosing the same again is no change.
        assert (await change(here, token, PASSWORD, PASSWORD)).status == 422
        assert (await here.ask("GET", "/v3/tokens", token=token)).status == 403
        assert (await change(here, token, PASSWORD, BETTER)).status == 200
        assert (await here.ask("GET", "/v3/tokens", token=token)).status == 200
        # A session that somebody began with the first password has ended.
        assert (await here.ask("GET", "/v3/tokens", headers={"Cookie": cookie})).status == 401


async def test_a_newcomer_may_log_out() -> None:
    async with house() as here:
        await here.user("user-first", "admin", mustChangePassword=True)
        token = await here.token("admin")
        assert (await here.ask("POST", "/v3/tokens?action=logout", token=token)).status == 200
        assert (await here.ask("GET", "/v3/users?me=true", token=token)).status == 401


async def test_the_first_password_is_kept_nowhere_once_it_was_changed(tmp_path: Path) -> None:
    async with house(data_dir=tmp_path) as here:
        await here.identity.first.ensure()
        await here.seen()
        password = (tmp_path / FILE).read_text().strip()
        token = await here.token("admin", password=password)
        assert (await change(here, token, password, BETTER)).status == 200
        assert not (tmp_path / FILE).exists()
        assert (await here.login("admin", password)).status == 401


# --- other people's -------------------------------------------------------------------------------------------------------------


async def test_a_tenant_can_not_change_users() -> None:
    async with house() as here:
        await here.user("u-abcde", "jo")
        await here.user("u-eve", "eve")
        eve = await here.token("eve")
        attempts = [
            ("GET", "/v3/users", None),
            ("GET", "/v3/users?username=jo", None),
            ("GET", "/v3/users?me=false", None),
            ("GET", "/v3/users/u-abcde", None),
            ("GET", "/v3/users/u-nobody", None),
            ("POST", "/v3/users", {"username": "x", "password": BETTER}),
            ("POST", "/v3/users/u-abcde?action=setpassword", {"newPassword": BETTER}),
            # Not even one's own: that is what the current password is asked for.
            ("POST", "/v3/users/u-eve?action=setpassword", {"newPassword": BETTER}),
            ("PUT", "/v3/users/u-abcde", {"enabled": False}),
            ("PUT", "/v3/users/u-eve", {"description": "me"}),
            ("DELETE", "/v3/users/u-abcde", None),
            ("DELETE", "/v3/users/u-eve", None),
        ]
        for request in attempts:
            answer = await here.ask(*request, token=eve)
            assert answer.status == 403, request
            assert answer.message == "you are not allowed to do this"
        assert (await here.login("jo")).status == 201
        # A password that belongs to somebody else is not a current one.
        answer = await here.ask(
            "POST",
            "/v3/users?action=changepassword",
            {"currentPassword": PASSWORD, "newPassword": BETTER, "username": "jo", "id": "u-abcde", "userId": "u-abcde"},
            token=eve,
        )
        assert answer.status == 200
        assert (await here.login("jo")).status == 201
        assert (await here.login("eve", BETTER)).status == 201


async def test_who_manages_users_is_no_administrator_by_it() -> None:
    async with house() as here:
        await here.admin()
        await here.user("u-mgr", "mgr")
        await here.allow("u-mgr", on("users", "*"))
        await here.user("u-abcde", "jo")
        manager = await here.token("mgr")
        for method, path, body in (
            ("POST", "/v3/users/user-admin?action=setpassword", {"newPassword": BETTER}),
            ("PUT", "/v3/users/user-admin", {"enabled": False}),
            ("DELETE", "/v3/users/user-admin", None),
        ):
            answer = await here.ask(method, path, body, token=manager)
            assert (answer.status, answer.message) == (403, "the user has permissions that you lack")
        assert here.audit[-1].why == "user-admin has permissions that u-mgr lacks"
        assert (
            await here.ask("POST", "/v3/users/u-abcde?action=setpassword", {"newPassword": BETTER}, token=manager)
        ).status == 200
        assert (await here.login("jo", BETTER)).status == 201
        assert (await here.login("admin")).status == 201


async def test_a_user_manager_can_not_take_over_a_user_with_more_permissions() -> None:
    async with house() as here:
        await here.user("u-mgr", "mgr")
        await here.allow("u-mgr", on("users", "*"))
        await here.user("u-abcde", "jo")
        await here.allow("u-abcde", on("settings", "update"))
        manager = await here.token("mgr")
        for method, path, body in (
            ("POST", "/v3/users/u-abcde?action=setpassword", {"newPassword": BETTER}),
            ("PUT", "/v3/users/u-abcde", {"enabled": False}),
            ("PUT", "/v3/users/u-abcde", {"mustChangePassword": True}),
            ("DELETE", "/v3/users/u-abcde", None),
        ):
            assert (await here.ask(method, path, body, token=manager)).status == 403, (method, path)
        assert (await here.login("jo")).status == 201


async def test_an_administrator_makes_lists_changes_and_removes_users() -> None:
    async with house() as here:
        admin = await here.admin()
        body = {"username": "jo", "password": PASSWORD, "name": "Jo Doe", "mustChangePassword": True}
        made = await here.ask("POST", "/v3/users", body, token=admin)
        assert (made.status, made.body["name"], made.body["mustChangePassword"]) == (201, "Jo Doe", True)
        identity = made.body["id"]
        assert identity.startswith("u-")
        stored = await here.made.client.get(USERS, identity)
        assert PASSWORD not in json.dumps(stored) and "scrypt" not in json.dumps(stored)
        token = await here.token("jo")
        found = (await here.ask("GET", "/v3/users?username=jo", token=admin)).body["data"]
        assert [user["id"] for user in found] == [identity]
        assert len((await here.ask("GET", "/v3/users", token=admin)).body["data"]) == 2
        reset = {"newPassword": BETTER, "mustChangePassword": False}
        assert (await here.ask("POST", f"/v3/users/{identity}?action=setpassword", reset, token=admin)).status == 200
        # Whoever had a session by the old password has none any more.
        assert (await here.ask("GET", "/v3/users?me=true", token=token)).status == 401
        token = await here.token("jo", password=BETTER)
        changed = await here.ask("PUT", f"/v3/users/{identity}", {"description": "on leave", "enabled": False}, token=admin)
        assert (changed.body["description"], changed.body["enabled"], changed.body["state"]) == ("on leave", False, "inactive")
        await here.seen()
        assert (await here.ask("GET", "/v3/users?me=true", token=token)).status == 401
        assert (await here.ask("DELETE", f"/v3/users/{identity}", token=admin)).status == 200
        assert (await here.ask("GET", f"/v3/users/{identity}", token=admin)).status == 404


async def test_users_that_can_be_none_are_not_made() -> None:
    async with house() as here:
        admin = await here.admin()
        for body in (
            {},
            {"username": "x"},
            {"username": "x", "password": "short"},
            {"username": "admin", "password": BETTER},
            {"username": "a b", "password": BETTER},
            {"username": "x\r\nX-Injected: 1", "password": BETTER},
            {"username": "x\u0000", "password": BETTER},
            {"username": "ａｄｍｉｎ", "password": BETTER},
            {"username": "x" * 200, "password": BETTER},
            {"username": "x", "password": BETTER, "name": "a\nb"},
            {"username": "x", "password": BETTER, "enabled": "yes"},
            {"username": "x" * 12, "password": "x" * 12},
        ):
            answer = await here.ask("POST", "/v3/users", body, token=admin)
            assert answer.status == 422, body
            assert "X-Injected" not in answer.headers
        assert len((await here.made.client.list(USERS))["items"]) == 1


async def test_users_can_not_remove_or_disable_themselves() -> None:
    async with house() as here:
        admin = await here.admin()
        assert (await here.ask("DELETE", "/v3/users/user-admin", token=admin)).message == "you can't remove yourself"
        refused = await here.ask("PUT", "/v3/users/user-admin", {"enabled": False}, token=admin)
        assert refused.message == "you can't disable yourself"


async def test_a_user_name_stays_and_a_password_is_not_written_in_passing() -> None:
    async with house() as here:
        admin = await here.admin()
        await here.user("u-abcde", "jo")
        for body in ({"username": "other"}, {"password": BETTER}):
            assert (await here.ask("PUT", "/v3/users/u-abcde", body, token=admin)).status == 422


async def test_a_user_whose_password_could_not_be_kept_is_not_left_behind() -> None:
    async with house() as here:
        admin = await here.admin()
        passwords = here.identity.users._passwords

        async def broken(user: Obj, hashed: str) -> None:
            raise OSError("the disk is full")

        passwords.put = broken  # type: ignore[method-assign]
        answer = await here.ask("POST", "/v3/users", {"username": "jo", "password": PASSWORD}, token=admin)
        assert answer.status == 500
        assert [user["username"] for user in (await here.made.client.list(USERS))["items"]] == ["admin"]
