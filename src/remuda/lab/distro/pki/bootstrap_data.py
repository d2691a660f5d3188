"""The authorities in etcd, sealed with the token: so that a snapshot is enough to bring a cluster back, and a token to open it.

The first server puts them there; every server compares its own with them when it starts. Keys of encryption may be newer there
than on a server's disk: another server has rotated them meanwhile.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import msgspec

from remuda.apiserver.keys import token_sealing
from remuda.apiserver.keys.token_sealing import Cost, Sealed
from remuda.kube.certificates import PkiError
from remuda.kube.clock import Entropy

from ..etcd.client import EtcdClient
from .authorities import ENCRYPTION, Authorities, Files, names

KEY = "/bootstrap/remuda"
_PURPOSE = b"remuda distribution bootstrap data, version 1"
_WHERE = "the bootstrap data in etcd"
_TRIES = 5
# Each server does this at every start: half of the memory that keys of the management server cost is hard enough to guess.
_COST = Cost(n=2**15)


@dataclass(frozen=True, slots=True)
class Saved:
    authorities: Authorities
    revision: int


def encode(files: Files) -> bytes:
    return msgspec.json.encode(files)


def decode(content: bytes, where: str) -> Authorities:
    """Raises PkiError."""
    try:
        files = msgspec.json.decode(content, type=dict[str, bytes])
    except msgspec.DecodeError:
        raise PkiError(f"{where} can't be read") from None
    if missing := set(names()) - set(files):
        raise PkiError(f"{where} has no {min(missing)}")
    return Authorities(files)


async def load(client: EtcdClient, password: str) -> Saved | None:
    """What is in etcd. Raises WrongToken and StoreError."""
    found = await client.get(KEY)
    if found is None:
        return None
    try:
        sealed = msgspec.json.decode(found.value, type=Sealed)
    except msgspec.DecodeError:
        raise PkiError(f"{_WHERE} is damaged: restore etcd from a snapshot") from None
    content = await asyncio.to_thread(token_sealing.unseal_bytes, sealed, password, _WHERE, _PURPOSE)
    return Saved(decode(content, _WHERE), found.revision)


async def save(client: EtcdClient, authorities: Authorities, password: str, entropy: Entropy, revision: int = 0) -> bool:
    """Whether it was put there: only in place of what is of that revision, 0 for nothing."""
    sealed = await asyncio.to_thread(token_sealing.seal_bytes, encode(authorities.files), password, entropy, _PURPOSE, _COST)
    return await client.replace(KEY, msgspec.json.encode(sealed), revision)


async def agree(client: EtcdClient, own: Authorities, password: str, entropy: Entropy) -> Authorities:
    """The authorities as all servers have them: `own`, with the encryption keys of etcd. Raises PkiError when they differ."""
    for _ in range(_TRIES):
        found = await load(client, password)
        if found is None:
            await save(client, own, password, entropy)
            continue
        if other := own.differences(found.authorities):
            raise PkiError(
                f"{other[0]} on this host is not the one of the cluster: this host was a server of another one; "
                "remove the server directory of its data, or put the right files there"
            )
        return Authorities({**own.files, ENCRYPTION: found.authorities.encryption})
    raise PkiError(f"{_WHERE} changes all the time: start this server again")
