"""A snapshot as etcd sends it: pieces, and then the digest of all of them, which may come a moment later."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from pathlib import Path

import pytest
from aiohttp import web

from remuda.apiserver.storage.etcd.members import EtcdConfig
from remuda.kube.clock import SYSTEM_CLOCK, Rng
from remuda.lab.distro.config.settings import Snapshots
from remuda.lab.distro.etcd.client import EtcdClient
from remuda.lab.distro.etcd.snapshots import SnapshotError, save

WHOLE = b"\x17" * 4096 * 3


def _lines(whole: bytes, digest: bytes) -> list[bytes]:
    """As etcd's gateway writes them: numbers of 64 bits are text, and zeros are left out."""
    pieces = [whole[start : start + 4096] for start in range(0, len(whole), 4096)]
    left = len(whole)
    lines = []
    for piece in pieces:
        left -= len(piece)
        said = {"blob": base64.b64encode(piece).decode(), **({"remaining_bytes": str(left)} if left else {})}
        lines.append(said)
    lines.append({"blob": base64.b64encode(digest).decode()})
    return [json.dumps({"result": said}).encode() + b"\n" for said in lines]


async def _saved(directory: Path, lines: list[bytes]) -> bytes:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for line in lines:
            await response.write(line)
            # Each on its own, as on a busy machine.
            await SYSTEM_CLOCK.sleep(0.02)
        await response.write_eof()
        return response

    app = web.Application()
    app.router.add_post("/v3/maintenance/snapshot", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    client = EtcdClient(EtcdConfig(endpoints=(f"http://127.0.0.1:{port}",)), SYSTEM_CLOCK, Rng())
    try:
        async with asyncio.timeout(30):
            found = await save(client, Snapshots(directory=directory), "on-demand", "h0", SYSTEM_CLOCK)
        return found.path.read_bytes()
    finally:
        client.close()
        await runner.cleanup()


async def test_the_digest_may_come_after_everything_else(tmp_path: Path) -> None:
    digest = hashlib.sha256(WHOLE).digest()
    assert await _saved(tmp_path, _lines(WHOLE, digest)) == WHOLE + digest


async def test_what_is_not_what_its_digest_says_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="its digest is another"):
        await _saved(tmp_path, _lines(WHOLE, hashlib.sha256(b"other").digest()))
    assert list(tmp_path.iterdir()) == []


async def test_what_is_cut_off_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError):
        await _saved(tmp_path, _lines(WHOLE, b"")[:-1])
    assert list(tmp_path.iterdir()) == []
