"""The errors of a value, exactly as kube-apiserver reports them: every error, each with its text, type and path.

This is the full validation, used when the quick check (:mod:`.quick_checks`) says no. It follows kube-openapi's validator step by
step (type, combinations, strings, formats, numbers, lists, enum, objects), as users see the order, the merging of equal messages
and the choice of the "best" failing alternative.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from remuda.kube import errors
from remuda.kube.encoding.jsonio import dumps_sorted
from remuda.kube.errors import FieldError, go_float, go_quote, show_value

from ..cel import re2
from ..limits import cost_budget
from . import formats
from .correlated_values import Correlated
from .node import Node

MIN_INT64, MAX_INT64 = -(1 << 63), (1 << 63) - 1
_MAX_SAFE = float((1 << 53) - 1)
_EPSILON = 1e-9
# The cost of validating one value, besides the cost of patterns.
_STEPS = 32
_MAX_FLOAT32 = 3.4028235677973366e38
# A missing path, as Go prints it.
NO_PATH = "<nil>"


@dataclass(slots=True)
class _Problem:
    """One error. `name` is None when it concerns no field in particular."""

    message: str
    name: str | None
    type: str
    value: Any
    detail: str


class _Result:
    __slots__ = ("matches", "problems")

    def __init__(self, *problems: _Problem, matches: int = 0) -> None:
        # By message: equal messages are reported once.
        self.problems = {problem.message: problem for problem in problems}
        # The number of checks made: among failing alternatives, the one that got furthest is reported.
        self.matches = matches

    @property
    def is_full(self) -> bool:
        """There are more errors than a user will read; the rest is not validated."""
        return len(self.problems) >= errors.MAX_ERRORS

    def add(self, problem: _Problem) -> None:
        self.problems.setdefault(problem.message, problem)

    def merge(self, other: _Result) -> None:
        for message, problem in other.problems.items():
            self.problems.setdefault(message, problem)
        self.matches += other.matches


def errors_of(node: Node, value: Any, path: str = "", correlated: Correlated | None = None) -> list[FieldError]:
    """All errors in `value`. With `correlated`, errors in unchanged parts are left out."""
    result = _ratcheted(node, value, "", correlated) if correlated else _validate(node, value, "", None)
    return [_field_error(problem, path) for problem in result.problems.values()]


def is_valid(node: Node, value: Any) -> bool:
    return not _validate(node, value, "", None).problems


def _field_error(problem: _Problem, prefix: str) -> FieldError:
    name = (problem.name or "").removeprefix(".")
    where = f"{prefix}.{name}" if prefix and name else prefix or name or NO_PATH
    return FieldError(problem.type, where, problem.value, problem.detail)


def _invalid(name: str, value: Any, message: str) -> _Problem:
    return _Problem(message, name, errors.INVALID, "" if value is None else value, message)


def _plain(message: str) -> _Problem:
    return _Problem(message, None, errors.INVALID, "", message)


def _wrong_type(path: str, wanted: str, found: str) -> _Problem:
    message = f"{path} in body must be of type {wanted}: {go_quote(found)}"
    return _Problem(message, path, errors.TYPE_INVALID, found, message)


def _ratcheted(node: Node, value: Any, path: str, correlated: Correlated) -> _Result:
    result = _validate(node, value, path, correlated)
    if result.problems and correlated.unchanged():
        return _Result(matches=result.matches)
    return result


def _field(node: Node, value: Any, path: str, parent: str, name: str, correlated: Correlated | None) -> _Result:
    child = correlated.key(name) if correlated else None
    if child is None or (parent == "" and name in ("kind", "apiVersion")):
        return _validate(node, value, path, None)
    return _ratcheted(node, value, path, child)


def _validate(node: Node, value: Any, path: str, correlated: Correlated | None) -> _Result:
    result = _Result()
    cost_budget.spend(_STEPS)
    if value is None:
        if node.types and not node.nullable:
            result.add(_wrong_type(path, ",".join(node.types), "null"))
        else:
            result.matches += 1
        _check_enum(node, None, path, result)
        return result
    if type(value) is int and not MIN_INT64 <= value <= MAX_INT64:
        value = float(value)
    if node.types or node.format:
        problem = _type_problem(node, value, path)
        if problem is not None:
            result.add(problem)
            result.matches += 1
        else:
            result.matches += 2
    _check_combinations(node, value, path, result)
    kind = type(value)
    if kind is str:
        _check_string(node, value, path, result)
    elif kind is int or kind is float:
        _check_number(node, value, path, result)
    elif kind is list:
        _check_list(node, value, path, correlated, result)
    _check_enum(node, value, path, result)
    result.matches += 1
    if kind is dict:
        _check_object(node, value, path, correlated, result)
        result.matches += 1
    result.matches += 1
    return result


_NAMES: dict[type, tuple[str, str]] = {
    bool: ("boolean", ""),
    str: ("string", ""),
    int: ("integer", "int64"),
    float: ("number", "float64"),
    list: ("array", ""),
    dict: ("object", ""),
}


def _type_problem(node: Node, value: Any, path: str) -> _Problem | None:
    found, found_format = _NAMES.get(type(value), ("", ""))
    types = node.types
    fits = found in types
    if not fits and found == "number" and "integer" in types:
        fits = is_json_integer(value)
    if not fits and found == "integer" and "number" in types:
        fits = True
    if node.format:
        if found not in ("string", "array"):
            return None if fits else _wrong_type(path, node.format, found_format)
        if "number" not in types and "integer" not in types:
            return None
    if fits:
        return None
    return _wrong_type(path, ",".join(types), found)


def is_json_integer(value: float) -> bool:
    """True if a float counts as an integer, which kube-openapi decides with a little tolerance."""
    if not -_MAX_SAFE <= value <= _MAX_SAFE:
        return False
    if value == int(value):
        return True
    if value < 1:
        return False
    whole = float(int(value))
    return abs(value - whole) / (abs(value) + whole) < _EPSILON


# --- combinations -------------------------------------------------------------------------------------------------


def _check_combinations(node: Node, value: Any, path: str, result: _Result) -> None:
    main = _Result()
    if node.any_of:
        _check_any_of(node, value, path, main)
    if node.one_of:
        _check_one_of(node, value, path, main)
    if node.all_of:
        valid = 0
        for each in node.all_of:
            found = _validate(each, value, path, None)
            valid += not found.problems
            main.merge(found)
        if valid != len(node.all_of):
            none = "" if valid else ". None validated"
            main.add(_plain(f"{go_quote(path)} must validate all the schemas (allOf){none}"))
    if node.not_ is not None and not _validate(node.not_, value, path, None).problems:
        main.add(_plain(f"{go_quote(path)} must not validate the schema (not)"))
    main.matches += 1
    result.merge(main)
    result.matches += 1


def _check_any_of(node: Node, value: Any, path: str, main: _Result) -> None:
    best: _Result | None = None
    for each in node.any_of:
        found = _validate(each, value, path, None)
        if not found.problems:
            main.merge(found)
            return
        if best is None or found.matches > best.matches:
            best = found
    main.add(_plain(f"{go_quote(path)} must validate at least one schema (anyOf)"))
    if best is not None:
        main.merge(best)


def _check_one_of(node: Node, value: Any, path: str, main: _Result) -> None:
    best: _Result | None = None
    first: _Result | None = None
    valid = 0
    for each in node.one_of:
        found = _validate(each, value, path, None)
        if not found.problems:
            valid += 1
            best = None
            first = first or found
        elif valid == 0 and (best is None or found.matches > best.matches):
            best = found
    if valid == 1:
        assert first is not None
        main.merge(first)
        return
    how = f"Found {valid} valid alternatives" if valid else "Found none valid"
    main.add(_plain(f"{go_quote(path)} must validate one and only one schema (oneOf). {how}"))
    if best is not None:
        main.merge(best)


# --- scalars ------------------------------------------------------------------------------------------------------


def _check_string(node: Node, value: str, path: str, result: _Result) -> None:
    problem = _string_problem(node, value, path)
    if problem is not None:
        result.add(problem)
    result.matches += 1
    check = formats.check_for(node.format) if node.format else None
    if check is not None:
        if not check(value):
            message = f"{path} in body must be of type {node.format}: {go_quote(value)}"
            result.add(_Problem(message, path, errors.TYPE_INVALID, value, message))
        result.matches += 1


def _string_problem(node: Node, value: str, path: str) -> _Problem | None:
    if node.max_length is not None and len(value) > node.max_length:
        message = f"{path} in body should be at most {node.max_length} chars long"
        limit = errors.too_long("", node.max_length)
        return _Problem(message, path, errors.TOO_LONG, limit.value, limit.detail)
    if node.min_length is not None and len(value) < node.min_length:
        return _invalid(path, value, f"{path} in body should be at least {node.min_length} chars long")
    if not node.pattern:
        return None
    try:
        matched = re2.compile_pattern(node.pattern).matches(value)
    except re2.RegexError as error:
        return _invalid(path, value, f"{path} in body should match '{node.pattern}, but pattern is invalid: {error}'")
    return None if matched else _invalid(path, value, f"{path} in body should match '{node.pattern}'")


def _in_range(node: Node, value: float, what: str, path: str) -> _Problem | None:
    """An error if a number does not fit the integer or float width that the schema names."""
    kind = node.types[0] if len(node.types) == 1 else ""
    if kind == "integer":
        low, high = (-(1 << 31), (1 << 31) - 1) if node.format == "int32" else (MIN_INT64, MAX_INT64)
        fits = value == int(value) and low <= value <= high
    else:
        fits = kind != "number" or node.format != "float" or abs(value) < _MAX_FLOAT32
    if fits:
        return None
    shown = f"with format {node.format}" if node.format else "(default format)"
    return _plain(f"{what} value must be of type {kind} {shown} in {path}")


def _check_number(node: Node, value: float, path: str, result: _Result) -> None:
    problem = _in_range(node, value, "Checked", path)
    found = _Result(*([problem] if problem else []))
    for problem in _number_problems(node, value, path):
        found.add(problem)
    found.matches += 1
    result.merge(found)
    result.matches += 1


def _number_problems(node: Node, value: float, path: str) -> Iterator[_Problem]:
    if node.multiple_of is not None:
        yield from _multiple_problems(node, value, node.multiple_of, path)
    if node.minimum is not None:
        problem = _in_range(node, node.minimum, "Minimum boundary", path)
        if problem:
            yield problem
        limit = int(node.minimum) if type(value) is int and not problem else node.minimum
        if value < limit or (node.exclusive_minimum and value == limit):
            words = "greater than" if node.exclusive_minimum else "greater than or equal to"
            yield _invalid(path, float(value) if problem else value, f"{path} in body should be {words} {show_value(limit)}")
    if node.maximum is not None:
        problem = _in_range(node, node.maximum, "Maximum boundary", path)
        if problem:
            yield problem
        limit = int(node.maximum) if type(value) is int and not problem else node.maximum
        if value > limit or (node.exclusive_maximum and value == limit):
            words = "less than" if node.exclusive_maximum else "less than or equal to"
            yield _invalid(path, float(value) if problem else value, f"{path} in body should be {words} {show_value(limit)}")


def _multiple_problems(node: Node, value: float, factor: float, path: str) -> Iterator[_Problem]:
    problem = _in_range(node, factor, "MultipleOf", path)
    if problem:
        yield problem
    if type(value) is int and not problem:
        whole = int(factor)
        if whole <= 0:
            message = f"factor MultipleOf declared for {path} must be positive: {whole}"
            yield _invalid(path, whole, message)
        elif value % whole:
            yield _invalid(path, value, f"{path} in body should be a multiple of {whole}")
        return
    if factor <= 0:
        yield _invalid(path, factor, f"factor MultipleOf declared for {path} must be positive: {go_float(factor)}")
    elif not is_json_integer(1 / factor * value if factor < 1 else value / factor):
        yield _invalid(path, float(value), f"{path} in body should be a multiple of {go_float(factor)}")


def _check_enum(node: Node, value: Any, path: str, result: _Result) -> None:
    if not node.enum or (value is not None and _is_listed(node, value)):
        return
    shown = _shown_enum(node)
    # The message only tells problems apart: the start of a long list is enough.
    message = f"{path} in body should be one of {len(shown)}: {shown[:1024]}"
    result.add(_Problem(message, path, errors.NOT_SUPPORTED, value, shown))


def _is_listed(node: Node, value: Any) -> bool:
    if type(value) is str:
        return value in _enum_texts(node)
    cost_budget.spend(len(node.enum))
    return any(_same(value, allowed) for allowed in node.enum)


def _enum_texts(node: Node) -> frozenset[str]:
    if node.enum_texts is None:
        node.enum_texts = frozenset(allowed for allowed in node.enum if type(allowed) is str)
    return node.enum_texts


def _shown_enum(node: Node) -> str:
    """The allowed values, as an error lists them; made once, for there may be many."""
    if node.enum_shown is None:
        shown = [allowed if isinstance(allowed, str) else dumps_sorted(allowed).decode() for allowed in node.enum]
        node.enum_shown = errors.not_supported("", "", shown).detail
    return node.enum_shown


def _same(value: Any, allowed: Any) -> bool:
    """Equal after Go converts the value to the type of the enum's entry."""
    if type(value) is type(allowed):
        return bool(value == allowed)
    if type(allowed) is int and type(value) is float:
        return int(value) == allowed
    if type(allowed) is float and type(value) is int:
        return float(value) == allowed
    # Go converts an integer to the text of that code point.
    return type(allowed) is str and type(value) is int and 0 <= value < 0x110000 and chr(value) == allowed


# --- containers ---------------------------------------------------------------------------------------------------


def _check_list(node: Node, value: list[Any], path: str, correlated: Correlated | None, result: _Result) -> None:
    found = _Result()
    if node.items is not None:
        for index, item in enumerate(value):
            if found.is_full:
                break
            at = f"{path}[{index}]"
            child = correlated.index(index) if correlated else None
            found.merge(_ratcheted(node.items, item, at, child) if child else _validate(node.items, item, at, None))
    size = len(value)
    if node.min_items is not None and size < node.min_items:
        found.add(_invalid(path, size, f"{path} in body should have at least {node.min_items} items"))
    if node.max_items is not None and size > node.max_items:
        message = f"{path} in body should have at most {node.max_items} items"
        limit = errors.too_many("", size, node.max_items)
        found.add(_Problem(message, path, errors.TOO_MANY, size, limit.detail))
    if node.unique_items and any(item in value[:index] for index, item in enumerate(value)):
        found.add(_invalid(path, None, f"{path} in body shouldn't contain duplicates"))
    found.matches += 1
    result.merge(found)
    result.matches += 1


def _check_object(node: Node, value: dict[str, Any], path: str, correlated: Correlated | None, result: _Result) -> None:
    size = len(value)
    found = _Result()
    cost_budget.spend((len(node.properties) + len(node.required)) // 8)
    if node.min_properties is not None and size < node.min_properties:
        found.add(_invalid(path, size, f"{path} in body should have at least {node.min_properties} properties"))
    if node.max_properties is not None and size > node.max_properties:
        message = f"{path} in body should have at most {node.max_properties} properties"
        limit = errors.too_many("", size, node.max_properties)
        found.add(_Problem(message, path, errors.TOO_MANY, size, limit.detail))
    if node.additional_allowed is False:
        for key in value:
            if key not in node.properties and not found.is_full:
                found.add(_invalid(path, key, f"{path}.{key} in body is a forbidden property"))
    elif node.additional is not None:
        for key, child in value.items():
            if key not in node.properties and not found.is_full:
                found.merge(_field(node.additional, child, f"{path}.{key}", path, key, correlated))
    for name, sub in node.properties.items():
        if name in value and not found.is_full:
            at = f"{path}.{name}" if path else name
            found.merge(_field(sub, value[name], at, path, name, correlated))
    for name in node.required:
        if name not in value and not found.is_full:
            missing = f"{path}.{name}"
            found.add(_Problem(f"{missing} in body is required", missing, errors.REQUIRED, "", ""))
    result.merge(found)
