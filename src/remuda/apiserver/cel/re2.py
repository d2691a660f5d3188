"""Regular expressions with RE2's guarantee: time linear in the text, for any pattern.

Python's `re` backtracks and can take exponential time, so it only gets patterns (and text lengths) where that is
harmless. All others run on an automaton (:class:`Automaton`). :mod:`.re2_syntax` parses patterns.

A lazily built DFA tests for a match. The live threads are the bits of one integer, so that a step of a thousand threads takes
a few operations: threads that move to their neighbour shift together, only the others are processed one by one. A Pike
machine finds the position, in the order in which the pattern prefers its branches. The work counts against
:mod:`..limits.cost_budget`: a pattern of a thousand repetitions makes even a linear search slow.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ..limits import cost_budget
from .re2_syntax import Assert, Chars, Concat, Either, Regex, RegexError, Repeat, parse

MAX_PROGRAM = 50_000
# Cache limits of one pattern: transitions, and bits in the sets of its states.
_MAX_TRANSITIONS = 5_000
_MAX_KEPT_BITS = 1 << 23
_END = ""  # the next character at the end of the text
_MATCH = -1

# Instructions: a character set and the next instruction; a split with its preferred branch first; an assertion.
_Step = tuple[Chars, int]
_Split = tuple[int, int]


def program_size(tree: Regex) -> int:
    """An upper bound of the number of instructions for the pattern."""
    if isinstance(tree, Concat):
        return sum(map(program_size, tree.parts))
    if isinstance(tree, Either):
        return sum(map(program_size, tree.choices)) + len(tree.choices)
    if isinstance(tree, Repeat):
        times = tree.low + 1 if tree.high is None else max(tree.high, 1)
        return times * (program_size(tree.body) + 1)
    return 1


class _State:
    """A set of live threads (bits of `threads`), and the next state for each character."""

    __slots__ = ("accepts", "accepts_at_end", "next", "threads")

    def __init__(self, threads: int, accepts: bool, accepts_at_end: bool) -> None:
        self.threads = threads
        self.accepts = accepts
        self.accepts_at_end = accepts_at_end
        self.next: dict[str, _State] = {}


# The closure of an instruction without reading: threads, "is a match", "is a match at the end of the text".
_Closure = tuple[int, bool, bool]


class Automaton:
    """An instruction list: entry is `self.start`, -1 is the match."""

    def __init__(self, tree: Regex) -> None:
        self.steps: dict[int, _Step] = {}
        self.splits: dict[int, _Split] = {}
        self.asserts: dict[int, tuple[str, int]] = {}
        self.count = 0
        self.start = self._build(tree, _MATCH)
        kinds = {kind for kind, _ in self.asserts.values()}
        self.contextual = bool(kinds - {"text-start", "text-end"})
        # Steps whose next instruction is the step right before them: all of them advance with one shift.
        self._shifting = sum(1 << at for at, (_, then) in self.steps.items() if then == at - 1 and then in self.steps)
        # The maximum size of each cache; a larger one is cleared.
        self._most = max(16, _MAX_KEPT_BITS // (self.count + 256))
        self._states: dict[int, _State] = {}
        self._first: _State | None = None
        self._transitions = 0
        self._masks: dict[str, int] = {}
        self._closures: dict[int, _Closure] = {}

    def _new(self) -> int:
        self.count += 1
        if self.count > MAX_PROGRAM:
            raise RegexError("expression too large", "")
        return self.count - 1

    def _build(self, tree: Regex, then: int) -> int:
        """Instructions for `tree` that go on with `then`; built from the end to the start."""
        if isinstance(tree, Chars):
            at = self._new()
            self.steps[at] = (tree, then)
            return at
        if isinstance(tree, Assert):
            at = self._new()
            self.asserts[at] = (tree.kind, then)
            return at
        if isinstance(tree, Concat):
            for part in reversed(tree.parts):
                then = self._build(part, then)
            return then
        if isinstance(tree, Either):
            entry = self._build(tree.choices[-1], then)
            for choice in reversed(tree.choices[:-1]):
                at = self._new()
                self.splits[at] = (self._build(choice, then), entry)
                entry = at
            return entry
        return self._build_repeat(tree, then)

    def _build_repeat(self, tree: Repeat, then: int) -> int:
        if tree.high is None:
            at = self._new()
            body = self._build(tree.body, at)
            self.splits[at] = (body, then) if tree.greedy else (then, body)
            entry = at
        else:
            entry = then
            for _ in range(tree.high - tree.low):
                at = self._new()
                body = self._build(tree.body, entry)
                self.splits[at] = (body, then) if tree.greedy else (then, body)
                entry = at
        for _ in range(tree.low):
            entry = self._build(tree.body, entry)
        return entry

    def _follow(self, at: int, before: str | None, after: str | None, seen: dict[int, int], origin: int = 0) -> None:
        """Adds everything reachable from `at` without reading, in the order of preference, up to a match.

        `after` is None where the next character is not known yet.
        """
        pending = [at]
        while pending:
            at = pending.pop()
            if at in seen:
                continue
            seen[at] = origin
            if at == _MATCH and after is not None:
                return
            split = self.splits.get(at)
            if split is not None:
                pending.append(split[1])
                pending.append(split[0])
                continue
            check = self.asserts.get(at)
            if check is not None and _holds(check[0], before, after):
                pending.append(check[1])

    # --- test for a match

    def matches(self, text: str) -> bool:
        if self.contextual:
            return self.find(text, 0) is not None
        cost_budget.spend(len(text) // 4)
        state = self._first
        if state is None:
            state = self._first = self._opening()
        for char in text:
            if state.accepts:
                return True
            following = state.next.get(char)
            if following is None:
                following = self._advance(state, char)
            state = following
        return state.accepts or state.accepts_at_end

    def _opening(self) -> _State:
        threads, accepts, accepts_at_end = self._reach(self.start, None)
        # Not in the cache by threads: the start of the text is a state of its own.
        return _State(threads, accepts, accepts_at_end)

    def _advance(self, state: _State, char: str) -> _State:
        if self._transitions > _MAX_TRANSITIONS or len(self._states) > self._most:
            self._states.clear()
            self._first = None
            self._transitions = 0
        mask = self._masks.get(char)
        if mask is None:
            mask = self._masks[char] = self._accepting(char)
        taken = state.threads & mask
        threads, accepts, accepts_at_end = self._closure(self.start)
        threads |= (taken & self._shifting) >> 1
        rest = taken & ~self._shifting
        looked_at = 3 + self.count // 256
        while rest:
            at = rest.bit_length() - 1
            rest ^= 1 << at
            then, match, match_at_end = self._closure(self.steps[at][1])
            threads |= then
            accepts = accepts or match
            accepts_at_end = accepts_at_end or match_at_end
            looked_at += 1
        cost_budget.spend(looked_at)
        following = self._states.get(threads << 2 | accepts << 1 | accepts_at_end)
        if following is None:
            following = _State(threads, accepts, accepts_at_end)
            self._states[threads << 2 | accepts << 1 | accepts_at_end] = following
        state.next[char] = following
        self._transitions += 1
        return following

    def _accepting(self, char: str) -> int:
        """The steps that take this character."""
        cost_budget.spend(2 * len(self.steps))
        if len(self._masks) > self._most:
            self._masks.clear()
        digits = bytearray(self.count // 8 + 1)
        for at, (chars, _) in self.steps.items():
            if chars.has(char):
                digits[at >> 3] |= 1 << (at & 7)
        return int.from_bytes(digits, "little")

    def _closure(self, at: int) -> _Closure:
        known = self._closures.get(at)
        if known is None:
            if len(self._closures) > self._most:
                self._closures.clear()
            known = self._closures[at] = self._reach(at, "x")
        return known

    def _reach(self, at: int, before: str | None) -> _Closure:
        open_ended: dict[int, int] = {}
        at_end: dict[int, int] = {}
        self._follow(at, before, None, open_ended)
        self._follow(at, before, _END, at_end)
        cost_budget.spend(len(open_ended) + len(at_end) + self.count // 64)
        digits = bytearray(self.count // 8 + 1)
        for each in open_ended:
            if each in self.steps:
                digits[each >> 3] |= 1 << (each & 7)
        return int.from_bytes(digits, "little"), _MATCH in open_ended, _MATCH in at_end

    # --- position of the match

    def find(self, text: str, start: int) -> tuple[int, int] | None:
        """The leftmost match, preferring what the pattern prefers: a Pike machine."""
        threads: dict[int, int] = {}
        best: tuple[int, int] | None = None
        for position in range(start, len(text) + 1):
            before = text[position - 1] if position else None
            after = text[position] if position < len(text) else _END
            if best is None:
                threads.setdefault(self.start, position)
            live: dict[int, int] = {}
            for at, origin in threads.items():
                self._follow(at, before, after, live, origin)
                if _MATCH in live:
                    break
            cost_budget.spend(2 + 2 * len(live))
            threads = {}
            for at, origin in live.items():
                if at == _MATCH:
                    best = (origin, position)
                    break
                step = self.steps.get(at)
                if step is not None and after is not _END and step[0].has(after):
                    threads.setdefault(step[1], origin)
            if not threads and best is not None:
                break
        return best


def _is_word(char: str | None) -> bool:
    return bool(char) and char is not None and char.isascii() and (char.isalnum() or char == "_")


def _holds(kind: str, before: str | None, after: str | None) -> bool:
    if kind == "text-start":
        return before is None
    if kind == "text-end":
        return after == _END
    if kind == "line-start":
        return before is None or before == "\n"
    if kind == "line-end":
        return after in (_END, "\n")
    return (_is_word(before) is not _is_word(after)) is (kind == "word")


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
        self._machine: Automaton | None = None
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

    def _automaton(self) -> Automaton:
        if self._machine is None:
            self._machine = Automaton(self._tree)
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
