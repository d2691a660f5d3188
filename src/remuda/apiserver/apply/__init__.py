"""Patches that need to know the kind: server-side apply with its managedFields, and strategic merge patch.

The verbs use :class:`FieldManager` (one per kind and version) on every write, and :mod:`.strategic` for the patch type of
that name. Inside, from the bottom: :mod:`.fieldset` (sets of fields), :mod:`.typed` (types from schemas), :mod:`.compare`
and :mod:`.merging` (walks over objects), :mod:`.owners` (managedFields entries), :mod:`.updater` (who owns what),
:mod:`.fieldmanager` (the rules around it), :mod:`.requests` (what a request must say) and :mod:`.scale`.
"""

from __future__ import annotations

from .fieldmanager import FieldManager, managed_fields_problem
from .requests import manager_from_user_agent, manager_of, patch_option_errors
from .scale import ScalePaths
from .zero import empty_builtin

__all__ = [
    "FieldManager",
    "ScalePaths",
    "empty_builtin",
    "managed_fields_problem",
    "manager_from_user_agent",
    "manager_of",
    "patch_option_errors",
]
