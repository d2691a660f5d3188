"""Size limits for values from outside that are stored. Pure.

Clusters and hosts report any values, and the server stores some of them for each. :func:`bounded` gives the
same value for the same input, so that a cut value is not written again and again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

CUT = "…"


@dataclass(frozen=True, slots=True)
class SizeLimits:
    """`text`: characters of one text; `items`: of one list or object; `depth`: levels of nesting; `total`: characters of all
    texts and names together."""

    text: int = 1024
    items: int = 128
    depth: int = 8
    total: int = 16 << 10


def bounded(value: Any, bounds: SizeLimits = SizeLimits()) -> tuple[Any, bool]:
    """The value within its bounds, and whether anything was left out. A value that fits stays the same object."""
    cutting = _Cutting(bounds)
    found = cutting.of(value, bounds.depth)
    return (found, True) if cutting.cut else (value, False)


class _Cutting:
    def __init__(self, bounds: SizeLimits) -> None:
        self._bounds = bounds
        self._left = bounds.total
        self.cut = False

    def of(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            return self._object(value, depth)
        if isinstance(value, list | tuple):
            return self._list(value, depth)
        if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 64:
            self.cut = True
            return None
        self._left -= 8
        return value

    def _text(self, value: str) -> str:
        most = max(min(self._bounds.text, self._left), 0)
        self._left -= len(value)
        if len(value) <= most:
            return value
        self.cut = True
        return value[:most] + CUT

    def _object(self, value: dict[Any, Any], depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, each in value.items():
            if not self._goes_on(len(made), depth, len(name)):
                break
            if len(name) > self._bounds.text:
                self.cut = True
                continue
            self._left -= len(name)
            made[name] = self.of(each, depth - 1)
        return made

    def _list(self, value: list[Any] | tuple[Any, ...], depth: int) -> list[Any]:
        made: list[Any] = []
        for each in value:
            if not self._goes_on(len(made), depth):
                break
            made.append(self.of(each, depth - 1))
        return made

    def _goes_on(self, count: int, depth: int, more: int = 0) -> bool:
        if count < self._bounds.items and depth > 0 and self._left > more:
            return True
        self.cut = True
        return False
