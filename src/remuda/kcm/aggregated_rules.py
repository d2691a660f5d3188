"""Aggregated ClusterRoles: their rules are those of every role that their selectors choose.

Pure; a controller in `kcm` writes what :func:`aggregated_rules` says.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remuda.kube.objects import labels_of, name_of
from remuda.kube.selectors import from_structure

Obj = dict[str, Any]

FIELD_MANAGER = "clusterrole-aggregation-controller"
_RULE_FIELDS = ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")


def is_aggregated(role: Obj) -> bool:
    return role.get("aggregationRule") is not None


def gathers(role: Obj, other: Obj) -> bool:
    """Whether an aggregated ClusterRole gets the rules of another one."""
    structures = (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ()
    return any(from_structure(structure).matches(labels_of(other)) for structure in structures)


def aggregated_rules(role: Obj, cluster_roles: Iterable[Obj]) -> list[Obj] | None:
    """The rules that an aggregated ClusterRole should have, None when it has them already (or is not aggregated).

    Roles are taken selector by selector and by name within one, each rule once, so that the outcome is always the same.
    """
    if not is_aggregated(role):
        return None
    candidates = sorted((each for each in cluster_roles if name_of(each) != name_of(role)), key=name_of)
    found: list[Obj] = []
    for structure in role["aggregationRule"].get("clusterRoleSelectors") or ():
        selector = from_structure(structure)
        for candidate in candidates:
            if selector.matches(labels_of(candidate)):
                found.extend(rule for rule in map(_normal, candidate.get("rules") or ()) if rule not in found)
    return None if found == [_normal(rule) for rule in role.get("rules") or ()] else found


def _normal(rule: Obj) -> Obj:
    return {field: rule[field] for field in _RULE_FIELDS if rule.get(field)}
