"""Markers, which objects show in place of secret values, and the places of values in the objects of a driver. Pure.

A marker names a Secret in the object's own namespace. The same value always has the same marker there, so that writing it again
changes nothing; without the server's key a marker says nothing about the value.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from remuda.kube.encoding import gojson
from remuda.kube.objects import annotations_of, dig, with_path
from remuda.provisioning.well_known import CONFIG_GROUP, MACHINE_GROUP

Obj = dict[str, Any]

PREFIX: Final = "remuda.dev/sealed:"
_MARKER: Final = re.compile(rf"{re.escape(PREFIX)}([0-9a-f]{{32}})")
# kubectl's copy of the applied object.
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_ENVELOPE: Final = frozenset({"apiVersion", "kind"})
_SUFFIXES: Final = (
    (CONFIG_GROUP, "Config", ()),
    (MACHINE_GROUP, "MachineTemplate", ("spec", "template", "spec")),
    (MACHINE_GROUP, "Machine", ("spec",)),
)


def marker_of(key: bytes, namespace: str, value: str) -> str:
    digest = hmac.digest(key, f"{namespace}\0{value}".encode(), "sha256")
    return f"{PREFIX}{digest.hex()[:32]}"


def is_marker(value: object) -> bool:
    """True if a value is meant as a marker; an unknown marker is refused, and never taken for a secret."""
    return isinstance(value, str) and value.startswith(PREFIX)


def secret_name(marker: str) -> str:
    """The Secret that a marker names; empty when it can name none."""
    found = _MARKER.fullmatch(marker)
    return f"sealed-{found[1]}" if found is not None else ""


@dataclass(frozen=True, slots=True)
class DriverFields:
    """The place of the driver's fields in the objects of one kind."""

    driver: str
    path: tuple[str, ...]

    @classmethod
    def of(cls, group: str, kind: str) -> DriverFields | None:
        """The secret fields of a kind; None if it belongs to no driver."""
        for own, suffix, path in _SUFFIXES:
            if group == own and kind.endswith(suffix):
                return cls(kind.removesuffix(suffix).lower(), path)
        return None

    @classmethod
    def of_resource(cls, group: str, resource: str) -> DriverFields | None:
        """The same by the plural, which all kinds of drivers make alike."""
        for own, suffix, path in _SUFFIXES:
            if group == own and resource.endswith(f"{suffix.lower()}s"):
                return cls(resource.removesuffix(f"{suffix.lower()}s"), path)
        return None

    @property
    def schema(self) -> str:
        """The name of the driver's DynamicSchema."""
        return f"{self.driver}config"

    def named(self, field: str) -> str:
        return ".".join((*self.path, field))

    def texts(self, obj: Obj | None) -> dict[str, str]:
        """The fields that are text and say something."""
        found = dig(obj, *self.path) if self.path else obj
        fields = found if isinstance(found, dict) else {}
        return {name: value for name, value in fields.items() if isinstance(value, str) and value and name not in _ENVELOPE}

    def replaced(self, obj: Obj, values: Mapping[str, str]) -> Obj:
        for name, value in values.items():
            obj = with_path(obj, (*self.path, name), value)
        return obj

    def values(self, obj: Obj, is_secret: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
        """The secret fields that hold a value and not a marker."""
        return ((name, value) for name, value in self.texts(obj).items() if not is_marker(value) and is_secret(name))


def last_applied(obj: Obj) -> Obj | None:
    """The object that kubectl last applied; None when that is not known."""
    try:
        found = msgspec.json.decode(annotations_of(obj).get(LAST_APPLIED) or "null")
    except msgspec.DecodeError:
        return None
    return found if isinstance(found, dict) else None


def with_last_applied(obj: Obj, applied: Obj) -> Obj:
    return with_path(obj, ("metadata", "annotations", LAST_APPLIED), f"{gojson.dumps(applied).decode()}\n")


def veiled(obj: Obj, place: DriverFields, is_secret: Callable[[str], bool]) -> Obj:
    """An object from before its fields were sealed, without their values; the same object when it has none."""
    hidden = {name: PREFIX for name, _ in place.values(obj, is_secret)}
    shown = place.replaced(obj, hidden)
    applied = last_applied(shown)
    if applied is not None and (hidden := {name: PREFIX for name, _ in place.values(applied, is_secret)}):
        shown = with_last_applied(shown, place.replaced(applied, hidden))
    return shown


def markers_in(obj: Obj, place: DriverFields) -> set[str]:
    """The names of the Secrets that an object refers to."""
    return {name for value in place.texts(obj).values() if is_marker(value) and (name := secret_name(value))}
