"""Types that say how an object's parts are owned: compiled once from an OpenAPI schema, walked on every write.

A type allows any of scalar, list and map. A map is granular (each member has its own owner) or atomic; a list is atomic,
a set of scalars, or a map of items by key fields. What a schema does not define is *deduced*: maps granular, lists atomic.
The rules are those of structured-merge-diff and of its conversion from OpenAPI.

:mod:`.compare` and :mod:`.merging` walk values with these types; :mod:`.field_set` has the sets they make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from remuda.kube.encoding import go_format
from remuda.kube.errors import go_quote

from .field_set import element_text, key_element, scalar_text, value_element

Resolve = Callable[[str], Mapping[str, Any]]

OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_RAW_EXTENSION = "io.k8s.apimachinery.pkg.runtime.RawExtension"
_FIELDS_V1 = "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1"

ABSENT: Any = object()
_SCALARS = frozenset((str, int, float, bool))
# The Python types that a scalar may have. Most values are such scalars: the walks check for them before they recurse.
EXPECTED: dict[str, frozenset[type]] = {
    "": frozenset(),
    "string": frozenset((str,)),
    "numeric": frozenset((int, float)),
    "boolean": frozenset((bool,)),
    "untyped": _SCALARS,
}


class TypedError(Exception):
    """Values that do not fit their type; the text is upstream's."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        self.problems = problems
        lines = [f"{path}: {text}" if path else text for path, text in problems]
        super().__init__(lines[0] if len(lines) == 1 else "\n  ".join(["errors:", *lines]))


class ListType:
    """`atomic`, or associative: by `keys`, or (without keys) a set of scalars."""

    __slots__ = ("atomic", "element", "keys", "single", "wrap")

    def __init__(self, element: Type, atomic: bool = True, keys: tuple[str, ...] = ()) -> None:
        self.element = element
        self.atomic = atomic
        self.keys = keys
        self.single = keys[0] if len(keys) == 1 else ""
        self.wrap = f"k:{{{scalar_text(self.single)}:" if self.single else ""

    def element_of(self, item: Any) -> str:
        """The path element of an item. Raises ValueError."""
        if not self.keys:
            if type(item) in _SCALARS:
                return value_element(item)
            raise ValueError(_no_set_element(item))
        if type(item) is not dict:
            what = "a null element" if item is None else "non-map elements"
            raise ValueError(f"associative list with keys may not have {what}")
        if self.single:
            value = item.get(self.single, ABSENT)
            if value is not ABSENT:
                return f"{self.wrap}{scalar_text(value)}}}"
        found = []
        for name in self.keys:
            value = item.get(name, ABSENT)
            if value is ABSENT:
                value = self._default(name)
            if value is not None or name in item:
                found.append((name, value))
        if not found:
            names = " ".join(go_quote(name) for name in self.keys)
            raise ValueError(
                f"associative list with keys has an element that omits all key fields [{names}] "
                "(and doesn't have default values for any key fields)"
            )
        return key_element(found)

    def _default(self, name: str) -> Any:
        if self.element.map is None:
            raise ValueError(f"couldn't find default value for {name}: associative list may not have non-map types")
        return self.element.map.defaults.get(name)


def _no_set_element(item: Any) -> str:
    if isinstance(item, dict):
        return "associative list without keys has an element that's a map type"
    if isinstance(item, list):
        return "not supported: associative list with lists as elements"
    return "associative list without keys has an element that's an explicit null"


class MapType:
    """Named fields, and the type of all others (None: no others are allowed)."""

    __slots__ = ("atomic", "defaults", "element", "fields", "untyped")

    def __init__(self, fields: dict[str, Type], element: Type | None, atomic: bool = False) -> None:
        self.fields = fields
        self.element = element
        self.atomic = atomic
        self.defaults: dict[str, Any] = {}
        self.untyped = False

    def with_relation(self, atomic: bool) -> MapType:
        made = MapType(self.fields, self.element, atomic)
        made.defaults = self.defaults
        made.untyped = self.untyped
        return made

    def member(self, name: str) -> Type | None:
        return self.fields.get(name, self.element)


class Type:
    """The allowed forms of a value; at least one of the three is set."""

    __slots__ = ("list", "loose", "map", "scalar")

    def __init__(self, scalar: str = "", list_: ListType | None = None, map_: MapType | None = None) -> None:
        self.scalar = scalar
        self.list = list_
        self.map = map_
        # True when something in it is deduced, so that a boolean may stand where a number stood before.
        self.loose = False


MAP, SCALAR, LIST = 1, 2, 3


def kind_for(type_: Type, value: Any) -> int:
    """The alternative of the type that applies to a value."""
    kind = type(value)
    if kind is dict:
        if type_.map is not None:
            return MAP
    elif kind is list:
        if type_.list is not None:
            return LIST
    elif kind in _SCALARS and type_.scalar:
        return SCALAR
    if type_.map is not None:
        return MAP
    return SCALAR if type_.scalar else LIST


def scalar_problem(scalar: str, value: Any) -> str:
    """The reason why a value is not such a scalar, or ""."""
    if value is None:
        return ""
    kind = type(value)
    if scalar == "string":
        return "" if kind is str else f"expected string, got &{_shown_struct(value)}"
    if scalar == "numeric":
        return "" if kind is int or kind is float else f"expected numeric (int or float), got {go_format.type_name(value)}"
    if scalar == "boolean":
        return "" if kind is bool else f"expected boolean, got {_shown(value)}"
    return "" if kind in _SCALARS else f"expected any scalar, got {_shown(value)}"


def _shown(value: Any) -> str:
    return "&{" + go_format.shown(value) + "}"


def _shown_struct(value: Any) -> str:
    return f"value.valueUnstructured{{Value:{_go_syntax(value)}}}"


def _go_syntax(value: Any) -> str:
    """A value as Go's %#v prints it."""
    if value is None:
        return "interface {}(nil)"
    if isinstance(value, str):
        return go_quote(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        inner = ", ".join(f"{go_quote(key)}:{_go_syntax(value[key])}" for key in sorted(value))
        return "map[string]interface {}{" + inner + "}"
    if isinstance(value, list):
        return "[]interface {}{" + ", ".join(map(_go_syntax, value)) + "}"
    return str(value)


# ---------------------------------------------------------------------------------------------------------------------
# Deduced types


def _make_deduced() -> tuple[Type, Type]:
    atomic = Type("untyped")
    atomic.list = ListType(atomic)
    atomic.map = MapType({}, atomic, atomic=True)
    deduced = Type("untyped")
    deduced.list = ListType(atomic)
    deduced.map = MapType({}, deduced)
    deduced.map.untyped = True
    atomic.loose = deduced.loose = True
    return atomic, deduced


def _make_field_sets() -> Type:
    """A field set inside managedFields: maps of maps. Not loose, or every type that contains metadata would be."""
    made = Type()
    made.map = MapType({}, made)
    return made


UNTYPED_ATOMIC, DEDUCED = _make_deduced()
_KNOWN = {_QUANTITY: Type("untyped"), _RAW_EXTENSION: UNTYPED_ATOMIC, _FIELDS_V1: _make_field_sets()}


# ---------------------------------------------------------------------------------------------------------------------
# From OpenAPI


class Compiler:
    """Compiles schemas to types; each named schema once, so that recursion ends."""

    def __init__(self, resolve: Resolve | None) -> None:
        self._resolve = resolve
        self._named: dict[str, Type] = {}
        self._relations: list[tuple[Type, Type, bool]] = []
        self._made: list[Type] = []

    def compile(self, schema: Mapping[str, Any]) -> Type:
        """The type of an object with this schema; metadata is always the one that all objects have."""
        root = dict(schema)
        metadata = (root.get("properties") or {}).get("metadata")
        if metadata is None or not reference(metadata):
            root["properties"] = {**(root.get("properties") or {}), **self._own_properties()}
        made = self._inline(root, False)
        for target, base, atomic in self._relations:
            _take_relation(target, base, atomic)
        _mark_loose(self._made)
        return made

    def _own_properties(self) -> dict[str, Any]:
        properties: dict[str, Any] = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
        try:
            if self._resolve is not None:
                self._resolve(OBJECT_META)
                properties["metadata"] = {"$ref": f"#/components/schemas/{OBJECT_META}"}
        except KeyError:
            pass
        return properties

    def _type(self, schema: Mapping[str, Any], preserve: bool) -> Type:
        name = reference(schema)
        if not name:
            return self._inline(schema, preserve)
        base = self._reference(name)
        relation = schema.get("x-kubernetes-map-type")
        if relation is None:
            return base
        made = Type()
        self._made.append(made)
        self._relations.append((made, base, relation == "atomic"))
        return made

    def _reference(self, name: str) -> Type:
        found = self._named.get(name)
        if found is not None:
            return found
        known = _KNOWN.get(name)
        if known is not None:
            return known
        made = self._named[name] = Type()
        assert self._resolve is not None
        self._fill(made, self._resolve(name), False)
        return made

    def _inline(self, schema: Mapping[str, Any], preserve: bool) -> Type:
        made = Type()
        self._fill(made, schema, preserve)
        return made

    def _fill(self, made: Type, schema: Mapping[str, Any], preserve: bool) -> None:
        self._made.append(made)
        preserve = preserve or schema.get("x-kubernetes-preserve-unknown-fields") is True
        kind = schema.get("type") or ""
        if kind == "object":
            made.map = self._map(schema, preserve)
        elif kind == "array":
            made.list = self._list(schema, preserve)
        elif kind in ("integer", "number"):
            made.scalar = "numeric"
        elif kind == "boolean":
            made.scalar = "boolean"
        elif kind == "string":
            made.scalar = "string" if schema.get("format", "") in ("", "byte") else "untyped"
        else:
            made.scalar = "untyped"
            made.list = self._list(schema, preserve)
            made.map = self._map(schema, preserve)
        if schema.get("x-kubernetes-embedded-resource") is True and made.map is not None:
            for name, own in self._own_properties().items():
                made.map.fields[name] = self._type(own, False)

    def _map(self, schema: Mapping[str, Any], preserve: bool) -> MapType:
        properties: Mapping[str, Any] = schema.get("properties") or {}
        fields = {name: self._type(member, preserve) for name, member in properties.items()}
        additional = schema.get("additionalProperties")
        element: Type | None
        if isinstance(additional, Mapping):
            element = self._type(additional, preserve)
        elif additional is True or (additional is None and (preserve or not properties)):
            element = DEDUCED
        else:
            element = None
        made = MapType(fields, element, schema.get("x-kubernetes-map-type") == "atomic")
        made.untyped = not fields and element is DEDUCED
        made.defaults = {name: member["default"] for name, member in properties.items() if member.get("default") is not None}
        return made

    def _list(self, schema: Mapping[str, Any], preserve: bool) -> ListType:
        items = schema.get("items")
        element = self._type(items, preserve) if isinstance(items, Mapping) else UNTYPED_ATOMIC
        relation = schema.get("x-kubernetes-list-type")
        if relation is not None:
            keys = tuple(schema.get("x-kubernetes-list-map-keys") or ()) if relation == "map" else ()
            return ListType(element, relation not in ("set", "map") or (relation == "map" and not keys), keys)
        if schema.get("x-kubernetes-patch-strategy") in ("merge", "merge,retainKeys"):
            key = schema.get("x-kubernetes-patch-merge-key")
            return ListType(element, False, (key,) if key else ())
        return ListType(element)


def _take_relation(target: Type, base: Type, atomic: bool) -> None:
    """`target` becomes `base` with another relation between its members, as a reference may override it."""
    target.scalar, target.list, target.map = base.scalar, base.list, base.map
    if base.map is not None:
        target.map = base.map.with_relation(atomic)
    elif base.list is not None:
        target.list = ListType(base.list.element, atomic, base.list.keys)


def _mark_loose(types: Iterable[Type]) -> None:
    """A type is loose when a deduced one can be reached from it."""
    pending = list(types)
    changed = True
    while changed:
        changed = False
        for type_ in pending:
            if not type_.loose and any(child.loose for child in _children(type_)):
                type_.loose = changed = True


def _children(type_: Type) -> Iterable[Type]:
    # An alternative that only an invalid value would take does not count: int-or-string is not a list.
    if type_.map is not None and not (type_.scalar and not type_.map.fields):
        yield from type_.map.fields.values()
        if type_.map.element is not None:
            yield type_.map.element
    if type_.list is not None and not type_.scalar:
        yield type_.list.element


def reference(schema: Mapping[str, Any]) -> str:
    """The name that a schema refers to, or ""."""
    target = schema.get("$ref")
    if not target:
        wrapped = schema.get("allOf")
        if not isinstance(wrapped, list) or len(wrapped) != 1:
            return ""
        target = wrapped[0].get("$ref")
    return str(target).rpartition("/")[2] if target else ""


def compile_type(schema: Mapping[str, Any] | None, resolve: Resolve | None) -> Type:
    """The type of objects with this schema; deduced when there is none."""
    return DEDUCED if schema is None else Compiler(resolve).compile(schema)


# ---------------------------------------------------------------------------------------------------------------------
# Validation


_Problems = list[tuple[str, str]]


def validate(type_: Type, value: Any, allow_duplicates: bool = False) -> None:
    """Raise TypedError when the value does not fit."""
    if problems := _validate(type_, value, allow_duplicates):
        raise TypedError(problems)


def _validate(type_: Type, value: Any, duplicates: bool) -> _Problems | None:
    """Problems with their paths below the value; paths are built on the way back, since problems are rare."""
    kind = kind_for(type_, value)
    if kind == SCALAR:
        problem = scalar_problem(type_.scalar, value)
        return [("", problem)] if problem else None
    if value is None:
        return None
    if kind == MAP:
        if type(value) is not dict:
            return [("", f"expected map, got {_shown(value)}")]
        assert type_.map is not None
        return _validate_map(type_.map, value, duplicates)
    if type(value) is not list:
        return [("", f"expected list, got {_shown(value)}")]
    assert type_.list is not None
    return _validate_list(type_.list, value, duplicates)


def _validate_map(map_: MapType, value: dict[str, Any], duplicates: bool) -> _Problems | None:
    problems: _Problems | None = None
    fields, element = map_.fields, map_.element
    for name, child in value.items():
        member = fields.get(name, element)
        if member is None:
            return [*(problems or ()), (f".{name}", "field not declared in schema")]
        if type(child) in EXPECTED[member.scalar]:
            continue
        found = _validate(member, child, duplicates)
        if found is not None:
            problems = [*(problems or ()), *((f".{name}{path}", text) for path, text in found)]
    return problems


def _validate_list(list_: ListType, value: list[Any], duplicates: bool) -> _Problems | None:
    problems: _Problems = []
    seen: set[str] = set()
    for index, item in enumerate(value):
        element = ""
        if not list_.atomic:
            try:
                element = list_.element_of(item)
            except ValueError as error:
                problems.append(("", f"element {index}: {error}"))
                break
            if element in seen and not duplicates:
                problems.append(("", f"duplicate entries for key {element_text(element)}"))
            seen.add(element)
        found = _validate(list_.element, item, duplicates)
        if found is not None:
            shown = f"[{index}]" if list_.atomic else element_text(element)
            problems.extend((shown + path, text) for path, text in found)
    return problems or None
