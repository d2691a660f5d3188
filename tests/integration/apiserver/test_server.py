"""The server as a whole: what ends it, who leaves it, and what it keeps at rest."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from remuda.apiserver.auth.authenticator import Credentials
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.keys.encryption import PREFIX, parse_keys, render_keys
from remuda.apiserver.server import Config, PartFailed, Server
from remuda.app import embedded
from remuda.kube.clock import VirtualClock, rfc3339
from remuda.kube.objects import GroupVersionResource
from tests.unit.apiserver.serving import CONFIG_MAPS, SECRETS, config_map, served, version_of
from tests.waiting import until

SERVICE_ACCOUNTS = GroupVersionResource("", "v1", "serviceaccounts")


async def holds(predicate: Callable[[], bool]) -> None:
    await until(predicate)


# --- what ends it ---------------------------------------------------------------------------------------------------------


async def test_it_serves_until_it_is_told_to_stop() -> None:
    async with embedded.running(Config(None), listen=False) as server:
        stop = asyncio.Event()
        serving = asyncio.create_task(server.serve_forever(stop))
        await InProcessClient(server).create(CONFIG_MAPS, config_map("a"))
        assert not serving.done()
        stop.set()
        await serving


async def test_when_the_controllers_die_it_says_so_and_stops(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object, **__: object) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(_fails())

    async def _fails() -> None:
        raise ZeroDivisionError("a controller has a bug")

    monkeypatch.setattr(embedded, "run_controllers", broken)
    with pytest.raises(PartFailed, match="the controllers ended: a controller has a bug"):
        async with embedded.running(Config(None), listen=False) as server:
            await server.serve_forever(asyncio.Event())
    assert "the controllers ended" in caplog.text


async def test_when_the_store_s_feed_is_lost_it_stops() -> None:
    async with served() as server:
        serving = asyncio.create_task(server.serve_forever(asyncio.Event()))
        await server.store.close()
        with pytest.raises(PartFailed, match="the watch cache ended"):
            await serving


# --- who leaves it --------------------------------------------------------------------------------------------------------


@pytest.fixture
async def listening(tmp_path: Path) -> AsyncIterator[Server]:
    async with served(data_dir=tmp_path / "data", port=0) as server:
        await server.listen()
        yield server


async def connect(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    assert server.pki is not None
    context = ssl.create_default_context(cafile=str(server.pki.ca_certificate))
    context.load_cert_chain(server.pki.admin_certificate, server.pki.admin_key)
    return await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]), ssl=context)


async def ask(server: Server, path: str, method: str = "GET") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await connect(server)
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\nUser-Agent: test\r\n\r\n".encode())
    status = await reader.readuntil(b"\r\n\r\n")
    assert status.startswith(b"HTTP/1.1 200")
    return reader, writer


async def event(reader: asyncio.StreamReader) -> dict[str, Any]:
    size = int(await reader.readuntil(b"\r\n"), 16)
    data = await reader.readexactly(size + 2)
    found: dict[str, Any] = json.loads(data)
    return found


WATCH = "/api/v1/namespaces/default/configmaps?watch=true"


async def test_clients_that_disconnect_leave_nothing_behind(listening: Server) -> None:
    client = InProcessClient(listening)
    feed = listening.feeds.feed(version_of(listening, CONFIG_MAPS))
    before = feed.count
    watches = [await ask(listening, WATCH) for _ in range(5)]
    await client.create(CONFIG_MAPS, config_map("a"))
    for reader, _ in watches:
        assert (await event(reader))["object"]["metadata"]["name"] == "a"
    assert feed.count == before + 5
    for number, (_, writer) in enumerate(watches):
        # Half of them politely, half of them by pulling the plug.
        writer.close() if number % 2 else writer.transport.abort()
    await holds(lambda: feed.count == before and not listening.handler.streams)
    await client.create(CONFIG_MAPS, config_map("b"))


async def test_a_reader_that_falls_behind_gets_everything_in_order(listening: Server) -> None:
    client = InProcessClient(listening)
    reader, writer = await ask(listening, WATCH)
    large = "x" * 20_000
    for number in range(150):
        await client.create(CONFIG_MAPS, config_map(f"c{number:03}", k=large))
    seen = []
    for number in range(200):
        if number == 75:
            for more in range(150, 200):
                await client.create(CONFIG_MAPS, config_map(f"c{more:03}", k=large))
        seen.append((await event(reader))["object"]["metadata"]["name"])
    assert seen == [f"c{number:03}" for number in range(200)]
    writer.close()


async def test_closing_with_no_grace_cuts_requests_off_at_once(tmp_path: Path) -> None:
    async with served(data_dir=tmp_path / "data", port=0) as server:
        await server.listen()
        reader, writer = await ask(server, WATCH)
        listener = server._listener
        assert listener is not None
        await listener.close(grace=0)
        assert await reader.read() == b""
        writer.close()


async def test_closing_the_server_ends_watches_cleanly(tmp_path: Path) -> None:
    async with served(data_dir=tmp_path / "data", port=0) as server:
        await server.listen()
        reader, writer = await ask(server, WATCH)
    assert (await reader.read()).endswith(b"0\r\n\r\n")
    writer.close()


# --- what it keeps at rest ------------------------------------------------------------------------------------------------

SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "s", "namespace": "default"},
    "data": {"password": base64.b64encode(b"geheim").decode()},
}
KEY = "/registry/secrets/default/s"


async def at_rest(server: Server) -> bytes:
    found = await server.store.get(KEY)
    assert found is not None
    return found.value


async def test_a_secret_sealed_with_an_old_key_is_sealed_anew_by_the_next_update_even_of_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with served(data_dir=data) as server:
        await InProcessClient(server).create(SECRETS, SECRET)
        first = await at_rest(server)
        assert first.startswith(PREFIX + b"key1:")
        assert b"geheim" not in first
    keys = data / "encryption.yaml"
    keys.write_text(render_keys([("key2", b"2" * 32), *parse_keys(keys.read_bytes())]))
    async with served(data_dir=data) as server:
        client = InProcessClient(server)
        assert await at_rest(server) == first
        found = await client.get(SECRETS, "s", "default")
        rewritten = await client.update(SECRETS, found)
        assert (await at_rest(server)).startswith(PREFIX + b"key2:")
        assert rewritten["data"] == SECRET["data"]
        again = await client.update(SECRETS, rewritten)
        assert again["metadata"]["resourceVersion"] == rewritten["metadata"]["resourceVersion"]


# --- legacy tokens --------------------------------------------------------------------------------------------------------


async def test_the_day_of_a_legacy_token_s_last_use_is_written_on_its_secret_once_a_day() -> None:
    # Half a minute before midnight.
    clock = VirtualClock(86_400 * 20_000 - 30)
    async with served(clock=clock) as server:
        client = InProcessClient(server)
        account = await client.create(
            SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bot", "namespace": "default"}}
        )
        annotations = {"kubernetes.io/service-account.name": "bot"}
        secret = await client.create(
            SECRETS,
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "type": "kubernetes.io/service-account-token",
                "metadata": {"name": "bot-token", "namespace": "default", "annotations": annotations},
            },
        )
        token = server.issuer.legacy_token(account, secret)
        encoded = base64.b64encode(token.encode()).decode()
        await client.patch(SECRETS, "bot-token", {"data": {"token": encoded}}, "default")

        async def use() -> Any:
            for _ in range(3):
                assert await server.handler.chain.identify(Credentials(bearer=token)) is not None
            await clock.advance(1)
            return (await client.get(SECRETS, "bot-token", "default"))["metadata"]

        first = await use()
        label = "kubernetes.io/legacy-token-last-used"
        assert first["labels"] == {label: rfc3339(clock.time())[:10]}
        assert [entry["manager"] for entry in first["managedFields"] if "f:labels" in entry["fieldsV1"]["f:metadata"]] == [
            "kube-apiserver"
        ]
        assert (await use())["resourceVersion"] == first["resourceVersion"]
        await clock.advance(60)
        assert (await use())["labels"] == {label: rfc3339(clock.time())[:10]}
