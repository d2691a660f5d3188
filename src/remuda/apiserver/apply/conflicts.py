"""Fields that an applied configuration sets and that others own differently; the 409 that names them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from remuda.kube.errors import ApiError

from .field_set import Fields, Path, path_text, paths
from .managed_fields import OwnerKey

Conflict = tuple[OwnerKey, Path]


class Conflicts(Exception):
    """Apply would take fields from their owners and was not told to force it."""

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
