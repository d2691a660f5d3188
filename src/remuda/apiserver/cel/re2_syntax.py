"""The syntax of RE2 regular expressions, as parsed by Go's `regexp`, with its errors and their texts.

Only patterns for an automaton are accepted: no back-references, no look-around. `re2` runs the parsed patterns.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

MAX_REPEAT = 1000
MAX_NESTING = 200


class RegexError(ValueError):
    """A pattern that RE2 rejects; the text is Go's."""

    def __init__(self, reason: str, part: str) -> None:
        super().__init__(f"error parsing regexp: {reason}: `{part}`")


Ranges: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Chars:
    """A set of characters: sorted ranges, plus Unicode classes that need a lookup."""

    ranges: Ranges
    classes: tuple[tuple[str, bool], ...] = ()
    negated: bool = False
    fold: bool = False

    def has(self, char: str) -> bool:
        found = self._plain(char)
        if not found and self.fold:
            found = any(self._plain(other) for other in _variants(char))
        return found is not self.negated

    def _plain(self, char: str) -> bool:
        code = ord(char)
        at = bisect_right(self.ranges, (code, 0x110000)) - 1
        if at >= 0 and self.ranges[at][1] >= code:
            return True
        return any(_in_class(char, name) is not negated for name, negated in self.classes)


@lru_cache(maxsize=4096)
def _variants(char: str) -> tuple[str, ...]:
    """The other cases of a character, by simple folding."""
    found = {char.lower(), char.upper(), char.lower().upper(), char.upper().lower()}
    found |= {"k": {"K"}, "K": {"K"}, "s": {"ſ"}, "S": {"ſ"}, "ß": {"ẞ"}}.get(char, set())
    return tuple(other for other in found if len(other) == 1 and other != char)


_SCRIPTS = {
    "Greek": ("GREEK",),
    "Latin": ("LATIN",),
    "Cyrillic": ("CYRILLIC",),
    "Han": ("CJK UNIFIED", "CJK COMPATIBILITY IDEOGRAPH", "KANGXI"),
    "Hiragana": ("HIRAGANA",),
    "Katakana": ("KATAKANA",),
    "Hangul": ("HANGUL",),
    "Arabic": ("ARABIC",),
    "Hebrew": ("HEBREW",),
    "Thai": ("THAI",),
    "Armenian": ("ARMENIAN",),
    "Devanagari": ("DEVANAGARI",),
    "Georgian": ("GEORGIAN",),
}
_SUBCATEGORIES = {"C": "cfos", "L": "lmotu", "M": "cen", "N": "dlo", "P": "cdefios", "S": "ckmo", "Z": "lps"}
_CATEGORIES = frozenset(["Any", *(major + minor for major, minors in _SUBCATEGORIES.items() for minor in ("", *minors))])


@lru_cache(maxsize=16384)
def _in_class(char: str, name: str) -> bool:
    if name == "Any":
        return True
    if name in _CATEGORIES:
        return unicodedata.category(char).startswith(name)
    return unicodedata.name(char, "").startswith(_SCRIPTS[name])


@dataclass(frozen=True, slots=True)
class Assert:
    kind: str  # text-start, text-end, line-start, line-end, word, not-word


@dataclass(frozen=True, slots=True)
class Concat:
    parts: tuple[Regex, ...]


@dataclass(frozen=True, slots=True)
class Either:
    choices: tuple[Regex, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    body: Regex
    low: int
    high: int | None
    greedy: bool


Regex: TypeAlias = Chars | Assert | Concat | Either | Repeat

_DIGIT: Ranges = ((0x30, 0x39),)
_SPACE: Ranges = ((0x09, 0x0A), (0x0C, 0x0D), (0x20, 0x20))
_WORD: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
# The characters beyond ASCII that fold to a letter of it.
_FOLDED_WORD: Ranges = ((0x17F, 0x17F), (0x212A, 0x212A))
_PERL = {"d": _DIGIT, "s": _SPACE, "w": _WORD}
_POSIX: dict[str, Ranges] = {
    "alnum": ((0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A)),
    "alpha": ((0x41, 0x5A), (0x61, 0x7A)),
    "ascii": ((0x00, 0x7F),),
    "blank": ((0x09, 0x09), (0x20, 0x20)),
    "cntrl": ((0x00, 0x1F), (0x7F, 0x7F)),
    "digit": _DIGIT,
    "graph": ((0x21, 0x7E),),
    "lower": ((0x61, 0x7A),),
    "print": ((0x20, 0x7E),),
    "punct": ((0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)),
    "space": ((0x09, 0x0D), (0x20, 0x20)),
    "upper": ((0x41, 0x5A),),
    "word": _WORD,
    "xdigit": ((0x30, 0x39), (0x41, 0x46), (0x61, 0x66)),
}
_CONTROL = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_ALL: Ranges = ((0, 0x10FFFF),)


def _sorted(ranges: list[tuple[int, int]]) -> Ranges:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return tuple(merged)


def _inverse(ranges: Ranges) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    start = 0
    for low, high in ranges:
        if start < low:
            found.append((start, low - 1))
        start = high + 1
    if start <= 0x10FFFF:
        found.append((start, 0x10FFFF))
    return found


def parse(pattern: str) -> Regex:
    parser = _Parser(pattern)
    tree = parser.alternation()
    if parser.at < len(pattern):
        raise RegexError("unexpected )", pattern)
    return tree


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.depth = 0
        self.fold = self.dot_all = self.multiline = self.swap = False

    def _peek(self) -> str:
        return self.pattern[self.at] if self.at < len(self.pattern) else ""

    def alternation(self) -> Regex:
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise RegexError("expression nests too deeply", self.pattern)
        choices = [self._sequence()]
        while self._peek() == "|":
            self.at += 1
            choices.append(self._sequence())
        self.depth -= 1
        return choices[0] if len(choices) == 1 else Either(tuple(choices))

    def _sequence(self) -> Regex:
        parts: list[Regex] = []
        while self.at < len(self.pattern) and self._peek() not in "|)":
            if self.pattern.startswith("\\Q", self.at):
                end = self.pattern.find("\\E", self.at)
                text = self.pattern[self.at + 2 : end if end >= 0 else len(self.pattern)]
                self.at = end + 2 if end >= 0 else len(self.pattern)
                parts.extend(self._one(ord(char)) for char in text)
                continue
            start = self.at
            if parts and self._repeats():
                # After `\\Q…\\E` or `(?i)`: what is repeated is the last character or group before it.
                parts[-1] = self._repeated(parts[-1], start)
                continue
            atom = self._atom()
            if atom is not None:
                parts.append(self._repeated(atom, start))
        return parts[0] if len(parts) == 1 else Concat(tuple(parts))

    def _one(self, code: int) -> Chars:
        return Chars(((code, code),), fold=self.fold and chr(code).isalpha())

    def _atom(self) -> Regex | None:
        char = self._peek()
        if char == "(":
            return self._group()
        if char == "[":
            return self._class()
        if char == "\\":
            return self._escape()
        self.at += 1
        if char == ".":
            return Chars(_ALL if self.dot_all else _sorted(_inverse(((10, 10),))))
        if char == "^":
            return Assert("line-start" if self.multiline else "text-start")
        if char == "$":
            return Assert("line-end" if self.multiline else "text-end")
        if char in "*+?":
            raise RegexError("missing argument to repetition operator", char + "?" * (self._peek() == "?"))
        if char == "{":
            self.at -= 1
            counts = self._counts()
            if counts is not None:
                raise RegexError("missing argument to repetition operator", counts[2] + "?" * (self._peek() == "?"))
            self.at += 1
        return self._one(ord(char))

    def _repeats(self) -> bool:
        """True if a repetition operator comes next."""
        if self._peek() != "{":
            return self._peek() in ("*", "+", "?")
        start = self.at
        found = self._counts() is not None
        self.at = start
        return found

    def _counts(self) -> tuple[int, int | None, str] | None:
        """`{n}`, `{n,}`, `{n,m}`; anything else is just text."""
        end = self.pattern.find("}", self.at)
        body = self.pattern[self.at + 1 : end] if end >= 0 else ""
        low, comma, high = body.partition(",")
        if not low.isdecimal() or not low.isascii() or (high and not (high.isdecimal() and high.isascii())):
            return None
        if (len(low) > 1 and low[0] == "0") or (len(high) > 1 and high[0] == "0"):
            return None
        text = self.pattern[self.at : end + 1]
        most = int(high[:6]) if high else (None if comma else int(low[:6]))
        least = int(low[:6])
        if least > MAX_REPEAT or (most is not None and (most > MAX_REPEAT or most < least)):
            raise RegexError("invalid repeat count", text)
        self.at = end + 1
        return least, most, text

    def _repeated(self, atom: Regex, start: int) -> Regex:
        previous = -1
        while self._peek() and self._peek() in "*+?{":
            mark = self.at
            char = self._peek()
            if char == "{":
                counts = self._counts()
                if counts is None:
                    return atom
                low, high = counts[0], counts[1]
            else:
                self.at += 1
                low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
            greedy = True
            if self._peek() == "?":
                self.at += 1
                greedy = False
            if previous >= 0:
                raise RegexError("invalid nested repetition operator", self.pattern[previous : self.at])
            previous = mark
            atom = Repeat(atom, low, high, greedy is not self.swap)
            if char == "{" and _expansion(atom) > MAX_REPEAT:
                raise RegexError("invalid repeat count", self.pattern[mark : self.at])
        return atom

    def _group(self) -> Regex | None:
        start = self.at
        saved = (self.fold, self.dot_all, self.multiline, self.swap)
        self.at += 1
        if self._peek() == "?" and not self._flags(start):
            return None
        body = self.alternation()
        if self._peek() != ")":
            raise RegexError("missing closing )", self.pattern)
        self.at += 1
        self.fold, self.dot_all, self.multiline, self.swap = saved
        return body

    def _flags(self, start: int) -> bool:
        """Reads what follows `(?`; False if it only switched flags and was closed again."""
        rest = self.pattern[start:]
        if rest.startswith(("(?P<", "(?<")):
            end = rest.find(">")
            name = rest[rest.index("<") + 1 : end] if end >= 0 else ""
            if not name or not all(c == "_" or (c.isascii() and c.isalnum()) for c in name):
                raise RegexError("invalid named capture", rest[: end + 1] if end >= 0 else rest)
            self.at = start + end + 1
            return True
        self.at = start + 2
        on, seen = True, False
        while self.at < len(self.pattern):
            char = self._peek()
            self.at += 1
            if char in "imsU":
                seen = True
                self._set(char, on)
            elif char == "-" and on:
                on, seen = False, False
            elif char in ":)" and (on or seen):
                return char == ":"
            else:
                break
        raise RegexError("invalid or unsupported Perl syntax", self.pattern[start : self.at] if self._peek() else rest)

    def _set(self, flag: str, on: bool) -> None:
        if flag == "i":
            self.fold = on
        elif flag == "m":
            self.multiline = on
        elif flag == "s":
            self.dot_all = on
        else:
            self.swap = on

    def _escape(self) -> Regex:
        start = self.at
        if self.at + 1 >= len(self.pattern):
            raise RegexError("trailing backslash at end of expression", "")
        char = self.pattern[self.at + 1]
        simple = {"A": "text-start", "z": "text-end", "b": "word", "B": "not-word"}.get(char)
        if simple is not None:
            self.at += 2
            return Assert(simple)
        if char.lower() in _PERL:
            self.at += 2
            return Chars(self._perl(char), negated=char.isupper())
        if char in "pP":
            name, negated = self._unicode()
            return Chars((), ((name, negated),), fold=self.fold)
        return self._one(self._code(start))

    def _perl(self, char: str) -> Ranges:
        """The class of `\\d`, `\\s`, `\\w`, which is folded before `\\W` negates it."""
        ranges = _PERL[char.lower()]
        return (*ranges, *_FOLDED_WORD) if self.fold and ranges is _WORD else ranges

    def _unicode(self) -> tuple[str, bool]:
        start = self.at
        negated = self.pattern[self.at + 1] == "P"
        rest = self.pattern[self.at + 2 :]
        if rest.startswith("{"):
            end = rest.find("}")
            if end < 0:
                raise RegexError("invalid character class range", self.pattern[start:])
            name, self.at = rest[1:end], start + 3 + end
        else:
            name, self.at = rest[:1], start + 2 + len(rest[:1])
        if name.startswith("^"):
            name, negated = name[1:], not negated
        if name not in _CATEGORIES and name not in _SCRIPTS:
            raise RegexError("invalid character class range", self.pattern[start : self.at])
        return name, negated

    def _code(self, start: int) -> int:
        """A single escaped character."""
        if start + 1 >= len(self.pattern):
            raise RegexError("trailing backslash at end of expression", "")
        char = self.pattern[start + 1]
        self.at = start + 2
        if char in _CONTROL:
            return _CONTROL[char]
        if char == "x":
            return self._hex(start)
        if "0" <= char <= "7":
            digits = char
            if char != "0" and not ("0" <= self._peek() <= "7" and self._peek()):
                raise RegexError("invalid escape sequence", self.pattern[start : self.at])
            while len(digits) < 3 and self._peek() and "0" <= self._peek() <= "7":
                digits += self._peek()
                self.at += 1
            return int(digits, 8)
        if char.isascii() and not char.isalnum():
            return ord(char)
        raise RegexError("invalid escape sequence", self.pattern[start : self.at])

    def _hex(self, start: int) -> int:
        if self._peek() == "{":
            end = self.pattern.find("}", self.at)
            digits = self.pattern[self.at + 1 : end] if end >= 0 else ""
            self.at = end + 1 if end >= 0 else len(self.pattern)
        else:
            digits = self.pattern[self.at : self.at + 2]
            self.at += len(digits)
            if len(digits) != 2:
                digits = ""
        if not digits or len(digits) > 8 or any(c not in "0123456789abcdefABCDEF" for c in digits):
            raise RegexError("invalid escape sequence", self.pattern[start : self.at])
        code = 0
        for place, digit in enumerate(digits):
            code = code * 16 + int(digit, 16)
            if code > 0x10FFFF:
                # Go shows the text that it has read so far.
                raise RegexError("invalid escape sequence", f"{self.pattern[start : start + 3]}{digits[: place + 1]}")
        return code

    def _class(self) -> Chars:
        start = self.at
        self.at += 1
        negated = self._peek() == "^"
        if negated:
            self.at += 1
        ranges: list[tuple[int, int]] = []
        classes: list[tuple[str, bool]] = []
        first = True
        while first or self._peek() != "]":
            first = False
            if not self._peek():
                raise RegexError("missing closing ]", self.pattern[start:])
            if self.pattern.startswith("[:", self.at) and self._posix(ranges):
                continue
            if self._peek() == "\\" and self._shorthand(ranges, classes):
                continue
            self._range(start, ranges)
        self.at += 1
        return Chars(_sorted(ranges), tuple(classes), negated, self.fold)

    def _posix(self, ranges: list[tuple[int, int]]) -> bool:
        end = self.pattern.find(":]", self.at + 2)
        if end < 0:
            return False
        name = self.pattern[self.at + 2 : end]
        bare = name.removeprefix("^")
        if bare not in _POSIX:
            raise RegexError("invalid character class range", self.pattern[self.at : end + 2])
        ranges.extend(_inverse(_POSIX[bare]) if name.startswith("^") else _POSIX[bare])
        self.at = end + 2
        return True

    def _shorthand(self, ranges: list[tuple[int, int]], classes: list[tuple[str, bool]]) -> bool:
        char = self.pattern[self.at + 1 : self.at + 2]
        if char and char.lower() in _PERL:
            self.at += 2
            ranges.extend(_inverse(self._perl(char)) if char.isupper() else self._perl(char))
            return True
        if char and char in "pP":
            classes.append(self._unicode())
            return True
        return False

    def _range(self, start: int, ranges: list[tuple[int, int]]) -> None:
        mark = self.at
        low = self._class_char(start)
        high = low
        if self._peek() == "-" and self.pattern[self.at + 1 : self.at + 2] not in ("", "]"):
            self.at += 1
            high = self._class_char(start)
            if high < low:
                raise RegexError("invalid character class range", self.pattern[mark : self.at])
        ranges.append((low, high))

    def _class_char(self, start: int) -> int:
        if not self._peek():
            raise RegexError("missing closing ]", self.pattern[start:])
        if self._peek() == "\\":
            return self._code(self.at)
        self.at += 1
        return ord(self.pattern[self.at - 1])


def _expansion(node: Regex) -> int:
    """The number of copies that nested counted repetitions make."""
    if isinstance(node, Repeat):
        count = max(node.low, node.high or 0, 1)
        return count * _expansion(node.body)
    if isinstance(node, Concat):
        return max((_expansion(part) for part in node.parts), default=1)
    if isinstance(node, Either):
        return max(_expansion(choice) for choice in node.choices)
    return 1
