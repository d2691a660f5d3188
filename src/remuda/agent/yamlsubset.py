"""The part of YAML that agents' files are written in, since the standard library has none.

Configurations, kubeconfigs and registries files are maps, lists and scalars in block or flow style, quoted or plain, with
comments and block texts. Anchors, aliases, tags, complex keys and several documents are refused by name: better no start
than a wrong one. JSON is YAML, so a JSON file reads as itself.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from .errors import ConfigError

#: Blanks are these two characters; other Unicode spaces are text.
_BLANK = " \t"
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)\Z")
_FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+][0-9]+)?\Z")
_KEY = re.compile(
    r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s#&*!|>%@`"'\[\]{},-](?:\S|\s(?!#))*?|-[^\s#](?:\S|\s(?!#))*?)\s*:(?=\s|$)""",
    re.ASCII,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\", '"': '"', "/": "/", "a": "\a", "b": "\b", "e": "\x1b"}
_ESCAPES.update({"f": "\f", "v": "\v", " ": " ", "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029"})
_CHARACTERS = 0x110000
_LONGEST_NUMBER = 1000


class _Line(NamedTuple):
    number: int
    indent: int
    text: str


def load(text: str) -> Any:
    """The value of one document; an empty document is nothing."""
    stripped = text.lstrip("\ufeff \t\r\n")
    if stripped[:1] in "{[" and stripped:
        try:
            return json.loads(text)
        except ValueError:
            pass  # flow style YAML, not JSON
    return _Parser(text).document()


class _Parser:
    def __init__(self, text: str) -> None:
        self.raw = text.lstrip("\ufeff").replace("\r\n", "\n").split("\n")
        self.at = 0

    def document(self) -> Any:
        line = self.peek()
        if line is not None and line.text == "---":
            self.at += 1
            line = self.peek()
        if line is None:
            return None
        value = self.block(line.indent)
        rest = self.peek()
        if rest is not None and rest.text not in ("...", "---"):
            raise self.wrong(rest, "does not belong to what is above it")
        if rest is not None and rest.text == "---":
            self.at += 1
            if self.peek() is not None:
                raise self.wrong(rest, "starts a second document")
        return value

    def wrong(self, line: _Line, what: str) -> ConfigError:
        return ConfigError(f"line {line.number} {what}")

    def peek(self) -> _Line | None:
        while self.at < len(self.raw):
            raw = self.raw[self.at]
            body = raw.lstrip(" ")
            if body.strip(_BLANK) and not body.lstrip("\t").startswith("#"):
                line = _Line(self.at + 1, len(raw) - len(body), body.rstrip(_BLANK))
                if body.startswith("\t"):
                    raise self.wrong(line, "is indented by a tab")
                return line
            self.at += 1
        return None

    def block(self, indent: int) -> Any:
        line = self.peek()
        assert line is not None
        if line.text == "-" or line.text.startswith("- "):
            return self.sequence(indent)
        if _KEY.match(line.text):
            return self.mapping(indent)
        self.at += 1
        return self.scalar(line, line.text, indent - 1)

    def mapping(self, indent: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while True:
            line = self.peek()
            if line is None or line.indent < indent or line.text in ("---", "..."):
                return found
            match = _KEY.match(line.text) if line.indent == indent else None
            if match is None:
                raise self.wrong(line, "is no key at the place where one must be")
            key = _key(match.group(1))
            if key in found:
                raise self.wrong(line, f"gives {key!r} a second time")
            self.at += 1
            found[key] = self.value(line, line.text[match.end() :].strip(_BLANK), indent, sequence_at_same_indent=True)

    def sequence(self, indent: int) -> list[Any]:
        found: list[Any] = []
        while True:
            line = self.peek()
            if line is None or line.indent < indent or line.text in ("---", "..."):
                return found
            if line.indent > indent:
                raise self.wrong(line, "is indented more than its list")
            if not (line.text == "-" or line.text.startswith("- ")):
                return found
            rest = line.text[1:].lstrip(" ")
            inner = indent + len(line.text) - len(rest)
            if _without_comment(rest) and (rest == "-" or rest.startswith("- ") or _KEY.match(rest)):
                # The item is itself a block that begins on this line: read it as if the dash were a blank.
                self.raw[self.at] = " " * inner + rest
                found.append(self.block(inner))
                continue
            self.at += 1
            found.append(self.value(line, rest, indent, sequence_at_same_indent=False))

    def value(self, line: _Line, rest: str, indent: int, sequence_at_same_indent: bool) -> Any:
        rest = _without_comment(rest)
        if rest:
            return self.scalar(line, rest, indent)
        below = self.peek()
        if below is None or below.text in ("---", "..."):
            return None
        if below.indent > indent:
            return self.block(below.indent)
        dashed = below.text == "-" or below.text.startswith("- ")
        if sequence_at_same_indent and below.indent == indent and dashed:
            return self.sequence(indent)
        return None

    def scalar(self, line: _Line, rest: str, indent: int) -> Any:
        first = rest[0]
        if first in "&*!" or rest.startswith("? ") or rest == "?":
            raise self.wrong(line, f"uses {first!r}, which this reader does not support")
        if first in "|>":
            return self.text_block(line, rest, indent)
        if first in "[{":
            return self.flow(line, rest)
        if first in "\"'":
            return self.quoted(line, rest)
        words = [_without_comment(rest)]
        while True:
            below = self.peek()
            if below is None or below.indent <= indent or _KEY.match(below.text):
                return _plain(" ".join(words))
            words.append(_without_comment(below.text))
            self.at += 1

    def quoted(self, line: _Line, rest: str) -> str:
        joined = rest
        while True:
            end = _quote_end(joined)
            if end is not None:
                if _without_comment(joined[end:]):
                    raise self.wrong(line, "goes on after its closing quote")
                return _unquote(joined[:end])
            if self.at >= len(self.raw):
                raise self.wrong(line, "opens a quote that is never closed")
            more = self.raw[self.at].strip(_BLANK)
            self.at += 1
            if not more:
                joined += "\n"
            else:
                joined += more if joined.endswith("\n") else " " + more

    def flow(self, line: _Line, rest: str) -> Any:
        joined = rest
        while True:
            try:
                value, end = _flow(joined, 0)
                if _without_comment(joined[end:]):
                    raise self.wrong(line, "goes on after its closing bracket")
                return value
            except _Unfinished:
                if self.at >= len(self.raw):
                    raise self.wrong(line, "opens a bracket that is never closed") from None
                joined += " " + _without_comment(self.raw[self.at].strip(_BLANK))
                self.at += 1

    def text_block(self, line: _Line, header: str, indent: int) -> str:
        match = re.fullmatch(r"([|>])([1-9]?)([-+]?)([1-9]?)", header)
        if match is None:
            raise self.wrong(line, "begins a text in a way that this reader does not support")
        folded, keep = match.group(1) == ">", match.group(3)
        given = match.group(2) or match.group(4)
        # A text at the top of a document may start at the margin: its parent's indent is one less.
        margin = max(indent, 0) + int(given) if given else None
        lines: list[str] = []
        while self.at < len(self.raw):
            raw = self.raw[self.at]
            blank = not raw.strip(" ")
            here = len(raw) - len(raw.lstrip(" "))
            if margin is None and not blank:
                if here <= indent:
                    break
                margin = here
            if not blank and margin is not None and here < margin:
                break
            lines.append("" if blank and (margin is None or len(raw) <= margin) else raw[margin or 0 :])
            self.at += 1
        body = len(lines)
        while body and not lines[body - 1]:
            body -= 1
        text = _fold(lines[:body]) if folded else "\n".join(lines[:body])
        trailing = len(lines) - body
        if self.at >= len(self.raw) and trailing:
            trailing -= 1  # what follows the file's last newline is no line
        if keep == "-":
            return text
        if keep == "+":
            return text + "\n" * (trailing + 1 if body else trailing)
        return text + "\n" if body else ""


class _Unfinished(Exception):
    pass


def _flow(text: str, at: int) -> tuple[Any, int]:
    at = _skip(text, at)
    opening = text[at]
    if opening == "[":
        return _flow_list(text, at + 1)
    if opening == "{":
        return _flow_map(text, at + 1)
    if opening in "\"'":
        end = _quote_end(text[at:])
        if end is None:
            raise ConfigError("a quoted text inside brackets does not end on its line")
        return _unquote(text[at : at + end]), at + end
    if opening in "&*!":
        raise ConfigError(f"{opening!r} is not supported by this reader")
    end = at
    while end < len(text) and text[end] not in ",[]{}" and not (text[end] == ":" and text[end + 1 : end + 2] in (" ", "")):
        end += 1
    return _plain(text[at:end].strip(_BLANK)), end


def _flow_list(text: str, at: int) -> tuple[list[Any], int]:
    found: list[Any] = []
    while True:
        at = _skip(text, at)
        if text[at] == "]":
            return found, at + 1
        value, at = _flow(text, at)
        found.append(value)
        at = _separator(text, at, "]")


def _flow_map(text: str, at: int) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    while True:
        at = _skip(text, at)
        if text[at] == "}":
            return found, at + 1
        start = at
        value, at = _flow(text, at)
        key = value if isinstance(value, str) else text[start:at].strip(_BLANK)
        at = _skip(text, at)
        if text[at] == ":":
            at = _skip(text, at + 1)
            found[key] = None
            if text[at] not in ",}":
                found[key], at = _flow(text, at)
        else:
            found[key] = None
        at = _separator(text, at, "}")


def _separator(text: str, at: int, closing: str) -> int:
    at = _skip(text, at)
    if text[at] == ",":
        return at + 1
    if text[at] != closing:
        raise ConfigError(f"{text[at:]!r} is where a comma or {closing!r} must be")
    return at


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\n":
        at += 1
    if at >= len(text):
        raise _Unfinished
    return at


def _quote_end(text: str) -> int | None:
    quote, at = text[0], 1
    while at < len(text):
        if quote == '"' and text[at] == "\\":
            at += 2
            continue
        if text[at] == quote:
            if quote == "'" and text[at + 1 : at + 2] == "'":
                at += 2
                continue
            return at + 1
        at += 1
    return None


def _unquote(text: str) -> str:
    if text[0] == "'":
        return text[1:-1].replace("''", "'")
    out: list[str] = []
    at, end = 1, len(text) - 1
    while at < end:
        char = text[at]
        if char != "\\":
            out.append(char)
            at += 1
            continue
        code = text[at + 1]
        width = {"x": 2, "u": 4, "U": 8}.get(code)
        if width:
            digits = text[at + 2 : min(at + 2 + width, end)]
            number = int(digits, 16) if re.fullmatch("[0-9A-Fa-f]+", digits) and len(digits) == width else _CHARACTERS
            if number >= _CHARACTERS:
                raise ConfigError(f"\\{code}{digits} is no character")
            out.append(chr(number))
            at += 2 + width
        elif code in _ESCAPES:
            out.append(_ESCAPES[code])
            at += 2
        else:
            raise ConfigError(f"\\{code} is no escape in a quoted text")
    # Escaped surrogate pairs are one character, as in JSON.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _without_comment(text: str) -> str:
    if text.startswith("#"):
        return ""
    if text[:1] in ('"', "'"):
        end = _quote_end(text)
        if end is None:
            return text
        return text[:end] + _without_comment_plain(text[end:])
    return _without_comment_plain(text) if text[:1] not in ("[", "{") else text.rstrip(_BLANK)


def _without_comment_plain(text: str) -> str:
    at = re.search(r"(^|\s)#", text, re.ASCII)
    return (text[: at.start()] if at else text).rstrip(_BLANK)


def _key(text: str) -> str:
    return _unquote(text) if text[0] in "\"'" else text.strip(_BLANK)


def _plain(text: str) -> Any:
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in ("true", "True", "TRUE"):
        return True
    if text in ("false", "False", "FALSE"):
        return False
    # Python refuses to read longer numbers, so they stay text.
    if _INT.match(text) and len(text) <= _LONGEST_NUMBER:
        return int(text)
    if _FLOAT.match(text):
        return float(text)
    return text


def _fold(lines: list[str]) -> str:
    out = ""
    previous_text = False
    for line in lines:
        text = bool(line) and not line.startswith((" ", "\t"))
        if not out:
            out = line
        elif not line:
            out += "\n"
        elif text and previous_text:
            out += line if out.endswith("\n") else " " + line
        else:
            out += "\n" + line
        if line:
            previous_text = text
    return out
