"""The roles and bindings that follow from a GlobalRole and from a GlobalRoleBinding: pure. :mod:`.globalroles` writes them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

from remuda.kube.objects import name_of
from remuda.kube.owners import reference
from remuda.kube.wrangler import safe_concat

from .role_names import (
    GLOBAL_BINDING_OWNER,
    GLOBAL_ROLE_OWNER,
    RBAC_GROUP,
    RBAC_VERSION,
    global_role,
    global_role_binding,
    label_value,
)

Obj = dict[str, Any]


def namespaces_of(role: Obj) -> list[str]:
    """The namespaces for which the role has rules of their own."""
    return [namespace for namespace, rules in sorted((role.get("namespacedRules") or {}).items()) if rules]


def roles_of(role: Obj, namespaces: Container[str]) -> list[Obj]:
    """The ClusterRole, and a Role in each of the (existing) `namespaces` for which it has rules."""
    name = name_of(role)
    made = [_object("ClusterRole", global_role(name), "", role, GLOBAL_ROLE_OWNER, {"rules": list(role.get("rules") or ())})]
    for namespace in namespaces_of(role):
        if namespace in namespaces:
            rules = list(role["namespacedRules"][namespace])
            made.append(_object("Role", namespaced(name, namespace), namespace, role, GLOBAL_ROLE_OWNER, {"rules": rules}))
    return made


def bindings_of(binding: Obj, role: Obj, subject: Obj, namespaces: Container[str]) -> list[Obj]:
    """The ClusterRoleBinding, and a RoleBinding in each namespace where the role has a Role."""
    name = name_of(binding)
    made = [
        _object(
            "ClusterRoleBinding",
            global_role_binding(name),
            "",
            binding,
            GLOBAL_BINDING_OWNER,
            _bound("ClusterRole", global_role(name_of(role)), subject),
        )
    ]
    for namespace in namespaces_of(role):
        if namespace in namespaces:
            bound = _bound("Role", namespaced(name_of(role), namespace), subject)
            made.append(_object("RoleBinding", namespaced(name, namespace), namespace, binding, GLOBAL_BINDING_OWNER, bound))
    return made


def namespaced(name: str, namespace: str) -> str:
    return safe_concat(name, namespace)


def new_user_roles(roles: Iterable[Obj]) -> list[str]:
    """The GlobalRoles that a new user gets."""
    return sorted(name_of(role) for role in roles if role.get("newUserDefault"))


def _bound(kind: str, role: str, subject: Obj) -> Mapping[str, Any]:
    return {"roleRef": {"apiGroup": RBAC_GROUP, "kind": kind, "name": role}, "subjects": [subject]}


def _object(kind: str, name: str, namespace: str, owner: Obj, label: str, more: Mapping[str, Any]) -> Obj:
    metadata: Obj = {"name": name, "labels": {label: label_value(name_of(owner))}, "ownerReferences": [reference(owner)]}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": RBAC_VERSION, "kind": kind, "metadata": metadata, **more}
