"""A compiled schema: decode, default and validate objects of one CRD version.

:func:`compile_schema` is cheap enough to call whenever a CRD changes; its parts are compiled at first use. Valid objects
are recognised by the quick checks of :mod:`.quick_checks`; all others go through the full modules, whose errors
match kube-apiserver's to the letter.
"""

from __future__ import annotations

from typing import Any

from remuda.kube.encoding.jsonio import copy
from remuda.kube.errors import FieldError, invalid_value

from ..limits import cost_budget
from . import list_types, metadata_coercion, pruning, validation
from .correlated_values import Correlated
from .node import MISSING, Node, Obj, Resolve, build
from .pruning import DecodeError
from .quick_checks import Check, ShapeChecks, ValueChecks

TOO_DEEP = "exceeded max depth"


def compile_schema(schema: Obj | None, *, resource: bool = True, resolve: Resolve | None = None) -> CompiledSchema:
    """`resource`: the schema is that of a whole object, whose apiVersion, kind and metadata are implied."""
    return CompiledSchema(schema if schema is not None else {}, resource, resolve)


class CompiledSchema:
    """Objects given to these methods are private to the caller and changed in place; `old` ones are only read."""

    def __init__(self, schema: Obj, resource: bool = True, resolve: Resolve | None = None) -> None:
        self.schema = schema
        self.resource = resource
        self.node: Node = build(schema, resolve)
        if resolve is None:
            prune_defaults(self.node, resource)
        self._shape: Check | None = None
        self._values: Check | None = None
        self._fill: pruning.Fill | None = None
        self._fill_made = False

    # --- decoding --------------------------------------------------------------------------------------------------

    def decode(self, obj: Obj, drop_invalid: bool = False) -> list[str]:
        """Process a body before defaulting: typed metadata, pruning, nulls, embedded resources.

        Returns the paths of unknown fields, in kube-apiserver's order; raises :class:`DecodeError`. With `drop_invalid`
        (objects from the store) broken metadata fields are dropped instead.
        """
        try:
            unknown: list[str] = []
            if self.resource and "metadata" in obj:
                try:
                    obj["metadata"], unknown = metadata_coercion.decode_meta(obj["metadata"], "metadata", drop_invalid)
                except metadata_coercion.MetaError as error:
                    raise DecodeError(str(error)) from None
            return unknown + self._clean(obj, drop_invalid)
        except RecursionError:
            raise DecodeError(TOO_DEEP) from None

    def _clean(self, obj: Obj, drop_invalid: bool) -> list[str]:
        if self._shape is None:
            checks = ShapeChecks()
            self._shape = checks.root(self.node) if self.resource else checks.of(self.node)
        if self._shape(obj):
            return []
        unknown: list[str] = []
        pruning.prune(obj, self.node, unknown, "", self.resource)
        pruning.drop_nulls(obj, self.node)
        pruning.settle_unknown(obj, self.node)
        unknown.sort()
        more: list[str] = []
        error = pruning.coerce(obj, self.node, more, "", drop_invalid)
        if error is not None:
            raise DecodeError(str(error))
        return unknown + sorted(more)

    def prune(self, obj: Obj) -> tuple[Obj, list[str]]:
        """Drop unknown fields only; the paths are sorted."""
        unknown: list[str] = []
        pruning.prune(obj, self.node, unknown, "", self.resource)
        return obj, sorted(unknown)

    def default(self, obj: Obj) -> None:
        if not self._fill_made:
            self._fill = pruning.filler(self.node)
            self._fill_made = True
        if self._fill is not None:
            with cost_budget.BOUNDED:
                self._fill(obj)

    # --- validation ------------------------------------------------------------------------------------------------

    def is_valid(self, value: Any) -> bool:
        """A quick answer: True is certain, False means that a full validation is needed."""
        with cost_budget.BOUNDED:
            if self._values is None:
                self._values = ValueChecks().of(self.node)
            try:
                return self._values(value)
            except RecursionError:
                return False

    def value_errors(self, value: Any, path: str = "", correlated: Correlated | None = None) -> list[FieldError]:
        try:
            with cost_budget.BOUNDED:
                return validation.errors_of(self.node, value, path, correlated)
        except RecursionError:
            return [invalid_value(path or validation.NO_PATH, "", TOO_DEEP)]

    def validate(self, value: Any, path: str = "") -> list[FieldError]:
        """Values, then embedded resources, then duplicates in lists."""
        if self.is_valid(value):
            return []
        errors = self.value_errors(value, path)
        return errors + self.structure_errors(value, path)

    def structure_errors(self, value: Any, path: str = "") -> list[FieldError]:
        try:
            return list_types.embedded_errors(value, self.node, path) + list_types.list_errors(value, self.node, path)
        except RecursionError:
            return []

    def list_errors(self, value: Any, path: str = "") -> list[FieldError]:
        return list_types.list_errors(value, self.node, path)

    def embedded_errors(self, value: Any, path: str = "") -> list[FieldError]:
        return list_types.embedded_errors(value, self.node, path)

    def correlate(self, value: Any, old: Any) -> Correlated:
        return Correlated(value, old, self.node)

    def validate_update(self, value: Any, old: Any, path: str = "") -> list[FieldError]:
        """As :meth:`validate`, but errors in unchanged values are ignored."""
        if self.is_valid(value):
            return []
        errors = self.value_errors(value, path, self.correlate(value, old))
        errors += list_types.embedded_errors(value, self.node, path)
        if not list_types.list_errors(old, self.node, path):
            errors += list_types.list_errors(value, self.node, path)
        return errors

    @staticmethod
    def settle(obj: Obj) -> None:
        """Last step before storing an object that is valid, but not by the quick answer: whole floats become integers."""
        pruning.settle_numbers(obj)

    def admit(self, obj: Obj) -> tuple[list[str], list[FieldError]]:
        """Decode, default and validate in one go: the unknown fields and the errors."""
        unknown = self.decode(obj)
        self.default(obj)
        if self.is_valid(obj):
            return unknown, []
        errors = self.validate(obj)
        if not errors:
            self.settle(obj)
        return unknown, errors


# --- defaults -------------------------------------------------------------------------------------------------------------
#
# Defaults are pruned once, with the schema they are in, so that filling them in never adds an unknown field.


def prune_defaults(node: Node, resource: bool) -> None:
    """Drop unknown fields from every default below `node`. Only for a private tree of nodes."""
    stack: list[Node | None] = [node]
    while stack:
        current = stack.pop()
        if current is None:
            continue
        if type(current.default) in (dict, list):
            current.default = pruned(current)
        stack += current.properties.values()
        stack += (current.items, current.additional)


def pruned(node: Node) -> Any:
    """The node's default without fields that the node does not specify."""
    if node.default is MISSING:
        return MISSING
    value = copy(node.default)
    unknown: list[str] = []
    pruning.prune(value, node, unknown, "", node.embedded)
    pruning.coerce(value, node, unknown, "", drop_invalid=True)
    return value
