"""Patches that need to know the kind: server-side apply with its managedFields, and strategic merge patch.

The verbs use :class:`FieldManager` (one per kind and version) on every write, and :mod:`.strategic_merge` for the patch type
of that name. Inside, from the bottom: :mod:`.field_set` (sets of fields), :mod:`.typed` (types from schemas), :mod:`.compare`
and :mod:`.merging` (walks over objects), :mod:`.managed_fields` (managedFields entries and names of managers),
:mod:`.updater` (ownership) and :mod:`.field_manager` (the rules around it).
Not here: JSON and merge patches (`kube/encoding`). Read :mod:`.field_manager` first.
"""

from __future__ import annotations

from ..scheme.builtin_types import empty_builtin
from .field_manager import FieldManager
from .managed_fields import ScalePaths, manager_from_user_agent

__all__ = [
    "FieldManager",
    "ScalePaths",
    "empty_builtin",
    "manager_from_user_agent",
]
