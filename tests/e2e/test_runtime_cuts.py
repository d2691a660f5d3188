"""Informers over HTTPS on a real `remuda serve`, while connections break at every kind of byte: nothing missed, nothing twice."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.client.https import HttpsClient
from remuda.client.kubeconfig import KubeTarget
from remuda.kube.clock import SYSTEM_CLOCK, Rng
from remuda.kube.objects import GroupVersionResource, name_of, resource_version_of
from remuda.runtime import Informer, Pauses
from tests.api.harness import RemudaProcess

from .cutting import PLACES, Cut, Proxy, RawProxy

Obj = dict[str, Any]
CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")
NAMESPACES = GroupVersionResource("", "v1", "namespaces")
QUICK = Pauses(0.002, 0.01)


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemudaProcess]:
    started = RemudaProcess(tmp_path_factory.mktemp("remuda"))
    started.start()
    yield started
    assert started.stop() == 0


def target(process: RemudaProcess, port: int) -> KubeTarget:
    pki = process.directory / "pki"

    def content(name: str) -> bytes:
        return Path(pki / name).read_bytes()

    return KubeTarget(
        f"https://127.0.0.1:{port}",
        ca=content("ca.crt"),
        client_certificate=content("admin.crt"),
        client_key=content("admin.key"),
    )


class Ledger:
    """Everything that was written, and everything that an informer's handlers were told."""

    def __init__(self, client: HttpsClient, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.written: list[tuple[str, str, str]] = []
        self.told: list[tuple[str, str, str]] = []
        self._there: set[str] = set()
        self._number = 0

    async def write(self, dice: random.Random) -> None:
        name = f"m{dice.randrange(6)}"
        self._number += 1
        data = {"number": str(self._number), "text": "x" * dice.randrange(400)}
        if name not in self._there:
            metadata = {"name": name, "namespace": self.namespace, "labels": {"test": "cuts"}}
            await self.client.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
            self._there.add(name)
            self.written.append(("added", name, str(self._number)))
        elif dice.random() < 0.3:
            await self.client.delete(CONFIG_MAPS, name, self.namespace)
            self._there.remove(name)
            self.written.append(("gone", name, ""))
        else:
            await self.client.patch(CONFIG_MAPS, name, {"data": data}, self.namespace)
            self.written.append(("changed", name, str(self._number)))

    def note(self, new: Obj | None, old: Obj | None) -> None:
        kind = "added" if old is None else "gone" if new is None else "changed"
        self.told.append((kind, name_of(new or old or {}), new["data"]["number"] if new is not None else ""))


@contextlib.asynccontextmanager
async def ledger(process: RemudaProcess, namespace: str) -> AsyncIterator[Ledger]:
    async with HttpsClient(target(process, process.port)) as client:
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        yield Ledger(client, namespace)


async def until(condition: Any, seconds: float = 180) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def running(informer: Informer) -> AsyncIterator[None]:
    task = asyncio.create_task(informer.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def follow(client: HttpsClient, book: Ledger, **options: Any) -> Informer:
    informer = Informer(
        client, CONFIG_MAPS, SYSTEM_CLOCK, Rng(1), namespace=book.namespace, labels="test=cuts", pauses=QUICK, **options
    )
    informer.on_change(book.note)
    return informer


async def compare(informer: Informer, book: Ledger) -> None:
    """What is there now is what the server says."""
    listed = await book.client.list(CONFIG_MAPS, book.namespace, labels="test=cuts")
    wanted = {name_of(item): resource_version_of(item) for item in listed["items"]}
    await until(lambda: {name_of(obj): resource_version_of(obj) for obj in informer.objects()} == wanted)


async def test_a_connection_that_breaks_at_any_place_of_the_protocol_costs_nothing(process: RemudaProcess) -> None:
    dice = random.Random(7)
    endpoint = process.endpoint
    proxy = Proxy("127.0.0.1", process.port, endpoint.context)
    async with ledger(process, "places") as book, proxy.running():
        for _ in range(6):
            await book.write(dice)
        proxy.cuts.extend(Cut(place, events, reset) for events in (0, 1, 3) for place in PLACES for reset in (False, True))
        async with HttpsClient(KubeTarget(proxy.url)) as client:
            informer = follow(client, book)
            async with running(informer):
                # While it tries to learn what there is; then, with a few cuts left, while things happen.
                while proxy.cuts and not informer.synced.is_set():
                    await asyncio.sleep(0.01)
                await until(informer.synced.is_set)
                assert len({name for _, name, _ in book.told}) == len(book.told) == len(informer)
                book.written.clear()
                book.told.clear()
                proxy.cuts.extend(
                    Cut(place, events, reset) for events in (0, 1, 2) for place in PLACES for reset in (False, True)
                )
                while proxy.cuts:
                    await book.write(dice)
                    await asyncio.sleep(0.003)
                for _ in range(20):
                    await book.write(dice)
                await until(lambda: len(book.told) >= len(book.written))
                await compare(informer, book)
                assert book.told == book.written
                assert informer.reflector.listings == 1, "a broken connection must not make it read everything again"


async def test_tls_that_breaks_at_any_byte_costs_nothing(process: RemudaProcess) -> None:
    dice = random.Random(11)
    async with ledger(process, "bytes") as book, RawProxy("127.0.0.1", process.port).running() as proxy:
        for _ in range(6):
            await book.write(dice)
        async with HttpsClient(target(process, proxy.port)) as client:
            informer = follow(client, book)
            proxy.limits.extend(dice.randrange(1, 6000) for _ in range(30))
            async with running(informer):
                await until(informer.synced.is_set)
                book.written.clear()
                book.told.clear()
                proxy.limits.extend(dice.randrange(1, 9000) for _ in range(60))
                while proxy.limits:
                    await book.write(dice)
                    await asyncio.sleep(0.003)
                for _ in range(20):
                    await book.write(dice)
                await until(lambda: len(book.told) >= len(book.written))
                await compare(informer, book)
                assert book.told == book.written
                assert informer.reflector.listings == 1


async def test_a_server_without_streamed_lists_is_read_in_pages(process: RemudaProcess) -> None:
    dice = random.Random(3)
    proxy = Proxy("127.0.0.1", process.port, process.endpoint.context)
    proxy.refuse_streams = True
    async with ledger(process, "pages") as book, proxy.running():
        while len(book.written) < 12:
            await book.write(dice)
        async with HttpsClient(KubeTarget(proxy.url)) as client:
            informer = follow(client, book, page_size=2)
            async with running(informer):
                await until(informer.synced.is_set)
                book.written.clear()
                book.told.clear()
                for _ in range(30):
                    await book.write(dice)
                await until(lambda: len(book.told) >= len(book.written))
                assert book.told == book.written
                await compare(informer, book)


async def test_only_metadata_crosses_the_wire_when_only_metadata_is_kept(process: RemudaProcess) -> None:
    dice = random.Random(5)
    async with ledger(process, "metadata") as book:
        for _ in range(5):
            await book.write(dice)
        informer = Informer(
            book.client, CONFIG_MAPS, SYSTEM_CLOCK, Rng(1), namespace="metadata", labels="test=cuts", metadata_only=True
        )
        async with running(informer):
            await until(informer.synced.is_set)
            for _ in range(5):
                await book.write(dice)
            await compare(informer, book)
            assert len(informer) > 0
            assert all("data" not in obj for obj in informer.objects())
