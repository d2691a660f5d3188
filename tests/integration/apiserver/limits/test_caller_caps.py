"""Bytes of requests under way: so many for each user and in all, given back however a request ends."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.limits.caller_caps import SMALL_BODY, BodyRoom, HeldBody
from remuda.apiserver.server import Server
from remuda.kube.objects import GroupVersionResource
from tests.real.pki import Authority
from tests.unit.apiserver.serving import CONFIG_MAPS, config_map, served
from tests.waiting import until

LARGE = 10 * SMALL_BODY
HOOKS = GroupVersionResource("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations")
PATH = "/api/v1/namespaces/{}/configmaps"
MASTERS = "Impersonate-Group: system:masters\r\n"


def test_each_user_has_so_many_bytes_and_all_of_them_together() -> None:
    room = BodyRoom(each=3 * LARGE, in_all=4 * LARGE)
    ann = [HeldBody(room, "ann") for _ in range(3)]
    bob = [HeldBody(room, "bob") for _ in range(2)]
    assert [body.reach(LARGE) for body in ann] == [True, True, False]
    assert [body.reach(LARGE) for body in bob] == [True, False]
    assert (room.held("ann"), room.held("bob"), room.bytes, room.rejected) == (2 * LARGE, LARGE, 3 * LARGE, 2)
    ann[0].leave()
    ann[0].leave()
    assert bob[1].reach(LARGE)
    for body in (*ann, *bob):
        body.leave()
    assert (room.held("ann"), room.held("bob"), room.bytes) == (0, 0, 0)


def test_large_bodies_leave_room_for_small_ones() -> None:
    room = BodyRoom(each=4 * LARGE, in_all=100 * LARGE)
    assert all(HeldBody(room, "ann").reach(LARGE) for _ in range(3))
    small = HeldBody(room, "ann")
    assert small.reach(SMALL_BODY)
    # One that turns out to be large is refused, and has what it had.
    assert not small.reach(SMALL_BODY + 1)
    assert room.held("ann") == 3 * LARGE + SMALL_BODY
    assert sum(HeldBody(room, "ann").reach(SMALL_BODY) for _ in range(20)) == 9


# --- a real server --------------------------------------------------------------------------------------------------------


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with served(data_dir=tmp_path / "data", port=0) as server:
        server.flow.bodies = BodyRoom(each=4 * LARGE, in_all=40 * LARGE)
        await server.listen()
        yield server


class Sender:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def write(self, head: str, sent: bytes = b"", namespace: str = "default") -> None:
        lines = f"POST {PATH.format(namespace)} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{head}\r\n"
        self.writer.write(lines.encode() + sent)

    async def answer(self) -> tuple[int, str]:
        async with asyncio.timeout(60):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
            await self.reader.readexactly(int(fields["content-length"]))
        return int(head.split()[1]), fields.get("retry-after", "")


@asynccontextmanager
async def sending(server: Server) -> AsyncIterator[Sender]:
    assert server.pki is not None
    context = ssl.create_default_context(cafile=str(server.pki.ca_certificate))
    context.load_cert_chain(server.pki.admin_certificate, server.pki.admin_key)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]), ssl=context)
    try:
        yield Sender(reader, writer)
    finally:
        writer.transport.abort()


def padded(name: str, size: int, namespace: str = "default") -> bytes:
    return json.dumps(config_map(name, namespace)).encode().ljust(size)


async def holds(server: Server, size: int) -> None:
    await until(lambda: server.flow.bodies.bytes == size)


async def create(server: Server, name: str, size: int, user: str = "", namespace: str = "default") -> tuple[int, str]:
    async with sending(server) as sender:
        who = f"Impersonate-User: {user}\r\n{MASTERS}" if user else ""
        sender.write(f"Content-Length: {size}\r\n{who}", padded(name, size, namespace), namespace)
        return await sender.answer()


async def test_who_has_too_many_bytes_under_way_is_told_to_try_again(server: Server) -> None:
    async with sending(server) as first, sending(server) as second, sending(server) as third:
        waiting = (first, second, third)
        for sender in waiting:
            # All of it is announced, the last of it is not there yet.
            sender.write(f"Content-Length: {LARGE}\r\n", padded(f"w{waiting.index(sender)}", LARGE)[:-1])
        await holds(server, 3 * LARGE)
        assert await create(server, "large", LARGE) == (429, "1")
        assert await create(server, "small", SMALL_BODY) == (201, "")
        assert await create(server, "theirs", LARGE, user="other") == (201, "")
        await InProcessClient(server).create(CONFIG_MAPS, config_map("inside", text="x" * LARGE))
        for sender in waiting:
            sender.writer.write(b" ")
        assert [(await sender.answer())[0] for sender in waiting] == [201] * 3
    assert server.flow.bodies.bytes == 0
    assert await create(server, "large", LARGE) == (201, "")


@asynccontextmanager
async def hanging(directory: Path, server: Server) -> AsyncIterator[tuple[asyncio.Semaphore, asyncio.Event]]:
    """A webhook for all ConfigMaps: released once for each that it is asked about, and it answers none until it may go."""
    authority = Authority(directory, "hook-ca")
    pair = authority.serving("hook", ("127.0.0.1",))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    asked, go = asyncio.Semaphore(0), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.release()
        await go.wait()
        writer.transport.abort()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as listening:
        port = listening.sockets[0].getsockname()[1]
        bundle = base64.b64encode(authority.pair.cert.read_bytes()).decode()
        hook = {
            "name": "hook.example.com",
            "clientConfig": {"url": f"https://127.0.0.1:{port}/", "caBundle": bundle},
            "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "timeoutSeconds": 30,
        }
        obj = {"apiVersion": f"{HOOKS.group}/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "hook"}}
        await InProcessClient(server).create(HOOKS, {**obj, "webhooks": [hook]})
        try:
            yield asked, go
        finally:
            go.set()


async def test_bodies_that_wait_for_a_webhook_are_counted(server: Server, tmp_path: Path) -> None:
    async with hanging(tmp_path, server) as (asked, go), asyncio.TaskGroup() as group:
        held = [group.create_task(create(server, f"held{number}", LARGE)) for number in range(3)]
        async with asyncio.timeout(60):
            for _ in held:
                await asked.acquire()
        assert server.flow.bodies.bytes == 3 * LARGE
        assert await create(server, "large", LARGE) == (429, "1")
        assert await create(server, "small", SMALL_BODY, namespace="kube-public") == (201, "")
        go.set()
    assert [each.result()[0] for each in held] == [500] * 3
    assert server.flow.bodies.bytes == 0


async def test_a_body_of_unknown_length_is_counted_as_it_comes(server: Server) -> None:
    piece = b"%x\r\n%b\r\n" % (LARGE, b" " * LARGE)
    async with sending(server) as sender:
        sender.write("Transfer-Encoding: chunked\r\n", piece)
        await holds(server, LARGE)
        sender.writer.write(3 * piece + b"0\r\n\r\n")
        assert await sender.answer() == (429, "1")
    assert server.flow.bodies.bytes == 0


async def test_however_a_request_ends_its_bytes_are_given_back(server: Server) -> None:
    async with sending(server) as sender:
        # It goes away in the middle.
        sender.write(f"Content-Length: {LARGE}\r\n", b"{")
        await holds(server, LARGE)
    await holds(server, 0)
    async with sending(server) as sender:
        sender.write(f"Content-Length: {LARGE}\r\n", b"no json".ljust(LARGE))
        assert (await sender.answer())[0] == 400
    assert server.flow.bodies.bytes == 0
    assert (await create(server, "a", LARGE))[0] == 201
    assert (await create(server, "a", LARGE))[0] == 409
    assert server.flow.bodies.bytes == 0
    async with sending(server) as sender:
        # It is cut off by a server that stops.
        sender.write(f"Content-Length: {LARGE}\r\n", b"{")
        await holds(server, LARGE)
        await server.close(0.0)
        await holds(server, 0)
