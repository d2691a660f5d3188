"""Assignability of types, and the binding of type parameters.

A `Substitution` maps type parameters to their types. A successful test for assignability may bind parameters; a failed one
changes nothing. The checker uses it.
"""

from __future__ import annotations

from ..static_types import DYN, CelType

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
