"""Building blocks of printer columns, and the one function that turns a column and an object into a cell.

A column's value knows the object only, not the time: ages are timestamps in a column of format "age", and a duration
inside another text is a :class:`Moment`. :func:`cell` gives both their words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from remuda.kube import selectors
from remuda.kube.duration import human_age, human_duration, seconds_of

from .strategy import Column

Obj = dict[str, Any]
Value = Callable[[Obj], Any]

AGE_FORMAT = "age"
NONE, UNSET, UNKNOWN = "<none>", "<unset>", "<unknown>"


@dataclass(frozen=True, slots=True)
class Moment:
    """A cell with the time since a moment; `text` has one `{}` for it."""

    timestamp: str
    text: str = "{}"

    def words(self, now: float) -> str:
        return self.text.format(human_age(self.timestamp, now))


def cell(column: Column, obj: Obj, now: float) -> Any:
    value = column.value(obj)
    if isinstance(value, Moment):
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
