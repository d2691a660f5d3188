"""Which proxy is used for which server, by Go's rules, and that a client goes through one that asks who it is."""

from __future__ import annotations

import asyncio
import base64
import contextlib

import pytest

from remuda.client.proxies import proxy_for
from remuda.kube.clock import SYSTEM_CLOCK, Rng
from remuda.tunnel import Server, TunnelClient
from tests.waiting import until

from .pair import TOKEN, Door, listening, stopped

BOTH = {"HTTPS_PROXY": "http://secure:3128", "http_proxy": "plain:3128"}


@pytest.mark.parametrize(
    ("url", "exceptions", "proxy"),
    [
        ("wss://rancher.example.com/v3/connect", "", "http://secure:3128"),
        ("ws://rancher.example.com/v3/connect", "", "http://plain:3128"),
        ("wss://rancher.example.com/", "example.com", None),
        ("wss://rancher.example.com/", ".example.com", None),
        ("wss://rancher.example.com/", "*.example.com", None),
        ("wss://example.com/", ".example.com", "http://secure:3128"),
        ("wss://example.com/", "example.com", None),
        ("wss://notexample.com/", "example.com", "http://secure:3128"),
        ("wss://Rancher.Example.COM/", "EXAMPLE.com", None),
        ("wss://rancher.example.com/", "other.com, example.com:443", None),
        ("wss://rancher.example.com:8443/", "example.com:443", "http://secure:3128"),
        ("wss://rancher.example.com/", "*", None),
        ("wss://10.1.2.3/", "10.0.0.0/8", None),
        ("wss://11.1.2.3/", "10.0.0.0/8", "http://secure:3128"),
        ("wss://10.1.2.3/", "10.1.2.3", None),
        ("wss://10.1.2.3:8443/", "10.1.2.3:443", "http://secure:3128"),
        ("wss://[fd00::1]/", "fd00::/8", None),
        ("wss://[fd00::1]:443/", "[fd00::1]:443", None),
        ("wss://[fd00::1]/", "fd00::1", None),
        ("wss://10.1.2.3/", "nonsense/8", "http://secure:3128"),
        ("wss://localhost/", "", None),
        ("wss://127.0.0.1/", "", None),
        ("wss://[::1]/", "", None),
    ],
)
def test_which_proxy(url: str, exceptions: str, proxy: str | None) -> None:
    assert proxy_for(url, {**BOTH, "NO_PROXY": exceptions}) == proxy


def test_no_proxy_at_all() -> None:
    assert proxy_for("wss://rancher.example.com/", {}) is None


async def test_a_client_goes_through_a_proxy_with_its_password() -> None:
    """A plain-text server behind a forwarding proxy: the request names the whole URL, and who is asking."""
    asked: list[bytes] = []

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head)
        onward_reader, onward = await asyncio.open_connection("127.0.0.1", door.port)
        onward.write(head.replace(door.url.encode().replace(b"ws:", b"http:"), b"/v3/connect"))

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                while data := await source.read(65536):
                    target.write(data)
                    await target.drain()
            target.close()

        await asyncio.gather(copy(reader, onward), copy(onward_reader, writer))

    async with Door() as door, listening(forward) as proxy:
        server = Server(door.url, proxy=f"http://user:pa%20ss@{proxy}")
        client = TunnelClient(server, lambda: {"X-API-Tunnel-Token": TOKEN}, lambda *_: True, SYSTEM_CLOCK, Rng(1))
        task = asyncio.create_task(client.run())
        await until(lambda: door.tunnels.has_session("c-test"))
        assert asked[0].startswith(b"GET http://127.0.0.1:")
        assert b"Proxy-Authorization: Basic " + base64.b64encode(b"user:pa ss") in asked[0]
        await stopped(task)
