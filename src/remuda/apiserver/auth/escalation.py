"""Prevention of privilege escalation: users grant only permissions that they hold.

A write of a Role or ClusterRole must not contain a permission that its author lacks, unless they have the verb
`escalate` on it; a binding must not grant a role whose permissions its author lacks, unless they have `bind` on that
role. The write path calls :meth:`EscalationGuard.check` after mutating admission and before validation, as
kube-apiserver does; :class:`remuda.kube.authorization.rbac.Rbac` lists the author's permissions.
"""

from __future__ import annotations

from typing import Any

from remuda.kube.authorization.actions import Action
from remuda.kube.authorization.policy_rules import Rule, compact, quoted, text, uncovered
from remuda.kube.authorization.rbac import GROUP, MissingRole, Rbac, RuleError
from remuda.kube.authorization.users import MASTERS, User
from remuda.kube.errors import ApiError, aggregate_text, forbidden, go_quote, not_found
from remuda.kube.objects import name_of

Obj = dict[str, Any]

ROLES = frozenset(("roles", "clusterroles"))
BINDINGS = frozenset(("rolebindings", "clusterrolebindings"))
GUARDED = ROLES | BINDINGS

_EVERYTHING: tuple[Rule, ...] = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)
# Fields that the garbage collector changes; such a write needs none of the role's permissions.
_COLLECTOR_FIELDS = ("ownerReferences", "finalizers", "selfLink", "managedFields")


class EscalationGuard:
    def __init__(self, rbac: Rbac) -> None:
        self._rbac = rbac

    def check(self, user: User, resource: str, namespace: str, name: str, obj: Obj, old: Obj | None = None) -> None:
        """Raise ApiError when the write would grant more than `user` holds.

        `resource` is one of GUARDED, `name` the one in the request's path ("" on create), `old` the stored object.
        """
        if resource not in GUARDED or MASTERS in user.groups:
            return
        if resource in ROLES:
            self._check_role(user, resource, namespace, name, obj, old)
        else:
            self._check_binding(user, resource, namespace, obj, old)

    def _check_role(self, user: User, resource: str, namespace: str, name: str, obj: Obj, old: Obj | None) -> None:
        escalate = Action(user, "escalate", GROUP, "*", resource, "", namespace, name)
        if self._rbac.authorize(escalate).allowed or only_collector_fields_differ(obj, old):
            return
        if problem := self._excess(user, resource, namespace, obj.get("rules") or ()):
            raise forbidden(GROUP, resource, name_of(obj), problem)
        aggregates = _aggregates(obj) or (old is not None and _aggregates(old))
        if resource == "clusterroles" and aggregates and self._excess(user, resource, namespace, _EVERYTHING):
            # Aggregation can collect any permission, so it requires all of them.
            why = "must have cluster-admin privileges to use the aggregationRule"
            raise forbidden(GROUP, resource, name_of(obj), why)

    def _check_binding(self, user: User, resource: str, namespace: str, obj: Obj, old: Obj | None) -> None:
        ref = obj.get("roleRef") or {}
        if only_collector_fields_differ(obj, old) or self._may_bind(user, ref, namespace):
            return
        try:
            rules = self._rbac.rules_of(ref, namespace)
        except MissingRole as missing:
            # Upstream looks up the role under the request's own resource, so its error names that one.
            raise not_found(GROUP, resource, missing.name) from None
        except RuleError as error:
            raise ApiError(500, "", str(error)) from None
        if problem := self._excess(user, resource, namespace, rules):
            raise forbidden(GROUP, resource, name_of(obj), problem)

    def _may_bind(self, user: User, ref: Obj, namespace: str) -> bool:
        resource = {"ClusterRole": "clusterroles", "Role": "roles"}.get(ref.get("kind") or "")
        if resource is None:
            return False
        bind = Action(user, "bind", ref.get("apiGroup") or "", "*", resource, "", namespace, ref.get("name") or "")
        return self._rbac.authorize(bind).allowed

    def _excess(self, user: User, resource: str, namespace: str, rules: Any) -> str:
        """The reason why `user` may not grant these rules, or ""."""
        held, errors = self._rbac.rules_for(user, namespace)
        missing = uncovered(held, rules)
        if not missing:
            return ""
        lines = "\n".join(sorted({text(rule) for rule in compact(missing)}))
        problem = (
            f"user {go_quote(user.name)} (groups={quoted(user.groups)}) is attempting to grant RBAC permissions "
            f"not currently held:\n{lines}"
        )
        if errors:
            problem += f"; resolution errors: [{_error_text(errors, resource)}]"
        return problem


def _error_text(errors: list[RuleError], resource: str) -> str:
    texts = [not_found(GROUP, resource, error.name).message if isinstance(error, MissingRole) else str(error) for error in errors]
    return aggregate_text(list(dict.fromkeys(texts)))


def _aggregates(role: Obj) -> bool:
    return bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))


def only_collector_fields_differ(obj: Obj, old: Obj | None) -> bool:
    """True for an update that changes nothing but owner references, finalizers and bookkeeping."""
    if old is None:
        return False
    return _compared(obj) == _compared(old)


def _compared(obj: Obj) -> Obj:
    kept = {key: value for key, value in (obj.get("metadata") or {}).items() if key not in _COLLECTOR_FIELDS}
    return {**_without_empty(obj), "metadata": _without_empty(kept)}


def _without_empty(obj: Obj) -> Obj:
    """The object without its empty fields: an absent list equals an empty one."""
    return {key: value for key, value in obj.items() if value not in (None, [], {}, "")}
