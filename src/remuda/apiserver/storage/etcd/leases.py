"""Leases for keys that go by themselves. A lease costs etcd more than a key does, so keys of about the same age share one."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from remuda.kube.clock import Clock

from .members import Members
from .rpc import GRANT

# Keys may live longer than they must by this part of their time, up to a minute.
_SHARE, _LONGEST = 0.1, 60.0
_MOST_KEYS = 1000


class _Lease(NamedTuple):
    id: int
    until: float


class Leases:
    def __init__(self, members: Members, clock: Clock) -> None:
        self._members = members
        self._clock = clock
        self._leases: dict[int, _Lease] = {}
        self._keys: dict[int, int] = {}
        self._granting = asyncio.Lock()

    async def get(self, ttl: int) -> int:
        """The id of a lease that lasts at least `ttl` seconds from now."""
        async with self._granting:
            found = self._leases.get(ttl)
            if found is None or self._clock.monotonic() > found.until or self._keys[ttl] >= _MOST_KEYS:
                found = await self._grant(ttl)
            self._keys[ttl] += 1
            return found.id

    async def _grant(self, ttl: int) -> _Lease:
        share = min(ttl * _SHARE, _LONGEST)
        now = self._clock.monotonic()
        # Whole seconds are all that etcd knows.
        answer = await self._members.read(GRANT, {"TTL": ttl + int(share)})
        found = self._leases[ttl] = _Lease(answer.id, now + int(share))
        self._keys[ttl] = 0
        return found

    def forget(self) -> None:
        """etcd does not know one of them any more."""
        self._leases.clear()
