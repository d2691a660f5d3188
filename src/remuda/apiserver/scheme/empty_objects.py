"""What a built-in object is before anything is set.

Go writes some fields of an empty struct all the same: structs within structs, and lists, maps and scalars that are not
marked to be left out. A create is compared with such an object, which is why nobody ever owns `spec` itself in a
Deployment but somebody does in a custom resource.
"""

from __future__ import annotations

from typing import Any

from . import builtin_types

_ZERO: dict[str, Any] = {"string": "", "bool": False, "int32": 0, "int64": 0, "int": 0, "float64": 0}
# Structs that write their own JSON, as their zero value does it.
_CUSTOM: dict[str, Any] = {"Quantity": "0", "IntOrString": 0}


def empty_builtin(name: str) -> dict[str, Any]:
    """The zero value of a definition, as JSON has it."""
    found: dict[str, Any] = {}
    for field in builtin_types.flat_fields(name):
        kind = field.type.kind
        if kind == "struct":
            if not field.omitzero:
                found[field.name] = _empty_struct(field.type.definition)
        elif not (field.omitempty or field.omitzero):
            found[field.name] = _ZERO.get(kind)
    return found


def _empty_struct(name: str) -> Any:
    if builtin_types.structure(name).custom:
        return _CUSTOM.get(name.rpartition(".")[2])
    return empty_builtin(name)
