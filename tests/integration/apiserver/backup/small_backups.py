"""Small states, and backups of them that are quick to open."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

from remuda.apiserver.backup.format import File, Header, Note, Object, Stretching, Writer, stretch
from remuda.apiserver.backup.take import Source, of_data_directory, take
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.keys.token_sealing import ScryptCost
from remuda.apiserver.server import Config, Server
from remuda.kube.builtin_resources import CONFIG_MAPS, SECRETS
from remuda.kube.clock import SYSTEM_CLOCK, Entropy

PASSPHRASE = "correct horse battery"
# Stretching is slow on purpose, and tests open many.
QUICK = ScryptCost(16, 1, 1)


def no_progress(done: int, of: int) -> None:
    pass


def write(path: Path, records: list[File | Note | Object], revision: int = 7) -> Header:
    """A backup of just these records."""
    key, how = stretch(PASSPHRASE, Stretching(*QUICK, bytes(16)))
    objects = sum(isinstance(record, Object) for record in records)
    header = Header(remuda="0", time="2026-11-16T12:00:00Z", store="sqlite", revision=revision, objects=objects, scrypt=how)
    with path.open("wb") as file:
        writer = Writer(file, header, key)
        for record in records:
            writer.add(record)
        writer.finish()
    return header


async def fill(data_dir: Path, names: list[str]) -> int:
    """A server's life in `data_dir`: a config map and a Secret of each name. The revision at its end."""
    server = await Server.open(Config(data_dir=data_dir, default_roles=False))
    try:
        client = InProcessClient(server)
        for name in names:
            metadata = {"name": name, "namespace": "default"}
            await client.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": name}})
            secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"a": f"secret {name}"}}
            await client.create(SECRETS, secret)
        return server.store.revision
    finally:
        await server.close()


async def back_up(data_dir: Path, path: Path, force: bool = False) -> Header:
    async with of_data_directory(data_dir, None, Entropy()) as source:
        return await take(source, path, PASSPHRASE, SYSTEM_CLOCK, Entropy(), force=force, cost=QUICK)


def state_of(objects: list[Object]) -> dict[str, object]:
    return {entry.key: json.loads(entry.value) for entry in objects}


async def gathered(source: Source) -> list[Object]:
    async def all_of(batches: AsyncIterator[list[Object]]) -> list[Object]:
        return [entry async for batch in batches for entry in batch]

    return await all_of(source.batches)


def read_state(data_dir: Path) -> dict[str, object]:
    async def read() -> dict[str, object]:
        async with of_data_directory(data_dir, None, Entropy()) as source:
            return state_of(await gathered(source))

    return asyncio.run(read())
