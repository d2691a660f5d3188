"""The supervisor's client of etcd: members, their status, snapshots, and a few keys of its own.

It asks one member after the other, as the API's store does (:mod:`remuda.apiserver.storage.etcd`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import msgspec

from remuda.apiserver.storage.etcd import EtcdConfig
from remuda.apiserver.storage.etcd.grpc import Failed
from remuda.apiserver.storage.etcd.members import Members
from remuda.apiserver.storage.etcd.rpc import (
    DELETE,
    EMPTY,
    NOTHING,
    PUT,
    RANGE,
    STATUS,
    TXN,
    Empty,
    Incoming,
    Method,
    Outgoing,
    Status,
)
from remuda.apiserver.storage.store import Unavailable, after_prefix
from remuda.kube.clock import Clock, Rng, deadline

_PAGE = 200


class Member(msgspec.Struct, frozen=True, gc=False):
    """`name` and its client URLs are empty until it has been started."""

    id: int = 0
    name: str = ""
    peer_urls: tuple[str, ...] = ()
    client_urls: tuple[str, ...] = ()
    is_learner: bool = False

    @property
    def address(self) -> str:
        urls = self.client_urls or self.peer_urls
        return urlsplit(urls[0]).hostname or "" if urls else ""


class _WireMember(msgspec.Struct, gc=False):
    id: int = 0
    name: str = ""
    peer_urls: list[str] = []
    client_urls: list[str] = []
    is_learner: bool = False


class _Members(msgspec.Struct, gc=False):
    members: list[_WireMember] = []

    def values(self) -> list[Member]:
        return [
            Member(each.id, each.name, tuple(each.peer_urls), tuple(each.client_urls), each.is_learner) for each in self.members
        ]


class _Piece(msgspec.Struct, gc=False):
    blob: bytes = b""
    remaining_bytes: int = 0


_MEMBER = Incoming(
    _WireMember, identifiers={1: "id"}, texts={2: "name"}, text_lists={3: "peer_urls", 4: "client_urls"}, flags={5: "is_learner"}
)
_LISTED = Incoming(_Members, lists={2: ("members", _MEMBER)})
_ADDED = Incoming(_Members, lists={3: ("members", _MEMBER)})
_ONE = Outgoing(ID=(1, int))
_LIST = Method("Cluster/MemberList", Outgoing(linearizable=(1, bool)), _Members, _LISTED)
_ADD = Method("Cluster/MemberAdd", Outgoing(peerURLs=(1, [bytes]), isLearner=(2, bool)), _Members, _ADDED)
_PROMOTE = Method("Cluster/MemberPromote", _ONE, Empty, EMPTY)
_REMOVE = Method("Cluster/MemberRemove", _ONE, Empty, EMPTY)
_SNAPSHOT = Method("Maintenance/Snapshot", NOTHING, _Piece, Incoming(_Piece, numbers={2: "remaining_bytes"}, data={3: "blob"}))
ADMINISTRATION = (_LIST, _ADD, _PROMOTE, _REMOVE, _SNAPSHOT)


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
        return (await self._members.read(_LIST, {"linearizable": linearizable})).values()

    async def add_learner(self, peer_url: str) -> list[Member]:
        """Add a learner; all members, with the new one."""
        return (await self._members.read(_ADD, {"peerURLs": [peer_url.encode()], "isLearner": True})).values()

    async def promote(self, member: int) -> None:
        await self._members.read(_PROMOTE, {"ID": member})

    async def remove(self, member: int) -> None:
        await self._members.read(_REMOVE, {"ID": member})

    async def status(self, seconds: float = 0.0) -> Status:
        """Raises Unavailable, after so many seconds if any are given."""
        if not seconds:
            return await self._members.read(STATUS, {})
        try:
            async with deadline(self._clock, seconds):
                return await self._members.read(STATUS, {})
        except TimeoutError:
            raise Unavailable(f"etcd does not answer: {self._members.troubles()}") from None

    async def revision(self) -> int:
        """The current revision: only a member with a quorum answers."""
        answer = await self._members.read(RANGE, {"key": b"\0", "count_only": True})
        return answer.header.revision

    # --- the state as a file --------------------------------------------------------------------------------------------

    async def snapshot(self) -> AsyncIterator[bytes]:
        """The whole state in pieces, as etcd's own tools read it."""
        async with self._members.stream(_SNAPSHOT, {}) as stream:
            # The last piece says that nothing remains, and so does the digest that comes after it.
            ends = 0
            while ends < 2:
                try:
                    pieces = await stream.next()
                except Failed as error:
                    raise Unavailable(f"the snapshot was cut off: {error}") from None
                for piece in pieces:
                    ends += not piece.remaining_bytes
                    yield piece.blob

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
