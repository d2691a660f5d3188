"""The messages of Go's JSON scanner for bytes that are not JSON.

Clients of a Kubernetes API see these messages and match on them. Only used once :mod:`.jsonio` has refused a document, so
the code is simple, not fast.
"""

from __future__ import annotations

_SPACE = b" \t\r\n"
_DIGITS = b"0123456789"
_HEX = b"0123456789abcdefABCDEF"
_ESCAPES = b'bfnrt\\/"'
_LITERALS = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}
MAX_DEPTH = 10_000
_END = "unexpected end of JSON input"


class _Problem(Exception):
    pass


def _quoted(byte: int) -> str:
    if byte == 0x27:
        return "'\\''"
    if byte == 0x5C:
        return "'\\\\'"
    named = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r"}
    if byte in named:
        return f"'{named[byte]}'"
    # A byte is shown as the character of that number, even inside a multi-byte character.
    if byte < 0x20 or byte == 0x7F:
        return f"'\\x{byte:02x}'"
    return f"'{chr(byte)}'" if chr(byte).isprintable() else f"'\\u{byte:04x}'"


def problem(data: bytes) -> str:
    """The first error in `data`, or "" when Go would accept it."""
    try:
        _Scanner(data).document()
    except _Problem as found:
        return str(found)
    return ""


class _Scanner:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def document(self) -> None:
        self._values()
        byte = self._next_solid(at_end=True)
        if byte >= 0:
            self._fail(byte, "after top-level value")

    def _fail(self, byte: int, why: str) -> None:
        raise _Problem(f"invalid character {_quoted(byte)} {why}")

    def _take(self) -> int:
        if self._at >= len(self._data):
            raise _Problem(_END)
        byte = self._data[self._at]
        self._at += 1
        return byte

    def _next_solid(self, at_end: bool = False) -> int:
        while self._at < len(self._data) and self._data[self._at] in _SPACE:
            self._at += 1
        if at_end and self._at >= len(self._data):
            return -1
        return self._take()

    def _values(self) -> None:
        """One value, with a stack of the brackets that are open."""
        stack: list[int] = []
        while True:
            byte = self._next_solid()
            if byte in b"{[":
                stack.append(byte)
                if len(stack) > MAX_DEPTH:
                    self._fail(byte, "exceeded max depth")
                if byte == 0x7B and self._first_key(stack):
                    continue
                if byte == 0x5B and not self._closes(0x5D, stack):
                    continue
            else:
                self._scalar(byte)
            if not self._after_value(stack):
                return

    def _closes(self, bracket: int, stack: list[int]) -> bool:
        byte = self._next_solid()
        if byte == bracket:
            stack.pop()
            return True
        self._at -= 1
        return False

    def _first_key(self, stack: list[int]) -> bool:
        if self._closes(0x7D, stack):
            return False
        self._key()
        return True

    def _key(self) -> None:
        byte = self._next_solid()
        if byte != 0x22:
            self._fail(byte, "looking for beginning of object key string")
        self._string()
        byte = self._next_solid()
        if byte != 0x3A:
            self._fail(byte, "after object key")

    def _after_value(self, stack: list[int]) -> bool:
        """Close the values that end here; True when another value follows."""
        while stack:
            byte = self._next_solid()
            opened = stack[-1]
            if byte == 0x2C:
                if opened == 0x7B:
                    self._key()
                return True
            if byte != (0x7D if opened == 0x7B else 0x5D):
                self._fail(byte, "after object key:value pair" if opened == 0x7B else "after array element")
            stack.pop()
        return False

    def _scalar(self, byte: int) -> None:
        if byte == 0x22:
            self._string()
        elif byte == 0x2D or byte in _DIGITS:
            self._number(byte)
        elif byte in _LITERALS:
            text = _LITERALS[byte]
            for wanted in text[1:]:
                found = self._take()
                if found != wanted:
                    self._fail(found, f"in literal {text.decode()} (expecting '{chr(wanted)}')")
        else:
            self._fail(byte, "looking for beginning of value")

    def _string(self) -> None:
        while True:
            byte = self._take()
            if byte == 0x22:
                return
            if byte < 0x20:
                self._fail(byte, "in string literal")
            if byte == 0x5C:
                self._escape()

    def _escape(self) -> None:
        byte = self._take()
        if byte == 0x75:
            for _ in range(4):
                byte = self._take()
                if byte not in _HEX:
                    self._fail(byte, "in \\u hexadecimal character escape")
        elif byte not in _ESCAPES:
            self._fail(byte, "in string escape code")

    def _peek(self) -> int:
        return self._data[self._at] if self._at < len(self._data) else -1

    def _digits(self) -> None:
        while self._peek() >= 0 and self._peek() in _DIGITS:
            self._at += 1

    def _number(self, byte: int) -> None:
        if byte == 0x2D:
            byte = self._take()
            if byte not in _DIGITS:
                self._fail(byte, "in numeric literal")
        if byte != 0x30:
            self._digits()
        if self._peek() == 0x2E:
            self._at += 1
            byte = self._take()
            if byte not in _DIGITS:
                self._fail(byte, "after decimal point in numeric literal")
            self._digits()
        if self._peek() in (0x65, 0x45):
            self._at += 1
            byte = self._take()
            if byte in b"+-":
                byte = self._take()
            if byte not in _DIGITS:
                self._fail(byte, "in exponent of numeric literal")
            self._digits()
