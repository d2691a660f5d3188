"""Evaluation of a parsed template."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NoReturn

from remuda.kube.errors import go_quote

from .parsing import Action, Command, Dot, Fields, Function, Literal, Node, Operand, Pipeline, Text, unfit

Data = dict[str, Any]


class _Absent:
    """No value came down the pipe."""


_ABSENT = _Absent()


class _CallError(Exception):
    """A function refuses its arguments."""


def render(nodes: Sequence[Node], template: str, data: Data) -> str:
    renderer = _Renderer(template, data)
    renderer.walk(nodes)
    return "".join(renderer.out)


@dataclass(slots=True)
class _Renderer:
    template: str
    data: Data
    out: list[str] = field(default_factory=list)
    # The current operand or command, which errors name.
    at: Operand | Command | None = None

    def _fail(self, why: str) -> NoReturn:
        raise unfit(self.template, 0 if self.at is None else self.at.position, str(self.at), why)

    def walk(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            if isinstance(node, Text):
                self.out.append(node.text)
            elif isinstance(node, Action):
                self.out.append(_shown(self._pipeline(node.pipeline)))
            else:
                self.walk(node.then if self._pipeline(node.condition) else node.otherwise)

    def _pipeline(self, pipeline: Pipeline) -> Any:
        self.at = pipeline
        value: Any = _ABSENT
        for command in pipeline.commands:
            value = self._command(command, value)
        return value

    def _command(self, command: Command, final: Any) -> Any:
        first = command.operands[0]
        has_arguments = len(command.operands) > 1 or final is not _ABSENT
        if isinstance(first, Function):
            return self._call(first, command, final)
        if isinstance(first, Fields):
            return self._fields(first, has_arguments)
        if not isinstance(first, Pipeline):
            self.at = first
        if has_arguments:
            self._fail(f"can't give argument to non-function {first}")
        if isinstance(first, Literal) and first.value is None:
            self._fail("nil is not a command")
        return self._value(first)

    def _value(self, operand: Operand) -> Any:
        self.at = operand
        match operand:
            case Literal():
                return operand.value
            case Dot():
                return self.data
            case Fields():
                return self._fields(operand, False)
            case Pipeline():
                return self._pipeline(operand)
            case Function():
                return self._call(operand, Command(operand.position, (operand,)), _ABSENT)

    def _fields(self, fields: Fields, has_arguments: bool) -> Any:
        self.at = fields
        value: Any = self.data if fields.of is None else self._pipeline(fields.of)
        for index, name in enumerate(fields.names):
            if not isinstance(value, dict):
                self._fail(f"can't evaluate field {name} in type {_type_name(value, inside=index > 0)}")
            if has_arguments and index == len(fields.names) - 1:
                self._fail(f"{name} is not a method but has arguments")
            if name not in value:
                self._fail(f"map has no entry for key {go_quote(name)}")
            value = value[name]
        return value

    def _call(self, function: Function, command: Command, final: Any) -> Any:
        self.at = function
        name, operands = function.name, command.operands[1:]
        count = len(operands) + (final is not _ABSENT)
        exactly, fewest = _EXACTLY.get(name, count), _FEWEST.get(name, 0)
        if count != exactly:
            self._fail(f"wrong number of args for {name}: want {exactly} got {count}")
        if count < fewest:
            self._fail(f"wrong number of args for {name}: want at least {fewest} got {len(operands)}")
        if name in ("and", "or"):
            return self._first_that_decides(name == "or", operands, final)
        arguments: list[Any] = []
        for operand in operands:
            arguments.append(self._value(operand))
            if name == "printf" and len(arguments) == 1:
                self._check_layout(operand, arguments[0])
        if final is not _ABSENT:
            arguments.append(final)
            if name == "printf" and not operands:
                self._check_layout(None, final)
        if name == "slice":
            # A bound taken from the data is invalid, and has no type that errors could name.
            arguments[1:] = [
                _ABSENT if isinstance(operand, Fields) else value for value, operand in zip_longest(arguments[1:], operands[1:])
            ]
        try:
            return _CALLS[name](*arguments)
        except _CallError as error:
            self.at = command
            self._fail(f"error calling {name}: {error}")

    def _check_layout(self, operand: Operand | None, value: Any) -> None:
        if isinstance(value, str):
            return
        if isinstance(operand, Literal):
            self._fail("cannot assign nil to string" if value is None else f"expected string; found {operand}")
        self._fail(f"wrong type for value; expected string; got {_type_name(value)}")

    def _first_that_decides(self, truth: bool, operands: Sequence[Operand], final: Any) -> Any:
        value: Any = None
        for operand in operands:
            value = self._value(operand)
            if bool(value) == truth:
                return value
        return value if final is _ABSENT else final


# --- values ------------------------------------------------------------------------------------------------------------------


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{_shown(value[key])}' for key in sorted(value))}]"
    return "<nil>" if value is None else str(value)


def _type_name(value: Any, *, inside: bool = False) -> str:
    """Go's name of the type; a value from the data has none of its own there."""
    if inside:
        return "interface {}"
    if isinstance(value, dict):
        return "map[string]interface {}"
    return {str: "string", bool: "bool", int: "int"}.get(type(value), "interface {}")


# --- functions ---------------------------------------------------------------------------------------------------------------


def _length(value: Any) -> int:
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, dict):
        return len(value)
    raise _CallError(f"len of type {_type_name(value)}")


def _position(value: Any, size: int) -> int:
    if value is None:
        raise _CallError("cannot index slice/array with nil")
    if not isinstance(value, int) or isinstance(value, bool):
        raise _CallError(f"cannot index slice/array with type {_type_name(value)}")
    if not 0 <= value <= size:
        raise _CallError(f"index out of range: {value}")
    return value


def _slice(value: Any, *bounds: Any) -> str:
    if value is None:
        raise _CallError("slice of untyped nil")
    if len(bounds) > 3:
        raise _CallError(f"too many slice indexes: {len(bounds)}")
    if not isinstance(value, str):
        raise _CallError(f"can't slice item of type {_type_name(value)}")
    if len(bounds) == 3:
        raise _CallError("cannot 3-index slice a string")
    encoded = value.encode()
    positions = [_position(bound, len(encoded)) for bound in bounds]
    start, end = [*positions, *(0, len(encoded))[len(positions) :]]
    if start > end:
        raise _CallError(f"invalid slice index: {start} > {end}")
    return encoded[start:end].decode(errors="replace")


def _index(value: Any, *keys: Any) -> Any:
    if value is None:
        raise _CallError("index of untyped nil")
    for key in keys:
        if isinstance(value, dict):
            if not isinstance(key, str):
                raise _CallError(f"value has type {_type_name(key)}; should be string")
            value = value.get(key)
        elif isinstance(value, str):
            encoded = value.encode()
            position = _position(key, len(encoded))
            if position == len(encoded):
                raise _CallError(f"index out of range: {position}")
            value = encoded[position]
        elif value is None:
            raise _CallError("index of nil pointer")
        else:
            raise _CallError(f"can't index item of type {_type_name(value)}")
    return value


def _equal(first: Any, *others: Any) -> bool:
    if not others:
        raise _CallError("missing argument for comparison")
    return any(_are_equal(first, other) for other in others)


def _are_equal(first: Any, other: Any) -> bool:
    if first is None or other is None:
        return first is other
    if type(first) is not type(other):
        raise _CallError(f"incompatible types for comparison: {_type_name(first)} and {_type_name(other)}")
    if isinstance(other, dict):
        raise _CallError(f"non-comparable type {_shown(other)}: {_type_name(other)}")
    return bool(first == other)


def _printed(*values: Any) -> str:
    out: list[str] = []
    for index, value in enumerate(values):
        # A space is only put between two values that are no strings.
        if index and not isinstance(value, str) and not isinstance(values[index - 1], str):
            out.append(" ")
        out.append(_shown(value))
    return "".join(out)


_VERB = re.compile(r"%([-+# 0]*)([0-9]*)(?:\.([0-9]*))?(.?)", re.DOTALL)


def _formatted(layout: str, *values: Any) -> str:
    rest = list(values)

    def one(found: re.Match[str]) -> str:
        flags, width, precision, verb = found.groups()
        if verb == "%":
            return "%"
        if not verb:
            return "%!(NOVERB)"
        if not rest:
            return f"%!{verb}(MISSING)"
        shown = _with_verb(rest.pop(0), verb, precision)
        size = int(width or 0)
        return shown.ljust(size) if "-" in flags else shown.rjust(size, "0" if "0" in flags else " ")

    text = _VERB.sub(one, layout)
    return text + (f"%!(EXTRA {len(rest)})" if rest else "")


def _with_verb(value: Any, verb: str, precision: str | None) -> str:
    if isinstance(value, str) and verb in "svqxX":
        cut = value if precision is None else value[: int(precision or 0)]
        if verb in "xX":
            return cut.encode().hex() if verb == "x" else cut.encode().hex().upper()
        return go_quote(cut) if verb == "q" else cut
    if isinstance(value, bool):
        return _shown(value) if verb in "vt" else f"%!{verb}(bool={_shown(value)})"
    if isinstance(value, int) and verb in "dvxXob":
        return format(value, "d" if verb == "v" else verb)
    # No name can have these characters, so Go's exact form does not matter.
    return _shown(value) if verb == "v" else f"%!{verb}({_type_name(value)}={_shown(value)})"


_EXACTLY = {"len": 1, "not": 1, "ne": 2}
_FEWEST = {"and": 1, "or": 1, "eq": 1, "index": 1, "slice": 1, "printf": 1}
_CALLS: dict[str, Callable[..., Any]] = {
    "eq": _equal,
    "index": _index,
    "len": _length,
    "ne": lambda first, other: not _equal(first, other),
    "not": lambda value: not value,
    "print": _printed,
    "printf": _formatted,
    "println": lambda *values: " ".join(map(_shown, values)) + "\n",
    "slice": _slice,
}
