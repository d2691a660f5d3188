"""The part of a kind in the generic verbs: defaulting, cleaning and validation, selectable fields, columns.

A :class:`Strategy` is a value made of functions; the verbs in :mod:`remuda.apiserver.verbs` call them in kube-apiserver's
order. Built-in kinds have theirs in :mod:`remuda.apiserver.builtin.strategies`; a CRD's is made from its schema. Functions that
change an object get one that belongs to the request and may be changed in place; `old` is shared and read-only.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from remuda.kube import names
from remuda.kube.errors import FieldError

Obj = dict[str, Any]


# Collects the warnings of the validation in progress.
_heard: ContextVar[list[str] | None] = ContextVar("heard", default=None)


def warn(text: str) -> None:
    """Add a warning to the write that is being validated."""
    heard = _heard.get()
    if heard is not None:
        heard.append(text)


def hearing(warnings: list[str], check: Callable[[Obj, Obj], list[FieldError]], obj: Obj, old: Obj) -> list[FieldError]:
    """The errors of a validation of an update; its warnings go to `warnings`."""
    token = _heard.set(warnings)
    try:
        return check(obj, old)
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
