"""Orphans: resources of ours at a provider that belong to no machine any more, but are still paid for.

A driver marks all that it makes with its owner (:data:`~.driver.OWNER_VARIABLE`) and lists it again. The machines and templates
that exist, or the caller, say where it looks (region, project, credential).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from remuda.kube.objects import Key, dig, namespace_of

from .driver import Driver, Found, Options, Surroundings
from .options import flag_of

Obj = dict[str, Any]

_NOT_OPTIONS = frozenset({"common", "providerID"})


@dataclass(frozen=True, slots=True)
class Place:
    """A place for a driver to search: `credential` is the Secret that it uses, `fields` (as JSON) the fields of machine
    configs."""

    driver: str
    credential: Key | None = None
    fields: str = "{}"


@dataclass(frozen=True, slots=True)
class Orphan:
    driver: str
    found: Found


@dataclass(slots=True)
class Search:
    """The orphans that were found, and the places that could not be searched, with reasons."""

    orphans: list[Orphan] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def place_of(driver: type[Driver], obj: Obj, global_credentials: str) -> Place:
    """Of a machine or a template: with its credential, and all options that are no files."""
    spec = dig(obj, "spec", "template", "spec") or obj.get("spec") or {}
    known = {flag.name for flag in driver.flags}
    said = {
        name: value
        for name, value in spec.items()
        if name not in _NOT_OPTIONS and name not in driver.file_fields and value and flag_of(driver.name, name) in known
    }
    named = str(dig(spec, "common", "cloudCredentialSecretName") or "")
    namespace, colon, rest = named.partition(":")
    key = Key(namespace, rest) if colon and namespace == global_credentials else Key(namespace_of(obj), named)
    return Place(driver.name, key if named else None, json.dumps(said, sort_keys=True))


async def found_at(
    driver: type[Driver], place: Place, environ: Mapping[str, str], owner: str, around: Surroundings
) -> list[Found]:
    """All of this owner's at a place. Raises DriverError."""
    options = Options.read(driver.name, driver.flags, json.loads(place.fields), environ)
    asked = driver(around)
    try:
        return await asked.owned(options, owner)
    finally:
        await asked.aclose()


def without_machine(driver: str, found: Iterable[Found], known: Collection[str]) -> list[Orphan]:
    """`known` are the names under which the machines that there are were made."""
    listed = {(each.what, each.id): each for each in found if each.machine not in known}
    return [Orphan(driver, listed[key]) for key in sorted(listed)]
