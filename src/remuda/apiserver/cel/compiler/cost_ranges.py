"""Ranges of sizes and costs: a lower and an upper bound, in 64 bits without overflow, as estimates add and multiply them."""

from __future__ import annotations

import math
from dataclasses import dataclass

MAX = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Range:
    low: int
    high: int

    def add(self, other: Range) -> Range:
        return Range(min(MAX, self.low + other.low), min(MAX, self.high + other.high))

    def times(self, other: Range) -> Range:
        return Range(min(MAX, self.low * other.low), min(MAX, self.high * other.high))

    def scale(self, factor: float) -> Range:
        return Range(_scaled(self.low, factor), _scaled(self.high, factor))

    def union(self, other: Range) -> Range:
        return Range(min(self.low, other.low), max(self.high, other.high))


def _scaled(count: int, factor: float) -> int:
    product = float(count) * factor
    return MAX if product >= 2.0**64 else math.ceil(product)


def fixed(count: int) -> Range:
    return Range(count, count)


UNKNOWN = Range(0, MAX)
