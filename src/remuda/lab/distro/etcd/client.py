"""The supervisor's client of etcd: members, their status, snapshots, and a few keys of its own.

It asks one member after the other, as the API's store does (:mod:`remuda.apiserver.storage.etcd`): keys by gRPC, etcd's own
administration over its JSON gateway.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import msgspec

from remuda.apiserver.storage.etcd import EtcdConfig
from remuda.apiserver.storage.etcd.gateway import Failed
from remuda.apiserver.storage.etcd.members import Members
from remuda.apiserver.storage.etcd.rpc import DELETE, PUT, RANGE, TXN, UNREADABLE, GatewayError, decoder, refusal_of
from remuda.apiserver.storage.store import Unavailable, after_prefix
from remuda.kube.clock import Clock, Rng, deadline

_PAGE = 200


class Member(msgspec.Struct, frozen=True, gc=False):
    """`name` and its client URLs are empty until it has been started."""

    id: int = msgspec.field(name="ID", default=0)
    name: str = ""
    peer_urls: tuple[str, ...] = msgspec.field(name="peerURLs", default=())
    client_urls: tuple[str, ...] = msgspec.field(name="clientURLs", default=())
    is_learner: bool = msgspec.field(name="isLearner", default=False)

    @property
    def address(self) -> str:
        urls = self.client_urls or self.peer_urls
        return urlsplit(urls[0]).hostname or "" if urls else ""


class _Members(msgspec.Struct):
    members: list[Member] = []


class _StatusHeader(msgspec.Struct):
    member_id: int = 0
    revision: int = 0


class Status(msgspec.Struct):
    header: _StatusHeader = msgspec.field(default_factory=_StatusHeader)
    version: str = ""
    leader: int = 0
    is_learner: bool = msgspec.field(name="isLearner", default=False)
    errors: list[str] = []

    @property
    def leads(self) -> bool:
        return self.leader != 0 and self.leader == self.header.member_id


class _Piece(msgspec.Struct):
    blob: bytes = b""
    remaining_bytes: int = 0


class _SnapshotMessage(msgspec.Struct):
    result: _Piece | None = None
    error: GatewayError | None = None


class Key(msgspec.Struct):
    """A key's value, and the revision by which it can be replaced."""

    value: bytes
    revision: int


class EtcdClient:
    """Close it when done. Every request goes to an endpoint that answers."""

    def __init__(self, config: EtcdConfig, clock: Clock, rng: Rng) -> None:
        self.config = config
        self._clock = clock
        self._rng = rng
        self._members = Members(config, clock, rng)

    def close(self) -> None:
        self._members.close()

    def at(self, urls: Iterable[str]) -> Self:
        """A client of other endpoints."""
        return type(self)(msgspec.structs.replace(self.config, endpoints=tuple(urls)), self._clock, self._rng)

    def use(self, urls: Sequence[str]) -> None:
        """Use these endpoints from now on."""
        self.config = msgspec.structs.replace(self.config, endpoints=tuple(urls))
        self._members.use(urls)

    # --- members --------------------------------------------------------------------------------------------------------

    async def members(self, *, linearizable: bool = True) -> list[Member]:
        found = await self._members.ask("/v3/cluster/member/list", {"linearizable": linearizable}, _Members)
        return found.members

    async def add_learner(self, peer_url: str) -> list[Member]:
        """Add a learner; all members, with the new one."""
        answer = await self._members.ask("/v3/cluster/member/add", {"peerURLs": [peer_url], "isLearner": True}, _Members)
        return answer.members

    async def promote(self, member: int) -> None:
        await self._members.ask("/v3/cluster/member/promote", {"ID": str(member)}, _Members)

    async def remove(self, member: int) -> None:
        await self._members.ask("/v3/cluster/member/remove", {"ID": str(member)}, _Members)

    async def status(self, seconds: float = 0.0) -> Status:
        """Raises Unavailable, after so many seconds if any are given."""
        if not seconds:
            return await self._members.ask("/v3/maintenance/status", {}, Status)
        try:
            async with deadline(self._clock, seconds):
                return await self._members.ask("/v3/maintenance/status", {}, Status)
        except TimeoutError:
            raise Unavailable(f"etcd does not answer: {self._members.troubles()}") from None

    async def revision(self) -> int:
        """The current revision: only a member with a quorum answers."""
        answer = await self._members.read(RANGE, {"key": b"\0", "count_only": True})
        return answer.header.revision

    # --- the state as a file --------------------------------------------------------------------------------------------

    async def snapshot(self) -> AsyncIterator[bytes]:
        """The whole state in pieces, as etcd's own tools read it."""
        messages = decoder(_SnapshotMessage)
        async with self._members.stream("/v3/maintenance/snapshot", {}) as stream:
            # The last piece says that nothing remains, and so does the digest that comes after it.
            ends = 0
            while ends < 2:
                try:
                    lines = await stream.next()
                except Failed as error:
                    raise Unavailable(f"the snapshot was cut off: {error}") from None
                for line in filter(None, lines):
                    try:
                        found = messages.decode(line)
                    except UNREADABLE as error:
                        raise Unavailable(f"the snapshot can't be read: {error}") from None
                    if found.result is None:
                        raise refusal_of(found.error or GatewayError(message="the snapshot was cut off"))
                    ends += not found.result.remaining_bytes
                    yield found.result.blob

    # --- keys of our own ------------------------------------------------------------------------------------------------

    async def get(self, key: str) -> Key | None:
        answer = await self._members.read(RANGE, {"key": key.encode()})
        return Key(answer.kvs[0].value, answer.kvs[0].mod_revision) if answer.kvs else None

    async def under(self, prefix: str) -> dict[str, bytes]:
        bounds = {"key": prefix.encode(), "range_end": after_prefix(prefix).encode()}
        answer = await self._members.read(RANGE, bounds)
        return {kv.key.decode().removeprefix(prefix): kv.value for kv in answer.kvs}

    async def entries(self, prefix: str) -> AsyncIterator[tuple[str, Key]]:
        """All keys with that prefix, in pages: each as it is when its page is read."""
        start, end = prefix.encode(), after_prefix(prefix).encode()
        while True:
            answer = await self._members.read(RANGE, {"key": start, "range_end": end, "limit": _PAGE})
            for kv in answer.kvs:
                yield kv.key.decode(), Key(kv.value, kv.mod_revision)
            if not answer.more:
                return
            start = answer.kvs[-1].key + b"\0"

    async def put(self, key: str, value: bytes) -> None:
        await self._members.read(PUT, {"key": key.encode(), "value": value})

    async def replace(self, key: str, value: bytes, revision: int) -> bool:
        """Write the key only if it still has that revision, 0 for a missing one; True if it was written."""
        compare = {"key": key.encode(), "target": "MOD", "result": "EQUAL", "mod_revision": revision}
        put = {"request_put": {"key": key.encode(), "value": value}}
        answer = await self._members.read(TXN, {"compare": [compare], "success": [put]})
        return answer.succeeded

    async def delete(self, key: str) -> None:
        await self._members.read(DELETE, {"key": key.encode()})


def config_for(urls: Iterable[str], directory: Path, *, accept_old: bool = False) -> EtcdConfig:
    """The configuration with a server's certificates."""
    paths = (directory / "server-ca.crt", directory / "client.crt", directory / "client.key")
    return EtcdConfig(tuple(urls), *paths, accept_old=accept_old)
