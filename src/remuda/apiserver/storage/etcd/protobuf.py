"""Protocol buffers, limited to etcd's messages.

A message is a table. One for writing maps a field's name to its number and kind; one for reading maps a field's
tag to the place of its value, and skips the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from remuda.kube.encoding.varints import WORD, read_varint, write_varint

Obj = Mapping[str, Any]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

# --- writing ----------------------------------------------------------------------------------------------------------------


class Outgoing:
    """A message for writing. `fields`: number and kind by name, where a kind is a type, the names of an enumeration, or a
    message; one in brackets is repeated."""

    def __init__(self, **fields: tuple[int, Any]) -> None:
        self._fields = {name: (number, _writer(number, kind)) for name, (number, kind) in fields.items()}

    def encode(self, message: Obj) -> bytes:
        out = bytearray()
        self.write(out, message)
        return bytes(out)

    def write(self, out: bytearray, message: Obj) -> None:
        fields = self._fields
        for name, value in message.items():
            fields[name][1](out, value)


_Writer = Callable[[bytearray, Any], None]


def _writer(number: int, kind: Any) -> _Writer:
    if isinstance(kind, list):
        once = _writer(number, kind[0])

        def each(out: bytearray, values: Any) -> None:
            for value in values:
                once(out, value)

        return each
    if isinstance(kind, Outgoing):
        return _message_writer(write_varint(number << 3 | _BYTES), kind)
    if kind is bytes:
        return _bytes_writer(write_varint(number << 3 | _BYTES))
    return _number_writer(write_varint(number << 3 | _VARINT), kind if isinstance(kind, dict) else None)


def _message_writer(tag: bytes, kind: Outgoing) -> _Writer:
    def write(out: bytearray, value: Obj) -> None:
        inner = bytearray()
        kind.write(inner, value)
        out += tag
        out += write_varint(len(inner))
        out += inner

    return write


def _bytes_writer(tag: bytes) -> _Writer:
    def write(out: bytearray, value: bytes) -> None:
        out += tag
        out += write_varint(len(value))
        out += value

    return write


def _number_writer(tag: bytes, names: Mapping[str, int] | None) -> _Writer:
    def write(out: bytearray, value: Any) -> None:
        out += tag
        out += write_varint(int(value) if names is None else names[value])

    return write


# --- reading ----------------------------------------------------------------------------------------------------------------


class Incoming:
    """A message for reading: `make` an empty one; then the function of each field, by number."""

    def __init__(
        self,
        make: Callable[[], Any],
        *,
        numbers: Mapping[int, str] = {},
        identifiers: Mapping[int, str] = {},
        flags: Mapping[int, str] = {},
        data: Mapping[int, str] = {},
        texts: Mapping[int, str] = {},
        text_lists: Mapping[int, str] = {},
        messages: Mapping[int, tuple[str, Incoming]] = {},
        lists: Mapping[int, tuple[str, Incoming]] = {},
        choices: Mapping[int, tuple[str, tuple[str, ...]]] = {},
    ) -> None:
        self._make = make
        self._numbers = {number << 3: name for number, name in numbers.items()}
        # Without a sign.
        self._identifiers = {number << 3: name for number, name in identifiers.items()}
        self._flags = {number << 3: name for number, name in flags.items()}
        self._choices = {number << 3: found for number, found in choices.items()}
        self._data = {number << 3 | _BYTES: name for number, name in data.items()}
        self._texts = {number << 3 | _BYTES: name for number, name in texts.items()}
        self._text_lists = {number << 3 | _BYTES: name for number, name in text_lists.items()}
        self._messages = {number << 3 | _BYTES: found for number, found in messages.items()}
        self._lists = {number << 3 | _BYTES: found for number, found in lists.items()}

    def decode(self, data: bytes) -> Any:
        """Raises ValueError."""
        try:
            return self._read(data, 0, len(data))
        except IndexError:
            raise ValueError("a message is cut off") from None

    def _read(self, data: bytes, at: int, end: int) -> Any:
        made = self._make()
        while at < end:
            tag = data[at]
            at += 1
            if tag >= 0x80:
                tag, at = read_varint(data, at - 1)
            kind = tag & 7
            if kind == _BYTES:
                size = data[at]
                at += 1
                if size >= 0x80:
                    size, at = read_varint(data, at - 1)
                after = at + size
                if after > end:
                    raise ValueError("a message is cut off")
                if name := self._data.get(tag):
                    setattr(made, name, data[at:after])
                elif found := self._lists.get(tag):
                    getattr(made, found[0]).append(found[1]._read(data, at, after))
                elif found := self._messages.get(tag):
                    setattr(made, found[0], found[1]._read(data, at, after))
                elif name := self._texts.get(tag):
                    setattr(made, name, data[at:after].decode(errors="replace"))
                elif name := self._text_lists.get(tag):
                    getattr(made, name).append(data[at:after].decode(errors="replace"))
                at = after
            elif kind == _VARINT:
                value = data[at]
                at += 1
                if value >= 0x80:
                    value, at = read_varint(data, at - 1)
                    value &= WORD
                self._number(made, tag, value)
            elif kind in (_FIXED64, _FIXED32):
                at += 8 if kind == _FIXED64 else 4
            else:
                raise ValueError(f"a message has a field of kind {kind}")
        if at != end:
            raise ValueError("a message is cut off")
        return made

    def _number(self, made: Any, tag: int, value: int) -> None:
        if name := self._numbers.get(tag):
            setattr(made, name, value - (1 << 64) if value >= 1 << 63 else value)
        elif name := self._identifiers.get(tag):
            setattr(made, name, value)
        elif name := self._flags.get(tag):
            setattr(made, name, value != 0)
        elif choice := self._choices.get(tag):
            if value >= len(choice[1]):
                raise ValueError(f"{choice[0]} is {value}, which there is not")
            setattr(made, choice[0], choice[1][value])
