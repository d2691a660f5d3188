"""Which events become new objects, which count up an old one, and which are dropped: client-go's rules, pure.

- More than 25 events of a kind about one object are spam: afterwards one every five minutes gets through.
- The tenth event within ten minutes that differs from the others only by its message becomes "(combined from similar events)",
  and later ones update that.
- An event that was told before, word for word, counts up instead of coming again.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

_REMEMBERED = 4096
_SIMILAR, _SIMILAR_SECONDS = 10, 600.0
_BURST, _PER_SECOND = 25, 1 / 300
COMBINED = "(combined from similar events): "

V = TypeVar("V")


class _Memory(Generic[V]):
    """The most recently used entries."""

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[str, ...], V] = OrderedDict()

    def get(self, key: tuple[str, ...]) -> V | None:
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def put(self, key: tuple[str, ...], value: V) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > _REMEMBERED:
            self._entries.popitem(last=False)

    def forget(self, key: tuple[str, ...]) -> None:
        self._entries.pop(key, None)


@dataclass(slots=True)
class _Bucket:
    """Tokens that come back slowly."""

    tokens: float
    at: float

    def take(self, now: float) -> bool:
        self.tokens = min(_BURST, self.tokens + max(now - self.at, 0.0) * _PER_SECOND)
        self.at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


@dataclass(slots=True)
class _Similar:
    messages: set[str] = field(default_factory=set)
    at: float = 0.0


@dataclass(slots=True)
class Told:
    """An event object that is there: its name, how often it was told, and since when."""

    name: str
    count: int
    first: float


class Fact(NamedTuple):
    """What happened to which object."""

    about: tuple[str, ...]  # apiVersion, kind, namespace, name, uid, fieldPath
    type: str
    reason: str
    message: str


class Decision(NamedTuple):
    key: tuple[str, ...]
    message: str
    told: Told | None


class Correlator:
    def __init__(self) -> None:
        self._buckets: _Memory[_Bucket] = _Memory()
        self._similar: _Memory[_Similar] = _Memory()
        self._told: _Memory[Told] = _Memory()

    def decide(self, fact: Fact, now: float) -> Decision | None:
        """What to write, or None when nothing."""
        message, key = self._combined(fact, now)
        if not self._bucket(fact, now).take(now):
            return None
        return Decision(key, message, self._told.get(key))

    def wrote(self, key: tuple[str, ...], told: Told) -> None:
        self._told.put(key, told)

    def forget(self, key: tuple[str, ...]) -> None:
        """The event object is gone: the next one is new."""
        self._told.forget(key)

    def _bucket(self, fact: Fact, now: float) -> _Bucket:
        key = (*fact.about[:5], fact.type)
        found = self._buckets.get(key)
        if found is None:
            found = _Bucket(float(_BURST), now)
        self._buckets.put(key, found)
        return found

    def _combined(self, fact: Fact, now: float) -> tuple[str, tuple[str, ...]]:
        group = (*fact.about[:5], fact.type, fact.reason)
        found = self._similar.get(group)
        if found is None or now - found.at > _SIMILAR_SECONDS:
            found = _Similar()
        found.messages.add(fact.message)
        found.at = now
        self._similar.put(group, found)
        if len(found.messages) < _SIMILAR:
            return fact.message, (*fact.about, fact.type, fact.reason, fact.message)
        # Remember one fewer than would combine: the set must not grow with the messages.
        found.messages.pop()
        return COMBINED + fact.message, group
