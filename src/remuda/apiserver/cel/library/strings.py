"""Text functions beyond the standard ones: the strings extension, `format`, and regular-expression search."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from remuda.kube.encoding import go_format

from ..errors import EvalError
from ..re2 import Pattern, RegexError, compile_pattern
from ..timestamps import format_duration, format_timestamp
from ..values import Duration, Timestamp, TypeValue, Uint, Value, elements, is_list, is_map, kind_of, mapping
from .standard import to_string

DEFAULT_PRECISION = 6
MAX_PRECISION = 1000


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise EvalError(f"index out of range: {index}")
    return text[index : index + 1]


def _index_of(text: str, part: str, start: int = 0) -> int:
    if not part:
        return start
    if start < 0:
        raise EvalError(f"index out of range: {start}")
    return text.find(part, start)


def _last_index_of(text: str, part: str, start: int | None = None) -> int:
    if start is None:
        return text.rfind(part)
    if not part:
        return start
    if start < 0:
        raise EvalError(f"index out of range: {start}")
    return -1 if start >= len(text) else text.rfind(part, 0, start + len(part))


_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
_UPPER = str.maketrans("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    return text.replace(old, new, count if count >= 0 else -1)


def _split(text: str, separator: str, count: int = -1) -> list[Value]:
    if count == 0:
        return []
    if not separator:
        pieces = list(text)
        if 0 < count < len(pieces):
            pieces = [*pieces[: count - 1], "".join(pieces[count - 1 :])]
        return pieces
    return list(text.split(separator, count - 1 if count > 0 else -1))


def _substring(text: str, start: int, end: int | None = None) -> str:
    if end is None:
        if not 0 <= start <= len(text):
            raise EvalError(f"index out of range: {start}")
        return text[start:]
    if start > end:
        raise EvalError(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, end):
        if not 0 <= index <= len(text):
            raise EvalError(f"index out of range: {index}")
    return text[start:end]


_GO_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)


def _join(items: Value, separator: str = "") -> str:
    parts = elements(items)
    for part in parts:
        if type(part) is not str:
            raise EvalError(f"join: invalid input: {part}")
    return separator.join(parts)


_QUOTED = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_QUOTING = str.maketrans(_QUOTED | {"\\": "\\\\", '"': '\\"'})


def _quote(text: str) -> str:
    return f'"{text.translate(_QUOTING)}"'


# --- format


class FormatError(Exception):
    """An invalid format string or argument; `index` is the number of the invalid argument, if any."""

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index


_CLAUSE = re.compile(r"(?:\.([0-9]*))?", re.ASCII)


def clauses(text: str) -> Iterator[str | tuple[str, int]]:
    """The parts of a format string: literal text, or a verb and its precision. Raises for an invalid format string."""
    at = 0
    while at < len(text):
        percent = text.find("%", at)
        if percent < 0:
            yield text[at:]
            return
        if percent > at:
            yield text[at:percent]
        if text.startswith("%%", percent):
            yield "%"
            at = percent + 2
            continue
        if percent + 1 >= len(text):
            yield ("", 0)
            return
        match = _CLAUSE.match(text, percent + 1)
        precision = DEFAULT_PRECISION
        end = percent + 1
        if match is not None and text[percent + 1] == ".":
            end = match.end()
            if end >= len(text):
                raise FormatError(f"{_CANNOT}: error while parsing precision: could not find end of precision specifier")
            if not match[1] or len(match[1]) > 6 or int(match[1]) > MAX_PRECISION:
                problem = "invalid syntax" if not match[1] else "value out of range"
                detail = f'error while converting precision to integer: strconv.Atoi: parsing "{match[1]}": {problem}'
                raise FormatError(f"{_CANNOT}: error while parsing precision: {detail}")
            precision = int(match[1])
        yield (text[end], precision)
        at = end + 1


_CANNOT = "could not parse formatting clause"
VERBS = "sdfebxXo"


def unknown_verb(verb: str) -> str:
    return f'{_CANNOT}: unrecognized formatting clause "{verb}"'


def wrong_argument(verb: str, kind: str) -> str:
    return f"error during formatting: {_WRONG[verb.lower()]}, was given {kind}"


_WRONG = {
    "s": "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps",
    "d": "decimal clause can only be used on integers",
    "f": "fixed-point clause can only be used on doubles",
    "e": "scientific clause can only be used on doubles",
    "b": "only integers and bools can be formatted as binary",
    "x": "only integers, byte buffers, and strings can be formatted as hex",
    "o": "octal clause can only be used on integers",
}


def runtime_name(kind: str) -> str:
    return {
        "null": "null_type",
        "timestamp": "google.protobuf.Timestamp",
        "duration": "google.protobuf.Duration",
    }.get(kind, kind)


def _format(text: str, args: Value) -> str:
    values = elements(args)
    out: list[str] = []
    used = 0
    try:
        for clause in clauses(text):
            if isinstance(clause, str):
                out.append(clause)
                continue
            if used >= len(values):
                raise EvalError(f"index {used} out of range")
            if not clause[0]:
                raise EvalError("unexpected end of string")
            out.append(_formatted(clause[0], clause[1], values[used]))
            used += 1
    except FormatError as error:
        raise EvalError(str(error)) from None
    return "".join(out)


def _formatted(verb: str, precision: int, value: Value) -> str:
    if verb not in VERBS:
        raise EvalError(unknown_verb(verb))
    text = _WRITERS[verb](value, precision)
    if text is None:
        raise EvalError(wrong_argument(verb, runtime_name(kind_of(value))))
    return text


def _integer(value: Value, spec: str) -> str | None:
    return format(int(value), spec) if type(value) is int or type(value) is Uint else None


def _floating(value: Value, write: Callable[[float], str]) -> str | None:
    if type(value) is float:
        return write(value)
    special = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
    return write(special[value]) if type(value) is str and value in special else None


def _binary(value: Value, _: int) -> str | None:
    if type(value) is bool:
        return "1" if value else "0"
    return _integer(value, "b")


def _hex(value: Value, upper: bool) -> str | None:
    if type(value) is str or type(value) is bytes:
        data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        return data.hex().upper() if upper else data.hex()
    return _integer(value, "X" if upper else "x")


def show(value: Value) -> str | None:
    """A value for `%s`."""
    if is_list(value):
        return "[" + ", ".join(_show_inner(item) for item in elements(value)) + "]"
    if is_map(value):
        pairs = sorted((_show_key(key), _show_inner(entry)) for key, entry in mapping(value).items())
        return "{" + ", ".join(f"{key}:{entry}" for key, entry in pairs) + "}"
    if value is None:
        return "null"
    if isinstance(value, bool | int | float | str | bytes | Timestamp | Duration | TypeValue):
        return to_string(value)
    return None


def _show_key(key: Value) -> str:
    if isinstance(key, str):
        return go_format.quote(key)
    if isinstance(key, bool | int):
        return to_string(key)
    raise EvalError(f"error during formatting: no formatting function for map key of type {runtime_name(kind_of(key))}")


def _show_inner(value: Value) -> str:
    if isinstance(value, str):
        return go_format.quote(value)
    if isinstance(value, bytes):
        return "b" + go_format.quote(to_string(value))
    if isinstance(value, float):
        text = f"{value:.6f}"
        return go_format.quote({"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}[text]) if "n" in text else text
    if isinstance(value, Timestamp):
        return f'timestamp("{format_timestamp(value)}")'
    if isinstance(value, Duration):
        return f'duration("{format_duration(value)}")'
    text_or_none = show(value)
    if text_or_none is None:
        raise EvalError(f"error during formatting: no formatting function for {runtime_name(kind_of(value))}")
    return text_or_none


_WRITERS: dict[str, Callable[[Any, int], str | None]] = {
    "s": lambda value, _: show(value),
    "d": lambda value, _: _integer(value, "d"),
    "f": lambda value, precision: _floating(value, lambda number: go_format.fixed(number, precision)),
    "e": lambda value, _: _floating(value, go_format.scientific),
    "b": _binary,
    "x": lambda value, _: _hex(value, upper=False),
    "X": lambda value, _: _hex(value, upper=True),
    "o": lambda value, _: _integer(value, "o"),
}


# --- regular expressions


def _pattern(text: str) -> Pattern:
    try:
        return compile_pattern(text)
    except RegexError as error:
        raise EvalError(f"Illegal regex: {error}") from None


def _find(text: str, pattern: str) -> str:
    span = _pattern(pattern).find(text)
    return text[span[0] : span[1]] if span is not None else ""


def _find_all(text: str, pattern: str, limit: int = -1) -> list[Value]:
    return list(_pattern(pattern).find_all(text, limit))


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "string_char_at_int": _char_at,
    "string_index_of_string": _index_of,
    "string_index_of_string_int": _index_of,
    "string_last_index_of_string": _last_index_of,
    "string_last_index_of_string_int": _last_index_of,
    "string_lower_ascii": lambda text: text.translate(_LOWER),
    "string_upper_ascii": lambda text: text.translate(_UPPER),
    "string_replace_string_string": _replace,
    "string_replace_string_string_int": _replace,
    "string_split_string": _split,
    "string_split_string_int": _split,
    "string_substring_int": _substring,
    "string_substring_int_int": _substring,
    "string_trim": lambda text: text.strip(_GO_SPACE),
    "list_join": _join,
    "list_join_string": _join,
    "strings_quote": _quote,
    "string_format": _format,
    "string_find_string": _find,
    "string_find_all_string": _find_all,
    "string_find_all_string_int": _find_all,
}
