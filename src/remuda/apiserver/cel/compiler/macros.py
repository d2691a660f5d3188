"""Macros: calls that are rewritten while parsing, before types are known.

Every comprehension becomes a fold for the checker and the cost estimator; the `Loop` beside it records the original
macro for the planner. The macros are those of Kubernetes 1.36's environment for new expressions, without `cel.bind`.
"""

from __future__ import annotations

from collections.abc import Callable

from .syntax_tree import Call, Comprehension, Expr, Ident, ListExpr, Literal, Loop, MapExpr, Select, clone

ACCUMULATOR = "@result"
_FORBIDDEN = (ACCUMULATOR, "__result__")
UNUSED = "#unused"
SORT_INPUT = "@__sortBy_input__"


class MacroError(Exception):
    def __init__(self, position: int, message: str) -> None:
        super().__init__(message)
        self.position = position
        self.message = message


_Expander = Callable[[int, Expr, list[Expr]], Expr]


def expand(position: int, function: str, target: Expr | None, args: list[Expr]) -> Expr | None:
    """The expansion of a call at `position`, or None if the call is not a macro."""
    if target is None:
        if function == "has" and len(args) == 1:
            return _has(position, args[0])
        return None
    expander = _RECEIVER.get((function, len(args)))
    return expander(position, target, args) if expander is not None else None


def _has(position: int, arg: Expr) -> Expr:
    if not isinstance(arg, Select) or arg.test_only:
        raise MacroError(arg.position, "invalid argument to has() macro")
    return Select(position, arg.operand, arg.field_name, test_only=True)


def _variable(arg: Expr, complaint: str) -> str:
    if not isinstance(arg, Ident):
        raise MacroError(arg.position, complaint)
    if arg.name in _FORBIDDEN:
        raise MacroError(arg.position, "iteration variable overwrites accumulator variable")
    return arg.name


def _simple(arg: Expr) -> str:
    return _variable(arg, "argument must be a simple name")


def _pair(args: list[Expr]) -> tuple[str, str]:
    names = []
    for arg in args[:2]:
        if not isinstance(arg, Ident):
            raise MacroError(arg.position, "argument must be a simple name")
        names.append(arg.name)
    if names[0] == names[1]:
        raise MacroError(args[1].position, f"duplicate variable name: {names[0]}")
    return _simple(args[0]), _simple(args[1])


class _Build:
    """Creates nodes at one position, and those for the accumulator."""

    def __init__(self, position: int) -> None:
        self.position = position

    def accu(self) -> Ident:
        return Ident(self.position, ACCUMULATOR)

    def lit(self, value: bool | int) -> Literal:
        return Literal(self.position, value)

    def call(self, function: str, *args: Expr) -> Call:
        return Call(self.position, function, None, list(args))

    def fold(
        self,
        target: Expr,
        names: tuple[str, str | None],
        init: Expr,
        condition: Expr,
        step: Expr,
        result: Expr,
        loop: Loop,
    ) -> Comprehension:
        return Comprehension(self.position, target, names[0], names[1], ACCUMULATOR, init, condition, step, result, loop)


def _all(position: int, target: Expr, names: tuple[str, str | None], predicate: Expr) -> Expr:
    b = _Build(position)
    return b.fold(
        target,
        names,
        b.lit(True),
        b.call("@not_strictly_false", b.accu()),
        b.call("_&&_", b.accu(), predicate),
        b.accu(),
        Loop("all", predicate),
    )


def _exists(position: int, target: Expr, names: tuple[str, str | None], predicate: Expr) -> Expr:
    b = _Build(position)
    return b.fold(
        target,
        names,
        b.lit(False),
        b.call("@not_strictly_false", b.call("!_", b.accu())),
        b.call("_||_", b.accu(), predicate),
        b.accu(),
        Loop("exists", predicate),
    )


def _exists_one(position: int, target: Expr, names: tuple[str, str | None], predicate: Expr) -> Expr:
    b = _Build(position)
    return b.fold(
        target,
        names,
        b.lit(0),
        b.lit(True),
        b.call("_?_:_", predicate, b.call("_+_", b.accu(), b.lit(1)), b.accu()),
        b.call("_==_", b.accu(), b.lit(1)),
        Loop("one", predicate),
    )


def _collect(position: int, target: Expr, names: tuple[str, str | None], kept: Expr | None, transform: Expr) -> Comprehension:
    b = _Build(position)
    step: Expr = b.call("_+_", b.accu(), ListExpr(position, [transform]))
    if kept is not None:
        step = b.call("_?_:_", kept, step, b.accu())
    return b.fold(target, names, ListExpr(position, []), b.lit(True), step, b.accu(), Loop("list", transform, kept))


def _transform_map(position: int, target: Expr, args: list[Expr], entries: bool) -> Expr:
    first, second = _pair(args)
    b = _Build(position)
    kept, transform = (args[2], args[3]) if len(args) == 4 else (None, args[2])
    parts: list[Expr] = [transform] if entries else [Ident(position, first), transform]
    step: Expr = b.call("cel.@mapInsert", b.accu(), *parts)
    if kept is not None:
        step = b.call("_?_:_", kept, step, b.accu())
    loop = Loop("entries" if entries else "map", transform, kept)
    return b.fold(target, (first, second), MapExpr(position, []), b.lit(True), step, b.accu(), loop)


def _map(position: int, target: Expr, args: list[Expr]) -> Comprehension:
    name = _variable(args[0], "argument is not an identifier")
    kept, transform = (args[1], args[2]) if len(args) == 3 else (None, args[1])
    return _collect(position, target, (name, None), kept, transform)


def _filter(position: int, target: Expr, args: list[Expr]) -> Expr:
    name = _variable(args[0], "argument is not an identifier")
    return _collect(position, target, (name, None), args[1], args[0])


def _transform_list(position: int, target: Expr, args: list[Expr]) -> Expr:
    names = _pair(args)
    kept, transform = (args[2], args[3]) if len(args) == 4 else (None, args[2])
    return _collect(position, target, names, kept, transform)


def _bind(position: int, name: str, value: Expr, result: Expr) -> Comprehension:
    return Comprehension(
        position,
        ListExpr(position, []),
        UNUSED,
        None,
        name,
        value,
        Literal(position, False),
        Ident(position, name),
        result,
        None,
    )


def _opt_map(position: int, target: Expr, args: list[Expr], flat: bool) -> Expr:
    if not isinstance(args[0], Ident):
        which = "optFlatMap" if flat else "optMap"
        raise MacroError(args[0].position, f"{which}() variable name must be a simple identifier")
    value = Call(position, "value", clone(target), [])
    mapped: Expr = _bind(position, args[0].name, value, args[1])
    if not flat:
        mapped = Call(position, "optional.of", None, [mapped])
    present = Call(position, "hasValue", target, [])
    return Call(position, "_?_:_", None, [present, mapped, Call(position, "optional.none", None, [])])


def _sort_by(position: int, target: Expr, args: list[Expr]) -> Expr:
    if isinstance(target, Literal | MapExpr):
        message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression"
        raise MacroError(target.position, message)
    keys = _map(position, Ident(position, SORT_INPUT), args)
    sort = Call(position, "@sortByAssociatedKeys", Ident(position, SORT_INPUT), [keys])
    return _bind(position, SORT_INPUT, target, sort)


_RECEIVER: dict[tuple[str, int], _Expander] = {
    ("all", 2): lambda p, t, a: _all(p, t, (_simple(a[0]), None), a[1]),
    ("all", 3): lambda p, t, a: _all(p, t, _pair(a), a[2]),
    ("exists", 2): lambda p, t, a: _exists(p, t, (_simple(a[0]), None), a[1]),
    ("exists", 3): lambda p, t, a: _exists(p, t, _pair(a), a[2]),
    ("exists_one", 2): lambda p, t, a: _exists_one(p, t, (_simple(a[0]), None), a[1]),
    ("exists_one", 3): lambda p, t, a: _exists_one(p, t, _pair(a), a[2]),
    ("existsOne", 3): lambda p, t, a: _exists_one(p, t, _pair(a), a[2]),
    ("map", 2): _map,
    ("map", 3): _map,
    ("filter", 2): _filter,
    ("transformList", 3): _transform_list,
    ("transformList", 4): _transform_list,
    ("transformMap", 3): lambda p, t, a: _transform_map(p, t, a, entries=False),
    ("transformMap", 4): lambda p, t, a: _transform_map(p, t, a, entries=False),
    ("transformMapEntry", 3): lambda p, t, a: _transform_map(p, t, a, entries=True),
    ("transformMapEntry", 4): lambda p, t, a: _transform_map(p, t, a, entries=True),
    ("optMap", 2): lambda p, t, a: _opt_map(p, t, a, flat=False),
    ("optFlatMap", 2): lambda p, t, a: _opt_map(p, t, a, flat=True),
    ("sortBy", 2): _sort_by,
}
