"""Regular expressions with RE2's guarantee: time linear in the text, for any pattern.

Python's `re` backtracks and can take exponential time, so it only gets patterns (and text lengths) where that is
harmless. All others run on an automaton (:mod:`.re2_automaton`). :mod:`.re2_syntax` parses patterns.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ..limits import cost_budget
from .re2_automaton import MAX_PROGRAM, Machine, program_size
from .re2_syntax import Assert, Chars, Concat, Either, Regex, RegexError, Repeat, parse

__all__ = ["Pattern", "RegexError", "compile_pattern"]

_BACKTRACK_LIMIT = 10_000


class Pattern:
    """A compiled regular expression."""

    def __init__(self, source: str) -> None:
        self.source = source
        cost_budget.spend(4 * len(source))
        tree = parse(source)
        if program_size(tree) > MAX_PROGRAM:
            raise RegexError("expression too large", "")
        self._quick, self._degree = _translate(tree)
        self._machine: Machine | None = None
        self._tree = tree

    def matches(self, text: str) -> bool:
        """True when the pattern occurs anywhere in the text."""
        if self._quick is not None and self._is_cheap(text):
            cost_budget.spend(len(text) // 8)
            return self._quick.search(text) is not None
        return self._automaton().matches(text)

    def find(self, text: str, start: int = 0) -> tuple[int, int] | None:
        """The start and end of the leftmost match."""
        if self._quick is not None and self._is_cheap(text):
            found = self._quick.search(text, start)
            cost_budget.spend(1 + ((found.end() if found is not None else len(text)) - start) // 8)
            return found.span() if found is not None else None
        return self._automaton().find(text, start)

    def find_all(self, text: str, limit: int = -1) -> list[str]:
        """All matches that do not overlap, in order."""
        found: list[str] = []
        at, last_end = 0, -1
        while at <= len(text) and (limit < 0 or len(found) < limit):
            span = self.find(text, at)
            if span is None:
                break
            start, end = span
            # An empty match right after the last one does not count.
            if end > start or start != last_end:
                found.append(text[start:end])
            last_end = end
            at = end if end > start else end + 1
        return found

    def _is_cheap(self, text: str) -> bool:
        return self._degree <= 1 or bool(len(text) ** self._degree <= _BACKTRACK_LIMIT)

    def _automaton(self) -> Machine:
        if self._machine is None:
            self._machine = Machine(self._tree)
        return self._machine


@lru_cache(maxsize=512)
def compile_pattern(source: str) -> Pattern:
    return Pattern(source)


# --- patterns for Python's re, where that is safe


def _translate(tree: Regex) -> tuple[re.Pattern[str] | None, int]:
    """A pattern for `re`, and the degree of the polynomial of its worst-case time; None where that could be exponential."""
    if not _is_tame(tree):
        return None, 0
    degree = _loops(tree) + (0 if _is_anchored(tree) else 1)
    try:
        return re.compile(_emit(tree)), degree
    except (re.error, OverflowError, RecursionError):
        return None, 0


def _is_tame(tree: Regex) -> bool:
    if isinstance(tree, Chars):
        return not tree.classes and not tree.fold
    if isinstance(tree, Assert):
        return tree.kind in ("text-start", "text-end")
    if isinstance(tree, Concat):
        return all(_is_tame(part) for part in tree.parts)
    if isinstance(tree, Either):
        return all(_is_tame(choice) for choice in tree.choices)
    return _is_tame(tree.body) and (isinstance(tree.body, Chars) or tree.high == 1)


def _loops(tree: Regex) -> int:
    if isinstance(tree, Repeat):
        inner = _loops(tree.body)
        return inner + (1 if tree.high is None or tree.high > 4 else 0)
    if isinstance(tree, Concat):
        return sum(_loops(part) for part in tree.parts)
    if isinstance(tree, Either):
        return sum(_loops(choice) for choice in tree.choices)
    return 0


def _is_anchored(tree: Regex) -> bool:
    if isinstance(tree, Concat):
        return bool(tree.parts) and _is_anchored(tree.parts[0])
    if isinstance(tree, Either):
        return all(_is_anchored(choice) for choice in tree.choices)
    return isinstance(tree, Assert) and tree.kind == "text-start"


def _emit(tree: Regex) -> str:
    if isinstance(tree, Chars):
        if not tree.ranges:
            return r"[\s\S]" if tree.negated else r"[^\s\S]"
        body = "".join(_emit_range(low, high) for low, high in tree.ranges)
        return f"[{'^' if tree.negated else ''}{body}]"
    if isinstance(tree, Assert):
        return r"\A" if tree.kind == "text-start" else r"\Z"
    if isinstance(tree, Concat):
        return "".join(_emit(part) for part in tree.parts)
    if isinstance(tree, Either):
        return "(?:" + "|".join(_emit(choice) for choice in tree.choices) + ")"
    high = "" if tree.high is None else str(tree.high)
    return f"(?:{_emit(tree.body)}){{{tree.low},{high}}}{'' if tree.greedy else '?'}"


def _emit_range(low: int, high: int) -> str:
    return f"\\U{low:08x}" if low == high else f"\\U{low:08x}-\\U{high:08x}"
