"""A list as its query wants it: filtered, sorted, one page. Pure.

:func:`read` finds a field of an object. Fields that no object has, such as its state, are computed by `derived`: the functions by
the beginning of their path. Values of different types have an order: absent ones first, then booleans, numbers, texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from remuda.kube.errors import ApiError

from .query import Operator, Path, Query, SortKey, Term

Obj = dict[str, Any]
Read = Callable[[Obj], Any]
Test = Callable[[Obj], bool]
Derived = Mapping[Path, Callable[[Obj], Any]]

# Comparisons of one request; they hold up all others.
_MOST_COMPARISONS = 1_000_000


class Selected(NamedTuple):
    """`rows` is one page of all `total` objects, which fill so many `pages`."""

    rows: list[Obj]
    total: int
    pages: int


def check_cost(query: Query, objects: int) -> None:
    """Raises ApiError for a filter that takes too long on so many objects."""
    if query.terms * objects > _MOST_COMPARISONS:
        raise ApiError(
            422, "InvalidQuery", f"filter: {query.terms} comparisons on {objects} objects are too many; narrow the list"
        )


def select(objects: Iterable[Obj], query: Query, derived: Derived) -> Selected:
    tests = [_any([_test(term, derived) for term in alternatives]) for alternatives in query.filters]
    found = [obj for obj in objects if all(test(obj) for test in tests)] if tests else list(objects)
    for key in reversed(query.sort):
        found.sort(key=_ordered(key, derived), reverse=key.descending)
    if not query.page_size:
        return Selected(found, len(found), 1 if found else 0)
    start = (query.page - 1) * query.page_size
    return Selected(found[start : start + query.page_size], len(found), -(-len(found) // query.page_size))


# --- fields ---------------------------------------------------------------------------------------------------------------


def reader(path: Path, derived: Derived) -> Read:
    """The function that finds the field at `path`."""
    for length in range(len(path), 0, -1):
        compute = derived.get(path[:length])
        if compute is not None:
            return _within(compute, path[length:])
    return lambda obj: _dig(obj, path)


def _within(compute: Read, path: Path) -> Read:
    return (lambda obj: _dig(compute(obj), path)) if path else compute


def _dig(value: Any, path: Sequence[str | int]) -> Any:
    for at, step in enumerate(path):
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list):
            if isinstance(step, str):
                # A name on a list: that field of each element.
                return [_dig(each, path[at:]) for each in value]
            value = value[step] if step < len(value) else None
        else:
            return None
        if value is None:
            return None
    return value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _texts(value: Any) -> list[str]:
    if isinstance(value, list):
        return [_text(each) for each in value]
    return [_text(value)]


# --- filters --------------------------------------------------------------------------------------------------------------


def _any(tests: list[Test]) -> Test:
    return tests[0] if len(tests) == 1 else lambda obj: any(test(obj) for test in tests)


def _test(term: Term, derived: Derived) -> Test:
    get = reader(term.path, derived)
    operator, values = term.operator, term.values
    match operator:
        case Operator.EXISTS:
            return lambda obj: get(obj) is not None
        case Operator.MISSING:
            return lambda obj: get(obj) is None
        case Operator.EQUALS | Operator.AMONG:
            wanted = frozenset(values)
            return lambda obj: _is_among(get(obj), wanted)
        case Operator.DIFFERS | Operator.NOT_AMONG:
            unwanted = frozenset(values)
            return lambda obj: not _is_among(get(obj), unwanted)
        case Operator.CONTAINS | Operator.LACKS:
            part, expected = values[0].casefold(), operator is Operator.CONTAINS
            return lambda obj: any(part in each.casefold() for each in _texts(get(obj))) is expected
        case Operator.LESS | Operator.MORE:
            return _compared(get, values[0], operator is Operator.LESS)
    raise AssertionError(operator)


def _is_among(value: Any, wanted: frozenset[str]) -> bool:
    if type(value) is str:
        return value in wanted
    return any(each in wanted for each in _texts(value))


def _compared(get: Read, limit: str, less: bool) -> Test:
    try:
        number: float | None = float(limit)
    except ValueError:
        number = None

    def test(obj: Obj) -> bool:
        value = get(obj)
        if value is None or isinstance(value, dict | list):
            return False
        if number is not None:
            try:
                found = float(value)
            except ValueError:
                return False
            return found < number if less else found > number
        return _text(value) < limit if less else _text(value) > limit

    return test


def _ordered(key: SortKey, derived: Derived) -> Callable[[Obj], tuple[int, Any]]:
    get = reader(key.path, derived)

    def rank(obj: Obj) -> tuple[int, Any]:
        value = get(obj)
        if isinstance(value, list):
            value = value[0] if value else None
        if value is None or value == "":
            return 0, 0
        if isinstance(value, bool):
            return 1, value
        if isinstance(value, int | float):
            return 2, value
        return 3, value if isinstance(value, str) else str(value)

    return rank
