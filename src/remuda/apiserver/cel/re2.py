"""Regular expressions with RE2's promise: time linear in the text, whatever the pattern.

Python's `re` backtracks and can take exponential time, so it only gets patterns (and text lengths) where that cannot
hurt. Everything else runs on an automaton: a lazily built DFA to say whether there is a match, a Pike machine to say
where. Patterns come from `re2syntax`.
"""

from __future__ import annotations

import re
from functools import lru_cache

from .re2syntax import Assert, Chars, Concat, Either, Regex, RegexError, Repeat, parse

__all__ = ["Pattern", "RegexError", "compile_pattern"]

_MAX_STATES = 2000
_MAX_PROGRAM = 50_000
_BACKTRACK_LIMIT = 1_000_000
_END = ""  # stands for the end of the text where a next character is looked at

# Instructions: a character set and the next instruction; a split with its preferred branch first; an assertion.
_Step = tuple[Chars, int]
_Split = tuple[int, int]


class Pattern:
    """A compiled regular expression."""

    def __init__(self, source: str) -> None:
        self.source = source
        tree = parse(source)
        self._quick, self._degree = _translate(tree)
        self._machine: _Machine | None = None
        self._tree = tree
        if self._quick is None:
            self._machine = _Machine(tree)

    def matches(self, text: str) -> bool:
        """Whether the pattern occurs anywhere in the text."""
        if self._quick is not None and self._is_cheap(text):
            return self._quick.search(text) is not None
        return self._automaton().matches(text)

    def find(self, text: str, start: int = 0) -> tuple[int, int] | None:
        """Where the leftmost match is."""
        if self._quick is not None and self._is_cheap(text):
            found = self._quick.search(text, start)
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

    def _automaton(self) -> _Machine:
        if self._machine is None:
            self._machine = _Machine(self._tree)
        return self._machine


@lru_cache(maxsize=512)
def compile_pattern(source: str) -> Pattern:
    return Pattern(source)


# --- for Python's re, where it is safe


def _translate(tree: Regex) -> tuple[re.Pattern[str] | None, int]:
    """A pattern for `re` and the degree of the polynomial its worst case grows with; None where it could explode."""
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


# --- the automaton


class _State:
    __slots__ = ("accepts", "accepts_at_end", "next", "threads")

    def __init__(self, threads: tuple[int, ...], accepts: bool, accepts_at_end: bool) -> None:
        self.threads = threads
        self.accepts = accepts
        self.accepts_at_end = accepts_at_end
        self.next: dict[str, _State] = {}


class _Machine:
    """An instruction list: entry is `self.start`, -1 is the match."""

    def __init__(self, tree: Regex) -> None:
        self.steps: dict[int, _Step] = {}
        self.splits: dict[int, _Split] = {}
        self.asserts: dict[int, tuple[str, int]] = {}
        self.count = 0
        self.start = self._build(tree, -1)
        kinds = {kind for kind, _ in self.asserts.values()}
        self.contextual = bool(kinds - {"text-start", "text-end"})
        self.states: dict[tuple[int, ...], _State] = {}
        self.first: _State | None = None

    def _new(self) -> int:
        self.count += 1
        if self.count > _MAX_PROGRAM:
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

    def _follow(self, at: int, before: str | None, after: str | None, seen: dict[int, None]) -> None:
        """Adds everything reachable from `at` without reading; `after` is None where the next character is not known yet."""
        pending = [at]
        while pending:
            at = pending.pop()
            if at in seen:
                continue
            seen[at] = None
            split = self.splits.get(at)
            if split is not None:
                pending.append(split[1])
                pending.append(split[0])
                continue
            check = self.asserts.get(at)
            if check is not None and _holds(check[0], before, after):
                pending.append(check[1])

    # --- whether there is a match

    def matches(self, text: str) -> bool:
        if self.contextual:
            return self.find(text, 0) is not None
        state = self.first
        if state is None:
            state = self.first = self._state({self.start: None}, at_start=True)
        for char in text:
            if state.accepts:
                return True
            following = state.next.get(char)
            if following is None:
                following = self._advance(state, char)
            state = following
        return state.accepts or state.accepts_at_end

    def _advance(self, state: _State, char: str) -> _State:
        reached: dict[int, None] = {self.start: None}
        for at in state.threads:
            step = self.steps.get(at)
            if step is not None and step[0].has(char):
                reached[step[1]] = None
        if len(self.states) > _MAX_STATES:
            self.states.clear()
            self.first = None
        following = self._state(reached, at_start=False)
        state.next[char] = following
        return following

    def _state(self, entries: dict[int, None], at_start: bool) -> _State:
        before = None if at_start else "x"
        open_ended: dict[int, None] = {}
        at_end: dict[int, None] = {}
        for at in entries:
            self._follow(at, before, None, open_ended)
            self._follow(at, before, _END, at_end)
        threads = tuple(sorted(open_ended))
        # The start of the text makes a state of its own even if the same instructions are alive.
        key = (*threads, -2) if at_start else threads
        known = self.states.get(key)
        if known is None:
            known = self.states[key] = _State(threads, -1 in open_ended, -1 in at_end)
        return known

    # --- where the match is

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
                seen: dict[int, None] = dict.fromkeys(live)
                known = len(seen)
                self._follow(at, before, after, seen)
                for reached in list(seen)[known:]:
                    live[reached] = origin
                    if reached == -1:
                        break
                if -1 in live:
                    break
            threads = {}
            for at, origin in live.items():
                if at == -1:
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
