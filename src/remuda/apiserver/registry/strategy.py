"""The part of a kind in the generic verbs: defaulting, cleaning and validation, selectable fields, columns.

A :class:`Strategy` is a value made of functions; the verbs in :mod:`remuda.apiserver.verbs` call them in kube-apiserver's
order. Built-in kinds have theirs in :mod:`remuda.apiserver.builtin.registration`; a CRD's is made from its schema. Functions that
change an object get one that belongs to the request and may be changed in place; `old` is shared and read-only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar, TypeVarTuple

from remuda.kube import names, selectors
from remuda.kube.duration import human_age, human_duration, seconds_of
from remuda.kube.errors import FieldError

Obj = dict[str, Any]


_Args = TypeVarTuple("_Args")
_T = TypeVar("_T")

# Collects the warnings of the preparation or validation in progress.
_heard: ContextVar[list[str] | None] = ContextVar("heard", default=None)


def warn(text: str) -> None:
    """Add a warning to the write that is being prepared or validated."""
    heard = _heard.get()
    if heard is not None:
        heard.append(text)


def collecting_warnings(warnings: list[str], part: Callable[[*_Args], _T], *args: *_Args) -> _T:
    """The result of a part of a strategy; its warnings go to `warnings`."""
    token = _heard.set(warnings)
    try:
        return part(*args)
    finally:
        _heard.reset(token)


def _nothing(obj: Obj) -> None:
    pass


def _nothing_on_update(obj: Obj, old: Obj) -> None:
    pass


def _valid(obj: Obj) -> list[FieldError]:
    return []


def _valid_update(obj: Obj, old: Obj) -> list[FieldError]:
    return []


def _no_warnings(obj: Obj, old: Obj | None) -> list[str]:
    return []


def _no_fields(obj: Obj) -> dict[str, str]:
    return {}


def _subdomain_name(name: str, prefix: bool) -> list[str]:
    """`prefix`: the name is a generateName, which may end in a dash."""
    return names.dns_subdomain_problems(name.removesuffix("-") + "a" if prefix and name.endswith("-") else name)


@dataclass(frozen=True, slots=True)
class Column:
    """A printer column of the Table form. `value(obj)` gives the cell."""

    name: str
    type: str
    description: str
    value: Callable[[Obj], Any]
    format: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Strategy:
    # Fills in defaults, on every write and (for built-ins) after decoding from the store.
    default: Callable[[Obj], None] = _nothing
    # Drops fields that a create may not set (status); sets the server's own.
    prepare_for_create: Callable[[Obj], None] = _nothing
    validate: Callable[[Obj], list[FieldError]] = _valid
    # Restores from `old` the fields that an update may not change (status).
    prepare_for_update: Callable[[Obj, Obj], None] = _nothing_on_update
    validate_update: Callable[[Obj, Obj], list[FieldError]] = _valid_update
    # The status subresource: keeps everything of `old` but the status.
    prepare_for_status_update: Callable[[Obj, Obj], None] = _nothing_on_update
    validate_status_update: Callable[[Obj, Obj], list[FieldError]] = _valid_update
    # Warning header texts for a write; `old` is None on create.
    warnings: Callable[[Obj, Obj | None], list[str]] = _no_warnings
    name_problems: Callable[[str, bool], list[str]] = _subdomain_name
    # Selectable fields besides metadata.name and metadata.namespace, as strings.
    fields: Callable[[Obj], dict[str, str]] = _no_fields
    field_names: frozenset[str] = frozenset()
    columns: tuple[Column, ...] = ()
    # A write to an object that does not exist creates it (PUT on leases, events, …).
    allow_create_on_update: bool = False
    # PUT without a resourceVersion overwrites; CRDs and some kinds insist on one.
    allow_unconditional_update: bool = True
    # Seconds that a deletion waits when the caller names none; pods have 30.
    default_grace_seconds: int = 0
    # True when changes of the spec count in metadata.generation.
    generation: bool = False
    # The server deletes objects of this kind after so many seconds (events).
    ttl: int = 0
    # Fields that the generation counter ignores besides metadata and status.
    generation_ignores: frozenset[str] = field(default_factory=frozenset)


# --- printer columns ------------------------------------------------------------------------------------------------------
#
# Building blocks of printer columns, and the one function that turns a column and an object into a cell.
#
# A column's value knows the object only, not the time: ages are timestamps in a column of format "age", and a duration
# inside another text is a :class:`Elapsed`. :func:`cell` gives both their words.


Value = Callable[[Obj], Any]

AGE_FORMAT = "age"
NONE, UNSET, UNKNOWN = "<none>", "<unset>", "<unknown>"


@dataclass(frozen=True, slots=True)
class Elapsed:
    """A cell with the time since a moment; `text` has one `{}` for it."""

    timestamp: str
    text: str = "{}"

    def words(self, now: float) -> str:
        return self.text.format(human_age(self.timestamp, now))


def cell(column: Column, obj: Obj, now: float) -> Any:
    value = column.value(obj)
    if isinstance(value, Elapsed):
        return value.words(now)
    if column.format == AGE_FORMAT:
        return human_age(value, now)
    return value


def wire_format(column: Column) -> str:
    """The format in a Table's column definition; "age" is internal."""
    return "" if column.format == AGE_FORMAT else column.format


def at(*path: str, default: Any = "") -> Value:
    """The value at `path`, or `default` when it is absent."""

    def value(obj: Obj) -> Any:
        here: Any = obj
        for step in path:
            here = here.get(step) if isinstance(here, dict) else None
            if here is None:
                return default
        return here

    return value


def column(name: str, value: Value, description: str, type: str = "string", wide: bool = False) -> Column:
    return Column(name, type, description, value, priority=1 if wide else 0)


def number(name: str, value: Value, description: str, type: str = "integer") -> Column:
    return Column(name, type, description, value)


def length(*path: str) -> Value:
    found = at(*path, default=())
    return lambda obj: len(found(obj))


NAME = Column("Name", "string", "The object's name, unique among its kind in the namespace.", at("metadata", "name"), "name")
_CREATED = at("metadata", "creationTimestamp", default=None)
AGE = Column("Age", "string", "Time since the object was created.", _CREATED, AGE_FORMAT)
# The columns of a kind without its own.
DEFAULT = (NAME, Column("Created At", "date", "When the object was created.", _CREATED))


def format_labels(labels: dict[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


def format_selector(selector: Obj | None) -> str:
    """A LabelSelector in its query form."""
    if selector is None:
        return NONE
    try:
        text = selector_text(selector)
    except selectors.SelectorError:
        return "<error>"
    return text or NONE


def selector_text(selector: Obj) -> str:
    parsed = selectors.from_structure(selector)
    equal = set(selector.get("matchLabels") or {})
    requirements = sorted(parsed.requirements, key=lambda requirement: requirement.key)
    pieces = []
    for requirement in requirements:
        if requirement.operator == "in" and requirement.key in equal and len(requirement.values) == 1:
            equal.discard(requirement.key)
            pieces.append(f"{requirement.key}={requirement.values[0]}")
        else:
            pieces.append(str(requirement))
    return ",".join(pieces)


def _joined(containers: Iterable[Obj], field: str) -> str:
    return ",".join(container.get(field) or "" for container in containers)


def container_columns(*path: str, wide: bool = True) -> tuple[Column, Column]:
    """The names and images of the containers at `path`."""
    containers = at(*path, default=())
    return (
        column("Containers", lambda obj: _joined(containers(obj), "name"), "Names of the containers.", wide=wide),
        column("Images", lambda obj: _joined(containers(obj), "image"), "Images of the containers.", wide=wide),
    )


def few(items: list[str], empty: str = UNSET, most: int = 3) -> str:
    """The first items, and the number of the others."""
    shown = ",".join(items[:most])
    if len(items) > most:
        return f"{shown} + {len(items) - most} more..."
    return shown or empty


def between(start: str, end: str) -> str:
    first, last = seconds_of(start), seconds_of(end)
    return UNKNOWN if first is None or last is None else human_duration(last - first)
