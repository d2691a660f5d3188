"""The state Secret: durable, patient with a server that is away, and no friend of a second writer."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest

from remuda.apiserver.inprocess import InProcessClient
from remuda.kube.clock import VirtualClock
from remuda.kube.errors import ApiError
from remuda.machines.errors import DriverError, Reason
from remuda.machines.provisioner.state_store import StateSecret
from tests.unit.machines.killing import SECRETS, Place, Places

Obj = dict[str, Any]


class Flaky:
    """A way to the API that fails as networks do: before the request arrives, or after it was done."""

    def __init__(self, client: InProcessClient, before: int = 0, after: int = 0) -> None:
        self._client = client
        self.before, self.after = before, after

    async def get(self, *args: Any, **options: Any) -> Obj:
        return await self._client.get(*args, **options)

    async def update(self, *args: Any, **options: Any) -> Obj:
        if self.before > 0:
            self.before -= 1
            raise ApiError(503, "ServiceUnavailable", "the server can't be reached")
        done = await self._client.update(*args, **options)
        if self.after > 0:
            self.after -= 1
            raise ApiError(503, "ServiceUnavailable", "the server can't be reached")
        return done


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with Places() as places:
        yield await places.new()


async def content(place: Place) -> bytes:
    found = await place.client.get(SECRETS, place.name, "default")
    return base64.b64decode(found["data"]["extractedConfig"])


async def test_other_keys_survive_and_other_changes_are_no_conflict(place: Place) -> None:
    secret = place.secret()
    assert await secret.read() == b""
    await secret.write(b"one")
    await place.client.patch(SECRETS, place.name, {"data": {"knownHosts": "YQ=="}, "metadata": {"labels": {"a": "b"}}}, "default")
    await secret.write(b"two")
    found = await place.client.get(SECRETS, place.name, "default")
    assert (await content(place), found["data"]["knownHosts"], found["metadata"]["labels"]) == (b"two", "YQ==", {"a": "b"})


async def test_the_same_is_not_written_again(place: Place) -> None:
    secret = place.secret()
    await secret.read()
    await secret.write(b"one")
    before = (await place.client.get(SECRETS, place.name, "default"))["metadata"]["resourceVersion"]
    await secret.write(b"one")
    assert (await place.client.get(SECRETS, place.name, "default"))["metadata"]["resourceVersion"] == before


async def test_a_second_writer_ends_the_first(place: Place) -> None:
    one, two = place.secret(), place.secret()
    await one.read()
    await two.read()
    await two.write(b"two")
    with pytest.raises(DriverError, match="another run has written") as caught:
        await one.write(b"one")
    assert caught.value.reason is Reason.CONFLICT and await content(place) == b"two"


@pytest.mark.parametrize(("before", "after"), [(3, 0), (0, 1), (2, 1)])
async def test_it_waits_for_a_server_that_is_away(place: Place, before: int, after: int) -> None:
    clock = VirtualClock()
    said: list[str] = []
    secret = StateSecret(Flaky(place.client, before, after), "default", place.name, clock, said.append)  # type: ignore[arg-type]
    await secret.read()
    writing = asyncio.create_task(secret.write(b"one"))
    await clock.advance(60)
    await writing
    assert await content(place) == b"one"
    assert (said[:1] == ["waiting for the server: the server can't be reached"]) == (before > 0)
    await secret.write(b"two")
    assert await content(place) == b"two"


async def test_not_for_ever(place: Place) -> None:
    clock = VirtualClock()
    secret = StateSecret(Flaky(place.client, before=10**6), "default", place.name, clock)  # type: ignore[arg-type]
    await secret.read()
    writing = asyncio.create_task(secret.write(b"one"))
    await clock.advance(400)
    with pytest.raises(DriverError, match="can't be used: the server can't be reached") as caught:
        await writing
    assert caught.value.reason is Reason.UNAVAILABLE


async def test_a_secret_that_is_not_there_is_said_at_once(place: Place) -> None:
    with pytest.raises(DriverError, match="the state Secret default/nope does not exist"):
        await StateSecret(place.client, "default", "nope", VirtualClock()).read()
