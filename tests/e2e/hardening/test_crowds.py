"""Clients that are many or greedy: a thousand idle watches, and everything listed again and again."""

from __future__ import annotations

import asyncio
import http.client
import json
import resource
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.e2e.serving import Served, config_map, eventually, make_namespace, send

from .test_connections import rests

# Much is written, and many shake hands: a slow machine takes minutes.
pytestmark = pytest.mark.timeout(900)

WATCHES = 1000
OBJECTS, SIZE = 3000, 6000
LISTERS, SLEEPERS = 5, 20


@contextmanager
def _files(wanted: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"this takes {wanted} open files, and {hard} are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def _watch(
    port: int, context: ssl.SSLContext, path: str, seats: asyncio.Semaphore
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    async with seats:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="127.0.0.1")
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        return reader, writer


async def _told(reader: asyncio.StreamReader) -> str:
    line = b""
    # Each event is a chunk: its size, the event, an empty line.
    while b'"type"' not in line:
        line = await reader.readline()
        assert line, "a watch has ended"
    return str(json.loads(line)["object"]["metadata"]["name"])


async def test_a_thousand_idle_watches_cost_little_and_hear_all(served: Served) -> None:
    collection = make_namespace(served, "crowd")
    endpoint = served.endpoint
    revision = endpoint.request("GET", collection).json["metadata"]["resourceVersion"]
    path = f"{collection}?watch=1&resourceVersion={revision}"
    before = served.memory()
    # Of a server's files one address has less than half.
    with _files(3 * WATCHES):
        seats = asyncio.Semaphore(16)
        async with asyncio.timeout(240):
            open_ = await asyncio.gather(*(_watch(served.port, endpoint.context, path, seats) for _ in range(WATCHES)))
        each = (served.memory() - before) / WATCHES / 1024
        print(f"{each:.0f} KiB for each of {WATCHES} idle watches")
        assert each < 200
        await asyncio.to_thread(eventually, lambda: rests(served), why="watches that are told nothing should cost nothing")
        made = await asyncio.to_thread(send, endpoint, "POST", collection, config_map("heard"))
        assert made.status == 201
        async with asyncio.timeout(120):
            assert set(await asyncio.gather(*(_told(reader) for reader, _ in open_))) == {"heard"}
        for _, writer in open_:
            writer.close()
    eventually(lambda: _watchers(served) <= 2, why="watches whose clients have gone are still there")


def _watchers(served: Served) -> int:
    text = served.endpoint.request("GET", "/metrics").raw.decode()
    lines = [line for line in text.splitlines() if line.startswith("apiserver_registered_watchers{") and '"ConfigMap"' in line]
    return sum(int(float(line.split()[-1])) for line in lines)


def test_everything_listed_in_a_loop_costs_neither_memory_nor_others(served: Served) -> None:
    collection = make_namespace(served, "greedy")
    local = threading.local()

    def fill(number: int) -> int:
        if not hasattr(local, "endpoint"):
            local.endpoint = served.endpoint
        return send(local.endpoint, "POST", collection, config_map(f"m{number}", a="x" * SIZE)).status

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(fill, range(OBJECTS))) == {201}
    endpoint = served.endpoint
    whole = len(endpoint.request("GET", collection).raw)
    before = served.memory()
    stop = threading.Event()
    lists: list[int] = []

    def list_all() -> None:
        connection = http.client.HTTPSConnection("127.0.0.1", served.port, context=endpoint.context, timeout=120)
        while not stop.is_set():
            connection.request("GET", collection)
            response = connection.getresponse()
            size = 0
            while part := response.read(1 << 20):
                size += len(part)
            assert response.status == 200 and size == whole
            lists.append(size)
        connection.close()

    listers = [threading.Thread(target=list_all, daemon=True) for _ in range(LISTERS)]
    sleepers = [served.connect() for _ in range(SLEEPERS)]
    for sleeper in sleepers:
        sleeper.sendall(f"GET {collection} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    for lister in listers:
        lister.start()
    largest = before
    done = 0
    try:
        # As long as it takes to see some lists through; whoever asks for little has many turns meanwhile.
        end = time.monotonic() + 120
        while len(lists) < 3 * LISTERS and time.monotonic() < end:
            assert endpoint.request("GET", f"{collection}/m{done % OBJECTS}").status == 200
            done += 1
            largest = max(largest, served.memory())
    finally:
        stop.set()
        for lister in listers:
            lister.join(120)
    assert not any(lister.is_alive() for lister in listers)
    shown = f"{done} GETs while {len(lists)} lists of {whole >> 20} MiB were sent; memory {before >> 20} to {largest >> 20} MiB"
    print(shown)
    assert done > len(lists), shown
    assert largest - before < 3 * whole, shown
    for sleeper in sleepers:
        sleeper.close()
