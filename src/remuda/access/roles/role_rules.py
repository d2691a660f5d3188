"""Plain RBAC rules of RoleTemplates and GlobalRoles. Pure; :mod:`.holdings` compares them with a user's permissions.

A RoleTemplate has two sides. Inside its cluster it is a ClusterRole with all of its rules. On the management API only rules about
that one cluster count: the cluster itself, and the kinds in its namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from remuda.api.management_cattle_io import GROUP
from remuda.kube.authorization.policy_rules import Rule, uncovered
from remuda.kube.objects import name_of

Obj = dict[str, Any]
# Finds a RoleTemplate, or a ClusterRole, by its name.
Find = Callable[[str], Obj | None]

EVERYTHING: tuple[Rule, ...] = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)
# Kinds in the namespace of its cluster for which a RoleTemplate may have rules.
_IN_CLUSTER_NAMESPACE = ("clusterregistrationtokens", "clusterroletemplatebindings", "nodes", "projects")
_OWNING: Rule = {"verbs": ["*"], "apiGroups": [GROUP], "resources": ["clusters"]}


def included(name: str, find: Find) -> list[Obj]:
    """The template and all that it includes, each once; missing ones are left out."""
    found: dict[str, Obj] = {}
    waiting = [name]
    while waiting:
        each = waiting.pop()
        if each in found or (template := find(each)) is None:
            continue
        found[each] = template
        waiting.extend(template.get("roleTemplateNames") or ())
    return list(found.values())


def rules_of_template(template: Obj, cluster_role: Find) -> list[Rule]:
    """Its own rules; an external template's are its externalRules, or those of the ClusterRole of its name."""
    if not template.get("external"):
        return list(template.get("rules") or ())
    if template.get("externalRules"):
        return list(template["externalRules"])
    role = cluster_role(name_of(template))
    return list((role or {}).get("rules") or ())


def all_rules(name: str, template: Find, cluster_role: Find) -> list[Rule]:
    """The rules of the template and of all that it includes."""
    return [rule for each in included(name, template) for rule in rules_of_template(each, cluster_role)]


def holds_everything(rules: Iterable[Rule]) -> bool:
    return not uncovered(rules, EVERYTHING)


def is_owning(rules: Iterable[Rule]) -> bool:
    """True if these rules in a cluster include everything about the cluster itself."""
    return not uncovered(rules, (_OWNING,))


def management_rules(rules: Iterable[Rule]) -> list[Rule]:
    """The effect of the rules in the namespace of their cluster on the management API."""
    verbs: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for rule in rules:
        if not {GROUP, "*"} & set(rule.get("apiGroups") or ()):
            continue
        said = set(rule.get("resources") or ())
        names = tuple(rule.get("resourceNames") or ())
        for resource in _IN_CLUSTER_NAMESPACE:
            if resource in said or "*" in said:
                kept = verbs.setdefault((resource, names), [])
                kept.extend(verb for verb in rule.get("verbs") or () if verb not in kept)
    found: list[Rule] = []
    for (resource, names), allowed in sorted(verbs.items()):
        made: Rule = {"verbs": ["*"] if "*" in allowed else allowed, "apiGroups": [GROUP], "resources": [resource]}
        found.append({**made, "resourceNames": list(names)} if names else made)
    return found
