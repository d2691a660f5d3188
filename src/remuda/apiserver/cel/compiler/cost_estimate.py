"""The worst-case cost of an expression for any data: the number that CRD admission compares with its limits.

Sizes come from the schema (`SchemaNode.max_elements`), from literals, and from the effect of operations on them. The rules
are Kubernetes' own, unit by unit, because the estimate decides which CRDs are accepted. Function estimates are in
`call_estimates`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..schema_types import SchemaNode
from ..static_types import CelType
from .call_costs import UNKNOWN, Range, fixed
from .call_estimates import CallEstimate, Operand, estimate_call
from .checker import TYPE_NAMES, qualified_name
from .syntax_tree import Call, Comprehension, Expr, Ident, ListExpr, Literal, MapExpr, Select

_Path = tuple[str, ...]
_SCALARS = frozenset({"bool", "double", "duration", "int", "timestamp", "uint"})
_ACCUMULATORS = ("@result", "__result__")


def estimate_cost(tree: Expr, root: SchemaNode | None) -> Range:
    return _Estimator(root).cost(tree)


class _Entries:
    """Known sizes of the entries of a list or map: of keys (or indexes) and of values."""

    __slots__ = ("container", "key", "value")

    def __init__(self, container: str, key: Range, value: Range) -> None:
        self.container = container
        self.key = key
        self.value = value

    def union(self, other: _Entries | None) -> _Entries | None:
        if other is None:
            return None
        return _Entries(self.container, self.key.union(other.key), self.value.union(other.value))


class _Local:
    __slots__ = ("entries", "path", "size")

    def __init__(self, path: _Path, size: Range | None, entries: _Entries | None) -> None:
        self.path = path
        self.size = size
        self.entries = entries


class _Estimator:
    def __init__(self, root: SchemaNode | None) -> None:
        self.root = root
        self.paths: dict[int, _Path] = {}
        self.sizes: dict[int, Range] = {}
        self.entries: dict[int, _Entries] = {}
        self.locals: dict[str, list[_Local]] = {}
        self.visit: dict[type, Callable[[Any], Range]] = {
            Literal: lambda node: fixed(0),
            Ident: self._ident,
            Select: self._select,
            Call: self._call,
            ListExpr: self._list,
            MapExpr: self._map,
            Comprehension: self._fold,
        }

    def cost(self, node: Expr) -> Range:
        return self.visit[node.__class__](node)

    # --- sizes and paths

    def _local(self, name: str) -> _Local | None:
        stack = self.locals.get(name)
        return stack[-1] if stack else None

    def _push(self, name: str, path: _Path, size: Range | None, entries: _Entries | None = None) -> None:
        self.locals.setdefault(name, []).append(_Local(path, size, entries))

    def _path(self, node: Expr) -> _Path:
        if isinstance(node, Ident):
            local = self._local(node.name)
            if local is not None:
                return local.path
        return self.paths.get(id(node), ())

    def _schema_size(self, path: _Path) -> Range | None:
        if not path or self.root is None:
            return None
        node: SchemaNode | None = self.root
        for step in path[1:]:
            if node is None:
                return None
            if step in ("@items", "@values"):
                node = node.element
            elif step == "@keys":
                # Keys of a map are plain strings: they have no bound, and cost nothing.
                return fixed(0) if node.kind == "map" else None
            else:
                found = node.fields.get(step) if node.kind == "object" else None
                node = found[1] if found is not None else None
        return Range(0, node.max_elements if node.kind != "object" else 0) if node is not None else None

    def size(self, node: Expr) -> Range | None:
        known = self.sizes.get(id(node))
        if known is not None:
            return known
        if isinstance(node, Literal):
            return fixed(len(node.value) if isinstance(node.value, str | bytes) else 1)
        if isinstance(node, ListExpr):
            return fixed(len(node.elements))
        if isinstance(node, MapExpr):
            return fixed(len(node.entries))
        from_schema = self._schema_size(self._path(node))
        if from_schema is not None:
            self.sizes[id(node)] = from_schema
            return from_schema
        if _is_scalar(node.type):
            return fixed(1)
        if isinstance(node, Ident):
            local = self._local(node.name)
            if local is not None:
                return local.size
        return None

    def size_or_unknown(self, node: Expr) -> Range:
        return self.size(node) or UNKNOWN

    def entry_sizes(self, node: Expr) -> _Entries | None:
        known = self.entries.get(id(node))
        if known is None and isinstance(node, Ident):
            local = self._local(node.name)
            return local.entries if local is not None else None
        return known

    def operand(self, node: Expr) -> Operand:
        path = self._path(node)
        if path and path[0] in _ACCUMULATORS:
            path = ()
        item = (*path, "@items") if path else ()
        return Operand(node, self.size(node), self._schema_size(path), self._schema_size(item))

    # --- nodes

    def _ident(self, node: Ident) -> Range:
        local = self._local(node.name)
        self.paths[id(node)] = local.path if local is not None else (node.name,)
        return fixed(1)

    def _select(self, node: Select) -> Range:
        name = qualified_name(node)
        if name in TYPE_NAMES and node.type.kind == "type":
            self.paths[id(node)] = (name,)
            return fixed(1)
        cost = self.cost(node.operand)
        if node.test_only:
            return cost
        if node.operand.type.kind in ("map", "struct", "param"):
            cost = cost.add(fixed(1))
        self.paths[id(node)] = (*self._path(node.operand), node.field_name)
        return cost

    def _call(self, node: Call) -> Range:
        if node.function == "dyn":
            cost = fixed(1).add(self.cost(node.args[0]))
            self._copy(node, node.args[0])
            return cost
        arg_costs = [self.cost(arg) for arg in node.args]
        args = [self.operand(arg) for arg in node.args]
        total = fixed(0)
        target: Operand | None = None
        if node.target is not None:
            total = self.cost(node.target)
            target = self.operand(node.target)
        call: Range | None = None
        result: Range | None = None
        for overload in node.overloads:
            estimate = self._overload(node, overload, target, args, arg_costs)
            call = estimate.cost if call is None else call.union(estimate.cost)
            if estimate.size is not None:
                result = estimate.size if result is None else result.union(estimate.size)
            if overload in ("index_list", "index_map"):
                entries = self.entry_sizes(node.args[0])
                result = entries.value if entries is not None else None
                step = "@items" if overload == "index_list" else "@values"
                self.paths[id(node)] = (*self._path(node.args[0]), step)
            if result is None:
                result = self.size(node)
        if result is not None:
            self.sizes[id(node)] = result
        return total.add(call) if call is not None else fixed(0)

    def _overload(
        self, node: Call, overload: str, target: Operand | None, args: list[Operand], arg_costs: list[Range]
    ) -> CallEstimate:
        if overload in ("logical_and", "logical_or"):
            return CallEstimate(Range(arg_costs[0].low, arg_costs[0].add(arg_costs[1]).high))
        if overload == "conditional":
            yes, no = node.args[1], node.args[2]
            entries = self.entry_sizes(yes)
            merged = entries.union(self.entry_sizes(no)) if entries is not None else None
            if merged is not None:
                self.entries[id(node)] = merged
            size = self.size_or_unknown(yes).union(self.size_or_unknown(no))
            return CallEstimate(arg_costs[0].add(arg_costs[1].union(arg_costs[2])), size)
        if overload in ("add_string", "add_bytes", "add_list"):
            entries = self.entry_sizes(node.args[0])
            merged = entries.union(self.entry_sizes(node.args[1])) if entries is not None else None
            if merged is not None:
                self.entries[id(node)] = merged
        estimate = estimate_call(node.function, overload, target, args)
        for cost in arg_costs:
            estimate = CallEstimate(estimate.cost.add(cost), estimate.size)
        return estimate

    def _copy(self, to: Expr, source: Expr) -> None:
        size = self.size(source)
        if size is not None:
            self.sizes[id(to)] = size
        entries = self.entry_sizes(source)
        if entries is not None:
            self.entries[id(to)] = entries

    def _list(self, node: ListExpr) -> Range:
        cost = fixed(0)
        items: Range | None = None
        for element in node.elements:
            cost = cost.add(self.cost(element))
            size = self.size_or_unknown(element)
            items = size if items is None else items.union(size)
        self.entries[id(node)] = _Entries("list", fixed(1), items or fixed(0))
        return cost.add(fixed(10))

    def _map(self, node: MapExpr) -> Range:
        cost = fixed(0)
        keys: Range | None = None
        values: Range | None = None
        for entry in node.entries:
            cost = cost.add(self.cost(entry.key)).add(self.cost(entry.value))
            key, value = self.size_or_unknown(entry.key), self.size_or_unknown(entry.value)
            keys = key if keys is None else keys.union(key)
            values = value if values is None else values.union(value)
        self.entries[id(node)] = _Entries("map", keys or fixed(0), values or fixed(0))
        return cost.add(fixed(30))

    def _fold(self, node: Comprehension) -> Range:
        cost = self.cost(node.iter_range).add(self.cost(node.accu_init))
        self._push(node.accu_var, self._path(node.accu_init), self.size(node.accu_init), self.entry_sizes(node.accu_init))
        if node.loop is None:
            cost = cost.add(self.cost(node.result))
            self._copy(node, node.result)
            self.locals[node.accu_var].pop()
            return cost
        self._push_iteration(node)
        step = self.cost(node.condition).add(self.cost(node.step))
        self.locals[node.iter_var].pop()
        if node.iter_var2 is not None:
            self.locals[node.iter_var2].pop()
        cost = cost.add(self.cost(node.result))
        self.locals[node.accu_var].pop()
        count = self.size_or_unknown(node.iter_range)
        cost = cost.add(count.times(step))
        if isinstance(node.accu_init, Literal):
            self.sizes[id(node)] = fixed(1)
        else:
            self.sizes[id(node)] = count
            entries = self.entry_sizes(node.step)
            if entries is not None:
                self.entries[id(node)] = entries
        return cost

    def _push_iteration(self, node: Comprehension) -> None:
        entries = self.entry_sizes(node.iter_range)
        path = self._path(node.iter_range)
        is_list = (entries.container if entries is not None else node.iter_range.type.kind) == "list"
        key = entries.key if entries is not None else None
        value = entries.value if entries is not None else None
        if node.iter_var2 is not None:
            self._push(node.iter_var, (*path, "@indices" if is_list else "@keys"), key)
            self._push(node.iter_var2, (*path, "@items" if is_list else "@values"), value)
        else:
            self._push(node.iter_var, (*path, "@items" if is_list else "@keys"), value if is_list else key)


def _is_scalar(kind: CelType) -> bool:
    if kind.is_optional:
        return _is_scalar(kind.params[0])
    return kind.kind in _SCALARS
