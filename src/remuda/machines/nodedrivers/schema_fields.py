"""From a driver's flags to the fields of its schemas (protocols.md §6.3).

Integers are strings, as in Rancher; a flag that takes a file's path becomes a field with the file's content where the driver's
annotations say so; whatever is secret is a `password`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ..options import Flag, FlagKind, field_of
from .driver_annotations import Shape

Obj = dict[str, Any]

STRING: Final = "string"
PASSWORD: Final = "password"
BOOLEAN: Final = "boolean"
STRINGS: Final = "array[string]"
# Of any driver: a private key.
KEYS: Final = frozenset({"sshKeyContents", "sshKey", "privateKeyFile"})
# Fields of credentials that are no flags of their own there.
_BESIDES: Final[Mapping[str, tuple[str, ...]]] = {"amazonec2": ("defaultRegion",)}


class UnusableFlag(Exception):
    """A flag that no field can be made of."""


def resource_fields(flags: Iterable[Flag], shape: Shape) -> dict[str, Obj]:
    """The fields of a machine config, by name. Raises UnusableFlag."""
    made: dict[str, Obj] = {}
    for flag in flags:
        if "-" not in flag.name:
            raise UnusableFlag(f"the flag {flag.name} does not begin with the driver's name and a dash")
        own = field_of(flag.name)
        name = shape.renamed(own)
        field = _field(flag)
        if name in shape.aliases:
            field["description"] = f"File contents for {name}"
        if field["type"] == STRING and (name in (*shape.private, *shape.passwords) or name in KEYS):
            field["type"] = PASSWORD
        made[name] = field
    return dict(sorted(made.items()))


def credential_fields(driver: str, fields: Mapping[str, Obj], shape: Shape) -> dict[str, Obj]:
    """The fields of a cloud credential, by name; a field that the driver has no flag for is a plain one."""
    made: dict[str, Obj] = {}
    for name in (*shape.public, *shape.private):
        known = fields.get(name) or _plain()
        field: Obj = {**known, "default": _values(), "type": PASSWORD if name in shape.private else known["type"]}
        if name not in shape.optional:
            field["required"] = True
        if name in shape.defaults:
            field["default"] = _values(text=shape.defaults[name])
        made[name] = field
    for name in _BESIDES.get(driver, ()):
        made[name] = _plain("Where to look for what can be chosen from")
    return dict(sorted(made.items()))


def hints(shape: Shape) -> dict[str, Obj]:
    """For a page: what is a whole file needs more than a line."""
    return {name: {"type": "multiline"} for name in sorted(shape.aliases)}


def _field(flag: Flag) -> Obj:
    made: Obj = {"create": True, "update": True, "description": flag.usage}
    initial = flag.initial
    match flag.kind:
        case FlagKind.BOOL:
            # Said although it is what stands for nothing: it is part of what machines are known by.
            return {"type": BOOLEAN, "default": _values(), **made}
        case FlagKind.STRINGS:
            assert isinstance(initial, tuple)
            return {"type": STRINGS, "nullable": True, "default": _values(texts=initial), **made}
        case _:
            return {"type": STRING, "default": _values(text=str(initial)), **made}


def _plain(description: str = "") -> Obj:
    return {"type": STRING, "default": _values(), "create": True, "update": True, "description": description}


def _values(text: str = "", texts: Iterable[str] | None = None) -> Obj:
    """All four are always there, as Go writes them."""
    return {"stringValue": text, "intValue": 0, "boolValue": False, "stringSliceValue": list(texts) if texts else None}
