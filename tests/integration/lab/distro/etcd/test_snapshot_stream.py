"""A snapshot as etcd sends it: pieces, and then the digest of all of them, which may come a moment later."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest

from remuda.apiserver.storage.etcd.grpc import frame
from remuda.apiserver.storage.etcd.hpack import encode as headers
from remuda.apiserver.storage.etcd.members import EtcdConfig
from remuda.apiserver.storage.etcd.rpc import Outgoing
from remuda.kube.clock import SYSTEM_CLOCK, Rng
from remuda.lab.distro.config.settings import Snapshots
from remuda.lab.distro.etcd.client import EtcdClient
from remuda.lab.distro.etcd.snapshots import SnapshotError, save

WHOLE = b"\x17" * 4096 * 3


_PIECE = Outgoing(remaining_bytes=(2, int), blob=(3, bytes))


def _pieces(whole: bytes, digest: bytes) -> list[bytes]:
    """As etcd sends them: zeros are left out."""
    left = len(whole)
    messages = []
    for start in range(0, len(whole), 4096):
        piece = whole[start : start + 4096]
        left -= len(piece)
        messages.append(_PIECE.encode({**({"remaining_bytes": left} if left else {}), "blob": piece}))
    return [*messages, _PIECE.encode({"blob": digest})]


async def _saved(directory: Path, messages: list[bytes]) -> bytes:
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"SM\r\n\r\n")
        writer.write(frame(4, 0, 0))
        # Before a call there are only settings and windows.
        while (asked := await reader.readexactly(9))[3] != 1:
            await reader.readexactly(int.from_bytes(asked[:3]))
        writer.write(frame(1, 4, 1, headers([(":status", "200"), ("content-type", "application/grpc")])))
        for message in messages:
            writer.write(frame(0, 0, 1, b"\0" + len(message).to_bytes(4) + message))
            # Each on its own, as on a busy machine.
            await SYSTEM_CLOCK.sleep(0.02)
        writer.write(frame(1, 5, 1, headers([("grpc-status", "0")])))
        await reader.read()
        writer.close()
        gone.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = EtcdClient(EtcdConfig(endpoints=(f"http://127.0.0.1:{port}",)), SYSTEM_CLOCK, Rng())
    try:
        async with asyncio.timeout(30):
            found = await save(client, Snapshots(directory=directory), "on-demand", "h0", SYSTEM_CLOCK)
        return found.path.read_bytes()
    finally:
        client.close()
        await gone.wait()
        server.close()


async def test_the_digest_may_come_after_everything_else(tmp_path: Path) -> None:
    digest = hashlib.sha256(WHOLE).digest()
    assert await _saved(tmp_path, _pieces(WHOLE, digest)) == WHOLE + digest


async def test_what_is_not_what_its_digest_says_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="its digest is another"):
        await _saved(tmp_path, _pieces(WHOLE, hashlib.sha256(b"other").digest()))
    assert list(tmp_path.iterdir()) == []


async def test_what_is_cut_off_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError):
        await _saved(tmp_path, _pieces(WHOLE, b"")[:-1])
    assert list(tmp_path.iterdir()) == []
