"""The implementations of all overloads by id, from all libraries.

An overload in `signatures` without an entry here would only fail when called, so completeness is checked on import.
"""

from __future__ import annotations

from collections.abc import Callable

from ..values import Value
from . import kubernetes, lists, network, standard, strings
from .signatures import BY_ID

IMPLEMENTATIONS: dict[str, Callable[..., Value]] = {
    **standard.FUNCTIONS,
    **strings.FUNCTIONS,
    **lists.FUNCTIONS,
    **network.FUNCTIONS,
    **kubernetes.FUNCTIONS,
}

# Planned by `compiler.planner`, `compiler.selections` and `compiler.calls`, without a function here.
_BUILT_IN = frozenset(
    {"logical_and", "logical_or", "conditional", "equals", "not_equals", "select_optional_field", "@mapInsert_map_map"}
    | {"optional_or_optional", "optional_orValue_value"}
)
_OPERATORS = ("index_", "less_", "greater_", "optional_list_", "optional_map_", "list_optindex", "map_optindex")

missing = [
    overload
    for overload in BY_ID
    if overload not in IMPLEMENTATIONS and overload not in _BUILT_IN and not overload.startswith(_OPERATORS)
]
if missing:
    raise RuntimeError(f"overloads without implementation: {missing}")
