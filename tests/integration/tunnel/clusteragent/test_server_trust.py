"""Which server is believed, and that nothing secret is sent to another one."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
from dataclasses import replace

import pytest

from remuda.apiserver.keys.pki import Pki
from remuda.gateway.server.serving_certificate import ca_checksum
from remuda.kube.clock import SYSTEM_CLOCK, VirtualClock
from remuda.tunnel.clusteragent.server_trust import Trust, TrustError, establish, matches
from remuda.tunnel.clusteragent.settings import Settings
from tests.integration.tunnel.pair import listening
from tests.waiting import until

from .gate import TOKEN, Gate


@pytest.mark.parametrize("strict", [True, False])
async def test_the_right_checksum_makes_its_ca_believed(gate: Gate, strict: bool) -> None:
    found = await establish(Settings(gate.url, TOKEN, gate.checksum, strict), SYSTEM_CLOCK, "")
    assert found == Trust(gate.ca.encode(), system_too=not strict)
    assert gate.asked == ["/v3/settings/cacerts", "/ping"]


async def test_another_checksum_is_refused_before_anything_else_is_asked(gate: Gate) -> None:
    with pytest.raises(TrustError, match="another checksum"):
        await establish(Settings(gate.url, TOKEN, "0" * 64), SYSTEM_CLOCK, "")
    assert gate.asked == ["/v3/settings/cacerts"]


async def test_a_server_that_shows_the_right_ca_but_has_no_certificate_of_it_is_refused(gate: Gate, other_pki: Pki) -> None:
    """Somebody in the middle can repeat the CA, which is public."""
    gate.ca = other_pki.ca_pem.decode()
    for strict in (True, False):
        with pytest.raises(TrustError, match="not to be believed"):
            await establish(Settings(gate.url, TOKEN, gate.checksum, strict), SYSTEM_CLOCK, "")
    assert "/ping" not in gate.asked


async def test_without_a_checksum_the_system_decides(gate: Gate) -> None:
    with pytest.raises(TrustError, match="not to be believed"):
        await establish(Settings(gate.url, TOKEN), SYSTEM_CLOCK, "")


@pytest.mark.parametrize(("ca", "complaint"), [("", "has no CA"), ("no certificate", "is not PEM")])
async def test_a_setting_that_is_no_ca(gate: Gate, ca: str, complaint: str) -> None:
    gate.ca = ca
    with pytest.raises(TrustError, match=complaint):
        await establish(Settings(gate.url, TOKEN, ca_checksum(ca) or "0" * 64), SYSTEM_CLOCK, "")


async def test_a_page_that_answers_everything_is_not_the_server(gate: Gate) -> None:
    gate.ping = "<html>Log in to the hotel's network</html>"
    with pytest.raises(TrustError, match="did not answer pong"):
        await establish(Settings(gate.url, TOKEN, gate.checksum), SYSTEM_CLOCK, "")


async def test_no_server_listens() -> None:
    with pytest.raises(TrustError, match="can't be reached"):
        await establish(Settings("https://127.0.0.1:1", TOKEN, "0" * 64), SYSTEM_CLOCK, "")


async def test_a_server_that_never_answers_is_given_up_after_ten_seconds() -> None:
    clock = VirtualClock()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)

    async with listening(silent) as address:
        task = asyncio.create_task(establish(Settings(f"https://{address}", TOKEN, "0" * 64), clock, ""))
        await until(lambda: clock.next_timer() is not None)
        await asyncio.sleep(0.05)
        await clock.advance(10)
        with pytest.raises(TrustError, match="did not answer within 10 s"):
            await task


@pytest.mark.parametrize("shown", ["PEM", "PEM\n"])
def test_the_checksum_is_of_the_ca_with_an_end_of_line(shown: str) -> None:
    checksum = hashlib.sha256(b"PEM\n").hexdigest()
    assert matches(shown, checksum)
    assert not matches(f"{shown}x", checksum)


class Proxy:
    """An HTTP proxy that only knows CONNECT, and whom."""

    def __init__(self, password: str = "") -> None:
        self.password = password
        self.asked: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.asked.append(head.split("\r\n")[0])
        shown = f"Proxy-Authorization: Basic {base64.b64encode(self.password.encode()).decode()}"
        if self.password and shown not in head:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            return
        host, _, port = head.split(" ")[1].rpartition(":")
        onward_reader, onward = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                while data := await source.read(65536):
                    target.write(data)
                    await target.drain()
            target.close()

        await asyncio.gather(copy(reader, onward), copy(onward_reader, writer))


async def test_through_a_proxy_with_and_without_a_password(gate: Gate) -> None:
    settings = Settings(gate.url, TOKEN, gate.checksum, strict=True)
    for password, login in (("", ""), ("user:pass", "user:pass@")):
        proxy = Proxy(password)
        async with listening(proxy.serve) as address:
            await establish(settings, SYSTEM_CLOCK, f"http://{login}{address}")
        assert proxy.asked == [f"CONNECT 127.0.0.1:{gate.port} HTTP/1.1"] * 2


async def test_a_proxy_that_refuses_is_told_apart_from_the_server(gate: Gate) -> None:
    proxy = Proxy("user:pass")
    settings = replace(Settings(gate.url, TOKEN, gate.checksum), strict=True)
    async with listening(proxy.serve) as address:
        with pytest.raises(TrustError, match=r"the proxy on the way to .* answered 407") as refused:
            await establish(settings, SYSTEM_CLOCK, f"http://user:wrong@{address}")
    assert "wrong" not in str(refused.value)
