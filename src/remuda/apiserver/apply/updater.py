"""Field ownership after an update or an apply: the rules of structured-merge-diff's updater.

An update takes the fields that it changes. An apply owns the fields in its configuration, gives up those that were only in
its previous one, and removes them unless they have another owner. Objects come without managedFields here;
:mod:`.field_manager` is the layer that reads and writes those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from remuda.kube.errors import ApiError

from .compare import Comparison, compare, equal, reconcile, to_fieldset
from .field_set import Fields, Path, difference, intersection, path_text, paths, recursive_difference, union
from .managed_fields import Owner, OwnerKey, Owners
from .merging import merge, remove_items, with_named_fields
from .typed import Type, TypedError

Obj = dict[str, Any]

# Another version's type and the object in that version; None when there is no such version (any more).
InVersion = Callable[[Obj, str], tuple[Type, Obj] | None]


class ApplyError(Exception):
    """A failed apply; the text is upstream's."""


class Updater:
    """The rules for one kind in one version."""

    __slots__ = ("_api_version", "_in_version", "_type")

    def __init__(self, type_: Type, api_version: str, in_version: InVersion) -> None:
        self._type = type_
        self._api_version = api_version
        self._in_version = in_version

    def update(self, live: Obj, new: Obj, owners: Owners, ignored: Fields) -> tuple[Fields, Owners]:
        """The fields that this update writes, and the owners without the fields that it took or removed."""
        owners = self._reconciled(live, owners)
        change = compare(self._type, live, new).without(ignored)
        written = change.written
        if not written and not change.removed:
            return written, {key: owner for key, owner in owners.items() if owner.fields}
        return written, self._taken(live, new, owners, change, None)

    def apply(
        self, live: Obj, config: Obj, key: OwnerKey, owners: Owners, ignored: Fields, force: bool
    ) -> tuple[Obj | None, Owners]:
        """The merged object (None when it equals the live one) and the owners. Raises Conflicts or ApplyError."""
        owners = self._reconciled(live, owners)
        try:
            merged = merge(self._type, live, config)
        except TypedError as error:
            raise ApplyError(f"failed to merge config: {error}") from None
        last = owners.get(key)
        fields = recursive_difference(to_fieldset(self._type, config), ignored)
        owners = {**owners, key: Owner(fields, self._api_version, True, last.time if last is not None else None)}
        merged = self._pruned(merged, owners, key, last)
        try:
            change = compare(self._type, live, merged).without(ignored)
        except TypedError as error:
            raise ApplyError(f"failed to compare objects: {error}") from None
        if not force:
            self._refuse_conflicts(live, merged, owners, change, key)
        owners = self._taken(live, merged, owners, change, key)
        return (None if equal(self._type, live, merged) else merged), owners

    def _reconciled(self, live: Obj, owners: Owners) -> Owners:
        """Owners after schema changes, without those of versions that no longer exist."""
        result = owners
        for key, owner in owners.items():
            type_: Type | None = self._type
            if owner.api_version != self._api_version:
                found = self._in_version(live, owner.api_version)
                type_ = None if found is None else found[0]
            fields = None if type_ is None else reconcile(type_, owner.fields)
            if fields is owner.fields:
                continue
            result = dict(owners) if result is owners else result
            if fields is None:
                del result[key]
            else:
                result[key] = owner.with_fields(fields)
        return result

    def _change_in(
        self, version: str, live: Obj, new: Obj, change: Comparison, known: dict[str, Comparison | None]
    ) -> Comparison | None:
        """The change in this version; None when it is unknown."""
        if version == self._api_version:
            return change
        if version not in known:
            before, after = self._converted(live, version, "old"), self._converted(new, version, "new")
            known[version] = None
            if before is not None and after is not None:
                try:
                    known[version] = compare(before[0], before[1], after[1])
                except TypedError as error:
                    # The converted new object does not fit that version.
                    raise ApplyError(f"failed to convert new object: {error}") from None
        return known[version]

    def _converted(self, obj: Obj, version: str, which: str) -> tuple[Type, Obj] | None:
        try:
            return self._in_version(obj, version)
        except TypedError as error:
            raise ApplyError(f"failed to convert {which} object: {error}") from None

    def _refuse_conflicts(self, live: Obj, new: Obj, owners: Owners, change: Comparison, me: OwnerKey) -> None:
        known: dict[str, Comparison | None] = {}
        found: dict[OwnerKey, Fields] = {}
        for key, owner in owners.items():
            if key == me:
                continue
            seen = self._change_in(owner.api_version, live, new, change, known)
            taken = {} if seen is None else intersection(owner.fields, seen.written)
            if taken:
                found[key] = taken
        if found:
            raise Conflicts.of(found)

    def _taken(self, live: Obj, new: Obj, owners: Owners, change: Comparison, me: OwnerKey | None) -> Owners:
        known: dict[str, Comparison | None] = {}
        result: Owners = {}
        for key, owner in owners.items():
            if key != me:
                seen = self._change_in(owner.api_version, live, new, change, known)
                if seen is None:
                    continue
                owner = owner.with_fields(difference(difference(owner.fields, seen.written), seen.removed))
            if owner.fields:
                result[key] = owner
        return result

    # --- dropping fields that are no longer applied ---------------------------------------------------------------------

    def _pruned(self, merged: Obj, owners: Owners, me: OwnerKey, last: Owner | None) -> Obj:
        if last is None or not last.fields:
            return merged
        if last.api_version == self._api_version and not difference(last.fields, owners[me].fields):
            return merged
        found = self._in_version(merged, last.api_version)
        if found is None:
            return merged
        type_, versioned = found
        pruned = remove_items(type_, versioned, with_named_fields(type_, last.fields)) or {}
        pruned = self._with_owned(versioned, pruned, last.api_version, owners)
        pruned = self._with_dangling(type_, versioned, pruned, last)
        back = self._in_version(pruned, self._api_version)
        return merged if back is None else back[1]

    def _with_owned(self, merged: Obj, pruned: Obj, version: str, owners: Owners) -> Obj:
        """Restores owned fields; first in the pruned object's own version, since conversion may need the complete object."""
        managed: dict[str, Fields] = {}
        for owner in owners.values():
            managed[owner.api_version] = union(managed.get(owner.api_version, {}), owner.fields)
        for each in sorted(managed, key=lambda found: found != version):
            whole, rest = self._in_version(merged, each), self._in_version(pruned, each)
            if whole is None or rest is None:
                continue
            type_, merged = whole
            kept = union(with_named_fields(type_, to_fieldset(type_, rest[1])), with_named_fields(type_, managed[each]))
            gone = difference(with_named_fields(type_, to_fieldset(type_, merged)), kept)
            pruned = remove_items(type_, merged, gone) or {}
        return pruned

    def _with_dangling(self, type_: Type, merged: Obj, pruned: Obj, last: Owner) -> Obj:
        """Restores fields without an owner: only fields of the last configuration may be removed."""
        found = self._in_version(pruned, last.api_version)
        if found is None:
            return merged
        kept = with_named_fields(type_, to_fieldset(type_, found[1]))
        whole = with_named_fields(type_, to_fieldset(type_, merged))
        gone = intersection(difference(whole, kept), with_named_fields(type_, last.fields))
        return remove_items(type_, merged, gone) or {}


# --- conflicts ------------------------------------------------------------------------------------------------------------
#
# Fields that an applied configuration sets and that other owners hold with other values; the 409 that names them.

Conflict = tuple[OwnerKey, Path]


class Conflicts(Exception):
    """An apply without `force` would take fields from their owners."""

    def __init__(self, conflicts: Iterable[Conflict]) -> None:
        self.conflicts = list(conflicts)
        super().__init__(message(self.conflicts))

    @classmethod
    def of(cls, sets: dict[OwnerKey, Fields]) -> Conflicts:
        ordered = sorted(sets.items(), key=lambda pair: pair[0].identifier())
        return cls((key, path) for key, fields in ordered for path in paths(fields))

    def without(self, allowed: Callable[[Path], bool]) -> list[Conflict]:
        return [conflict for conflict in self.conflicts if not allowed(conflict[1])]

    def error(self) -> ApiError:
        causes = [
            {"reason": "FieldManagerConflict", "message": f"conflict with {key.shown()}", "field": path_text(path)}
            for key, path in self.conflicts
        ]
        return ApiError(409, "Conflict", message(self.conflicts), {"causes": causes})


def message(conflicts: list[Conflict]) -> str:
    if len(conflicts) == 1:
        key, path = conflicts[0]
        return f"Apply failed with 1 conflict: conflict with {key.shown()}: {path_text(path)}"
    grouped: dict[OwnerKey, list[Path]] = {}
    for key, path in conflicts:
        grouped.setdefault(key, []).append(path)
    lines: list[str] = []
    for key in sorted(grouped, key=OwnerKey.identifier):
        lines.append(f"conflicts with {key.shown()}:")
        lines.extend(f"- {path_text(path)}" for path in grouped[key])
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
