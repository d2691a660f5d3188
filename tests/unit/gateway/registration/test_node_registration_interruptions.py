"""The server, gateway and controllers in one, is killed after any write of a registration, and the answer is lost: the host asks
again when the server is back, much later than a moment, and is let in as the same machine with the one token that there is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from remuda.api import cluster_x_k8s_io as capi
from remuda.client.interface import Client
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.objects import labels_of, name_of
from remuda.provisioning.well_known import ACCOUNT_LABEL, MACHINE_ID, REQUEST_TYPE, plan_name, request_name
from tests.scenarios.mortal import Mortal
from tests.scenarios.soaking import SOAK, dice
from tests.unit.provisioning.rke_machines import FLEET, Machines, machines

from .waiting_hosts import ID, NODE, OTHER, Hosted, controllers, token_in

# Longer than any short while in which an answer could have been taken for heard.
AWAY = 90.0
LAYOUT = '{"root":"/srv/h1","loopback":"127.0.4.1"}'


class Lives:
    """One server after the other on the same store; the first dies right after a write, if one is said."""

    def __init__(self, made: Machines) -> None:
        self._made = made
        self._running: list[asyncio.Task[None]] = []
        self.mortal: Mortal
        self.place: Hosted

    async def begin(self, writes: int | None = None) -> None:
        def through(client: Client) -> Any:
            self.mortal = Mortal(client, writes)
            return self.mortal

        self._made.begin(through)
        self.place = Hosted(self._made, self.mortal)  # type: ignore[arg-type]
        self._running.append(asyncio.create_task(self.place.services.informers.run()))
        await self._made.settle(1)

    async def end(self) -> None:
        self.mortal.bury()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._made.lives[-1].stop()


@contextlib.asynccontextmanager
async def prepared() -> AsyncIterator[tuple[Machines, Lives]]:
    """A cluster, and a machine m1 of it that waits for its host."""
    async with machines(controllers, begin=False) as made:
        lives = Lives(made)
        await lives.begin()
        await lives.place.wanted()
        await made.machine("m1")
        await made.settle(5)
        await lives.end()
        yield made, lives
        await lives.end()


def asks_by_script(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}", "X-Cattle-Id": ID, "X-Cattle-Layout": LAYOUT}


def asks_by_hand(_: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {NODE}", "X-Cattle-Id": ID, "X-Cattle-Role-Worker": "true"}


Kind = tuple[str, Callable[[str], dict[str, str]]]
KINDS: dict[str, Kind] = {"awaited": ("m1", asks_by_script), "by hand": (request_name(ID), asks_by_hand)}


async def answer_of(made: Machines, lives: Lives, name: str, headers: dict[str, str]) -> bytes | None:
    """What one try of the host gets; None when the server died under it, or says that it must come again."""
    asking = asyncio.create_task(lives.place.ask("/v3/connect/agent", headers))
    for _ in range(30):
        await made.settle(0.5)
        await lives.place.adopt(name)
        if asking.done() or lives.mortal.died.is_set():
            break
    if lives.mortal.died.is_set():
        lives.mortal.bury()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await lives.end()
        await made.settle(AWAY)
        await lives.begin()
        return None
    assert asking.done(), "it takes longer"
    status, body = asking.result()
    assert status in (200, 503), (status, body)
    return body if status == 200 else None


async def registered(kind: str, writes: int | None) -> int:
    """A host comes in, however the server dies; how many writes the first server lived."""
    async with prepared() as (made, lives):
        name, asks = KINDS[kind]
        headers = asks(await lives.place.script_token("m1"))
        await lives.begin(writes)
        first = lives.mortal
        body = None
        for _ in range(20):
            if (body := await answer_of(made, lives, name, headers)) is not None:
                break
            await made.settle(5)
        assert body is not None, f"the host is never let in after write {writes}"
        written = first.written
        if writes is not None and not first.died.is_set():
            return written
        await check(made, lives, name, headers, body)
        return written


async def check(made: Machines, lives: Lives, name: str, headers: dict[str, str], body: bytes) -> None:
    place = lives.place
    found = [each for each in await made.list(capi.MACHINES, FLEET) if labels_of(each).get(MACHINE_ID) == ID]
    assert [name_of(each) for each in found] == [name], "one machine is this host"
    tokens = [each for each in await made.list(SECRETS, FLEET) if labels_of(each).get(ACCOUNT_LABEL) == plan_name(name)]
    assert len(tokens) == 1, "there is one token, and the host has it"
    assert await answer_of(made, lives, name, headers) == body, "the host itself died before it kept the answer"
    if name == "m1":
        assert (await place.come("m1", OTHER))[0] == 401, "no other host comes in with its token"
    await place.act(token_in(body))
    if name == "m1":
        assert (await place.come("m1"))[0] == 401, "it has acted"
    else:
        assert (await place.register())[0] == 403, "it has acted"
    await made.settle(70)
    assert [each for each in await made.list(SECRETS, place.cluster) if each["type"] == REQUEST_TYPE] == []


@pytest.mark.soak
@pytest.mark.timeout(0 if SOAK else 600)
@pytest.mark.parametrize("kind", KINDS)
async def test_whichever_write_the_server_dies_after_the_host_is_let_in(kind: str) -> None:
    writes = await registered(kind, None)
    assert writes >= (4 if kind == "awaited" else 15), writes
    numbers = range(1, writes + 1)
    for number in numbers if SOAK or kind == "awaited" else sorted(dice(f"joining {kind}").sample(numbers, 5)):
        await registered(kind, number)
