"""The type of every node, the overload of every call, and all type errors.

The algorithm is the reference implementation's: overloads are tried in order against the argument types, type
parameters are unified in a substitution, unknown types (`dyn`) match any type and leave the choice to run time.
Literal checks that need types live here too, at the end: they run once the whole tree is typed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import Issues
from ..library.signatures import FUNCTIONS, Signature
from ..static_types import (
    BOOL,
    BYTES,
    CIDR,
    DOUBLE,
    DURATION,
    DYN,
    ERROR,
    INT,
    IP,
    NULL,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    CelType,
    list_of,
    map_of,
    optional_of,
    param,
    type_of,
)
from ..values import Uint
from .syntax_tree import Call, Comprehension, Expr, Ident, ListExpr, Literal, MapExpr, Select, StructExpr

_LITERALS: dict[type, CelType] = {
    bool: BOOL,
    int: INT,
    Uint: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    type(None): NULL,
}
TYPE_NAMES: dict[str, CelType] = {
    "bool": BOOL,
    "bytes": BYTES,
    "double": DOUBLE,
    "google.protobuf.Duration": DURATION,
    "int": INT,
    "list": list_of(param("A")),
    "map": map_of(param("A"), param("B")),
    "null_type": NULL,
    "string": STRING,
    "google.protobuf.Timestamp": TIMESTAMP,
    "type": TYPE,
    "uint": UINT,
    "net.IP": IP,
    "net.CIDR": CIDR,
    "optional_type": optional_of(param("V")),
}


def check(tree: Expr, variables: dict[str, CelType], issues: Issues) -> None:
    """Writes types into `tree`, and errors into `issues`."""
    _Checker(variables, issues).run(tree)


def qualified_name(node: Expr) -> str | None:
    """`a.b.c` as one name, if the node is only that."""
    parts: list[str] = []
    while isinstance(node, Select) and not node.test_only:
        parts.append(node.field_name)
        node = node.operand
    if not isinstance(node, Ident):
        return None
    parts.append(node.name)
    return ".".join(reversed(parts))


class _Checker:
    def __init__(self, variables: dict[str, CelType], issues: Issues) -> None:
        self.issues = issues
        self.scopes: list[dict[str, CelType]] = [dict(variables)]
        # Variables with names like a selection (`authorizer.requestResource`).
        self.dotted = frozenset(name for name in variables if "." in name)
        self.substitution = Substitution()
        self.fresh = 0
        self.nodes: list[Expr] = []
        self.visit: dict[type, Callable[[Any], None]] = {
            Literal: self._literal,
            Ident: self._ident,
            Select: self._select,
            Call: self._call,
            ListExpr: self._list,
            MapExpr: self._map,
            StructExpr: self._struct,
            Comprehension: self._fold,
        }

    def run(self, tree: Expr) -> None:
        self.visit[tree.__class__](tree)
        for node in self.nodes:
            node.type = self.substitution.resolve(node.type, to_dyn=True)

    def _set(self, node: Expr, kind: CelType) -> None:
        node.type = kind
        self.nodes.append(node)

    def _variable(self) -> CelType:
        self.fresh += 1
        return param(f"_var{self.fresh - 1}")

    def _lookup(self, name: str) -> CelType | None:
        name = name.removeprefix(".")
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return None

    def _mismatch(self, node: Expr, expected: CelType, found: CelType) -> None:
        self.issues.report(node.position, f"expected type '{expected.text}' but found '{found.text}'")

    # --- nodes

    def _literal(self, node: Literal) -> None:
        self._set(node, _LITERALS[type(node.value)])

    def _ident(self, node: Ident) -> None:
        declared = self._lookup(node.name)
        if declared is not None:
            node.name = node.name.removeprefix(".")
            return self._set(node, declared)
        named = TYPE_NAMES.get(node.name.removeprefix("."))
        if named is not None:
            node.type_value = named
            return self._set(node, type_of(named))
        self._undeclared(node, node.name)
        return self._set(node, ERROR)

    def _undeclared(self, node: Expr, name: str) -> None:
        self.issues.report(node.position, f"undeclared reference to '{name}' (in container '')")

    def _select(self, node: Select) -> None:
        name = qualified_name(node)
        if name is not None and name in self.dotted:
            return self._set(node, self.scopes[0][name])
        if name in TYPE_NAMES and self._lookup(name.partition(".")[0]) is None:
            return self._set(node, type_of(TYPE_NAMES[name]))
        kind = self._field(node, node.operand, node.field_name, optional=False)
        return self._set(node, BOOL if node.test_only else self.substitution.resolve(kind))

    def _field(self, node: Expr, operand: Expr, name: str, optional: bool) -> CelType:
        self.visit[operand.__class__](operand)
        target = self.substitution.resolve(operand.type)
        was_optional = target.is_optional
        if was_optional:
            target = target.params[0]
        result = ERROR
        if target.kind == "map":
            result = target.params[1]
        elif target.kind == "struct":
            found = target.fields.field_type(name) if target.fields is not None else None
            if found is None:
                self.issues.report(node.position, f"undefined field '{name}'")
            else:
                result = found
        elif target.kind == "param":
            self.substitution.assign(DYN, target)
            result = DYN
        else:
            if not target.is_dyn and target.kind != "error":
                self.issues.report(node.position, f"type '{target.text}' does not support field selection")
            result = DYN
        return optional_of(result) if optional or was_optional else result

    def _call(self, node: Call) -> None:
        if node.function == "_?._":
            field = node.args[1]
            name = field.value if isinstance(field, Literal) and isinstance(field.value, str) else ""
            kind = self._field(node, node.args[0], name, optional=True)
            self.visit[field.__class__](field)
            node.overloads = ("select_optional_field",)
            return self._set(node, self.substitution.resolve(kind))
        for arg in node.args:
            self.visit[arg.__class__](arg)
        if node.target is None:
            overloads = FUNCTIONS.get(node.function.removeprefix("."))
            if overloads is None:
                self._undeclared(node, node.function)
                return self._set(node, ERROR)
            node.function = node.function.removeprefix(".")
            return self._resolve(node, overloads)
        prefix = qualified_name(node.target)
        if prefix is not None:
            overloads = FUNCTIONS.get(f"{prefix}.{node.function}")
            if overloads is not None:
                node.function, node.target = f"{prefix}.{node.function}", None
                return self._resolve(node, overloads)
        self.visit[node.target.__class__](node.target)
        overloads = FUNCTIONS.get(node.function)
        if overloads is None:
            self._undeclared(node, node.function)
            return self._set(node, ERROR)
        return self._resolve(node, overloads)

    def _resolve(self, node: Call, overloads: list[Signature]) -> None:
        args = [arg.type for arg in node.args]
        if node.function in ("_&&_", "_||_"):
            return self._logic(node, args, overloads[0].id)
        member = node.target is not None
        if node.target is not None:
            args.insert(0, node.target.type)
        chosen: list[str] = []
        result: CelType | None = None
        for overload in overloads:
            if overload.member != member or len(overload.args) != len(args):
                continue
            wanted, outcome = self._instantiate(overload)
            if not self.substitution.assign_all(args, wanted):
                continue
            chosen.append(overload.id)
            outcome = self.substitution.resolve(outcome)
            if result is None:
                result = outcome
            elif not result.is_dyn and not outcome.same(result):
                result = DYN
        if result is None:
            texts = [self.substitution.resolve(arg, to_dyn=True).text for arg in args]
            shown = f"{texts[0]}.({', '.join(texts[1:])})" if member else f"({', '.join(texts)})"
            message = f"found no matching overload for '{node.function}' applied to '{shown}'"
            self.issues.report(node.position, message)
            return self._set(node, ERROR)
        node.overloads = tuple(chosen)
        return self._set(node, result)

    def _logic(self, node: Call, args: list[CelType], overload: str) -> None:
        fine = True
        for arg, kind in zip(node.args, args, strict=True):
            if not self.substitution.assign(kind, BOOL):
                self._mismatch(arg, BOOL, kind)
                fine = False
        node.overloads = (overload,)
        self._set(node, BOOL if fine else ERROR)

    def _instantiate(self, overload: Signature) -> tuple[tuple[CelType, ...], CelType]:
        if not overload.params:
            return overload.args, overload.result
        names = {name: self._variable() for name in sorted(overload.params)}
        return tuple(_rename(arg, names) for arg in overload.args), _rename(overload.result, names)

    def _join(self, previous: CelType | None, current: CelType) -> CelType:
        if previous is None:
            return current
        if self.substitution.assign(previous, current):
            return most_general(previous, current)
        return DYN

    def _unwrap(self, node: Expr, kind: CelType) -> CelType:
        """The type inside an element marked optional."""
        if kind.is_optional:
            return kind.params[0]
        if not kind.is_dyn:
            self._mismatch(node, optional_of(kind), kind)
        return kind

    def _list(self, node: ListExpr) -> None:
        joined: CelType | None = None
        for index, element in enumerate(node.elements):
            self.visit[element.__class__](element)
            kind = element.type
            if index in node.optional:
                kind = self._unwrap(element, kind)
            joined = self._join(joined, kind)
        self._set(node, list_of(joined if joined is not None else self._variable()))

    def _map(self, node: MapExpr) -> None:
        key: CelType | None = None
        value: CelType | None = None
        for entry in node.entries:
            self.visit[entry.key.__class__](entry.key)
            key = self._join(key, entry.key.type)
            self.visit[entry.value.__class__](entry.value)
            kind = entry.value.type
            if entry.optional:
                kind = self._unwrap(entry.value, kind)
            value = self._join(value, kind)
        if key is None or value is None:
            key, value = self._variable(), self._variable()
        self._set(node, map_of(key, value))

    def _struct(self, node: StructExpr) -> None:
        """Reports an error: Kubernetes rules cannot build objects, so the name is unknown, or not a message type."""
        declared = self._lookup(node.type_name)
        named = TYPE_NAMES.get(node.type_name.removeprefix("."))
        if declared is None and named is None:
            self._undeclared(node, node.type_name)
        elif declared is not None:
            self.issues.report(node.position, f"'{declared.text}' is not a type")
        elif named is not None:
            self.issues.report(node.position, f"'{named.name}' is not a message type")
        self._set(node, ERROR)

    def _fold(self, node: Comprehension) -> None:
        self.visit[node.iter_range.__class__](node.iter_range)
        self.visit[node.accu_init.__class__](node.accu_init)
        source = self.substitution.resolve(node.iter_range.type)
        accumulator = node.accu_init.type
        self.scopes.append({node.accu_var: accumulator})
        first, second = self._iteration(node, source)
        scope = {node.iter_var: first}
        if node.iter_var2 is not None:
            scope[node.iter_var2] = second
        self.scopes.append(scope)
        self.visit[node.condition.__class__](node.condition)
        self._assert(node.condition, BOOL)
        self.visit[node.step.__class__](node.step)
        self._assert(node.step, accumulator)
        self.scopes.pop()
        self.visit[node.result.__class__](node.result)
        self.scopes.pop()
        self._set(node, self.substitution.resolve(node.result.type))

    def _iteration(self, node: Comprehension, source: CelType) -> tuple[CelType, CelType]:
        two = node.iter_var2 is not None
        if source.kind == "list":
            return (INT, source.params[0]) if two else (source.params[0], DYN)
        if source.kind == "map":
            return source.params[0], source.params[1]
        if source.is_dyn or source.kind in ("error", "param"):
            self.substitution.assign(DYN, source)
            return DYN, DYN
        message = f"expression of type '{source.text}' cannot be range of a comprehension (must be list, map, or dynamic)"
        self.issues.report(node.iter_range.position, message)
        return ERROR, ERROR

    def _assert(self, node: Expr, expected: CelType) -> None:
        if not self.substitution.assign(expected, node.type):
            self._mismatch(node, expected, node.type)


def _rename(kind: CelType, names: dict[str, CelType]) -> CelType:
    if kind.kind == "param":
        return names[kind.name]
    if not kind.params:
        return kind
    return CelType(kind.kind, kind.name, tuple(_rename(inner, names) for inner in kind.params))


# --- assignability and type parameters ------------------------------------------------------------------------------------
#
# Assignability of types, and the binding of type parameters.
#
# A `Substitution` maps type parameters to their types. A successful test for assignability may bind parameters; a failed one
# changes nothing. The checker uses it.


_EXACT = frozenset({"bool", "bytes", "double", "int", "string", "uint", "duration", "timestamp", "struct"})
_NULLABLE = frozenset({"opaque", "struct", "any", "duration", "timestamp", "null"})
_COMPOSITE = frozenset({"opaque", "list", "map", "type"})


class Substitution:
    def __init__(self) -> None:
        self.known: dict[str, CelType] = {}

    def assign(self, wanted: CelType, given: CelType) -> bool:
        return self.assign_all([wanted], [given])

    def assign_all(self, left: list[CelType] | tuple[CelType, ...], right: list[CelType] | tuple[CelType, ...]) -> bool:
        before = dict(self.known)
        if len(left) == len(right) and all(self._fits(a, b) for a, b in zip(left, right, strict=True)):
            return True
        self.known = before
        return False

    def resolve(self, kind: CelType, to_dyn: bool = False) -> CelType:
        """`kind` with all known type parameters replaced; unknown ones become `dyn` if `to_dyn`."""
        while kind.kind == "param":
            found = self.known.get(kind.name)
            if found is None:
                return DYN if to_dyn else kind
            kind = found
        if not kind.params or kind.kind == "struct":
            return kind
        inner = tuple(self.resolve(param, to_dyn) for param in kind.params)
        if all(a is b for a, b in zip(inner, kind.params, strict=True)):
            return kind
        return CelType(kind.kind, kind.name, inner, kind.fields)

    def _fits(self, a: CelType, b: CelType) -> bool:
        if b.kind == "param":
            valid, bound = self._bind(a, b)
            if valid:
                return True
            if bound:
                return False
        if a.kind == "param":
            return self._bind(b, a)[0]
        if a.is_dyn or b.is_dyn or a.kind == "error" or b.kind == "error":
            return True
        if a.kind == "null":
            return b.kind in _NULLABLE
        if b.kind == "null":
            return a.kind in _NULLABLE
        if a.kind in _EXACT:
            return a.same(b)
        if a.kind == "type":
            return b.kind == "type"
        if a.kind in _COMPOSITE:
            if a.kind != b.kind or a.name != b.name or len(a.params) != len(b.params):
                return False
            return all(self._fits(x, y) for x, y in zip(a.params, b.params, strict=True))
        return False

    def _bind(self, kind: CelType, variable: CelType) -> tuple[bool, bool]:
        """True when `variable` may be `kind`, and true when it was bound before."""
        if kind.same(variable):
            return True, True
        known = self.known.get(variable.name)
        if known is not None:
            if kind.same(known):
                return True, True
            if self._fits(kind, known):
                general = most_general(kind, known)
                if self._absent(variable, general):
                    self.known[variable.name] = general
                return True, True
            return False, True
        if self._absent(variable, kind):
            self.known[variable.name] = kind
            return True, False
        return False, False

    def _absent(self, variable: CelType, within: CelType) -> bool:
        """True unless `within` contains `variable`: a type must not contain itself."""
        if variable.same(within):
            return False
        if within.kind == "param":
            known = self.known.get(within.name)
            return known is None or self._absent(variable, known)
        if within.kind in _COMPOSITE:
            return all(self._absent(variable, inner) for inner in within.params)
        return True


def most_general(a: CelType, b: CelType) -> CelType:
    return a if _less_specific(a, b) else b


def _less_specific(a: CelType, b: CelType) -> bool:
    if a.is_dyn or a.kind == "param":
        return True
    if b.is_dyn or b.kind == "param" or a.kind != b.kind:
        return False
    if a.kind == "type":
        return True
    if a.kind in ("opaque", "list", "map"):
        if a.name != b.name or len(a.params) != len(b.params):
            return False
        return all(_less_specific(x, y) for x, y in zip(a.params, b.params, strict=True))
    return a.same(b)
