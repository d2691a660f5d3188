"""CEL source text to tokens, with the error texts of the reference implementation's lexer.

Invalid input never stops the lexer: it reports an error, skips the invalid part and continues, so that a user sees all
errors at once. The parser reads these tokens.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import Issues

EOF = "<EOF>"
IDENT = "IDENTIFIER"
ESCAPED_IDENT = "ESC_IDENTIFIER"
INT = "NUM_INT"
UINT = "NUM_UINT"
FLOAT = "NUM_FLOAT"
STRING = "STRING"
BYTES = "BYTES"

_ESCAPE = r"""\\(?:[abfnrtv"'\\?`]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2})"""
_STRING = (
    r"(?:"
    rf'"""(?:{_ESCAPE}|[^\\])*?"""|'
    rf"'''(?:{_ESCAPE}|[^\\])*?'''|"
    r'[rR]"""(?:.|\n)*?"""|'
    r"[rR]'''(?:.|\n)*?'''|"
    rf'"(?:{_ESCAPE}|[^\\"\n\r])*"|'
    rf"'(?:{_ESCAPE}|[^\\'\n\r])*'|"
    r'[rR]"[^"\n\r]*"|'
    r"[rR]'[^'\n\r]*'"
    r")"
)
_TOKEN = re.compile(
    r"(?P<skip>[\t \r\n\f]+|//[^\n]*)|"
    rf"(?P<BYTES>[bB]{_STRING})|"
    rf"(?P<STRING>{_STRING})|"
    r"(?P<NUM_FLOAT>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)|"
    r"(?P<NUM_UINT>0x[0-9a-fA-F]+[uU]|[0-9]+[uU])|"
    r"(?P<NUM_INT>0x[0-9a-fA-F]+|[0-9]+)|"
    r"(?P<IDENTIFIER>[A-Za-z_][A-Za-z0-9_]*)|"
    r"(?P<ESC_IDENTIFIER>`[A-Za-z0-9_./ -]+`)|"
    r"(?P<op>==|!=|<=|>=|&&|\|\||[\[\]{}().,\-!?:+*/%<>])"
)
_KEYWORDS = frozenset({"in", "true", "false", "null"})
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class Token:
    kind: str  # a class above, or the operator or keyword itself
    text: str
    position: int


def tokenize(source: str, issues: Issues) -> list[Token]:
    tokens: list[Token] = []
    offset = 0
    length = len(source)
    while offset < length:
        match = _TOKEN.match(source, offset)
        if match is None:
            end = _failure(source, offset)
            text = source[offset : end + 1]
            issues.report(offset, f"Syntax error: token recognition error at: '{escape_text(text)}'")
            offset = end + 1
            continue
        kind = match.lastgroup or "op"
        text = match.group()
        if kind == "op" or text in _KEYWORDS:
            kind = text
        if kind != "skip":
            tokens.append(Token(kind, text, offset))
        offset = match.end()
    tokens.append(Token(EOF, EOF, length))
    return tokens


def escape_text(text: str) -> str:
    return text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


def _failure(source: str, start: int) -> int:
    """The offset of the first invalid character of the token at `start`."""
    first = source[start]
    if first in "&|=":
        return start + 1
    if first == "`":
        end = start + 1
        while end < len(source) and re.match(r"[A-Za-z0-9_./ -]", source[end]):
            end += 1
        return end
    if first not in "\"'":
        return start
    offset = start + 1
    while offset < len(source):
        char = source[offset]
        if char in "\n\r":
            return offset
        if char == "\\":
            escape = re.compile(_ESCAPE).match(source, offset)
            if escape is None:
                return _bad_escape(source, offset)
            offset = escape.end()
            continue
        offset += 1
    return offset


def _bad_escape(source: str, backslash: int) -> int:
    offset = backslash + 1
    if offset >= len(source):
        return offset
    lead = source[offset]
    width = {"x": 2, "X": 2, "u": 4, "U": 8}.get(lead, 2 if lead in "0123" else 0)
    allowed = "01234567" if lead in "0123" else "0123456789abcdefABCDEF"
    if not width:
        return offset
    offset += 1
    while offset < len(source) and source[offset] in allowed:
        offset += 1
    return offset


def unquote(text: str, is_bytes: bool) -> str | bytes:
    """The value of a string or bytes token. Raises ValueError with the text to report."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    raw = text[0] in "rR"
    if raw:
        text = text[1:]
    quotes = 3 if len(text) >= 6 and text[:3] in ("'''", '"""') else 1
    body = text[quotes : len(text) - quotes]
    if raw or "\\" not in body:
        return body.encode("utf-8", "surrogatepass") if is_bytes else body
    out = bytearray()
    pieces: list[str] = []
    offset = 0
    while offset < len(body):
        char = body[offset]
        if char != "\\":
            value, offset, encode = ord(char), offset + 1, True
        else:
            value, offset, encode = _unescape(body, offset + 1, is_bytes)
        if not is_bytes:
            pieces.append(chr(value))
        elif encode:
            out += chr(value).encode("utf-8", "surrogatepass")
        else:
            out.append(value)
    return bytes(out) if is_bytes else "".join(pieces)


def _unescape(body: str, offset: int, is_bytes: bool) -> tuple[int, int, bool]:
    lead = body[offset]
    offset += 1
    if lead in _ESCAPES:
        return ord(_ESCAPES[lead]), offset, True
    if lead in "\\'\"`?":
        return ord(lead), offset, True
    if lead in "xXuU":
        width = {"x": 2, "X": 2, "u": 4, "U": 8}[lead]
        if is_bytes and lead in "uU":
            raise ValueError("unable to unescape string")
        value = int(body[offset : offset + width], 16)
        offset += width
    else:
        value = int(body[offset - 1 : offset + 2], 8)
        offset += 2
    if not is_bytes and (value > 0x10FFFF or 0xD800 <= value <= 0xDFFF):
        raise ValueError("invalid unicode code point")
    return value, offset, not is_bytes
