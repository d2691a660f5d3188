"""An etcd that is not there: who was asked, why that failed, and what to look at."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from remuda.apiserver.storage.etcd import EtcdConfig, EtcdStore
from remuda.apiserver.storage.store import StoreError, Unavailable
from remuda.kube.clock import SYSTEM_CLOCK, Rng
from tests.real.pki import Authority


@contextmanager
def closed_port() -> Iterator[int]:
    """One that nobody else gets meanwhile, and that refuses connections."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


async def test_no_member_answers() -> None:
    with ExitStack() as stack:
        urls = tuple(f"http://127.0.0.1:{stack.enter_context(closed_port())}" for _ in range(2))
        with pytest.raises(Unavailable) as refused:
            await EtcdStore.open(EtcdConfig(urls), SYSTEM_CLOCK, Rng(1))
    assert str(refused.value) == (
        f"no etcd member answers: {urls[0]}: connection refused; {urls[1]}: connection refused; see that etcd runs there, that "
        "these are the URLs where it serves clients, and that nothing between here and there keeps them apart"
    )


async def test_no_member_is_trusted(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "ours").mkdir()
    pair = Authority(tmp_path / "theirs", "theirs").serving("etcd", ("127.0.0.1",))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    ours = Authority(tmp_path / "ours", "ours").pair.cert
    async with await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=context) as listening:
        url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        with pytest.raises(StoreError) as refused:
            await EtcdStore.open(EtcdConfig((url,), ca=ours), SYSTEM_CLOCK, Rng(1))
    told = str(refused.value)
    assert told.startswith(f"no etcd member can be used: {url}: its certificate is not trusted: ")
    assert told.endswith("; see that --etcd-cafile is the authority of their certificates, and that they trust --etcd-certfile")
