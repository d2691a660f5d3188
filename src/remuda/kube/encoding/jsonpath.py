"""Kubernetes' JSONPath, compiled: printer columns, scale paths, selectable fields.

Only one expression without braces (`.status.conditions[?(@.type=="Ready")].status`); templates with text and ranges exist
only in kubectl. A missing key yields nothing; a wrong shape (an index out of bounds, a filter on no list) raises
:class:`JsonPathError`, which callers show as an empty cell.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

Step = Callable[[list[Any]], list[Any]]

_TERMINATORS = " \t\r\n.,[]$@{}"
_SLICE = re.compile(r"(-?\d*)(:-?\d*)?(:-?\d*)?", re.ASCII)
_KEY = re.compile(r"'([^']*)'")
_COMPARISON = re.compile(r"([^!<>=]+)([!<>=]+)(.+)", re.DOTALL)


class JsonPathError(ValueError):
    """An invalid expression, or one that does not fit the data."""


class JsonPath:
    """A compiled expression."""

    __slots__ = ("_names", "_steps", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._names = _plain_names(text)
        self._steps = [] if self._names is not None else _Parser(text).parse()

    def find(self, data: Any) -> list[Any]:
        """All values at the expression's path."""
        if self._names is not None:
            here = data
            for name in self._names:
                if type(here) is not dict or name not in here:
                    return []
                here = here[name]
            return [here]
        found = [data]
        for step in self._steps:
            found = step(found)
        return found

    def first(self, data: Any) -> Any:
        """The first value found; None when there is none, or when the data has another shape."""
        try:
            found = self.find(data)
        except JsonPathError:
            return None
        return found[0] if found else None


@lru_cache(maxsize=4096)
def compile_path(text: str) -> JsonPath:
    return JsonPath(text)


def _plain_names(text: str) -> tuple[str, ...] | None:
    """The names of a path that consists only of names, as nearly all do."""
    if not re.fullmatch(r"(?:\.[^\s.,\[\]$@{}\\*'\"]+)+", text):
        return None
    return tuple(text[1:].split("."))


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def parse(self) -> list[Step]:
        steps: list[Step] = []
        recursive = False
        text = self._text
        while self._at < len(text):
            char = text[self._at]
            if text.startswith("[?(", self._at):
                steps.append(self._filter())
            elif text.startswith("..", self._at):
                if recursive:
                    raise JsonPathError("invalid multiple recursive descent")
                self._at += 2
                steps.append(_descend)
                recursive = True
                if self._at < len(text) and (text[self._at].isalnum() or text[self._at] == "_"):
                    steps.append(_field(self._name()))
                    recursive = False
                continue
            elif char in " @$":
                self._at += 1
                continue
            elif char == "[":
                steps.append(self._array())
            elif char in "\"'":
                steps.append(_constant(self._quoted(char)))
            elif char == ".":
                self._at += 1
                name = self._name()
                steps.append(_wildcard if name == "*" else _field(name))
            else:
                steps.append(self._literal())
            recursive = False
        return steps

    def _name(self) -> str:
        start = self._at
        while self._at < len(self._text) and self._text[self._at] not in _TERMINATORS:
            self._at += 2 if self._text[self._at] == "\\" else 1
        return self._text[start : self._at].replace("\\", "")

    def _literal(self) -> Step:
        match = re.compile(r"[+-]?[\d.]+", re.ASCII).match(self._text, self._at)
        if match is not None:
            self._at = match.end()
            try:
                return _constant(int(match.group()) if "." not in match.group() else float(match.group()))
            except ValueError:
                raise JsonPathError(f"cannot parse number {match.group()}") from None
        char = self._text[self._at]
        if not (char.isalnum() or char == "_"):
            raise JsonPathError(f"unrecognized character in action: U+{ord(char):04X} '{char}'")
        name = self._name()
        if name not in ("true", "false"):
            return _unknown(name)
        return _constant(name == "true")

    def _quoted(self, quote: str) -> str:
        end = self._at + 1
        while True:
            end = self._text.find(quote, end)
            if end < 0:
                raise JsonPathError("unterminated quoted string")
            if self._text[end - 1] != "\\":
                break
            end += 1
        inside = self._text[self._at + 1 : end]
        self._at = end + 1
        escapes = {"n": "\n", "t": "\t", "r": "\r"}
        return re.sub(r"\\(.)", lambda match: escapes.get(match.group(1), match.group(1)), inside)

    def _array(self) -> Step:
        end = self._text.find("]", self._at)
        if end < 0:
            raise JsonPathError("unterminated array")
        inside = self._text[self._at + 1 : end]
        self._at = end + 1
        parts = inside.split(",")
        if len(parts) > 1:
            options = [_Parser(f"[{part.strip()}]").parse() for part in parts]
            return lambda values: [found for steps in options for found in _run(steps, values)]
        key = _KEY.search(inside)
        if key is not None:
            return _chain([_field(name) for name in _split_key(key.group(1))])
        return _slice("::" if inside == "*" else inside)

    def _filter(self) -> Step:
        self._at += 3
        start = self._at
        quote = ""
        text = self._text
        while True:
            if self._at >= len(text):
                raise JsonPathError("unterminated filter")
            char = text[self._at]
            if quote:
                if char == quote and text[self._at - 1] != "\\":
                    quote = ""
            elif char in "\"'":
                quote = char
            elif char == ")":
                break
            self._at += 1
        inside = text[start : self._at]
        if not text.startswith(")]", self._at):
            raise JsonPathError("unclosed array expect ]")
        self._at += 2
        match = _COMPARISON.fullmatch(inside)
        if match is None:
            return _existing(_Parser(inside).parse())
        left, operator, right = match.groups()
        return _matching(_Parser(left).parse(), operator, _Parser(right).parse())


def _split_key(key: str) -> list[str]:
    """A quoted key is read like a field: dots in it count unless escaped."""
    parts = re.split(r"(?<!\\)\.", key)
    return [part.replace("\\", "") for part in parts]


def _run(steps: list[Step], values: list[Any]) -> list[Any]:
    for step in steps:
        values = step(values)
    return values


def _chain(steps: list[Step]) -> Step:
    return lambda values: _run(steps, values)


def _field(name: str) -> Step:
    return lambda values: [value[name] for value in values if type(value) is dict and name in value]


def _constant(constant: Any) -> Step:
    if isinstance(constant, str):
        return lambda values: [constant]
    return lambda values: [constant for _ in values]


def _unknown(name: str) -> Step:
    def fail(values: list[Any]) -> list[Any]:
        raise JsonPathError(f"unrecognized identifier {name}")

    return fail


def _children(value: Any) -> list[Any]:
    if type(value) is dict:
        return list(value.values())
    return value if type(value) is list else []


def _wildcard(values: list[Any]) -> list[Any]:
    return [child for value in values for child in _children(value)]


def _descend(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        children = _children(value)
        if children:
            found.append(value)
            found += _descend(children)
    return found


def _slice(text: str) -> Step:
    match = _SLICE.fullmatch(text)
    if match is None:
        raise JsonPathError(f"invalid array index {text}")
    first, second, third = match.groups()
    start = int(first) if first not in ("", "-") else None
    stop = int(second[1:]) if second and second != ":" else None
    step = int(third[1:]) if third and third != ":" else None
    single = second is None

    def take(values: list[Any]) -> list[Any]:
        found: list[Any] = []
        for value in values:
            if value is None:
                continue
            if type(value) is not list:
                raise JsonPathError(f"{type(value).__name__} is not array or slice")
            found += _taken(value, start, stop, step, single)
        return found

    return take


def _taken(value: list[Any], start: int | None, stop: int | None, step: int | None, single: bool) -> list[Any]:
    size = len(value)
    low = start or 0
    high = low + 1 if single else size if stop is None else stop
    low += size if low < 0 else 0
    high += size if high < 0 or (high == 0 and single) else 0
    if low == high:
        return []
    if not 0 <= low < size:
        raise JsonPathError(f"array index out of bounds: index {low}, length {size}")
    if not 0 <= high <= size:
        raise JsonPathError(f"array index out of bounds: index {high - 1}, length {size}")
    if low > high:
        raise JsonPathError(f"starting index {low} is greater than ending index {high}")
    if step is not None and step <= 0:
        raise JsonPathError("step must be > 0")
    return value[low:high:step]


def _items(value: Any) -> list[Any]:
    if type(value) is not list:
        raise JsonPathError(f"{value} is not array or slice and cannot be filtered")
    return value


def _existing(steps: list[Step]) -> Step:
    return lambda values: [item for value in values for item in _items(value) if _exists(steps, item)]


def _exists(steps: list[Step], item: Any) -> bool:
    try:
        return bool(_run(steps, [item]))
    except JsonPathError:
        return False


def _matching(left: list[Step], operator: str, right: list[Step]) -> Step:
    def keep(item: Any) -> bool:
        lefts, rights = _run(left, [item]), _run(right, [item])
        if not lefts or not rights:
            return False
        if len(lefts) > 1 or len(rights) > 1:
            raise JsonPathError("can only compare one element at a time")
        return _compare(lefts[0], operator, rights[0])

    return lambda values: [item for value in values for item in _items(value) if keep(item)]


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number" if isinstance(value, int) else "float"
    return "text" if isinstance(value, str) else ""


def _compare(left: Any, operator: str, right: Any) -> bool:
    kind = _kind(left)
    if not kind or kind != _kind(right) or (kind == "bool" and operator not in ("==", "!=")):
        raise JsonPathError("incompatible types for comparison")
    match operator:
        case "==":
            return bool(left == right)
        case "!=":
            return bool(left != right)
        case "<":
            return bool(left < right)
        case "<=":
            return bool(left <= right)
        case ">":
            return bool(left > right)
        case ">=":
            return bool(left >= right)
    raise JsonPathError(f"unrecognized filter operator {operator}")
