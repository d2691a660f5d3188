"""rbac.authorization.k8s.io: roles and bindings. The check for privilege escalation is in `auth/escalation`."""

from __future__ import annotations

from remuda.kube import names, selectors
from remuda.kube.encoding.jsonio import dumps_text
from remuda.kube.errors import invalid_value, not_supported, required

from ..registry.strategy import AGE, DEFAULT, NAME, Strategy, column
from . import checks
from .checks import Errors, Obj, sub

GROUP = "rbac.authorization.k8s.io"


def role_name(name: str, prefix: bool) -> list[str]:
    return names.path_segment_problems(name)


def rule_errors(rule: Obj, namespaced: bool, path: str) -> Errors:
    errors: Errors = []
    if not rule.get("verbs"):
        errors.append(required(f"{path}.verbs", "verbs must contain at least one value"))
    urls = rule.get("nonResourceURLs") or []
    if urls:
        at = f"{path}.nonResourceURLs"
        if namespaced:
            errors.append(invalid_value(at, urls, "namespaced rules cannot apply to non-resource URLs"))
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            why = "rules cannot apply to both regular resources and non-resource URLs"
            errors.append(invalid_value(at, urls, why))
        return errors
    if not rule.get("apiGroups"):
        errors.append(required(f"{path}.apiGroups", "resource rules must supply at least one api group"))
    if not rule.get("resources"):
        errors.append(required(f"{path}.resources", "resource rules must supply at least one resource"))
    return errors


def _role_errors(obj: Obj, namespaced: bool) -> Errors:
    errors = checks.meta_errors(obj, namespaced, role_name)
    for index, rule in enumerate(obj.get("rules") or ()):
        errors += rule_errors(rule, namespaced, f"rules[{index}]")
    return errors


def _cluster_role_errors(obj: Obj) -> Errors:
    errors = _role_errors(obj, False)
    aggregation = obj.get("aggregationRule")
    if aggregation is None:
        return errors
    path = "aggregationRule.clusterRoleSelectors"
    wanted = aggregation.get("clusterRoleSelectors") or []
    if not wanted:
        why = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        errors.append(required(path, why))
    for index, selector in enumerate(wanted):
        found = selectors.structure_errors(selector, f"{path}[{index}]")
        errors += found
        if found:
            # kube-apiserver also prints the selector that it could not create: nil.
            errors.append(invalid_value(f"{path}[{index}]", None, "invalid label selector."))
    return errors


def _default_binding(obj: Obj) -> None:
    reference = obj.setdefault("roleRef", {})
    if not reference.get("apiGroup"):
        reference["apiGroup"] = GROUP
    for subject in obj.get("subjects") or ():
        if not subject.get("apiGroup") and subject.get("kind") in ("User", "Group"):
            subject["apiGroup"] = GROUP


def _binding_errors(obj: Obj, namespaced: bool) -> Errors:
    errors = checks.meta_errors(obj, namespaced, role_name)
    reference = sub(obj, "roleRef")
    group, kind, name = (reference.get(field) or "" for field in ("apiGroup", "kind", "name"))
    if group != GROUP:
        errors.append(not_supported("roleRef.apiGroup", group, (GROUP,)))
    kinds = ("Role", "ClusterRole") if namespaced else ("ClusterRole",)
    if kind not in kinds:
        errors.append(not_supported("roleRef.kind", kind, kinds))
    if not name:
        errors.append(required("roleRef.name"))
    errors += [invalid_value("roleRef.name", name, why) for why in role_name(name, False)]
    for index, subject in enumerate(obj.get("subjects") or ()):
        errors += _subject_errors(subject, namespaced, f"subjects[{index}]")
    return errors


def _subject_errors(subject: Obj, namespaced: bool, path: str) -> Errors:
    kind, name, group = (subject.get(field) or "" for field in ("kind", "name", "apiGroup"))
    errors: Errors = [] if name else [required(f"{path}.name")]
    if kind == "ServiceAccount":
        errors += checks.subdomain(name, f"{path}.name") if name else []
        if group:
            errors.append(not_supported(f"{path}.apiGroup", group, ("",)))
        if not namespaced and not subject.get("namespace"):
            errors.append(required(f"{path}.namespace"))
    elif kind in ("User", "Group"):
        if group != GROUP:
            errors.append(not_supported(f"{path}.apiGroup", group, (GROUP,)))
    else:
        errors.append(not_supported(f"{path}.kind", kind, ("ServiceAccount", "User", "Group")))
    return errors


def _binding_update_errors(obj: Obj, old: Obj, namespaced: bool) -> Errors:
    errors = _binding_errors(obj, namespaced) + checks.meta_update_errors(obj, old)
    reference = sub(obj, "roleRef")
    if reference != sub(old, "roleRef"):
        shown = {go: reference.get(field, "") for go, field in (("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name"))}
        errors.append(invalid_value("roleRef", checks.Verbatim(dumps_text(shown)), "cannot change roleRef"))
    return errors


def _role_ref(obj: Obj) -> str:
    reference = sub(obj, "roleRef")
    return f"{reference.get('kind') or ''}/{reference.get('name') or ''}"


def _subjects(obj: Obj, kind: str) -> str:
    found: list[str] = []
    for subject in obj.get("subjects") or ():
        if subject.get("kind") == kind:
            name = subject.get("name") or ""
            found.append(f"{subject.get('namespace') or ''}/{name}" if kind == "ServiceAccount" else name)
    return ", ".join(found)


_BINDING_COLUMNS = (
    NAME,
    column("Role", _role_ref, "The role that is granted."),
    AGE,
    column("Users", lambda obj: _subjects(obj, "User"), "Users who get it.", wide=True),
    column("Groups", lambda obj: _subjects(obj, "Group"), "Groups that get it.", wide=True),
    column("ServiceAccounts", lambda obj: _subjects(obj, "ServiceAccount"), "Service accounts that get it.", wide=True),
)

ROLE = Strategy(
    validate=lambda obj: _role_errors(obj, True),
    validate_update=lambda obj, old: _role_errors(obj, True) + checks.meta_update_errors(obj, old),
    name_problems=role_name,
    columns=DEFAULT,
    allow_create_on_update=True,
)
CLUSTER_ROLE = Strategy(
    validate=_cluster_role_errors,
    validate_update=lambda obj, old: _cluster_role_errors(obj) + checks.meta_update_errors(obj, old),
    name_problems=role_name,
    columns=DEFAULT,
    allow_create_on_update=True,
)
ROLE_BINDING = Strategy(
    default=_default_binding,
    validate=lambda obj: _binding_errors(obj, True),
    validate_update=lambda obj, old: _binding_update_errors(obj, old, True),
    name_problems=role_name,
    columns=_BINDING_COLUMNS,
    allow_create_on_update=True,
)
CLUSTER_ROLE_BINDING = Strategy(
    default=_default_binding,
    validate=lambda obj: _binding_errors(obj, False),
    validate_update=lambda obj, old: _binding_update_errors(obj, old, False),
    name_problems=role_name,
    columns=_BINDING_COLUMNS,
    allow_create_on_update=True,
)
