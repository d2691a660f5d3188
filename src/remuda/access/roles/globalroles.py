"""GlobalRole → ClusterRole and Roles; GlobalRoleBinding → their bindings.

The two controllers come first, the wanted roles and bindings (:func:`roles_of`, :func:`bindings_of`, pure) below them.
:mod:`.cluster_memberships` applies a GlobalRole's permissions inside clusters (`inheritedClusterRoles`), and
:mod:`.downstream_access` those of the GlobalRole `admin`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from remuda.api.management_cattle_io import GLOBAL_ROLE_BINDINGS, GLOBAL_ROLES, USERS
from remuda.kube.builtin_resources import NAMESPACES
from remuda.kube.objects import Key, is_being_deleted, name_of
from remuda.kube.owners import reference
from remuda.kube.wrangler import safe_concat
from remuda.runtime import DONE, Controller, Manager, Result, Watch, created_or_deleted, spec_change
from remuda.runtime.controller import Mapping as Keys

from .rbac_writer import COMPLETE, ERROR, Id, bring_about, by_id, condition, generation, say
from .role_caches import Views, owners_of, rbac_watches
from .role_names import (
    GLOBAL_BINDING_OWNER,
    GLOBAL_ROLE_OWNER,
    RBAC_GROUP,
    RBAC_KINDS,
    RBAC_VERSION,
    global_role,
    global_role_binding,
    label_value,
)

Obj = dict[str, Any]

ROLES, BINDINGS = "globalrole", "globalrolebinding"
_ROLE_KINDS, _BINDING_KINDS = ("ClusterRole", "Role"), ("ClusterRoleBinding", "RoleBinding")


class _Owned:
    """The RBAC objects of one kind of owner, by the owner's name."""

    def __init__(self, manager: Manager, label: str, kinds: Sequence[str], owner: Keys) -> None:
        self._informers = {kind: manager.informers.of(RBAC_KINDS[kind], labels=label) for kind in kinds}
        for informer in self._informers.values():
            informer.add_index(f"owner {label}", owner)
        self._index = f"owner {label}"

    def of(self, key: Key) -> dict[Id, Obj]:
        found: dict[Id, Obj] = {}
        for kind, informer in self._informers.items():
            found |= by_id(kind, informer.indexed(self._index, key))
        return found


class GlobalRoles:
    def __init__(self, manager: Manager, views: Views) -> None:
        self._client, self._clock = manager.client, manager.clock
        self._views = views
        owner = owners_of("GlobalRole")
        self._owned = _Owned(manager, GLOBAL_ROLE_OWNER, _ROLE_KINDS, owner)
        views.global_roles.add_index("rules in", namespaces_of)
        self.controller = Controller(
            ROLES,
            GLOBAL_ROLES,
            when=spec_change,
            watches=(
                *rbac_watches(GLOBAL_ROLE_OWNER, _ROLE_KINDS, owner),
                Watch(NAMESPACES, self._speaking_of, when=created_or_deleted),
            ),
        )

    def _speaking_of(self, namespace: Obj) -> Iterable[Key]:
        return [Key.of(role) for role in self._views.global_roles.indexed("rules in", name_of(namespace))]

    async def reconcile(self, key: Key) -> Result:
        role = self._views.global_roles.get(*key)
        there = _There(self._views)
        wanted = [] if role is None or is_being_deleted(role) else roles_of(role, there)
        problems = await bring_about(self._client, wanted, self._owned.of(key))
        if role is not None and not is_being_deleted(role):
            said = {
                "conditions": [condition("ClusterRoleExists", problems)],
                "observedGeneration": generation(role),
                "summary": ERROR if problems else COMPLETE,
            }
            await say(self._client, self._clock, GLOBAL_ROLES, role, said)
        return DONE


class GlobalRoleBindings:
    def __init__(self, manager: Manager, views: Views) -> None:
        self._client, self._clock = manager.client, manager.clock
        self._views = views
        owner = owners_of("GlobalRoleBinding")
        self._owned = _Owned(manager, GLOBAL_BINDING_OWNER, _BINDING_KINDS, owner)
        views.global_bindings.add_index("principal", lambda obj: filter(None, (obj.get("userPrincipalName"),)))
        self.controller = Controller(
            BINDINGS,
            GLOBAL_ROLE_BINDINGS,
            when=spec_change,
            watches=(
                *rbac_watches(GLOBAL_BINDING_OWNER, _BINDING_KINDS, owner),
                Watch(GLOBAL_ROLES, self._of_role, when=spec_change),
                Watch(NAMESPACES, self._speaking_of, when=created_or_deleted),
                Watch(USERS, self._of_user, when=principals_change),
            ),
            concurrency=4,
        )

    def _of_role(self, role: Obj) -> Iterable[Key]:
        return [Key.of(each) for each in self._views.global_bindings.indexed("role", name_of(role))]

    def _speaking_of(self, namespace: Obj) -> Iterable[Key]:
        roles = self._views.global_roles.indexed("rules in", name_of(namespace))
        return [key for role in roles for key in self._of_role(role)]

    def _of_user(self, user: Obj) -> Iterable[Key]:
        bindings = self._views.global_bindings
        return [Key.of(each) for name in user.get("principalIds") or () for each in bindings.indexed("principal", name)]

    async def reconcile(self, key: Key) -> Result:
        views = self._views
        binding = views.global_bindings.get(*key)
        if binding is None or is_being_deleted(binding):
            await bring_about(self._client, [], self._owned.of(key))
            return DONE
        role = views.global_roles.get("", binding.get("globalRoleName") or "")
        subject = views.subject_of(binding)
        problems: list[str] = []
        wanted: list[Obj] = []
        if role is None:
            problems.append(f"GlobalRole {binding.get('globalRoleName')} is not there")
        elif subject is None:
            problems.append("there is no user with this name")
        else:
            wanted = bindings_of(binding, role, subject, _There(views))
        problems += await bring_about(self._client, wanted, self._owned.of(key))
        summary = ERROR if problems else COMPLETE
        said = {
            "localConditions": [condition("GlobalRoleBindingReconciled", problems)],
            "observedGenerationLocal": generation(binding),
            "summaryLocal": summary,
            "summary": summary,
        }
        await say(self._client, self._clock, GLOBAL_ROLE_BINDINGS, binding, said)
        return DONE


class _There:
    """The existing namespaces."""

    def __init__(self, views: Views) -> None:
        self._namespaces = views.namespaces

    def __contains__(self, name: object) -> bool:
        found = self._namespaces.get("", str(name))
        return found is not None and not is_being_deleted(found)


def principals_change(new: Obj | None, old: Obj | None) -> bool:
    """True if a user's principals have changed."""
    return (new or {}).get("principalIds") != (old or {}).get("principalIds")


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


def _bound(kind: str, role: str, subject: Obj) -> Mapping[str, Any]:
    return {"roleRef": {"apiGroup": RBAC_GROUP, "kind": kind, "name": role}, "subjects": [subject]}


def _object(kind: str, name: str, namespace: str, owner: Obj, label: str, more: Mapping[str, Any]) -> Obj:
    metadata: Obj = {"name": name, "labels": {label: label_value(name_of(owner))}, "ownerReferences": [reference(owner)]}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": RBAC_VERSION, "kind": kind, "metadata": metadata, **more}
