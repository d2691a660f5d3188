"""Label and field selectors: parsing as Kubernetes does, and matching fast.

A parsed selector is immutable and hashable, so that caches can be keyed by it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import names
from .encoding.go_format import IntegerError, parse_int
from .errors import FieldError, aggregate_text, go_quote, invalid_value, required


class SelectorError(ValueError):
    """Text or structure that is no valid selector; the message is kube-apiserver's."""


@dataclass(frozen=True, slots=True)
class Requirement:
    key: str
    operator: str  # in, notin, =, ==, !=, exists, !, gt, lt
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "in" | "=" | "==":
                return value is not None and value in self.values
            case "notin" | "!=":
                return value is None or value not in self.values
            case "exists":
                return value is not None
            case "!":
                return value is None
        return self._compares(value)

    def _compares(self, value: str | None) -> bool:
        try:
            left, right = parse_int(value or ""), parse_int(self.values[0])
        except IntegerError:
            return False
        return left > right if self.operator == "gt" else left < right

    def __str__(self) -> str:
        match self.operator:
            case "exists":
                return self.key
            case "!":
                return f"!{self.key}"
            case "in" | "notin":
                return f"{self.key} {self.operator} ({','.join(sorted(self.values))})"
            case "gt" | "lt":
                return f"{self.key}{'>' if self.operator == 'gt' else '<'}{self.values[0]}"
        return f"{self.key}{self.operator}{self.values[0]}"


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All requirements must hold; without any, everything matches. `nothing` matches no object at all."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        if self.nothing:
            return False
        found = labels or {}
        return all(requirement.matches(found) for requirement in self.requirements)

    @property
    def empty(self) -> bool:
        return not self.requirements and not self.nothing

    def __str__(self) -> str:
        return ",".join(str(requirement) for requirement in self.requirements)


EVERYTHING = LabelSelector()
NOTHING = LabelSelector(nothing=True)

_SYMBOLS = frozenset(("!=", "==", "=", ">", "<", ",", "(", ")"))
_TOKEN = re.compile(r"\s*(?:(!=|==|=|!|>|<|,|\(|\))|([^\s,()=!<>]+))")


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            break
        tokens.append(match.group(1) or match.group(2))
        position = match.end()
    return tokens


class _LabelParser:
    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0

    def parse(self) -> tuple[Requirement, ...]:
        found: list[Requirement] = []
        while self._at < len(self._tokens):
            if self._peek() in _SYMBOLS:
                raise SelectorError(f"found '{self._peek()}', expected: !, identifier, or 'end of string'")
            try:
                found.append(self._requirement())
            except SelectorError as error:
                raise SelectorError(f"unable to parse requirement: {error}") from None
            if self._at == len(self._tokens):
                break
            separator = self._next()
            if separator != ",":
                raise SelectorError(f"found '{separator}', expected: ',' or 'end of string'")
            if self._peek() in ("", *_SYMBOLS):
                raise SelectorError(f"found '{self._peek()}', expected: identifier after ','")
        return tuple(sorted(found, key=lambda requirement: requirement.key))

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _requirement(self) -> Requirement:
        negated = self._peek() == "!"
        if negated:
            self._next()
        key = self._next()
        if not key or key == "!" or key in _SYMBOLS:
            raise SelectorError(f"found '{key}', expected: identifier")
        _check_key(key)
        if negated:
            return Requirement(key, "!")
        if self._peek() in ("", ","):
            return Requirement(key, "exists")
        operator = self._next()
        match operator:
            case "in" | "notin":
                return _checked(key, operator, self._set())
            case "=" | "==" | "!=":
                return _checked(key, operator, (self._value(),))
            case ">" | "<":
                value = self._value()
                try:
                    parse_int(value)
                except IntegerError:
                    why = "for 'Gt', 'Lt' operators, the value must be an integer"
                    raise SelectorError(str(invalid_value("values[0]", value, why))) from None
                return Requirement(key, "gt" if operator == ">" else "lt", (value,))
        raise SelectorError(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")

    def _value(self) -> str:
        token = self._peek()
        if token in ("", ","):
            return ""
        if token in ("!=", "==", "=", ">", "<", "(", ")", "!"):
            raise SelectorError(f"found '{token}', expected: identifier")
        return self._next()

    def _set(self) -> tuple[str, ...]:
        opening = self._next()
        if opening != "(":
            raise SelectorError(f"found '{opening}' expected: '('")
        values: list[str] = []
        expect_value = True
        while True:
            token = self._next()
            if token == ")":
                if expect_value:
                    values.append("")
                return tuple(sorted(set(values)))
            if token == ",":
                if expect_value:
                    values.append("")
                expect_value = True
            elif token == "" or not expect_value or token in ("!=", "==", "=", ">", "<", "(", "!"):
                raise SelectorError(f"found '{token}', expected: ',' or ')'")
            else:
                values.append(token)
                expect_value = False


def _check_key(key: str) -> None:
    problems = names.qualified_name_problems(key)
    if problems:
        raise SelectorError(str(invalid_value("<nil>", key, "; ".join(problems))))


def _checked(key: str, operator: str, values: tuple[str, ...]) -> Requirement:
    for index, value in enumerate(values):
        problems = names.label_value_problems(value)
        if problems:
            raise SelectorError(str(invalid_value(f"values[{index}][{key}]", value, "; ".join(problems))))
    return Requirement(key, operator, values)


def parse_labels(text: str) -> LabelSelector:
    """A label selector in its query form, such as `app=web,tier in (a,b),!old`."""
    if not text.strip():
        return EVERYTHING
    return LabelSelector(_LabelParser(text).parse())


_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


def from_structure(selector: Mapping[str, Any] | None) -> LabelSelector:
    """The selector of a `LabelSelector` object: absent selects nothing, empty selects everything."""
    if selector is None:
        return NOTHING
    found = [Requirement(key, "in", (value,)) for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for expression in selector.get("matchExpressions") or ():
        operator = _OPERATORS.get(expression.get("operator", ""))
        if operator is None:
            raise SelectorError(f"{go_quote(str(expression.get('operator')))} is not a valid label selector operator")
        found.append(Requirement(expression.get("key", ""), operator, tuple(expression.get("values") or ())))
    return LabelSelector(tuple(found))


def checked_structure(selector: Mapping[str, Any] | None) -> LabelSelector:
    """As :func:`from_structure`, but an invalid one is refused, and its text is the one that clients show and parse."""
    if selector is None:
        return NOTHING
    found = [_requirement(key, "=", [value]) for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for expression in selector.get("matchExpressions") or ():
        operator = _OPERATORS.get(expression.get("operator", ""))
        if operator is None:
            raise SelectorError(f"{go_quote(str(expression.get('operator', '')))} is not a valid label selector operator")
        found.append(_requirement(expression.get("key", ""), operator, expression.get("values") or []))
    return LabelSelector(tuple(sorted(found, key=lambda requirement: requirement.key)))


def _requirement(key: str, operator: str, values: list[str]) -> Requirement:
    errors: list[FieldError] = []
    if problems := names.qualified_name_problems(key):
        errors.append(invalid_value("key", key, "; ".join(problems)))
    if operator in ("in", "notin") and not values:
        errors.append(invalid_value("values", None, "for 'in', 'notin' operators, values set can't be empty"))
    if operator in ("exists", "!") and values:
        errors.append(invalid_value("values", values, "values set must be empty for exists and does not exist"))
    for index, value in enumerate(values):
        if problems := names.label_value_problems(value):
            errors.append(invalid_value(f"values[{index}][{key}]", value, "; ".join(problems)))
    if errors:
        raise SelectorError(aggregate_text(list(dict.fromkeys(map(str, errors)))))
    return Requirement(key, operator, tuple(values))


def structure_errors(selector: Mapping[str, Any] | None, path: str) -> list[FieldError]:
    """The errors in a `LabelSelector` object."""
    if selector is None:
        return []
    errors = names.label_errors(selector.get("matchLabels"), f"{path}.matchLabels")
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        at = f"{path}.matchExpressions[{index}]"
        operator = expression.get("operator", "")
        values = expression.get("values") or []
        if operator in ("In", "NotIn"):
            if not values:
                errors.append(required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                errors.append(FieldError("FieldValueForbidden", f"{at}.values", "", why))
        else:
            errors.append(not_supported_operator(f"{at}.operator", operator))
        key = expression.get("key", "")
        errors.extend(invalid_value(f"{at}.key", key, why) for why in names.qualified_name_problems(key))
        for position, value in enumerate(values):
            problems = names.label_value_problems(value)
            errors.extend(invalid_value(f"{at}.values[{position}]", value, why) for why in problems)
    return errors


def not_supported_operator(path: str, operator: str) -> FieldError:
    return invalid_value(path, operator, "not a valid selector operator")


# ---------------------------------------------------------------------------------------------------------------------
# Field selectors


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    field: str
    value: str
    equals: bool = True


@dataclass(frozen=True, slots=True)
class FieldSelector:
    requirements: tuple[FieldRequirement, ...] = ()

    def matches(self, fields: Mapping[str, str]) -> bool:
        return all((fields.get(r.field, "") == r.value) is r.equals for r in self.requirements)

    @property
    def empty(self) -> bool:
        return not self.requirements

    def exact(self, field: str) -> str | None:
        """The one value that `field` must have, if the selector requires one."""
        for requirement in self.requirements:
            if requirement.field == field and requirement.equals:
                return requirement.value
        return None


EVERY_FIELD = FieldSelector()


def _split_terms(text: str) -> list[str]:
    terms: list[str] = []
    current: list[str] = []
    escaped = False
    for char in text:
        if escaped:
            current.append("\\" + char)
            escaped = False
        elif char == "\\":
            escaped = True
        elif char == ",":
            terms.append("".join(current))
            current = []
        else:
            current.append(char)
    if escaped:
        current.append("\\")
    terms.append("".join(current))
    return terms


def _unescape(text: str) -> str:
    out: list[str] = []
    escaped = False
    for char in text:
        if escaped:
            if char not in "\\,=":
                raise SelectorError(f"invalid field selector: invalid escape sequence: \\{char}")
            out.append(char)
            escaped = False
        elif char == "\\":
            escaped = True
        elif char in ",=":
            raise SelectorError(f"invalid field selector: unescaped character in value: {char}")
        else:
            out.append(char)
    if escaped:
        raise SelectorError("invalid field selector: invalid escape sequence: \\")
    return "".join(out)


_FIELD_OPERATOR = re.compile(r"!=|==|=")


def parse_fields(text: str) -> FieldSelector:
    """A field selector in its query form, such as `metadata.name=x,status.phase!=Running`."""
    found: list[FieldRequirement] = []
    for term in _split_terms(text):
        if term == "":
            continue
        match = _FIELD_OPERATOR.search(term)
        if match is None:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{term}'")
        value = _unescape(term[match.end() :])
        found.append(FieldRequirement(term[: match.start()], value, match.group() != "!="))
    return FieldSelector(tuple(sorted(found, key=lambda requirement: requirement.field)))
