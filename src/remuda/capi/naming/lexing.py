"""A lexer for templates of names; :mod:`.parsing` reads its tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from remuda.kube.errors import go_quote

TEXT: Final = "text"
LEFT: Final = "left"
RIGHT: Final = "right"
SPACE: Final = "space"
OPERATOR: Final = "operator"
STRING: Final = "string"
VARIABLE: Final = "variable"
FIELD: Final = "field"
NUMBER: Final = "number"
IDENTIFIER: Final = "identifier"
KEYWORD: Final = "keyword"
BOOL: Final = "bool"
DOT: Final = "dot"
NIL: Final = "nil"
OPEN: Final = "open"
CLOSE: Final = "close"
PIPE: Final = "pipe"
CHAR: Final = "char"
ERROR: Final = "error"
EOF: Final = "eof"

_KEYWORDS = frozenset(["block", "break", "continue", "define", "else", "end", "if", "range", "template", "with"])
_SPACES = " \t\r\n"
_TRIM_RIGHT = re.compile(r"[ \t\r\n]-\}\}")
_WORD = re.compile(r"\w+")
_NUMBER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F_]*|0[oO][0-7_]*|0[bB][01_]*|[0-9_]*)(?:\.[0-9_]*)?(?:[eE][+-]?[0-9_]*)?i?")
_QUOTED = re.compile(r'"(?:\\[^\n]|[^"\\\n])*"')
_CHARACTER = re.compile(r"'(?:\\[^\n]|[^'\\\n])*'")
_RAW = re.compile(r"`[^`]*`")
_ENDS_WORD = frozenset(".,|:)(" + _SPACES)


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    position: int
    text: str
    line: int

    def __str__(self) -> str:
        if self.kind == EOF:
            return "EOF"
        if self.kind == ERROR:
            return self.text
        if self.kind in (KEYWORD, DOT, NIL):
            return f"<{self.text}>"
        return f"{go_quote(self.text[:10])}..." if len(self.text.encode()) > 10 else go_quote(self.text)


def tokens(template: str) -> Iterator[Token]:
    """The tokens up to the end, or up to an error."""
    return _Lexer(template).run()


class _Lexer:
    def __init__(self, template: str) -> None:
        self._template = template
        self._at = 0
        self._depth = 0

    def _token(self, kind: str, start: int, text: str) -> Token:
        return Token(kind, start, text, self._template.count("\n", 0, start) + 1)

    def run(self) -> Iterator[Token]:
        while self._at < len(self._template):
            opening = self._template.find("{{", self._at)
            end = len(self._template) if opening < 0 else opening
            text = self._template[self._at : end]
            trims = opening >= 0 and self._trims(opening + 2)
            if shown := text.rstrip(_SPACES) if trims else text:
                yield self._token(TEXT, self._at, shown)
            self._at = end
            if opening >= 0:
                yield from self._action(opening, opening + (4 if trims else 2))
                if self._at < 0:
                    return
        yield self._token(EOF, len(self._template), "EOF")

    def _trims(self, at: int) -> bool:
        return self._template[at : at + 1] == "-" and self._template[at + 1 : at + 2] in tuple(_SPACES)

    def _fails(self, start: int, why: str) -> Token:
        self._at = -1
        return self._token(ERROR, start, why)

    def _action(self, opening: int, inside: int) -> Iterator[Token]:
        self._at = inside
        if self._template.startswith("/*", inside):
            yield from self._comment(inside)
            return
        yield self._token(LEFT, opening, "{{")
        self._depth = 0
        while True:
            length = self._closing()
            if length:
                if self._depth:
                    yield self._fails(self._at, "unclosed left paren")
                    return
                yield self._token(RIGHT, self._at + length - 2, "}}")
                self._leave(length)
                return
            token = self._inside()
            yield token
            if token.kind == ERROR:
                return

    def _comment(self, start: int) -> Iterator[Token]:
        end = self._template.find("*/", start + 2)
        if end < 0:
            yield self._fails(start, "unclosed comment")
            return
        self._at = end + 2
        length = self._closing()
        if not length:
            yield self._fails(start, "comment ends before closing delimiter")
            return
        self._leave(length)

    def _closing(self) -> int:
        """The length of an action's closing delimiter if it comes next, else 0."""
        if self._template.startswith("}}", self._at):
            return 2
        return 4 if _TRIM_RIGHT.match(self._template, self._at) else 0

    def _leave(self, length: int) -> None:
        self._at += length
        if length == 4:
            rest = self._template[self._at :]
            self._at += len(rest) - len(rest.lstrip(_SPACES))

    def _inside(self) -> Token:
        start, char = self._at, self._template[self._at : self._at + 1]
        if not char:
            return self._fails(start, "unclosed action")
        if char in _SPACES:
            while self._template[self._at : self._at + 1] in tuple(_SPACES) and not self._closing():
                self._at += 1
            return self._token(SPACE, start, self._template[start : self._at])
        for quote, pattern, kind, why in (
            ('"', _QUOTED, STRING, "unterminated quoted string"),
            ("`", _RAW, STRING, "unterminated raw quoted string"),
            ("'", _CHARACTER, NUMBER, "unterminated character constant"),
        ):
            if char == quote:
                found = pattern.match(self._template, start)
                return self._take(kind, found.end()) if found else self._fails(start, why)
        if char in "$.":
            return self._field(char)
        if char in "+-" or char.isdigit():
            return self._number()
        if char == "_" or char.isalpha():
            return self._word(IDENTIFIER)
        return self._symbol(char)

    def _take(self, kind: str, end: int) -> Token:
        start, self._at = self._at, end
        return self._token(kind, start, self._template[start:end])

    def _field(self, char: str) -> Token:
        following = self._template[self._at + 1 : self._at + 2]
        # At the end of the text a dot is read as a number, and then refused.
        if char == "." and (following.isdigit() or not following):
            return self._number()
        if self._ends(self._at + 1):
            return self._take(DOT if char == "." else VARIABLE, self._at + 1)
        return self._word(FIELD if char == "." else VARIABLE, 1)

    def _ends(self, at: int) -> bool:
        char = self._template[at : at + 1]
        return not char or char in _ENDS_WORD or self._template.startswith("}}", at)

    def _word(self, kind: str, prefix: int = 0) -> Token:
        found = _WORD.match(self._template, self._at + prefix)
        end = found.end() if found else self._at + prefix
        if not self._ends(end):
            return self._fails(self._at, f"bad character {_code_point(self._template[end])}")
        token = self._take(kind, end)
        if kind != IDENTIFIER:
            return token
        if token.text in _KEYWORDS:
            return self._token(KEYWORD, token.position, token.text)
        special = {"true": BOOL, "false": BOOL, "nil": NIL}.get(token.text, kind)
        return self._token(special, token.position, token.text)

    def _number(self) -> Token:
        found = _NUMBER.match(self._template, self._at)
        end = found.end() if found else self._at + 1
        if _WORD.match(self._template, end):
            return self._fails(self._at, f"bad number syntax: {go_quote(self._template[self._at : end + 1])}")
        if self._template[end : end + 1] not in ("+", "-"):
            return self._take(NUMBER, end)
        imaginary = _NUMBER.match(self._template, end)
        if imaginary and imaginary.group().endswith("i"):
            return self._take(NUMBER, imaginary.end())
        end = imaginary.end() if imaginary else end
        end += _WORD.match(self._template, end) is not None
        return self._fails(self._at, f"bad number syntax: {go_quote(self._template[self._at : end])}")

    def _symbol(self, char: str) -> Token:
        start = self._at
        if char == "(":
            self._depth += 1
        if char == ")":
            self._depth -= 1
            if self._depth < 0:
                return self._fails(start, "unexpected right paren")
        if char == ":":
            if self._template[start + 1 : start + 2] != "=":
                return self._fails(start, "expected :=")
            return self._take(OPERATOR, start + 2)
        if not (char.isascii() and char.isprintable()):
            return self._fails(start, f"unrecognized character in action: {_code_point(char)}")
        return self._take({"(": OPEN, ")": CLOSE, "|": PIPE, "=": OPERATOR}.get(char, CHAR), start + 1)


def _code_point(char: str) -> str:
    return f"U+{ord(char):04X}" + (f" '{char}'" if char.isprintable() else "")
