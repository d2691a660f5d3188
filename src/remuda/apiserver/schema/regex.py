"""Go's regular expressions (RE2 syntax) on Python's engine.

Patterns in schemas and CEL are written for Go. The two dialects differ in what `$` means, in Unicode and POSIX classes, in
where flags may stand; and Python knows constructs that Go refuses. The translation covers what Go accepts; anything else
raises :class:`RegexError` with Go's own words, which is how a CRD's author learns about it.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import lru_cache

MAX_REPEAT = 1000


class RegexError(ValueError):
    """A pattern that Go would refuse; the message is the one of regexp.Compile."""

    def __init__(self, what: str, where: str = "") -> None:
        shown = f": `{where}`" if where else ""
        super().__init__(f"error parsing regexp: {what}{shown}")


@lru_cache(maxsize=2048)
def compile_go(pattern: str) -> re.Pattern[str]:
    """A compiled pattern that matches as Go's would (use `.search`)."""
    try:
        return re.compile(_Translator(pattern).translate(), re.ASCII)
    except (re.error, OverflowError) as error:
        raise RegexError(str(error), pattern) from None
    except RecursionError:
        raise RegexError("expression nests too deeply", pattern) from None


_POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7f",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_POSIX_NEGATED = {"digit": r"\x00-/:-\U0010ffff", "word": r"\x00-/:-@\[-\^`{-\U0010ffff"}
_PERL = {"d": "digit", "s": "perl-space", "w": "word"}
_PERL_SPACE = r"\t\n\f\r "
_PERL_SPACE_NEGATED = r"\x00-\x08\x0b\x0e-\x1f!-\U0010ffff"
_SCRIPTS = {
    "Latin": "LATIN",
    "Greek": "GREEK",
    "Cyrillic": "CYRILLIC",
    "Han": "CJK UNIFIED",
    "Hiragana": "HIRAGANA",
    "Katakana": "KATAKANA",
    "Arabic": "ARABIC",
    "Hebrew": "HEBREW",
    "Thai": "THAI",
    "Hangul": "HANGUL",
}


@lru_cache(maxsize=64)
def _unicode_ranges(name: str, negated: bool) -> str | None:
    """The members of a Unicode category or (for the common ones) script, as the inside of a character class."""
    if name not in ("Any", *_SCRIPTS) and not re.fullmatch(r"[CLMNPSZ][a-z]?", name):
        return None
    parts: list[str] = []
    start = -1
    for code in range(sys.maxunicode + 2):
        inside = code <= sys.maxunicode and _belongs(chr(code), name) is not negated
        if inside and start < 0:
            start = code
        elif not inside and start >= 0:
            parts.append(f"\\U{start:08x}-\\U{code - 1:08x}")
            start = -1
    return "".join(parts)


def _belongs(char: str, name: str) -> bool:
    if name == "Any":
        return True
    if name in _SCRIPTS:
        return unicodedata.name(char, "").startswith(_SCRIPTS[name])
    return unicodedata.category(char).startswith(name)


class _Translator:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._out: list[str] = []
        # Flags in force, one entry per open group: i, m, s, U.
        self._flags: list[set[str]] = [set()]
        self._opened: list[int] = []
        self._names: set[str] = set()
        # How many inline flag groups were opened in the current group and must be closed with it.
        self._extra: list[int] = [0]

    def translate(self) -> str:
        text = self._text
        can_repeat = False
        last_repeat = ""
        while self._at < len(text):
            char = text[self._at]
            if char in "*+?":
                last_repeat = self._repeat(can_repeat, last_repeat)
                continue
            if char == "{" and (counted := self._counted()):
                last_repeat = self._repeat_counted(counted, can_repeat, last_repeat)
                continue
            last_repeat = ""
            can_repeat = self._atom(char)
        if self._opened:
            raise RegexError("missing closing )", text)
        self._out.append(")" * self._extra[0])
        return "".join(self._out)

    def _atom(self, char: str) -> bool:
        """Translate one thing; True when a repetition may follow it."""
        match char:
            case "(":
                return self._open()
            case ")":
                return self._close()
            case "[":
                self._class()
                return True
            case "\\":
                return self._escape()
            case "|":
                self._emit("|", 1)
                return False
            case "^":
                self._emit("(?m:^)" if "m" in self._flags[-1] else r"\A", 1)
                return True
            case "$":
                self._emit("(?m:$)" if "m" in self._flags[-1] else r"\Z", 1)
                return True
            case ".":
                self._emit("(?s:.)" if "s" in self._flags[-1] else ".", 1)
                return True
        self._emit(re.escape(char), 1)
        return True

    def _emit(self, text: str, consumed: int) -> None:
        self._out.append(text)
        self._at += consumed

    # --- repetition ------------------------------------------------------------------------------------------------

    def _repeat(self, can_repeat: bool, last: str) -> str:
        operator = self._text[self._at]
        lazy = self._text[self._at + 1 : self._at + 2] == "?"
        shown = operator + ("?" if lazy else "")
        return self._finish_repeat(operator, shown, lazy, can_repeat, last)

    def _finish_repeat(self, translated: str, shown: str, lazy: bool, can_repeat: bool, last: str) -> str:
        if last:
            raise RegexError("invalid nested repetition operator", last + shown)
        if not can_repeat:
            raise RegexError("missing argument to repetition operator", shown)
        ungreedy = "U" in self._flags[-1]
        self._emit(translated + ("?" if lazy is not ungreedy else ""), len(shown))
        return shown

    def _counted(self) -> re.Match[str] | None:
        return re.compile(r"\{(\d+)(?:(,)(\d*))?\}", re.ASCII).match(self._text, self._at)

    def _repeat_counted(self, match: re.Match[str], can_repeat: bool, last: str) -> str:
        low = int(match.group(1))
        high = int(match.group(3)) if match.group(3) else low if not match.group(2) else -1
        if low > MAX_REPEAT or high > MAX_REPEAT or (0 <= high < low):
            raise RegexError("invalid repeat count", match.group())
        lazy = self._text[match.end() : match.end() + 1] == "?"
        shown = match.group() + ("?" if lazy else "")
        return self._finish_repeat(match.group(), shown, lazy, can_repeat, last)

    # --- groups ----------------------------------------------------------------------------------------------------

    def _open(self) -> bool:
        text, at = self._text, self._at
        if not text.startswith("(?", at):
            self._push(set(self._flags[-1]))
            self._emit("(", 1)
            return False
        if named := re.compile(r"\(\?P?<([^>]*)>").match(text, at):
            return self._open_named(named)
        if text.startswith(("(?<", "(?P"), at):
            raise RegexError("invalid named capture", text[at:])
        flags = re.compile(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])").match(text, at)
        if flags is None or (not flags.group(1) and not flags.group(2) and flags.group(3) == ")"):
            raise RegexError("invalid or unsupported Perl syntax", text[at : at + _perl_length(text[at:])])
        current = (set(self._flags[-1]) | set(flags.group(1))) - set(flags.group(2) or "")
        ignore = _case(self._flags[-1], current)
        if flags.group(3) == ":":
            self._push(current)
            self._emit(f"(?{ignore}:", len(flags.group()))
            return False
        # Flags for the rest of the enclosing group: Python wants a group of its own around that rest.
        self._flags[-1] = current
        self._extra[-1] += 1
        self._emit(f"(?{ignore}:", len(flags.group()))
        return False

    def _open_named(self, named: re.Match[str]) -> bool:
        name = named.group(1)
        if not re.fullmatch(r"\w+", name, re.ASCII):
            raise RegexError("invalid named capture", named.group())
        if name in self._names:
            raise RegexError("duplicate capture group name", name)
        self._names.add(name)
        self._push(set(self._flags[-1]))
        self._emit("(", len(named.group()))
        return False

    def _push(self, flags: set[str]) -> None:
        self._opened.append(self._at)
        self._flags.append(flags)
        self._extra.append(0)

    def _close(self) -> bool:
        if not self._opened:
            raise RegexError("unexpected )", self._text)
        self._opened.pop()
        self._flags.pop()
        self._emit(")" * (self._extra.pop() + 1), 1)
        return True

    # --- escapes and classes ---------------------------------------------------------------------------------------

    def _escape(self) -> bool:
        text, at = self._text, self._at
        if at + 1 >= len(text):
            raise RegexError("trailing backslash at end of expression")
        char = text[at + 1]
        if char in "AbB":
            self._emit("\\" + char, 2)
        elif char == "z":
            self._emit(r"\Z", 2)
        elif char == "C":
            self._emit("(?s:.)", 2)
        elif char == "Q":
            end = text.find("\\E", at + 2)
            literal = text[at + 2 : end if end >= 0 else len(text)]
            self._emit(re.escape(literal), len(literal) + 2 + (2 if end >= 0 else 0))
        elif char in "dDsSwWpP":
            members, consumed = self._class_escape(at)
            self._emit(f"[{members}]", consumed)
        else:
            code, consumed = self._literal_escape(at)
            self._emit(re.escape(chr(code)), consumed)
        return True

    def _class_escape(self, at: int) -> tuple[str, int]:
        """The members that `\\d`, `\\pL`, … stand for, and how long that text is."""
        text, char = self._text, self._text[at + 1]
        if char in "pP":
            match = re.compile(r"\\[pP](?:\{(\^?)(\w*)\}|(\w))", re.ASCII).match(text, at)
            if match is None:
                raise RegexError("invalid character class range", text[at : at + 2])
            negated = (char == "P") is not bool(match.group(1))
            members = _unicode_ranges(match.group(2) or match.group(3) or "", negated)
            if members is None:
                raise RegexError("invalid character class range", match.group())
            return members, len(match.group())
        kind = _PERL[char.lower()]
        if kind == "perl-space":
            return (_PERL_SPACE if char == "s" else _PERL_SPACE_NEGATED), 2
        return (_POSIX[kind] if char.islower() else _POSIX_NEGATED[kind]), 2

    def _literal_escape(self, at: int) -> tuple[int, int]:
        text, char = self._text, self._text[at + 1]
        simple = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}.get(char)
        if simple is not None:
            return simple, 2
        if char == "x":
            match = re.compile(r"\\x(?:\{([0-9A-Fa-f]+)\}|([0-9A-Fa-f]{2}))").match(text, at)
            if match is None or (code := int(match.group(1) or match.group(2), 16)) > sys.maxunicode:
                raise RegexError("invalid escape sequence", text[at : at + 2])
            return code, len(match.group())
        if (octal := re.compile(r"\\(0[0-7]{0,2}|[1-7][0-7]{1,2})").match(text, at)) is not None:
            return int(octal.group(1), 8), len(octal.group())
        if ord(char) < 0x80 and not char.isalnum():
            return ord(char), 2
        raise RegexError("invalid escape sequence", text[at : at + 2])

    def _class(self) -> None:
        text, start = self._text, self._at
        at = start + 1
        negated = text.startswith("^", at)
        at += negated
        members: list[str] = []
        first = True
        while at >= len(text) or text[at] != "]" or first:
            if at >= len(text):
                raise RegexError("missing closing ]", text[start:])
            first = False
            posix = re.compile(r"\[:(\^?)(\w+):\]", re.ASCII).match(text, at)
            if posix is not None:
                members.append(_posix(posix))
                at = posix.end()
                continue
            if text[at] == "\\" and at + 1 < len(text) and text[at + 1] in "dDsSwWpP":
                found, consumed = self._class_escape(at)
                members.append(found)
                at += consumed
                continue
            low, end = self._class_char(at, start)
            high = low
            if text.startswith("-", end) and not text.startswith("-]", end) and end + 1 < len(text):
                high, after = self._class_char(end + 1, start)
                if high < low:
                    raise RegexError("invalid character class range", text[at:after])
                end = after
            members.append(f"\\U{low:08x}" if low == high else f"\\U{low:08x}-\\U{high:08x}")
            at = end
        inside = "".join(members)
        if not inside:
            self._out.append("(?s:.)" if negated else r"(?!)")
        else:
            self._out.append(f"[{'^' if negated else ''}{inside}]")
        self._at = at + 1

    def _class_char(self, at: int, start: int) -> tuple[int, int]:
        if self._text[at] != "\\":
            return ord(self._text[at]), at + 1
        if at + 1 >= len(self._text):
            raise RegexError("missing closing ]", self._text[start:])
        code, consumed = self._literal_escape(at)
        return code, at + consumed


def _perl_length(text: str) -> int:
    """How much of an unknown `(?…` Go shows: up to the first character that it can't make sense of."""
    length = 2
    while length < len(text) and text[length] in "imsU-":
        length += 1
    if text[2:4] in ("<=", "<!"):
        return 4
    return min(length + 1, len(text))


def _case(before: set[str], after: set[str]) -> str:
    if ("i" in before) == ("i" in after):
        return ""
    return "i" if "i" in after else "-i"


def _posix(match: re.Match[str]) -> str:
    ranges = _POSIX.get(match.group(2))
    if ranges is None:
        raise RegexError("invalid character class range", match.group())
    if not match.group(1):
        return ranges
    allowed = re.compile(f"[{ranges}]")
    parts = [f"\\x{code:02x}" for code in range(128) if not allowed.match(chr(code))]
    return "".join(parts) + r"\U00000080-\U0010ffff"
