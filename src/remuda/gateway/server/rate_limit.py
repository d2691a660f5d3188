"""Rate limits: a token bucket for each key, which fills up again with time."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass

from remuda.apiserver.limits.caller_caps import network_of
from remuda.kube.clock import Clock


class Buckets:
    """`burst` at once, then `per_second`. A bucket that was not used for long is full, and need not be kept."""

    def __init__(self, clock: Clock, burst: int, per_second: float, size: int = 10_000) -> None:
        self._clock = clock
        self._burst = float(burst)
        self._per_second = per_second
        self._size = size
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def has(self, key: str) -> bool:
        """Tells whether a try is left, without using one."""
        left, since = self._buckets.get(key, (self._burst, self._clock.monotonic()))
        return left + (self._clock.monotonic() - since) * self._per_second >= 1.0

    def take(self, key: str) -> bool:
        """Use one try up; False when there is none left."""
        now = self._clock.monotonic()
        left, since = self._buckets.pop(key, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._per_second)
        allowed = left >= 1.0
        self._buckets[key] = (left - 1.0 if allowed else left, now)
        if len(self._buckets) > self._size:
            self._buckets.popitem(last=False)
        return allowed


# --- login throttle -------------------------------------------------------------------------------------------------------
#
# The limit on login attempts.
#
# An attempt counts as a failure from its beginning and is forgiven when it succeeds, so that a hundred at once are a hundred.
# After a few, the next has to wait, twice as long each time up to a bound: by user name (many addresses trying one name) and by
# address (one address trying many names; an IPv6 caller owns a /64 and counts as that). A user who has logged in from an address
# before is not locked out there by others' attempts at their name: that pair is counted separately.
#
# Tables are bounded. Names seen once or twice are kept apart from those that wait, so that a flood of made-up names can't push
# out the one under attack. Nothing here waits or writes; :mod:`..auth.login_providers` does the costly part afterwards.

_Key = bytes


@dataclass(frozen=True, slots=True)
class Pace:
    """The number of free failures, the first delay after them, its maximum, and the idle time after which all is forgotten."""

    free: int
    first: float = 1.0
    longest: float = 300.0
    forgotten_after: float = 3600.0

    def delay(self, failures: int) -> float:
        beyond = failures - self.free
        if beyond < 0:
            return 0.0
        # Few doublings reach any bound; more would overflow.
        return min(self.longest, self.first * 2.0 ** min(beyond, 60))


PER_USER = Pace(free=5, longest=60.0)
PER_PAIR = Pace(free=5, longest=300.0)
# Many users may share one address.
PER_ADDRESS = Pace(free=20, longest=900.0)


@dataclass(slots=True)
class _Record:
    failures: int = 0
    until: float = 0.0
    last: float = 0.0


class _Table:
    """Failures by key, at most `size` keys that wait and as many that do not yet."""

    def __init__(self, pace: Pace, size: int) -> None:
        self.pace = pace
        self._size = size
        self._free: OrderedDict[_Key, _Record] = OrderedDict()
        self._waiting: OrderedDict[_Key, _Record] = OrderedDict()

    def __len__(self) -> int:
        return len(self._free) + len(self._waiting)

    def wait(self, key: _Key, now: float) -> float:
        found = self._find(key, now)
        return max(0.0, found.until - now) if found else 0.0

    def count(self, key: _Key, now: float) -> None:
        found = self._find(key, now) or _Record()
        found.failures += 1
        found.last = now
        found.until = now + self.pace.delay(found.failures)
        self._free.pop(key, None)
        self._waiting.pop(key, None)
        table = self._waiting if found.failures >= self.pace.free else self._free
        table[key] = found
        if len(table) > self._size:
            table.popitem(last=False)

    def forget(self, key: _Key) -> None:
        self._free.pop(key, None)
        self._waiting.pop(key, None)

    def forgive(self, key: _Key, now: float) -> None:
        """Undo one failure, and the wait that came with it."""
        found = self._find(key, now)
        if found is None:
            return
        found.failures -= 1
        found.until = min(found.until, now + self.pace.delay(found.failures))
        if found.failures <= 0:
            self.forget(key)

    def _find(self, key: _Key, now: float) -> _Record | None:
        found = self._waiting.get(key) or self._free.get(key)
        if found is not None and now - found.last >= self.pace.forgotten_after:
            self.forget(key)
            return None
        return found


class LoginThrottle:
    """Call `begin` before checking a password, `succeeded` when it was right; a failure needs no call."""

    def __init__(
        self,
        clock: Clock,
        size: int = 10_000,
        per_user: Pace = PER_USER,
        per_address: Pace = PER_ADDRESS,
        per_pair: Pace = PER_PAIR,
    ) -> None:
        self._clock = clock
        self._size = size
        self._users = _Table(per_user, size)
        self._addresses = _Table(per_address, size)
        self._pairs = _Table(per_pair, size)
        self._known: OrderedDict[_Key, None] = OrderedDict()

    def __len__(self) -> int:
        """The number of remembered entries."""
        return len(self._users) + len(self._addresses) + len(self._pairs) + len(self._known)

    def begin(self, user: str, address: str) -> float:
        """0 when the attempt may go on, and it then counts; else the seconds to wait, and the attempt does not count."""
        now = self._clock.monotonic()
        tables = self._tables(user, address)
        longest = max(table.wait(key, now) for table, key in tables)
        if longest > 0:
            return longest
        for table, key in tables:
            table.count(key, now)
        return 0.0

    def succeeded(self, user: str, address: str) -> None:
        """Clear a known pair. Name and address are forgiven this attempt only: others may be trying at the same time."""
        now = self._clock.monotonic()
        pair = _pair(user, address)
        if pair in self._known:
            self._pairs.forget(pair)
        else:
            self._users.forgive(_user(user), now)
        self._addresses.forgive(_address(address), now)
        self._known[pair] = None
        self._known.move_to_end(pair)
        if len(self._known) > self._size:
            self._known.popitem(last=False)

    def _tables(self, user: str, address: str) -> tuple[tuple[_Table, _Key], ...]:
        by_address = (self._addresses, _address(address))
        pair = _pair(user, address)
        if pair in self._known:
            return (self._pairs, pair), by_address
        return (self._users, _user(user)), by_address


def _user(name: str) -> _Key:
    # Hashed, so that a name of a megabyte takes no more space than another.
    return hashlib.blake2b(name.strip().casefold().encode(errors="replace"), digest_size=16).digest()


def _address(address: str) -> _Key:
    return network_of(address).encode(errors="replace")


def _pair(user: str, address: str) -> _Key:
    return _user(user) + _address(address)
