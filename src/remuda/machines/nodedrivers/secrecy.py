"""The secret fields of a driver, which are sealed (:mod:`..secretfields`). Pure.

A field is secret when its NodeDriver says so (its schema has the type `password`), when a driver in Python marks the flag, or
when the flag's name has the word password, passphrase, secret, token or key. A word at the end that says what *about* a key it is
(its name, its path, its fingerprint) makes it a plain one again. User data is not sealed by default: readers of a cluster review
what its machines run. An administrator who keeps secrets in it says so with `passwordFields: userdata` on the NodeDriver.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from ..options import FlagKind, field_of, flag_of
from .builtin_drivers import builtin, python_driver, shape_of
from .driver_schemas import KEYS, PASSWORD, STRING, SchemaFields
from .known_flags import flags_of

Obj = dict[str, Any]

_SECRET: Final = frozenset({"password", "passphrase", "passwd", "pass", "pwd", "secret", "token", "key"})
# As the last word: the field is about a secret, and holds none.
_ABOUT: Final = frozenset({"fingerprint", "id", "name", "path", "file", "type", "url", "size", "length", "ttl"})
_PUBLIC: Final = frozenset({"public"})
# Reviewed: the flag has the word, and the value is no secret.
_PLAIN: Final = frozenset({("amazonec2", "kmsKey")})
_WORD: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
# A schema's types of text.
_TEXTS: Final = frozenset({STRING, PASSWORD})


def is_secret(driver: str, field: str, types: Mapping[str, Obj] | None = None) -> bool:
    """`types` are the fields of the driver's schema; without them only the built-in knowledge counts."""
    said = None if types is None else str((types.get(field) or {}).get("type") or STRING)
    if said is not None and said not in _TEXTS:
        return False
    if said == PASSWORD or field in KEYS or field in _marked(driver):
        return True
    if said is None and field in _known_passwords(driver):
        return True
    return (driver, field) not in _PLAIN and says_secret(field)


def says_secret(field: str) -> bool:
    """True if a field's name alone says that it holds a secret."""
    words = [word.lower() for word in _WORD.findall(field)]
    return not _SECRET.isdisjoint(words) and words[-1] not in _ABOUT and _PUBLIC.isdisjoint(words)


def variable_of(driver: str, field: str) -> str:
    """The variable in which the driver's program looks for a field; empty when it is not known."""
    ours = python_driver(driver)
    name = flag_of(driver, field)
    for flags in (ours.flags if ours is not None else (), flags_of(driver) or ()):
        for flag in flags:
            if flag.name == name and flag.kind is FlagKind.STRING and flag.env:
                return flag.env
    return ""


@cache
def _marked(driver: str) -> frozenset[str]:
    """Fields whose flags a driver in Python marks as secret."""
    ours = python_driver(driver)
    if ours is None:
        return frozenset()
    shape = shape_of(ours)
    return frozenset(shape.renamed(field_of(flag.name)) for flag in ours.flags if flag.secret)


@cache
def _known_passwords(driver: str) -> frozenset[str]:
    found = builtin().get(driver)
    shape = found.shape if found is not None else SchemaFields()
    return frozenset((*shape.private, *shape.passwords))
