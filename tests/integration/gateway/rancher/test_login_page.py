"""What Rancher's pages read before anyone has logged in, and the versions that they offer afterwards."""

from __future__ import annotations

from remuda.gateway.rancher.login_page import PUBLIC
from tests.integration.gateway.rancher.test_steve import EVERYTHING, ids, user
from tests.integration.gateway.running_gateway import standing
from tests.waiting import until

SETTINGS = "/v1/management.cattle.io.settings"


async def test_without_a_credential_only_settings_of_the_login_page_are_shown() -> None:
    async with standing() as place:
        await place.setting("ui-pl", "Herd")
        await place.setting("server-url", "https://remuda.example")
        for headers in ({}, {"Authorization": "Bearer token-abcde:" + "x" * 54}, {"Authorization": "Bearer garbage"}):
            answer = await place.get(f"{SETTINGS}?pagesize=100000&exclude=metadata.managedFields", headers=headers)
            body = await answer.json()
            assert (answer.status, answer.headers["X-API-Cattle-Auth"]) == (200, "false")
            found = {each["id"]: each for each in body["data"]}
            assert set(found) == set(PUBLIC)
            assert (found["ui-pl"]["value"], found["ui-pl"]["customized"]) == ("Herd", True)
            assert (found["first-login"]["value"], found["first-login"]["default"]) == ("false", "false")


async def test_users_see_the_settings_that_they_may_read() -> None:
    async with standing() as place:
        await place.setting("server-url", "https://remuda.example")
        admin = await user(place, "u-admin", EVERYTHING)
        tenant = await user(place, "u-tenant")
        newcomer = await place.user("u-new", mustChangePassword=True)
        assert "server-url" in await ids(place, f"{SETTINGS}?sort=id", admin)
        assert (await place.get(SETTINGS, admin)).headers["X-API-Cattle-Auth"] == "true"
        assert (await place.get(SETTINGS, tenant)).status == 403
        token = await place.token(newcomer["metadata"]["name"])

        async def is_known() -> bool:
            return (await place.get("/v3/users?me=true", token)).status == 200

        await until(is_known)
        assert set(await ids(place, SETTINGS, token)) == set(PUBLIC)


async def test_versions_are_offered_with_their_arguments() -> None:
    async with standing() as place:
        token = await user(place, "u-someone")
        for name, argument in (("k3s", "flannel-backend"), ("rke2", "cni")):
            body = await (await place.get(f"/v1-{name}-release/releases", token)).json()
            newest = body["data"][-1]
            assert newest["version"] == newest["id"] and f"+{name}" in newest["id"]
            assert newest["serverArgs"][argument]["options"]
            assert newest["agentArgs"] and newest["charts"] == {}
            channels = {
                each["id"]: each["latest"]
                for each in (await (await place.get(f"/v1-{name}-release/channels", token)).json())["data"]
            }
            assert channels["latest"] == newest["version"]


async def test_there_are_no_extensions_of_the_page() -> None:
    async with standing() as place:
        answer = await place.get("/v1/uiplugins")
        assert (answer.status, await answer.json()) == (200, {"entries": {}})
