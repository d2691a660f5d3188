"""Names of machines from `spec.machineNaming.template`: the part of Go's text/template that a name needs.

A template is text with `{{ .machineSet.name }}`, `.cluster.name` or `.random` in it. A value can be cut, by
`slice .cluster.name 0 8` or `printf "%.8s" .cluster.name`, also in a pipe. Spaces can be trimmed (`{{- … -}}`), and there are
comments. Upstream takes the whole language; the rest of it (conditions, loops, variables, other functions) is refused when the
object is written, by an error that names the field. What is accepted gives the same name as upstream, and errors about values
have Go's words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NoReturn, TypeAlias

from remuda.kube.errors import go_quote

_MAX = 63
_RANDOM = 5
_SUPPORTED = 'text, {{ .machineSet.name }}, .cluster.name and .random, cut by slice or printf "%.8s"'

_SPACES = " \t\r\n"
_SPACE = f"[{_SPACES}]"
_FIELD = r"(?:\.[A-Za-z_][A-Za-z0-9_]*)+"
# Without escapes.
_STRING = r'(?:"[ !#-\[\]-~]*"|`[ -_a-~]*`)'
_NUMBER = "(?:0|[1-9][0-9]{0,3})"
_VALUE = f"(?:{_FIELD}|{_STRING})"
_PRINTF = f"printf{_SPACE}+{_STRING}(?:{_SPACE}+{_VALUE})*"
_SLICE = f"slice{_SPACE}+{_VALUE}(?:{_SPACE}+{_NUMBER}){{1,2}}"
_PIPELINE = f"(?:{_VALUE}|{_SLICE}|{_PRINTF})(?:{_SPACE}*\\|{_SPACE}*{_PRINTF})*"
_COMMENT = r"/\*(?:(?!\*/).)*\*/"
_ACTION = re.compile(
    rf"\{{\{{(?P<left>-{_SPACE})?(?:{_COMMENT}|{_SPACE}*(?P<pipeline>{_PIPELINE}){_SPACE}*?)(?P<right>{_SPACE}-)?\}}\}}",
    re.DOTALL,
)
_TOKEN = re.compile(rf"{_FIELD}|{_STRING}|[0-9]+|[a-z]+|\|")
_LAYOUT = re.compile(r"(?:[^%]|%%|%(?:\.[0-9]{1,2})?s)*")
_VERB = re.compile(r"%(?:%|(?:\.([0-9]+))?s)")


class NameTemplateError(ValueError):
    """The template can't be read or filled in."""


def machine_name(template: str, cluster: str, machine_set: str, suffix: Callable[[int], str]) -> str:
    """A name for one more machine; `suffix` gives the requested number of random letters."""
    data = {"cluster": {"name": cluster}, "machineSet": {"name": machine_set}, "random": suffix(_RANDOM)}
    name = "".join(part if isinstance(part, str) else _evaluate(template, part, data) for part in _parsed(template))
    encoded = name.encode()
    return name if len(encoded) <= _MAX else encoded[: _MAX - _RANDOM].decode(errors="replace") + suffix(_RANDOM)


# --- reading -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Token:
    position: int
    text: str


# A value, or a function and its arguments.
_Command: TypeAlias = tuple[_Token, ...]
# Each command after the first gets the result of the one before it as its last argument.
_Pipeline: TypeAlias = tuple[_Command, ...]


@lru_cache(maxsize=256)
def _parsed(template: str) -> tuple[str | _Pipeline, ...]:
    return tuple(_parts(template))


def _parts(template: str) -> Iterator[str | _Pipeline]:
    at, trims = 0, False
    while True:
        opening = template.find("{{", at)
        text = template[at:] if opening < 0 else template[at:opening]
        if trims:
            text = text.lstrip(_SPACES)
        action = None if opening < 0 else _ACTION.match(template, opening)
        yield text.rstrip(_SPACES) if action is not None and action["left"] else text
        if opening < 0:
            return
        if action is None:
            closing = template.find("}}", opening)
            raise _unsupported(template, template[opening:] if closing < 0 else template[opening : closing + 2])
        if action["pipeline"]:
            yield _pipeline(template, action)
        at, trims = action.end(), action["right"] is not None


def _pipeline(template: str, action: re.Match[str]) -> _Pipeline:
    commands: list[list[_Token]] = [[]]
    for found in _TOKEN.finditer(template, action.start("pipeline"), action.end("pipeline")):
        if found[0] == "|":
            commands.append([])
        else:
            commands[-1].append(_Token(found.start(), found[0]))
    for index, (function, *arguments) in enumerate(commands):
        if function.text == "printf":
            layout = arguments[0].text[1:-1]
            values = layout.replace("%%", "").count("%")
            if _LAYOUT.fullmatch(layout) is None or values != len(arguments) - 1 + bool(index):
                raise _unsupported(template, action[0])
    return tuple(map(tuple, commands))


def _unsupported(template: str, what: str) -> NameTemplateError:
    return NameTemplateError(
        f"parsing template {go_quote(template)}: {what} is not supported in machineNaming.template, which takes {_SUPPORTED}"
    )


# --- filling in --------------------------------------------------------------------------------------------------------------


def _evaluate(template: str, pipeline: _Pipeline, data: Mapping[str, object]) -> str:
    value = ""
    for index, command in enumerate(pipeline):
        first, *arguments = command
        if first.text == "printf":
            values = iter([_value(template, argument, data) for argument in arguments[1:]] + [value] * bool(index))
            value = _VERB.sub(lambda verb: _printed(verb, values), arguments[0].text[1:-1])  # noqa: B023
        elif first.text == "slice":
            bounds = [int(argument.text) for argument in arguments[1:]]
            value = _sliced(template, command, _value(template, arguments[0], data), bounds)
        else:
            value = _value(template, first, data)
    return value


def _printed(verb: re.Match[str], values: Iterator[str]) -> str:
    if verb[0] == "%%":
        return "%"
    value = next(values)
    return value if verb[1] is None else value[: int(verb[1])]


def _sliced(template: str, command: _Command, value: str, bounds: list[int]) -> str:
    shown = " ".join(token.text for token in command)
    for bound in bounds:
        if bound > len(value):
            _fail(template, command[0].position, shown, f"error calling slice: index out of range: {bound}")
    start, end = [*bounds, len(value)][:2]
    if start > end:
        _fail(template, command[0].position, shown, f"error calling slice: invalid slice index: {start} > {end}")
    return value[start:end]


def _value(template: str, token: _Token, data: Mapping[str, object]) -> str:
    if not token.text.startswith("."):
        return token.text[1:-1]
    names = token.text[1:].split(".")
    # Go names the second field's place where there are several.
    position = token.position + (len(names[0]) + 1 if len(names) > 1 else 0)
    found: object = data
    for name in names:
        if not isinstance(found, dict):
            _fail(template, position, token.text, f"can't evaluate field {name} in type interface {{}}")
        if name not in found:
            _fail(template, position, token.text, f"map has no entry for key {go_quote(name)}")
        found = found[name]
    if not isinstance(found, str):
        raise _unsupported(template, token.text)
    return found


def _fail(template: str, position: int, node: str, why: str) -> NoReturn:
    """Raise an error with Go's words, for a value that is missing or too short."""
    before = template[:position]
    line, column = before.count("\n") + 1, len(before.rpartition("\n")[2].encode())
    place = f'template name generator:{line}:{column}: executing "template name generator" at <{node}>'
    raise NameTemplateError(f"rendering template: template: {place}: {why}")
