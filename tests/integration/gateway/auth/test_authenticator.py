"""Who asks: what is remembered of a token ends with whatever made it good, and nobody is asked about again and again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from remuda.api.management_cattle_io import TOKENS, USERS
from remuda.gateway.auth import authenticator as module
from remuda.gateway.auth.authenticator import NotLetIn, user_of
from remuda.kube.errors import ApiError
from tests.integration.gateway.running_gateway import Standing, standing
from tests.waiting import until


@pytest.fixture
async def place() -> AsyncIterator[Standing]:
    async with standing() as found:
        yield found


async def refused(place: Standing, token: Any, cluster: str = "") -> str:
    try:
        await place.gateway.callers.of_token(token, cluster)
    except NotLetIn as error:
        return error.why
    return ""


async def test_what_was_good_a_moment_ago_ends_with_the_objects_that_said_so(
    place: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    # And not because the moment is over, which on a slow machine is soon.
    monkeypatch.setattr(module, "_KNOWN_SECONDS", 600.0)
    await place.user("u-1")
    token = await place.token("u-1")
    callers = place.gateway.callers
    first = await callers.of_token(token)
    await until(lambda: place.gateway.services.informers.of(TOKENS).get("", token.name))
    first = await callers.of_token(token)
    assert await callers.of_token(token) is first, "nothing is computed anew for the same token"
    # Not for another secret, another cluster, or another way to show it.
    assert await refused(place, type(token)(token.name, token.secret + "x")) == "the secret is wrong"
    by_cookie = type(token)(token.name, token.secret, from_cookie=True)
    found = (await callers.of_token(by_cookie)).presented
    assert found is not None and found.from_cookie
    await callers.of_token(token)
    await place.client.patch(USERS, "u-1", {"enabled": False})
    await until(lambda: refused(place, token))
    assert await refused(place, token) == "the user is disabled"
    await place.client.patch(USERS, "u-1", {"enabled": True})

    async def let_in() -> bool:
        return not await refused(place, token)

    await until(let_in)
    await place.client.patch(TOKENS, token.name, {"enabled": False})
    await until(lambda: refused(place, token))
    assert await refused(place, token) == "the token is disabled"


async def test_a_token_is_good_for_its_own_cluster_only(place: Standing) -> None:
    await place.user("u-1")
    token = await place.token("u-1", cluster="c-1")
    assert await refused(place, token, "c-1") == ""
    for cluster in ("", "c-2"):
        assert await refused(place, token, cluster) == "the token is valid for another cluster only"
    assert await refused(place, token, "c-1") == ""


async def test_unknown_names_are_not_looked_up_repeatedly(place: Standing, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    get = place.gateway.services.client.get

    async def counted(resource: Any, name: str, *args: Any, **options: Any) -> Any:
        asked.append(name)
        return await get(resource, name, *args, **options)

    monkeypatch.setattr(place.gateway.services.client, "get", counted)
    monkeypatch.setattr(module, "_NOT_THERE_SECONDS", 600.0)
    await place.user("u-1")
    good = await place.token("u-1")
    nobody = type(good)("token-nobody", "x" * 54)
    for _ in range(5):
        assert await refused(place, nobody) == "there is no such token"
    assert asked.count("token-nobody") == 1


async def test_before_caches_are_filled_no_user_is_refused_as_unknown(place: Standing) -> None:
    informer = place.gateway.services.informers.of(TOKENS)
    await place.user("u-1")
    token = await place.token("u-1")
    informer.synced.clear()
    with pytest.raises(ApiError) as caught:
        await place.gateway.callers.of_token(token)
    assert (caught.value.code, caught.value.retry_after) == (503, 1)
    informer.synced.set()


async def test_the_last_use_is_written_once_a_minute(place: Standing) -> None:
    await place.user("u-1")
    token = await place.token("u-1")
    for _ in range(3):
        await place.gateway.callers.of_token(token)
    await place.gateway.callers.write_last_use()
    first = await place.client.get(TOKENS, token.name)
    assert first["lastUsedAt"]
    await place.gateway.callers.write_last_use()
    assert (await place.client.get(TOKENS, token.name))["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_no_login_provider_makes_a_user_an_administrator() -> None:
    principals = ["system:masters", "local://system:masters", "local://g-1", "ldap://cn=x", ""]
    token = {"metadata": {"name": "t"}, "groupPrincipals": [{"metadata": {"name": name}} for name in principals] + ["nonsense"]}
    user = user_of({"metadata": {"name": "u-1"}, "username": "one"}, token, "remuda.example")
    assert user.groups == ("g-1", "ldap://cn=x", "system:authenticated", "system:cattle:authenticated")
    assert user.extra["requesthost"] == ["remuda.example"]
    assert user.extra["principalid"] == ["local://u-1"]
