"""Comprehensions as loops: `all`, `exists`, `exists_one`, `map`, `filter`, `transformList`, `transformMap`, …

The cost of each iteration is added and checked against the limit before it runs, so that nested loops over any data
stay bounded. Besides its expressions, an iteration costs the same as in the macro's fold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from ..errors import COST_LIMIT_TEXT, CostExceeded, EvalError, no_such_overload
from ..values import Value, elements, find_key, is_list, is_map, kind_of, mapping
from ..views import keys_of
from .plans import CALL_LIMIT, COST, NOTHING, Fn, Frame, Plan

Slots: TypeAlias = tuple[int, int | None]
_Items: TypeAlias = Callable[[Frame], Iterable[Value]]

# Per iteration: the condition, the accumulator and the operator that feeds it.
_ALL_COST = 3
_EXISTS_COST = 4
# Early exit: the condition is evaluated once more.
_ALL_EXIT_COST = 2
_EXISTS_EXIT_COST = 3
_ONE_HIT_COST = 2
_APPEND_COST = 12
_APPEND_CONSTANT_COST = 2
_INSERT_COST = 3
_ENTRY_COST = 2


def plan_loop(kind: str, source: Plan, slots: Slots, body: Plan, kept: Plan | None) -> Plan:
    items = _items(source, pairs=slots[1] is not None)
    cost = source.cost + (2 if kind == "one" else 1)
    if kind in ("all", "exists"):
        per = body.cost + (_ALL_COST if kind == "all" else _EXISTS_COST)
        return Plan(_quantifier(items, slots, body.run, per, decisive=kind == "exists"), cost)
    if kind == "one":
        return Plan(_exactly_one(items, slots, body), cost)
    if kind == "list":
        return Plan(_collect(items, slots, body, kept), cost)
    return Plan(_build_map(items, slots, body, kept, entries=kind == "entries"), cost)


def _items(source: Plan, pairs: bool) -> _Items:
    """The items for the loop variables: raw data where the source has it, else values."""
    run = source.run
    if source.raw is not None and source.node is not None and source.node.kind in ("list", "map"):
        raw = source.raw
        if source.node.kind == "list":
            return (lambda frame: enumerate(raw(frame))) if pairs else raw
        return (lambda frame: raw(frame).items()) if pairs else raw
    if pairs:
        return lambda frame: _pairs(run(frame))
    return lambda frame: _singles(run(frame))


def _singles(value: Value) -> Iterable[Value]:
    if is_list(value):
        return elements(value)
    if is_map(value):
        return keys_of(value)
    raise _not_iterable(value)


def _pairs(value: Value) -> Iterable[Value]:
    if is_list(value):
        return enumerate(elements(value))
    if is_map(value):
        return mapping(value).items()
    raise _not_iterable(value)


def _not_iterable(value: Value) -> EvalError:
    kind = kind_of(value)
    return EvalError(f"got '{f'types.{kind.capitalize()}' if '.' not in kind else kind}', expected iterable type")


def _over() -> CostExceeded:
    return CostExceeded(COST_LIMIT_TEXT)


def _quantifier(items: _Items, slots: Slots, predicate: Fn, per: int, decisive: bool) -> Fn:
    first, second = slots
    other = not decisive
    exit_cost = _EXISTS_EXIT_COST if decisive else _ALL_EXIT_COST

    def run(frame: Frame) -> Value:
        problem: EvalError | None = None
        decided = False
        for item in items(frame):
            if decided:
                frame[COST] += exit_cost
                break
            spent = frame[COST] + per
            if spent > CALL_LIMIT:
                raise _over()
            frame[COST] = spent
            if second is None:
                frame[first] = item
            else:
                frame[first], frame[second] = item
            try:
                value = predicate(frame)
            except EvalError as error:
                problem = problem or error
                continue
            if value is decisive:
                decided = True
            elif value is not other:
                problem = problem or no_such_overload()
        if decided:
            return decisive
        if problem is not None:
            raise problem
        return other

    return run


def _steps(items: _Items, slots: Slots, per: int) -> Callable[[Frame], Iterable[None]]:
    """Binds the loop variables for one iteration after the other, and adds the cost of each."""
    first, second = slots

    def walk(frame: Frame) -> Iterable[None]:
        for item in items(frame):
            spent = frame[COST] + per
            if spent > CALL_LIMIT:
                raise _over()
            frame[COST] = spent
            if second is None:
                frame[first] = item
            else:
                frame[first], frame[second] = item
            yield

    return walk


def _truth(value: Value) -> bool:
    if value is True or value is False:
        return value
    raise no_such_overload()


# An error does not end these loops, as in the macro's fold, which carries it along. A later error of the predicate
# replaces it, a later error of the transformation does not.


def _exactly_one(items: _Items, slots: Slots, body: Plan) -> Fn:
    walk = _steps(items, slots, body.cost)
    predicate = body.run

    def run(frame: Frame) -> Value:
        hits = 0
        problem: EvalError | None = None
        for _ in walk(frame):
            try:
                if _truth(predicate(frame)):
                    hits += 1
                    frame[COST] += _ONE_HIT_COST
            except EvalError as error:
                problem = error
        if problem is not None:
            raise problem
        return hits == 1

    return run


def _collect(items: _Items, slots: Slots, body: Plan, kept: Plan | None) -> Fn:
    add_cost = body.cost + (_APPEND_COST if body.constant is NOTHING else _APPEND_CONSTANT_COST)
    transform = body.run
    walk = _steps(items, slots, kept.cost if kept is not None else add_cost)
    if kept is None:
        return lambda frame: [transform(frame) for _ in walk(frame)]
    test = kept.run

    def run(frame: Frame) -> Value:
        found: list[Value] = []
        problem: EvalError | None = None
        for _ in walk(frame):
            try:
                keep = _truth(test(frame))
            except EvalError as error:
                problem = error
                continue
            if keep:
                frame[COST] += add_cost
                try:
                    found.append(transform(frame))
                except EvalError as error:
                    problem = problem or error
        if problem is not None:
            raise problem
        return found

    return run


def _build_map(items: _Items, slots: Slots, body: Plan, kept: Plan | None, entries: bool) -> Fn:
    add_cost = body.cost + (_ENTRY_COST if entries else _INSERT_COST)
    walk = _steps(items, slots, kept.cost if kept is not None else add_cost)
    test = kept.run if kept is not None else None
    transform = body.run
    key_slot = slots[0]

    def run(frame: Frame) -> Value:
        built: dict[Value, Value] = {}
        problem: EvalError | None = None
        for _ in walk(frame):
            if test is not None:
                try:
                    keep = _truth(test(frame))
                except EvalError as error:
                    problem = error
                    continue
                if not keep:
                    continue
                frame[COST] += add_cost
            try:
                result = transform(frame)
                _insert(built, mapping(result).items() if entries else ((frame[key_slot], result),))
            except EvalError as error:
                problem = problem or error
        if problem is not None:
            raise problem
        return built

    return run


def _insert(built: dict[Value, Value], added: Iterable[tuple[Value, Value]]) -> None:
    for key, entry in added:
        if find_key(built, key)[0]:
            raise EvalError(f"insert failed: key {key} already exists")
        built[key] = entry
