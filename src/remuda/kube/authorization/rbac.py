"""Role-based access control over the stored Roles, ClusterRoles and their bindings.

The index follows every change: bindings are filed by subject, roles are compiled once. The result for an action is
found once per (user, groups, verb, resource, namespace) and remembered until any role or binding changes, which is rare;
so the usual request costs one dictionary lookup. Members of system:masters are never checked.
The remembered answers hold the allowed *names*, not the requested name: requests differ in names most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..errors import aggregate_text, go_quote
from ..objects import Key, ObjectSource
from .actions import ALLOWED, REFUSED, Action, Decision
from .policy_rules import CompiledRules, Rule, resource_keys
from .users import MASTERS, User, service_account_name

Obj = dict[str, Any]

GROUP = "rbac.authorization.k8s.io"
_REMEMBERED = 20_000
_EMPTY = CompiledRules(())


@dataclass(frozen=True, slots=True)
class Grant:
    """A binding from the view of one of its subjects."""

    binding: Key
    role_kind: str
    role_name: str
    subject: str

    def __str__(self) -> str:
        kind = "RoleBinding" if self.binding.namespace else "ClusterRoleBinding"
        # Upstream prints name before namespace; people grep for it.
        name = f"{self.binding.name}/{self.binding.namespace}" if self.binding.namespace else self.binding.name
        return f"{kind} {go_quote(name)} of {self.role_kind} {go_quote(self.role_name)} to {self.subject}"


class _Answer(NamedTuple):
    """A user's permission for one verb on one resource: on any name, on some names, or none."""

    any_name: Decision | None
    by_name: dict[str, Decision]
    otherwise: Decision


class Permitted(NamedTuple):
    """The names for which an action is allowed: in all namespaces (or of a resource without), and by namespace (None: all)."""

    everywhere: frozenset[str]
    by_namespace: dict[str, frozenset[str] | None]

    @property
    def anything(self) -> bool:
        return bool(self.everywhere or self.by_namespace)

    def allows(self, namespace: str, name: str) -> bool:
        if name in self.everywhere:
            return True
        if namespace not in self.by_namespace:
            return False
        names = self.by_namespace[namespace]
        return names is None or name in names


class RuleError(Exception):
    """A binding whose role can't be read."""


class MissingRole(RuleError):
    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind.lower()}.{GROUP} {go_quote(name)} not found")
        self.kind = kind
        self.name = name


# A binding's namespace ("" everywhere) and subject: ("u", user name) or ("g", group).
_Subject = tuple[str, str, str]


class Rbac:
    """The authorizer. Also answers which rules a user holds, for escalation checks and rules reviews."""

    def __init__(self, source: ObjectSource) -> None:
        self._roles: dict[Key, CompiledRules] = {}
        self._grants: dict[_Subject, dict[Key, Grant]] = {}
        self._answers: dict[tuple[Any, ...], _Answer] = {}
        # The namespaces in which a subject has grants.
        self._scopes: dict[tuple[str, str], set[str]] = {}
        # Permissions without any role: these functions are called last.
        self.besides: list[Callable[[Action], bool]] = []
        # Called after every change of a role or binding.
        self.listeners: list[Callable[[], None]] = []
        for resource in ("roles", "clusterroles"):
            source.subscribe(GROUP, resource, self._role_changed)
        for resource in ("rolebindings", "clusterrolebindings"):
            source.subscribe(GROUP, resource, self._binding_changed)

    # -- deciding ------------------------------------------------------------------------------------------------------

    def authorize(self, action: Action) -> Decision:
        if MASTERS in action.user.groups:
            return ALLOWED
        answer = self._answer(action)
        found = answer.any_name or answer.by_name.get(action.name)
        if found is None and self.besides and any(allows(action) for allows in self.besides):
            return ALLOWED
        return found or answer.otherwise

    def permitted(self, action: Action) -> Permitted:
        """The objects on which an action that is not allowed on all of them is allowed; its own name does not matter."""
        found = frozenset(self._answer(action).by_name)
        if action.namespace:
            return Permitted(found, {})
        by_namespace: dict[str, frozenset[str] | None] = {}
        for namespace in self.namespaces_of(action.user):
            answer = self._answer(action.but(namespace=namespace))
            if answer.any_name is not None:
                by_namespace[namespace] = None
            elif names := frozenset(answer.by_name) - found:
                by_namespace[namespace] = names
        return Permitted(found, by_namespace)

    def _answer(self, action: Action) -> _Answer:
        user = action.user
        if not action.is_resource:
            question: tuple[Any, ...] = (user.name, user.groups, action.verb, action.path)
        else:
            question = (
                user.name,
                user.groups,
                action.verb,
                action.group,
                action.resource,
                action.subresource,
                action.namespace,
            )
        answer = self._answers.get(question)
        if answer is None:
            answer = self._find(action)
            if len(self._answers) >= _REMEMBERED:
                self._answers.clear()
            self._answers[question] = answer
        return answer

    def _find(self, action: Action) -> _Answer:
        by_name: dict[str, Decision] = {}
        errors: list[str] = []
        keys = resource_keys(action.verb, action.group, action.resource, action.subresource)
        for grant in self._grants_of(action.user, action.namespace if action.is_resource else ""):
            try:
                rules = self._rules_of(grant.role_kind, grant.role_name, grant.binding.namespace)
            except RuleError as error:
                errors.append(str(error))
                continue
            if action.is_resource:
                everything, names = rules.names(keys)
            else:
                everything, names = rules.allows_path(action.verb, action.path), frozenset[str]()
            if everything:
                return _Answer(_allowed_by(grant), {}, REFUSED)
            for name in names:
                by_name.setdefault(name, _allowed_by(grant))
        return _Answer(None, by_name, Decision(False, _error_text(errors)) if errors else REFUSED)

    def grants(self, action: Action) -> Iterator[Grant]:
        """The bindings that allow an action on a resource, each by itself."""
        for grant in self._grants_of(action.user, action.namespace):
            try:
                rules = self._rules_of(grant.role_kind, grant.role_name, grant.binding.namespace)
            except RuleError:
                continue
            if _allowed(rules, action):
                yield grant

    # -- rules of a user -----------------------------------------------------------------------------------------------

    def rules_for(self, user: User, namespace: str) -> tuple[list[Rule], list[RuleError]]:
        """Every rule that the user holds in a namespace ("" for cluster-wide ones), and the bindings without a role."""
        rules: list[Rule] = []
        errors: list[RuleError] = []
        for grant in self._grants_of(user, namespace):
            try:
                rules.extend(self._rules_of(grant.role_kind, grant.role_name, grant.binding.namespace).rules)
            except RuleError as error:
                errors.append(error)
        return rules, errors

    def namespaces_of(self, user: User) -> set[str]:
        """The namespaces in which the user holds more than the cluster-wide rules."""
        found = set(self._scopes.get(("u", user.name)) or ())
        for group in user.groups:
            found |= self._scopes.get(("g", group)) or set()
        return found - {""}

    def rules_of(self, role_ref: Obj, namespace: str) -> list[Rule]:
        """The rules of a binding's roleRef; raises RuleError."""
        return list(self._rules_of(role_ref.get("kind") or "", role_ref.get("name") or "", namespace).rules)

    def _rules_of(self, kind: str, name: str, namespace: str) -> CompiledRules:
        if kind not in ("Role", "ClusterRole"):
            raise RuleError(f"unsupported role reference kind: {go_quote(kind)}")
        found = self._roles.get(Key(namespace if kind == "Role" else "", name))
        # A ClusterRoleBinding can't refer to a Role: without a namespace it would name a ClusterRole by mistake.
        if found is None or (kind == "Role" and not namespace):
            raise MissingRole(kind, name)
        return found

    def _grants_of(self, user: User, namespace: str) -> Iterator[Grant]:
        """The user's grants, cluster-wide ones first; a binding that names the user twice comes once."""
        for scope in ("", namespace) if namespace else ("",):
            found: dict[Key, Grant] = dict(self._grants.get((scope, "u", user.name)) or {})
            for group in user.groups:
                for key, grant in (self._grants.get((scope, "g", group)) or {}).items():
                    found.setdefault(key, grant)
            for key in sorted(found):
                yield found[key]

    # -- following the stored objects ----------------------------------------------------------------------------------

    def _role_changed(self, new: Obj | None, old: Obj | None) -> None:
        self._answers.clear()
        if new is None:
            assert old is not None
            self._roles.pop(Key.of(old), None)
        else:
            rules = new.get("rules")
            self._roles[Key.of(new)] = CompiledRules(rules) if rules else _EMPTY
        self._tell()

    def _binding_changed(self, new: Obj | None, old: Obj | None) -> None:
        self._answers.clear()
        if old is not None:
            key = Key.of(old)
            for subject, _ in _subjects(old):
                grants = self._grants.get(subject)
                if grants is not None:
                    grants.pop(key, None)
                    if not grants:
                        del self._grants[subject]
                        self._forget_scope(subject)
        if new is not None:
            key = Key.of(new)
            ref = new.get("roleRef") or {}
            for subject, text in _subjects(new):
                grant = Grant(key, ref.get("kind") or "", ref.get("name") or "", text)
                self._grants.setdefault(subject, {}).setdefault(key, grant)
                self._scopes.setdefault(subject[1:], set()).add(subject[0])
        self._tell()

    def _forget_scope(self, subject: _Subject) -> None:
        scopes = self._scopes[subject[1:]]
        scopes.discard(subject[0])
        if not scopes:
            del self._scopes[subject[1:]]

    def _tell(self) -> None:
        for listener in self.listeners:
            listener()


def _subjects(binding: Obj) -> Iterator[tuple[_Subject, str]]:
    scope = Key.of(binding).namespace
    for subject in binding.get("subjects") or ():
        kind, name = subject.get("kind"), subject.get("name") or ""
        if kind == "User":
            yield (scope, "u", name), f"User {go_quote(name)}"
        elif kind == "Group":
            yield (scope, "g", name), f"Group {go_quote(name)}"
        elif kind == "ServiceAccount" and (namespace := subject.get("namespace") or scope):
            yield (scope, "u", service_account_name(namespace, name)), f"ServiceAccount {go_quote(f'{name}/{namespace}')}"


def binds(binding: Obj, user: User) -> bool:
    """True if a binding (its present or an earlier state) names this user."""
    return any(name == user.name if kind == "u" else name in user.groups for (_, kind, name), _ in _subjects(binding))


def allows(rules: Sequence[Rule], action: Action) -> bool:
    """True if the rules of a role (its present or an earlier state) allow an action on a resource."""
    return _allowed(CompiledRules(rules), action)


def _allowed(rules: CompiledRules, action: Action) -> bool:
    everything, names = rules.names(resource_keys(action.verb, action.group, action.resource, action.subresource))
    return everything or action.name in names


def _allowed_by(grant: Grant) -> Decision:
    return Decision(True, f"RBAC: allowed by {grant}")


def _error_text(errors: list[str]) -> str:
    return f"RBAC: {aggregate_text(list(dict.fromkeys(errors)))}"
