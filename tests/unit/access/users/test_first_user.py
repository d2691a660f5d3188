"""The first start: one administrator, one password, whatever dies when."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import stat
from pathlib import Path
from typing import Any

import pytest

from remuda.access.users.first_user import FILE, SECRET, SYSTEM_NAMESPACE, FirstUser
from remuda.access.users.passwords import SECRETS, PasswordSecrets, ScryptCost, hashed, verify
from remuda.access.users.user_objects import user_manifest
from remuda.api.management_cattle_io import GLOBAL_ROLE_BINDINGS, USERS
from remuda.kube.clock import Entropy
from remuda.kube.errors import ApiError
from tests.unit.gateway.management_gateway import Management, management

Obj = dict[str, Any]
CHEAP = ScryptCost(4, 1, 1)


class Killed(BaseException):
    """The process died here."""


class Dying:
    """A client whose process dies before or after its n-th write."""

    remote = False
    WRITES = ("create", "update", "patch", "delete")

    def __init__(self, inner: Any, survives: int, *, after: bool) -> None:
        self._inner = inner
        self._left = survives
        self._after = after

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._inner, name)
        if name not in self.WRITES:
            return verb

        async def tried(*args: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left < 0 and not self._after:
                raise Killed
            done = await verb(*args, **options)
            if self._left < 0:
                raise Killed
            return done

        return tried


async def cheaply(password: str) -> str:
    return hashed(password, Entropy(), CHEAP)


def starting(
    made: Management, place: Path | None, said: list[str], client: Any = None, environment: dict[str, str] | None = None
) -> FirstUser:
    return FirstUser(client or made.client, made.clock, Entropy(), environment or {}, cheaply, said.append, place)


async def users(made: Management) -> list[Obj]:
    return (await made.client.list(USERS))["items"]


async def lets_in(made: Management, password: str) -> bool:
    (admin,) = await users(made)
    stored = await PasswordSecrets(made.client).read(admin["metadata"]["name"])
    assert stored is not None
    return verify(password, stored, CHEAP).right


async def bootstrap_secret(made: Management) -> Obj:
    return await made.client.get(SECRETS, SECRET, SYSTEM_NAMESPACE)


async def test_the_first_start_makes_an_administrator_who_must_choose_a_password(tmp_path: Path) -> None:
    said: list[str] = []
    async with management() as made:
        await starting(made, tmp_path, said).ensure()
        (admin,) = await users(made)
        name = admin["metadata"]["name"]
        assert name.startswith("user-") and len(name) == 10
        assert (admin["username"], admin["mustChangePassword"], admin["enabled"]) == ("admin", True, True)
        assert admin["principalIds"] == [f"local://{name}"]
        assert "password" not in admin
        (binding,) = (await made.client.list(GLOBAL_ROLE_BINDINGS))["items"]
        assert (binding["globalRoleName"], binding["userName"]) == ("admin", name)
        told = (tmp_path / FILE).read_text()
        assert await lets_in(made, told.strip())
    assert len(said) == 1 and told.strip() in said[0]
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


async def test_a_second_start_says_and_changes_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    async with management() as made:
        await starting(made, tmp_path, said).ensure()
        before = await users(made), (tmp_path / FILE).read_text()
        await starting(made, tmp_path, said).ensure()
        assert (await users(made), (tmp_path / FILE).read_text()) == before
    assert len(said) == 1


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("survives", range(8))
async def test_whatever_dies_when_the_next_start_completes_it(tmp_path: Path, survives: int, after: bool) -> None:
    said: list[str] = []
    async with management() as made:
        with contextlib.suppress(Killed):
            await starting(made, tmp_path, said, Dying(made.client, survives, after=after)).ensure()
        await starting(made, tmp_path, said).ensure()
        assert len(await users(made)) == 1
        assert len((await made.client.list(GLOBAL_ROLE_BINDINGS))["items"]) == 1
        password = (tmp_path / FILE).read_text().strip()
        # What was printed is what is stored, also when it had to be printed twice.
        assert said and all(password in line for line in said)
        assert await lets_in(made, password)
        assert set((await bootstrap_secret(made))["data"]) == {"userId"}


async def test_several_servers_on_one_store_agree(tmp_path: Path) -> None:
    said: list[str] = []
    async with management() as made:
        places = [tmp_path / str(number) for number in range(4)]
        for place in places:
            place.mkdir()
        running = [asyncio.create_task(starting(made, place, said).run()) for place in places]
        for _ in range(10):
            await made.settle(2)
        await asyncio.gather(*running)
        assert len(await users(made)) == 1
        told = {line.partition("password ")[2].partition(" ")[0] for line in said}
        assert len(told) == 1
        assert await lets_in(made, told.pop())


@pytest.mark.parametrize("variable", ["REMUDA_BOOTSTRAP_PASSWORD", "CATTLE_BOOTSTRAP_PASSWORD"])
async def test_a_given_password_is_used_and_shown_nowhere(tmp_path: Path, variable: str) -> None:
    said: list[str] = []
    async with management() as made:
        await starting(made, tmp_path, said, environment={variable: "let me in"}).ensure()
        assert await lets_in(made, "let me in")
        assert "bootstrapPassword" not in (await bootstrap_secret(made))["data"]
        assert (await users(made))[0]["mustChangePassword"] is True
    assert said == []
    assert not (tmp_path / FILE).exists()


async def test_a_given_password_that_can_be_none_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with management() as made:
        await starting(made, tmp_path, [], environment={"REMUDA_BOOTSTRAP_PASSWORD": "x\0y"}).ensure()
        assert await lets_in(made, (tmp_path / FILE).read_text().strip())
    assert "x\0y" not in caplog.text and "can't be used" in caplog.text


async def test_without_a_data_directory_the_secret_holds_it_until_it_is_changed() -> None:
    said: list[str] = []
    async with management() as made:
        first = starting(made, None, said)
        await first.ensure()
        password = base64.b64decode((await bootstrap_secret(made))["data"]["bootstrapPassword"]).decode()
        assert await lets_in(made, password)
        assert password not in said[0] and "cattle-system/bootstrap-secret" in said[0]
        await first.forget((await users(made))[0])
        assert "bootstrapPassword" not in (await bootstrap_secret(made))["data"]
        await starting(made, None, said).ensure()
    assert len(said) == 1


async def test_the_file_is_deleted_only_when_the_first_user_changed_the_password(tmp_path: Path) -> None:
    async with management() as made:
        first = starting(made, tmp_path, [])
        await first.ensure()
        await first.forget(user_manifest("u-other", "other"))
        assert (tmp_path / FILE).exists()
        await first.forget((await users(made))[0])
        assert not (tmp_path / FILE).exists()
        await first.forget((await users(made))[0])


async def test_a_password_that_was_changed_before_all_was_done_stays(tmp_path: Path) -> None:
    said: list[str] = []
    async with management() as made:
        with pytest.raises(Killed):
            # The last write is the mark.
            await starting(made, None, said, Dying(made.client, 5, after=False)).ensure()
        (admin,) = await users(made)
        await PasswordSecrets(made.client).put(admin, hashed("a better one", Entropy(), CHEAP))
        await made.client.patch(USERS, admin["metadata"]["name"], {"mustChangePassword": False})
        said.clear()
        await starting(made, tmp_path, said).ensure()
        assert await lets_in(made, "a better one")
    assert said == [] and not (tmp_path / FILE).exists()


async def test_an_administrator_who_was_removed_does_not_come_back(tmp_path: Path) -> None:
    async with management() as made:
        await starting(made, tmp_path, []).ensure()
        await made.client.delete(USERS, (await users(made))[0]["metadata"]["name"])
        await starting(made, tmp_path, []).ensure()
        assert await users(made) == []


async def test_a_store_that_brought_its_administrator_along_gets_no_second_one(tmp_path: Path) -> None:
    said: list[str] = []
    async with management() as made:
        await made.client.create(USERS, user_manifest("user-known", "admin"))
        await starting(made, tmp_path, said).ensure()
        assert [user["metadata"]["name"] for user in await users(made)] == ["user-known"]
        assert (await made.client.list(GLOBAL_ROLE_BINDINGS))["items"] == []
    assert said == []


async def test_a_password_that_was_put_there_before_is_taken(tmp_path: Path) -> None:
    async with management() as made:
        await made.namespace(SYSTEM_NAMESPACE)
        data = {"bootstrapPassword": base64.b64encode(b"from the chart").decode()}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "data": data}
        await made.client.create(SECRETS, secret, SYSTEM_NAMESPACE)
        await starting(made, tmp_path, []).ensure()
        assert await lets_in(made, "from the chart")


async def test_it_waits_for_the_kinds_it_needs(tmp_path: Path) -> None:
    class NotYet:
        remote = False

        def __init__(self, inner: Any) -> None:
            self.ready = False
            self._inner = inner

        def __getattr__(self, name: str) -> Any:
            if not self.ready and name == "list":
                return self._refuse
            return getattr(self._inner, name)

        async def _refuse(self, *_: Any, **__: Any) -> None:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")

    async with management() as made:
        client = NotYet(made.client)
        running = asyncio.create_task(starting(made, tmp_path, [], client).run())
        await made.settle(10)
        assert not running.done() and await users(made) == []
        client.ready = True
        await made.settle(10)
        await running
        assert len(await users(made)) == 1


def test_nothing_that_holds_a_password_shows_it() -> None:
    from remuda.access.users.first_user import _Chosen

    assert "hush" not in repr(_Chosen("u", "hush", False, False))
