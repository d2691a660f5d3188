"""A limit on the work that an object may cause by its schema.

Kubernetes gives a request a core of its own; here all requests share one thread, so the author of a pattern, an enum or a
default must not be able to block it for long. Slow work spends steps of one allowance per object (about a second's
worth), and growth counts bytes; an object that exceeds them is refused with a message, like a too large body. Users: patterns
(:mod:`..cel.re2`), enums (:mod:`..schema.validation`), defaults (:mod:`..schema.pruning`).
"""

from __future__ import annotations

from types import TracebackType

from remuda.kube.errors import too_large

MAX_STEPS = 4_000_000
MAX_GROWTH = 8 * 1024 * 1024


class _Allowance:
    __slots__ = ("growth", "holders", "steps")

    def __init__(self) -> None:
        self.steps = MAX_STEPS
        self.growth = MAX_GROWTH
        self.holders = 0


# One for all: the work has no await in it, so two objects never share it.
_left = _Allowance()


class Bounded:
    """`with BOUNDED:` everything inside has one allowance, that of the outermost."""

    __slots__ = ()

    def __enter__(self) -> None:
        if not _left.holders:
            _left.steps, _left.growth = MAX_STEPS, MAX_GROWTH
        _left.holders += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _left.holders -= 1


BOUNDED = Bounded()


def spend(steps: int) -> None:
    """Count steps that were done. Outside of any bounds only work that exceeds the limit by itself is refused."""
    if _left.holders:
        steps = MAX_STEPS - _left.steps + steps
        _left.steps = MAX_STEPS - steps
    if steps > MAX_STEPS:
        raise too_large(f"checking the object takes more than {MAX_STEPS} steps: its patterns or enums are too costly for it")


def grow(size: int) -> None:
    """Count bytes that defaults add."""
    if _left.holders:
        size = MAX_GROWTH - _left.growth + size
        _left.growth = MAX_GROWTH - size
    if size > MAX_GROWTH:
        raise too_large(f"defaults add more than {MAX_GROWTH} bytes to the object")
