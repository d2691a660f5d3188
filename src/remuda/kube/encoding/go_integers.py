"""Integers in text as Go reads them, which is narrower than int(): only ASCII digits, 64 bits, and Go's error messages."""

from __future__ import annotations

import re

from ..errors import go_quote

_SIGNED = re.compile(r"[+-]?[0-9]+")
_UNSIGNED = re.compile(r"[0-9]+")
# A number with more digits, without leading zeros, is out of range; int() itself refuses thousands of them.
_DIGITS = 20


class IntegerError(ValueError):
    """Text that is no integer, or one that is too large; the message is strconv's."""


def parse_int(text: str) -> int:
    """A signed 64-bit integer."""
    return _parsed(text, _SIGNED, "strconv.ParseInt", -(1 << 63), 1 << 63)


def parse_int32(text: str) -> int:
    """A signed 32-bit integer."""
    return _parsed(text, _SIGNED, "strconv.ParseInt", -(1 << 31), 1 << 31)


def atoi(text: str) -> int:
    """A signed integer as Go's Atoi reads it; only its error messages differ."""
    return _parsed(text, _SIGNED, "strconv.Atoi", -(1 << 63), 1 << 63)


def parse_uint(text: str) -> int:
    """An unsigned 64-bit integer."""
    return _parsed(text, _UNSIGNED, "strconv.ParseUint", 0, 1 << 64)


def _parsed(text: str, pattern: re.Pattern[str], function: str, low: int, high: int) -> int:
    if not pattern.fullmatch(text):
        raise IntegerError(f"{function}: parsing {go_quote(text)}: invalid syntax")
    digits = text.lstrip("+-0")
    if len(digits) <= _DIGITS:
        value = int(digits or "0") * (-1 if text.startswith("-") else 1)
        if low <= value < high:
            return value
    raise IntegerError(f"{function}: parsing {go_quote(text)}: value out of range")
