"""The words our API types are written in, and the structural OpenAPI v3 schema that they make.

A type is a TypedDict; what a client may send is said beside each field, with `Annotated`:

    @rules(MinProperties(1))
    class Rollout(TypedDict, total=False):
        '''How Machines are replaced.'''
        after: Annotated[Time, Doc("Machines made before this moment are replaced.")]
        type: Required[Annotated[Literal["RollingUpdate", "OnDelete"], Doc("The strategy.")]]
        maxSurge: Annotated[IntOrString, Doc("How many may exist beyond the wanted number.")]
        hooks: Annotated[list[Hook], Doc("What to call."), Items(1, 32), ListMap("name")]

The shape comes from the Python type: `str`, `bool`, `int`, `float`, `Literal` (an enum), `list`, `dict[str, …]`, a TypedDict,
`… | None` (nullable), `int | str` (int-or-string), `Any` (anything at all). A field that has no `Doc` is described by its type's
docstring. Words of a list's items stand with the item: `list[Annotated[str, Length(1, 63)]]`. Rules in a class's :func:`rules`
hold wherever the class is used; a class that extends it does not inherit them. A field that names another object says so with
:class:`Names`; that adds nothing to the schema, and :func:`naming_fields` lists those fields. A field that is accepted and not
used has :class:`NoEffect` in place of its Doc, and :func:`fields_without_effect` lists those.

Schemas are built on first use. :mod:`.crd` makes whole CustomResourceDefinitions of these schemas.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired, Required, TypedDict, TypeVar, Union, get_args, get_origin, get_type_hints
from typing import is_typeddict as _is_typed_dict

Obj = dict[str, Any]
_T = TypeVar("_T")
_RULES = "__schema_rules__"


@dataclass(frozen=True, slots=True)
class Rule:
    """The part of a schema that one annotation adds, given the schema so far."""

    add: Callable[[Obj], None]


def _sets(**keywords: Any) -> Rule:
    return Rule(lambda schema: schema.update({name: value for name, value in keywords.items() if value is not None}))


# ---- the words


def Doc(text: str) -> Rule:
    """The description in `kubectl explain`."""
    return _sets(description=text)


def Length(least: int | None = None, most: int | None = None) -> Rule:
    return _sets(minLength=least, maxLength=most)


def Items(least: int | None = None, most: int | None = None) -> Rule:
    """The number of items that a list may have."""
    return _sets(minItems=least, maxItems=most)


def Between(least: float | None = None, most: float | None = None) -> Rule:
    """Both ends are allowed."""
    return _sets(minimum=least, maximum=most)


def AtLeast(least: float) -> Rule:
    return Between(least)


def MinProperties(least: int) -> Rule:
    return _sets(minProperties=least)


def Pattern(regex: str) -> Rule:
    """A regular expression in Go's syntax, found anywhere: anchor it."""
    return _sets(pattern=regex)


def Format(name: str) -> Rule:
    return _sets(format=name)


def Default(value: Any) -> Rule:
    """The default that the API server sets when the field is missing."""
    return Rule(lambda schema: schema.update(default=deepcopy(value)))


def Cel(rule: str, message: str = "", *, message_expression: str = "", field_path: str = "", reason: str = "") -> Rule:
    """A rule in CEL on `self` (and `oldSelf`); may be given several times."""
    said = {"message": message, "messageExpression": message_expression, "fieldPath": field_path, "reason": reason}
    made = {"rule": rule} | {name: value for name, value in said.items() if value}
    return Rule(lambda schema: schema.setdefault("x-kubernetes-validations", []).append(dict(made)))


def ListMap(*keys: str) -> Rule:
    """The list is merged by these fields of its items, which together are unique."""
    return Rule(lambda schema: schema.update({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}))


def Atomic() -> Rule:
    """The list or object is owned and replaced as a whole."""
    return Rule(_make_atomic)


def Preserve() -> Rule:
    """Fields that are not described stay instead of being pruned."""
    return Rule(lambda schema: schema.update({"x-kubernetes-preserve-unknown-fields": True}))


class Form(Enum):
    """A reference from a field to an object."""

    NAME = "name"  # in the namespace of the object that has the field
    CREDENTIAL = "cattle-global-data:name"  # or, without that namespace, as NAME
    SCOPED = "namespace:name"  # or, without a namespace, as NAME
    URL = "secret://namespace:name"  # anything else names nothing
    OBJECT = "apiVersion, kind and name"


@dataclass(frozen=True, slots=True)
class Names:
    """Marks a field whose value names another object: a right to that object is asked for before it is used.

    With `key` it is the entry of that name in the field's value. With `Form.OBJECT` the value says itself of which kind it is;
    `group` is then what holds without an apiVersion.
    """

    group: str
    resource: str
    form: Form = Form.NAME
    key: str = ""


@dataclass(frozen=True, slots=True)
class NoEffect:
    """Marks a field that is accepted and not used, so that other servers' objects are; a user is told why."""

    why: str

    def add(self, schema: Obj) -> None:
        schema["description"] = f"Of no effect: {self.why}."


def rules(*words: Rule) -> Callable[[_T], _T]:
    """Words that hold for a TypedDict wherever it is used."""

    def decorate(cls: _T) -> _T:
        setattr(cls, _RULES, words)
        return cls

    return decorate


def _make_atomic(schema: Obj) -> None:
    schema["x-kubernetes-list-type" if schema.get("type") == "array" else "x-kubernetes-map-type"] = "atomic"


# ---- types that every group needs

Int32 = Annotated[int, Format("int32")]
Int64 = Annotated[int, Format("int64")]
Time = Annotated[str, Format("date-time")]
Duration = str  # Go's notation, such as "10m0s"
IntOrString = int | str


class Object(TypedDict, total=False):
    """The fields of every kind. The API server knows the rest of metadata, so a schema leaves it out."""

    apiVersion: str
    kind: str
    metadata: Obj


_OBJECT_FIELDS: dict[str, Obj] = {
    "apiVersion": {"type": "string", "description": "The version of the schema that this object is written in: group/version."},
    "kind": {"type": "string", "description": "The kind of this object."},
    "metadata": {"type": "object"},
}


# ---- from types to schemas


class SchemaError(TypeError):
    """A type that has no schema."""


def object_schema(cls: type) -> Obj:
    """The schema of a whole object, as a CRD's version wants it. Each call makes a new one, which the caller may change."""
    schema = schema_of(cls)
    schema["properties"] |= {name: dict(field) for name, field in _OBJECT_FIELDS.items()}
    schema["properties"] = dict(sorted(schema["properties"].items()))
    return schema


def schema_of(hint: Any) -> Obj:
    """The schema of a type. Each call makes a new one, which the caller may change."""
    kind, words = _unwrapped(hint)
    schema = _shape(kind)
    for word in (*vars(kind).get(_RULES, ()), *words) if _is_typed_dict(kind) else words:
        word.add(schema)
    return schema


def _unwrapped(hint: Any) -> tuple[Any, tuple[Rule | NoEffect, ...]]:
    """The bare type, and the words beside it from the innermost out, so that what stands nearest to the field wins."""
    if get_origin(hint) is Annotated:
        kind, *metadata = get_args(hint)
        return kind, tuple(word for word in metadata if isinstance(word, (Rule, NoEffect)))
    if get_origin(hint) in (Required, NotRequired):
        return _unwrapped(get_args(hint)[0])
    return hint, ()


_SCALARS: dict[Any, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}


def _shape(kind: Any) -> Obj:
    if kind is Any:
        return {"x-kubernetes-preserve-unknown-fields": True}
    if kind in _SCALARS:
        return {"type": _SCALARS[kind]}
    if _is_typed_dict(kind):
        return _typed_dict(kind)
    match get_origin(kind):
        case origin if origin is Literal:
            return _enum(get_args(kind))
        case origin if origin is list:
            return {"type": "array", "items": schema_of(get_args(kind)[0])}
        case origin if origin is dict:
            return _map(*get_args(kind))
        case origin if origin in (UnionType, Union):
            return _union(get_args(kind))
    raise SchemaError(f"{kind!r} has no schema: see what remuda.api.schema says a type may be")


def _enum(values: tuple[Any, ...]) -> Obj:
    kinds = {type(value) for value in values}
    if len(kinds) != 1 or not kinds <= _SCALARS.keys():
        raise SchemaError(f"the values {values!r} are not of one scalar type")
    return {"type": _SCALARS[kinds.pop()], "enum": list(values)}


def _map(key: Any, value: Any) -> Obj:
    if _unwrapped(key)[0] is not str:
        raise SchemaError(f"a map with keys of {key!r} is not JSON")
    if value is Any:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {"type": "object", "additionalProperties": schema_of(value)}


def _union(kinds: tuple[Any, ...]) -> Obj:
    some = tuple(kind for kind in kinds if kind is not NoneType)
    if set(some) == {int, str}:
        schema: Obj = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
    elif len(some) == 1:
        schema = schema_of(some[0])
    else:
        raise SchemaError(f"{' | '.join(map(repr, kinds))} has no structural schema")
    return schema | {"nullable": True} if len(some) < len(kinds) else schema


def _typed_dict(cls: Any) -> Obj:
    schema: Obj = {"type": "object"}
    if text := inspect.cleandoc(vars(cls).get("__doc__") or ""):
        schema["description"] = " ".join(text.split())
    fields, required = _fields(cls)
    schema["properties"] = {name: schema_of(hint) for name, hint in fields}
    if required:
        schema["required"] = list(required)
    return schema


@cache
def _fields(cls: Any) -> tuple[tuple[tuple[str, Any], ...], tuple[str, ...]]:
    """A TypedDict's fields and which of them are required, by name; finding out what the annotations mean is slow."""
    hints = get_type_hints(cls, include_extras=True)
    fields = tuple(sorted(hints.items()))
    required = tuple(name for name, hint in fields if _is_required(cls, name, hint))
    return fields, required


def _is_required(cls: Any, name: str, hint: Any) -> bool:
    # `__required_keys__` alone won't do: it can't look into annotations that are strings.
    if get_origin(hint) in (Required, NotRequired):
        return get_origin(hint) is Required
    return name in cls.__required_keys__


# ---- fields that are marked

# In the path of a field: every item of a list, every entry of a map.
EACH, ENTRY = "[]", "{}"

_Path = tuple[str, ...]


@cache
def naming_fields(hint: Any) -> tuple[tuple[_Path, Names], ...]:
    """The fields of a type, however deep, that are marked with :class:`Names`: their paths and marks."""
    return tuple(((*path, mark.key) if mark.key else path, mark) for path, mark in _marked(hint, ()) if isinstance(mark, Names))


@cache
def fields_without_effect(hint: Any) -> tuple[tuple[_Path, str], ...]:
    """The fields of a type, however deep, that are marked with :class:`NoEffect`: their paths and reasons."""
    return tuple((path, mark.why) for path, mark in _marked(hint, ()) if isinstance(mark, NoEffect))


def _marked(hint: Any, path: _Path) -> Iterator[tuple[_Path, Names | NoEffect]]:
    if get_origin(hint) in (Required, NotRequired):
        yield from _marked(get_args(hint)[0], path)
    elif get_origin(hint) is Annotated:
        kind, *metadata = get_args(hint)
        yield from ((path, mark) for mark in metadata if isinstance(mark, (Names, NoEffect)))
        yield from _marked(kind, path)
    elif _is_typed_dict(hint):
        for name, field in _fields(hint)[0]:
            yield from _marked(field, (*path, name))
    elif get_origin(hint) is list:
        yield from _marked(get_args(hint)[0], (*path, EACH))
    elif get_origin(hint) is dict:
        yield from _marked(get_args(hint)[1], (*path, ENTRY))
    elif get_origin(hint) in (UnionType, Union):
        for each in get_args(hint):
            yield from _marked(each, path)


def values_at(value: Any, parts: _Path, place: str, path: str) -> Iterator[tuple[str, str, Any]]:
    """The values of a field in `value`: its place in the type, its path with indices, and the value (None if it is not set)."""
    if not parts:
        yield place, path, value
        return
    first, rest = parts[0], parts[1:]
    if first == EACH:
        for index, item in enumerate(value if isinstance(value, list) else ()):
            yield from values_at(item, rest, f"{place}[]", f"{path}[{index}]")
    elif isinstance(value, dict):
        for name in value if first == ENTRY else (first,):
            step = f"[{name}]" if first == ENTRY else f".{name}"
            yield from values_at(value.get(name), rest, f"{place}{step}", f"{path}{step}")
