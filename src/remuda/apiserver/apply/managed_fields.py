"""`metadata.managedFields` as values: the owners of fields, with time and subresource.

An owner is identified by manager name, operation, subresource and, unless it applies, API version: a program that updates
through two versions is two owners. :mod:`.updater` changes ownership; this module reads and writes the entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from remuda.kube.clock import parse_rfc3339, rfc3339
from remuda.kube.encoding.jsonio import dumps_text
from remuda.kube.errors import go_quote

from .field_set import Fields, FieldsError, difference, has, of_paths, parse

Obj = dict[str, Any]

APPLY = "Apply"
UPDATE = "Update"
MAX_UPDATERS = 10
ANCIENT = "ancient-changes"


class ManagedFieldsError(ValueError):
    """Invalid managedFields entries; the text is upstream's."""


class OwnerKey(NamedTuple):
    manager: str
    operation: str
    # Empty for the operation Apply.
    api_version: str
    subresource: str

    @classmethod
    def of(cls, manager: str, operation: str, api_version: str, subresource: str) -> OwnerKey:
        return cls(manager or "unknown", operation, "" if operation == APPLY else api_version, subresource)

    def identifier(self) -> str:
        """Upstream's text for an owner: lists of owners are sorted by it."""
        parts = {"manager": self.manager, "operation": self.operation, "apiVersion": self.api_version}
        found = {name: value for name, value in {**parts, "subresource": self.subresource}.items() if value}
        return dumps_text(found)

    def shown(self) -> str:
        """The owner's name in a conflict."""
        text = go_quote(self.manager)
        if self.subresource:
            text = f"{text} with subresource {go_quote(self.subresource)}"
        return f"{text} using {self.api_version}" if self.operation == UPDATE else text


class Owner:
    """The fields of one owner. Immutable: `with_fields` makes another one."""

    __slots__ = ("api_version", "applied", "entry", "fields", "time")

    def __init__(self, fields: Fields, api_version: str, applied: bool, time: str | None, entry: Obj | None = None) -> None:
        self.fields = fields
        self.api_version = api_version
        self.applied = applied
        self.time = time
        # The entry that it was read from, while it is unchanged.
        self.entry = entry

    def with_fields(self, fields: Fields) -> Owner:
        return self if fields is self.fields else Owner(fields, self.api_version, self.applied, self.time)


Owners = dict[OwnerKey, Owner]


def read(entries: Iterable[Obj]) -> Owners:
    """Owners from entries that this server wrote; their sets are used as they are."""
    owners: Owners = {}
    for entry in entries:
        operation, version, fields = entry["operation"], entry["apiVersion"], entry.get("fieldsV1")
        if fields is not None and type(fields) is not dict:
            raise TypeError("fieldsV1 must be an object")
        applied = operation == APPLY
        key = OwnerKey(entry.get("manager", ""), operation, "" if applied else version, entry.get("subresource", ""))
        owners[key] = Owner(fields or {}, version, applied, entry.get("time"), entry)
    return owners


def decode(entries: Any) -> Owners:
    """Owners from entries of any origin. Raises ManagedFieldsError."""
    if entries is None:
        return {}
    if not isinstance(entries, list):
        raise ManagedFieldsError("managedFields must be a list")
    owners: Owners = {}
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise ManagedFieldsError("a managed fields entry must be an object")
        _decode(index, entry, owners)
    return owners


def _decode(index: int, entry: Obj, owners: Owners) -> None:
    manager, operation, version, kind, subresource = (
        entry.get(name) or "" for name in ("manager", "operation", "apiVersion", "fieldsType", "subresource")
    )
    if operation not in (APPLY, UPDATE):
        raise ManagedFieldsError("operation must be `Apply` or `Update`")
    if not version:
        raise ManagedFieldsError("apiVersion must not be empty")
    if kind != "FieldsV1":
        if not kind:
            raise ManagedFieldsError(f"missing fieldsType in managed fields entry {index}")
        raise ManagedFieldsError(f"invalid fieldsType {go_quote(str(kind))} in managed fields entry {index}")
    if not (isinstance(manager, str) and isinstance(version, str) and isinstance(subresource, str)):
        raise ManagedFieldsError("manager, apiVersion and subresource must be strings")
    try:
        fields = parse(entry.get("fieldsV1"))
    except FieldsError as error:
        raise ManagedFieldsError(f"error decoding versioned set from {{{manager}}}: error decoding set: {error}") from None
    time = entry.get("time")
    if time is not None:
        try:
            time = rfc3339(parse_rfc3339(time))
        except (ValueError, TypeError, AttributeError, OverflowError, OSError):
            raise ManagedFieldsError(f"invalid time {time!r} in managed fields entry {index}") from None
    # Kept when the manager's name is empty: only new entries are called "unknown".
    key = OwnerKey(manager, operation, "" if operation == APPLY else version, subresource)
    owners[key] = Owner(fields, version, operation == APPLY, time)


def encode(owners: Owners) -> list[Obj]:
    """Entries in upstream's order: appliers first, then by time, name, version and subresource."""
    ranked = sorted(
        owners.items(), key=lambda pair: (pair[0][1], pair[1].time or "", pair[0][0], pair[1].api_version, pair[0][3])
    )
    return [owner.entry if owner.entry is not None else _entry(key, owner) for key, owner in ranked]


def _entry(key: OwnerKey, owner: Owner) -> Obj:
    entry: Obj = {"manager": key.manager} if key.manager else {}
    entry["operation"] = APPLY if owner.applied else UPDATE
    entry["apiVersion"] = owner.api_version
    if owner.time is not None:
        entry["time"] = owner.time
    entry["fieldsType"] = "FieldsV1"
    entry["fieldsV1"] = owner.fields
    if key.subresource:
        entry["subresource"] = key.subresource
    return entry


def is_reset(entries: Any) -> bool:
    """True when a client resets all owners, with an empty list or with one empty entry."""
    return isinstance(entries, list) and (not entries or entries == [{}])


def capped(owners: Owners, union: Any) -> Owners:
    """Owners with at most ten updaters: the oldest ones of a version are merged into one."""
    updaters = [key for key, owner in owners.items() if not owner.applied]
    if len(updaters) <= MAX_UPDATERS:
        return owners
    owners = dict(owners)
    updaters.sort(key=lambda key: (owners[key].time or "", key.identifier()))
    left = len(updaters)
    first_of: dict[str, OwnerKey] = {}
    for key in updaters:
        if left <= MAX_UPDATERS:
            break
        owner = owners[key]
        first = first_of.setdefault(owner.api_version, key)
        if first == key:
            continue
        bucket = OwnerKey(ANCIENT, UPDATE, owner.api_version, "")
        if bucket not in owners:
            owners[bucket] = owners.pop(first)
        merged = union(owners[bucket].fields, owner.fields)
        if key != bucket:
            del owners[key]
        owners[bucket] = Owner(merged, owner.api_version, False, owner.time)
        left -= 1
    return owners


# --- names of managers ----------------------------------------------------------------------------------------------------
#
# The field manager of a request, its default name, and the validation of patch options.


MAX_MANAGER_BYTES = 128


@lru_cache(maxsize=1024)
def manager_from_user_agent(user_agent: str) -> str:
    """The printable characters before the first slash, at most 128 bytes of them."""
    found = bytearray()
    for char in user_agent.split("/", 1)[0]:
        if not _printable(char):
            continue
        encoded = char.encode("utf-8", "replace")
        if len(found) + len(encoded) > MAX_MANAGER_BYTES:
            break
        found += encoded
    return found.decode()


def _printable(char: str) -> bool:
    return char.isprintable()


# --- the scale subresource ------------------------------------------------------------------------------------------------
#
# managedFields of the scale subresource, which shows one field of its parent under another name.
#
# A scale request's body is a Scale, whose `spec.replicas` is some path in the parent. Before the write, owners of that path
# become owners of `spec.replicas`; after it, the owners of `spec.replicas` own the parent's path.


SCALE_VERSION = "autoscaling/v1"
_REPLICAS = ("f:spec", "f:replicas")
_REPLICAS_SET: Fields = of_paths([("spec", "replicas")])


class ScalePaths:
    """The path of the replicas in each version of a kind; None for a version without the subresource."""

    def __init__(self, api_version: str, paths: Mapping[str, Sequence[str] | None]) -> None:
        self._api_version = api_version
        self._paths = {version: None if path is None else tuple(f"f:{name}" for name in path) for version, path in paths.items()}
        self._sets = {version: of_paths([path]) for version, path in paths.items() if path is not None}

    def to_scale(self, parent: list[Obj] | None) -> list[Obj]:
        """The parent's entries that own the replicas, as entries of a Scale."""
        owners: Owners = {}
        for key, owner in decode(parent).items():
            path = self._paths.get(owner.api_version)
            if path is not None and has(owner.fields, path):
                owners[key] = Owner(_REPLICAS_SET, SCALE_VERSION, owner.applied, owner.time)
        return encode(owners)

    def to_parent(self, parent: list[Obj] | None, scale: list[Obj] | None) -> list[Obj]:
        """The parent's entries after a write through the scale subresource.

        As upstream, an updater's entry in the Scale is a different owner from its entry in the parent (the versions
        differ), and owners that come from the Scale have no time.
        """
        scaled = decode(scale)
        before = decode(parent)
        owners: Owners = {}
        for key, owner in before.items():
            if owner.api_version not in self._paths:
                continue
            path = self._paths[owner.api_version]
            if path is None or not has(owner.fields, path) or scaled.pop(key, None) is not None:
                owners[key] = owner
            elif fields := difference(owner.fields, self._sets[owner.api_version]):
                owners[key] = owner.with_fields(fields)
        for key, owner in scaled.items():
            if has(owner.fields, _REPLICAS) and self._api_version in self._sets:
                time = before[key].time if key in before else None
                owners[key] = Owner(self._sets[self._api_version], self._api_version, owner.applied, time)
        return encode(owners)
