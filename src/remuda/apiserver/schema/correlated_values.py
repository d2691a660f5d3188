"""Correlation of a new object's parts with those of the old one, and whether they changed.

An update may keep old errors: those in unchanged parts do not count. Maps and properties
correspond by key, items of a list only when its list-type is `map`.
"""

from __future__ import annotations

from typing import Any

from remuda.kube.encoding.jsonio import dumps_sorted

from .node import Node


class Correlated:
    """A value, its old value, and the schema of both."""

    __slots__ = ("_by_key", "_children", "_unchanged", "node", "old", "value")

    def __init__(self, value: Any, old: Any, node: Node) -> None:
        self.value = value
        self.old = old
        self.node = node
        self._children: dict[Any, Correlated | None] = {}
        self._unchanged: bool | None = None
        self._by_key: dict[Any, Any] | None = None

    def key(self, name: str) -> Correlated | None:
        if name in self._children:
            return self._children[name]
        found: Correlated | None = None
        if type(self.value) is dict and type(self.old) is dict and name in self.value and name in self.old:
            sub = self.node.properties.get(name) or self.node.additional
            if sub is not None:
                found = Correlated(self.value[name], self.old[name], sub)
        self._children[name] = found
        return found

    def index(self, position: int) -> Correlated | None:
        if position in self._children:
            return self._children[position]
        found: Correlated | None = None
        old = self._old_item(position)
        if old is not None and self.node.items is not None:
            found = Correlated(self.value[position], old, self.node.items)
        self._children[position] = found
        return found

    def _old_item(self, position: int) -> Any:
        if type(self.old) is not list or type(self.value) is not list or self.node.list_type != "map":
            return None
        if self._by_key is None:
            self._by_key = {}
            if self.node.type == "array" and self.node.map_keys:
                for item in self.old:
                    identity = self._identity(item)
                    if identity is not None:
                        self._by_key.setdefault(identity, item)
        identity = self._identity(self.value[position])
        return None if identity is None else self._by_key.get(identity)

    def _identity(self, item: Any) -> tuple[Any, ...] | None:
        if type(item) is not dict:
            return None
        parts: list[Any] = []
        for name in self.node.map_keys:
            part = item.get(name)
            if type(part) not in (bool, int, float, str):
                return None
            # True equals 1 in Python, not in Go.
            parts.append((type(part) is bool, part))
        return tuple(parts)

    def unchanged(self) -> bool:
        if self._unchanged is None:
            self._unchanged = self._compare()
        return self._unchanged

    def _compare(self) -> bool:
        value, old = self.value, self.old
        if value is None or old is None:
            return value is old
        if type(value) is not type(old):
            return False
        if type(value) is list:
            return len(value) == len(old) and self._same_items()
        if type(value) is dict:
            return len(value) == len(old) and all((child := self.key(name)) is not None and child.unchanged() for name in value)
        return bool(value == old)

    def _same_items(self) -> bool:
        """A list of type map may be in another order; any other list must be identical."""
        if self.node.list_type != "map":
            # Python takes True for 1; JSON texts do not.
            return bool(self.value == self.old) and dumps_sorted(self.value) == dumps_sorted(self.old)
        return all((child := self.index(at)) is not None and child.unchanged() for at in range(len(self.value)))
