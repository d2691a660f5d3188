"""Patch strategy in a built-in's schema: merge or replace, and the merge key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .typed import Resolve, reference


class PatchError(Exception):
    """A patch that cannot be applied, in apimachinery's words."""


class PatchMeta(NamedTuple):
    strategy: str
    merge_key: str


class Lookup:
    """A place in a schema."""

    __slots__ = ("_name", "_resolve", "_schema")

    def __init__(self, schema: Mapping[str, Any], resolve: Resolve, name: str = "") -> None:
        name = reference(schema) or name
        self._name = name
        self._resolve = resolve
        self._schema = resolve(reference(schema)) if reference(schema) else schema

    @property
    def kind(self) -> str:
        """Go's name for the kind of this type, as in errors."""
        if self._schema.get("type") == "array":
            return "slice"
        return "struct" if self._schema.get("properties") else "map" if self._is_object else "string"

    @property
    def _is_object(self) -> bool:
        return bool(self._schema.get("type", "object") == "object")

    def struct(self, key: str) -> tuple[Lookup, PatchMeta]:
        """The field `key` of this struct."""
        field = self._field(key)
        return Lookup(field, self._resolve), _meta(field)

    def items(self, key: str) -> tuple[Lookup, PatchMeta]:
        """The items of the list field `key` of this struct."""
        field = self._field(key)
        items = field.get("items")
        if not isinstance(items, Mapping):
            raise PatchError(f"expected slice or array type, but got: {self.kind}")
        return Lookup(items, self._resolve), _meta(field)

    def _field(self, key: str) -> Mapping[str, Any]:
        properties: Mapping[str, Any] | None = self._schema.get("properties")
        if not properties:
            kind = self.kind
            raise PatchError(f"merging an object in json but data type is not struct, instead is: {kind}")
        found: Mapping[str, Any] | None = properties.get(key)
        if found is None:
            folded = key.casefold()
            found = next((field for name, field in properties.items() if name.casefold() == folded), None)
        if found is None:
            name = self._name.rpartition(".")[2]
            raise PatchError(f'unable to find api field in struct {name} for the json field "{key}"')
        return found


def _meta(field: Mapping[str, Any]) -> PatchMeta:
    strategies = str(field.get("x-kubernetes-patch-strategy") or "").split(",")
    if len(strategies) > 2 or (len(strategies) == 2 and "retainKeys" not in strategies):
        raise PatchError(f"unexpected patch strategy: [{' '.join(strategies)}]")
    kept = [strategy for strategy in strategies if strategy != "retainKeys"]
    return PatchMeta(kept[0] if kept else "", str(field.get("x-kubernetes-patch-merge-key") or ""))
