"""Admission rules for roles and their bindings: users grant only permissions that they hold, and bindings are immutable.

- GlobalRole, RoleTemplate: the writer must hold their rules, or have the verb `escalate` on the object.
- GlobalRoleBinding, ClusterRoleTemplateBinding: the writer must hold the role's permissions, or have `bind` on the role. Subject
  and role of a binding can't be changed: make another one. Removing a GlobalRoleBinding requires the same right.
- Built-in roles can't be removed, and only their fields in :data:`.builtin_roles.YOURS` can be changed.

:mod:`.holdings` computes the permissions of a user. The kinds of clusters have their rules in :mod:`.protected_cluster_fields`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remuda.api.management_cattle_io import CLUSTER_ROLE_TEMPLATE_BINDINGS, CLUSTERS, GLOBAL_ROLES, GROUP, ROLE_TEMPLATES, VERSION
from remuda.kube.admission_attributes import CREATE, DELETE, UPDATE, Attributes
from remuda.kube.authorization.policy_rules import Rule
from remuda.kube.errors import FieldError, duplicate, forbidden_field, invalid_value, required, value_not_found
from remuda.kube.objects import GroupVersionResource, Key, name_of, uid_of
from remuda.kube.owners import reference, with_owner
from remuda.runtime.admitted_types import AdmittedType

from .binding_subjects import GROUP_FIELDS, NEVER, USER_FIELDS, group_name, local_user, user_id
from .builtin_roles import BUILTIN, YOURS
from .holdings import Holdings, excess
from .role_rules import included

Obj = dict[str, Any]

_IMMUTABLE = "field is immutable"
# Fields without effect on permissions.
_WORDS = frozenset(("apiVersion", "kind", "metadata", "status", "displayName", "description"))
_GLOBAL_BINDING_FIELDS = ("globalRoleName", *USER_FIELDS, "groupPrincipalName")
_CLUSTER_BINDING_FIELDS = ("clusterName", "roleTemplateName", *USER_FIELDS, *GROUP_FIELDS)


class RoleRules:
    def __init__(self, holdings: Holdings) -> None:
        self._held = holdings

    def admitted_types(self) -> tuple[AdmittedType, ...]:
        def of(resource: str, kind: str, **functions: Any) -> AdmittedType:
            return AdmittedType(GROUP, VERSION, resource, kind, **functions)

        return (
            of("globalroles", "GlobalRole", validate=self.global_role, validates_deletion=True),
            of("roletemplates", "RoleTemplate", validate=self.role_template, validates_deletion=True),
            of(
                "globalrolebindings",
                "GlobalRoleBinding",
                default=self.name_subject,
                validate=self.global_binding,
                validates_deletion=True,
            ),
            of(
                "clusterroletemplatebindings",
                "ClusterRoleTemplateBinding",
                default=self.name_subject,
                validate=self.cluster_binding,
            ),
        )

    # --- roles --------------------------------------------------------------------------------------------------------

    def global_role(self, attributes: Attributes) -> Iterable[FieldError]:
        if attributes.operation == DELETE:
            self._refuse_builtin_deletion(attributes)
            return []
        obj = _object(attributes)
        errors = [*_builtin_errors(attributes), *rule_errors("rules", obj.get("rules"))]
        for namespace, rules in (obj.get("namespacedRules") or {}).items():
            errors += rule_errors(f"namespacedRules[{namespace}]", rules, namespaced=True)
        errors += self._template_errors("inheritedClusterRoles", obj.get("inheritedClusterRoles") or (), "cluster", obj)
        if obj.get("inheritedFleetWorkspacePermissions"):
            attributes.warnings.append("inheritedFleetWorkspacePermissions: kept, but this version does not apply it")
        if not errors and _means_something_else(attributes):
            self._may_write_role(attributes, GLOBAL_ROLES, self._global_excess(attributes, obj))
        return errors

    def role_template(self, attributes: Attributes) -> Iterable[FieldError]:
        if attributes.operation == DELETE:
            self._refuse_builtin_deletion(attributes)
            self._refuse_while_used(attributes)
            return []
        obj = _object(attributes)
        errors = [*_builtin_errors(attributes), *rule_errors("rules", obj.get("rules"))]
        errors += rule_errors("externalRules", obj.get("externalRules"))
        if obj.get("externalRules") and not obj.get("external"):
            errors.append(forbidden_field("externalRules", "only an external RoleTemplate has them"))
        if obj.get("external") and obj.get("rules"):
            errors.append(forbidden_field("rules", "an external RoleTemplate has the rules of the ClusterRole of its name"))
        errors += _context_errors(obj, attributes.old)
        errors += self._template_errors("roleTemplateNames", obj.get("roleTemplateNames") or (), "", obj)
        if not errors and _means_something_else(attributes):
            wanted = [rule for each in self._included(obj) for rule in self._rules_of(each)]
            # A template may be used in any cluster, so owning one cluster is not enough to write one.
            held = self._held.on_the_server(attributes.user)
            self._may_write_role(attributes, ROLE_TEMPLATES, excess(attributes.user, held, wanted))
        return errors

    def _included(self, template: Obj) -> list[Obj]:
        """The template and those that it includes; for a template being written, its new content counts."""
        return included(name_of(template), lambda name: template if name == name_of(template) else self._held.template(name))

    def _rules_of(self, template: Obj) -> list[Rule]:
        if not template.get("external"):
            return list(template.get("rules") or ())
        # Both sources, since either may count in a cluster.
        role = self._held.cluster_role(name_of(template)) or {}
        return [*(template.get("externalRules") or ()), *(role.get("rules") or ())]

    def _global_excess(self, attributes: Attributes, role: Obj) -> str:
        user, held = attributes.user, self._held
        problems = [excess(user, held.on_the_server(user), role.get("rules") or ())]
        for namespace, rules in (role.get("namespacedRules") or {}).items():
            problems.append(excess(user, held.on_the_server(user, namespace), rules))
        if names := role.get("inheritedClusterRoles"):
            wanted = [rule for name in names for rule in held.template_rules(name)]
            problems.append(excess(user, held.in_every_cluster(user), wanted))
        if workspaces := role.get("inheritedFleetWorkspacePermissions"):
            verbs = workspaces.get("workspaceVerbs")
            wanted = [*(workspaces.get("resourceRules") or ())]
            if verbs:
                wanted.append({"verbs": verbs, "apiGroups": [GROUP], "resources": ["fleetworkspaces"]})
            problems.append(excess(user, held.on_the_server(user), wanted))
        return next(filter(None, problems), "")

    def _may_write_role(self, attributes: Attributes, resource: GroupVersionResource, problem: str) -> None:
        name = attributes.name or name_of(_object(attributes))
        if problem and not self._held.may(attributes.user, "escalate", resource, name):
            raise attributes.forbidden(problem)

    def _template_errors(self, path: str, names: Iterable[str], context: str, of: Obj) -> Iterable[FieldError]:
        seen: set[str] = set()
        for at, name in enumerate(names):
            where = f"{path}[{at}]"
            template = self._held.template(name)
            if name in seen:
                yield duplicate(where, name)
            elif template is None:
                yield value_not_found(where, name)
            elif template.get("locked"):
                yield forbidden_field(where, f"RoleTemplate {name} is locked")
            elif context and template.get("context") != context:
                yield invalid_value(where, name, f"must be a RoleTemplate for a {context}")
            elif not context and any(name_of(each) == name_of(of) for each in included(name, self._held.template)):
                yield invalid_value(where, name, "must not include, directly or indirectly, a RoleTemplate that includes it")
            seen.add(name)

    def _refuse_builtin_deletion(self, attributes: Attributes) -> None:
        if (attributes.old or {}).get("builtin"):
            raise attributes.forbidden("it is built in and can't be deleted")

    def _refuse_while_used(self, attributes: Attributes) -> None:
        name = attributes.name
        for template in self._held.every(ROLE_TEMPLATES):
            if name in (template.get("roleTemplateNames") or ()):
                raise attributes.forbidden(f"RoleTemplate {name_of(template)} includes it")
        for role in self._held.every(GLOBAL_ROLES):
            if name in (role.get("inheritedClusterRoles") or ()):
                raise attributes.forbidden(f"GlobalRole {name_of(role)} gives it in every cluster")
        for binding in self._held.every(CLUSTER_ROLE_TEMPLATE_BINDINGS):
            if binding.get("roleTemplateName") == name:
                raise attributes.forbidden(f"ClusterRoleTemplateBinding {Key.of(binding)} gives it to a user or group")

    # --- bindings -----------------------------------------------------------------------------------------------------

    def name_subject(self, attributes: Attributes) -> Obj | None:
        """A local user is named by id; a binding of a GlobalRole is owned by it."""
        obj = _object(attributes)
        if attributes.operation != CREATE:
            return None
        changed = obj
        local = local_user(str(obj.get("userPrincipalName") or ""))
        if local and not obj.get("userName"):
            changed = {**changed, "userName": local}
        role = (
            self._held.find(GLOBAL_ROLES, obj.get("globalRoleName") or "")
            if attributes.resource == "globalrolebindings"
            else None
        )
        if role is not None and uid_of(role):
            changed = with_owner(changed, reference({"apiVersion": f"{GROUP}/{VERSION}", "kind": "GlobalRole", **role}))
        return None if changed is obj else changed

    def global_binding(self, attributes: Attributes) -> Iterable[FieldError]:
        if attributes.operation == DELETE:
            self._refuse_to_withdraw(attributes)
            return []
        obj = _object(attributes)
        if attributes.operation == UPDATE:
            return _immutable(_GLOBAL_BINDING_FIELDS, obj, attributes.old or {})
        errors = subject_errors(obj)
        name = str(obj.get("globalRoleName") or "")
        role = self._held.global_role(name) if name else None
        if not name:
            errors.append(required("globalRoleName"))
        elif role is None:
            errors.append(value_not_found("globalRoleName", name))
        if role is None or errors or self._held.may(attributes.user, "bind", GLOBAL_ROLES, name):
            return errors
        if problem := self._global_excess(attributes, role):
            raise attributes.forbidden(problem)
        return []

    def _refuse_to_withdraw(self, attributes: Attributes) -> None:
        """A binding may be removed by its own user, or with the right to give the same role again: otherwise any writer of
        bindings could remove a server's last administrators."""
        old, user = attributes.old or {}, attributes.user
        name = str(old.get("globalRoleName") or "")
        role = self._held.global_role(name)
        if role is None or user_id(old) == user.name or self._held.may(user, "bind", GLOBAL_ROLES, name):
            return
        if self._global_excess(attributes, role):
            raise attributes.forbidden("the role gives more than you hold")

    def cluster_binding(self, attributes: Attributes) -> Iterable[FieldError]:
        obj = _object(attributes)
        if attributes.operation == UPDATE:
            return _immutable(_CLUSTER_BINDING_FIELDS, obj, attributes.old or {})
        errors = subject_errors(obj)
        cluster, name = str(obj.get("clusterName") or ""), str(obj.get("roleTemplateName") or "")
        if not cluster:
            errors.append(required("clusterName"))
        elif cluster != attributes.namespace:
            errors.append(invalid_value("clusterName", cluster, "must be the namespace of the binding"))
        elif self._held.find(CLUSTERS, cluster) is None:
            errors.append(value_not_found("clusterName", cluster))
        template = self._held.template(name) if name else None
        if not name:
            errors.append(required("roleTemplateName"))
        elif template is None:
            errors.append(value_not_found("roleTemplateName", name))
        elif template.get("context") != "cluster":
            errors.append(invalid_value("roleTemplateName", name, "must be a RoleTemplate for a cluster"))
        elif template.get("locked"):
            errors.append(forbidden_field("roleTemplateName", f"RoleTemplate {name} is locked"))
        if not errors and not self._held.may(attributes.user, "bind", ROLE_TEMPLATES, name):
            held = self._held.in_cluster(attributes.user, cluster)
            if problem := excess(attributes.user, held, self._held.template_rules(name)):
                raise attributes.forbidden(problem)
        return errors


# ---------------------------------------------------------------------------------------------------------------------


def _object(attributes: Attributes) -> Obj:
    assert attributes.obj is not None
    return attributes.obj


def _means_something_else(attributes: Attributes) -> bool:
    """True if a write changes the permissions that a role gives."""
    old = attributes.old
    return attributes.operation == CREATE or old is None or _meant(_object(attributes)) != _meant(old)


def _meant(role: Obj) -> Obj:
    return {key: value for key, value in role.items() if key not in _WORDS and value not in (None, False, "", [], {})}


def _builtin_errors(attributes: Attributes) -> list[FieldError]:
    obj, old = _object(attributes), attributes.old
    expected = BUILTIN.get((attributes.kind, attributes.name or name_of(obj)))
    yours = YOURS[attributes.kind]
    if old is None or not old.get("builtin"):
        if not obj.get("builtin") or (expected is not None and _fixed(obj, yours) == _fixed(expected, yours)):
            return []
        return [forbidden_field("builtin", "only roles that come with the server are built in")]
    if expected is not None and _fixed(obj, yours) == _fixed(expected, yours):
        return []
    before, after = _fixed(old, yours), _fixed(obj, yours)
    changed = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    why = f"a built-in {attributes.kind} can't be changed, but for {', '.join(yours)}"
    return [forbidden_field(field, why) for field in changed]


def _fixed(role: Obj, yours: Iterable[str]) -> Obj:
    ignored = {"apiVersion", "kind", "metadata", "status", *yours}
    return {key: value for key, value in role.items() if key not in ignored and value not in (None, False, "", [], {})}


def _context_errors(obj: Obj, old: Obj | None) -> Iterable[FieldError]:
    context = obj.get("context") or ""
    if context not in ("cluster", "project"):
        yield required("context", "must be cluster or project")
    if old is not None and (old.get("context") or "") != context:
        yield invalid_value("context", context, _IMMUTABLE)
    for field, fits in (
        ("administrative", "cluster"),
        ("clusterCreatorDefault", "cluster"),
        ("projectCreatorDefault", "project"),
    ):
        if obj.get(field) and context != fits:
            yield forbidden_field(field, f"only a RoleTemplate for a {fits} can have it")


def rule_errors(path: str, rules: Any, *, namespaced: bool = False) -> list[FieldError]:
    """Errors of rules that Kubernetes would refuse, or never apply."""
    found: list[FieldError] = []
    for at, rule in enumerate(rules or ()):
        where = f"{path}[{at}]"
        if not rule.get("verbs"):
            found.append(required(f"{where}.verbs", "verbs must contain at least one value"))
        if rule.get("nonResourceURLs"):
            if namespaced:
                found.append(
                    invalid_value(
                        f"{where}.nonResourceURLs", rule["nonResourceURLs"], "namespaced rules cannot apply to non-resource URLs"
                    )
                )
            if any(rule.get(field) for field in ("apiGroups", "resources", "resourceNames")):
                why = "rules cannot apply to both regular resources and non-resource URLs"
                found.append(invalid_value(f"{where}.nonResourceURLs", rule["nonResourceURLs"], why))
            continue
        if not rule.get("apiGroups"):
            found.append(required(f"{where}.apiGroups", "resource rules must supply at least one api group"))
        if not rule.get("resources"):
            found.append(required(f"{where}.resources", "resource rules must supply at least one resource"))
    return found


def subject_errors(binding: Obj) -> list[FieldError]:
    """Errors unless the binding has exactly one user or one group."""
    user, group = [field for field in USER_FIELDS if binding.get(field)], [field for field in GROUP_FIELDS if binding.get(field)]
    if not user and not group:
        return [required("userName", "a binding is for a user (userName, userPrincipalName) or a group (groupPrincipalName)")]
    if user and group:
        return [forbidden_field(group[0], "a binding is for a user or for a group, not for both")]
    found = []
    if len(group) > 1 and binding["groupName"] != binding["groupPrincipalName"]:
        found.append(forbidden_field("groupName", "must be empty, or equal to groupPrincipalName"))
    local = local_user(str(binding.get("userPrincipalName") or ""))
    if local and binding.get("userName") not in (None, "", local):
        found.append(invalid_value("userName", binding["userName"], "must be the user that userPrincipalName names"))
    if (name := group_name(binding) or user_id(binding)) in NEVER:
        field = (group or user)[0]
        found.append(invalid_value(field, name, "must be a known user"))
    return found


def _immutable(fields: Iterable[str], obj: Obj, old: Obj) -> list[FieldError]:
    return [
        invalid_value(field, obj.get(field) or "", _IMMUTABLE)
        for field in fields
        if (obj.get(field) or "") != (old.get(field) or "")
    ]
