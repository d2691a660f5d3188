"""Scheduling constraints of pods: node selectors, affinity, tolerations and spreading."""

from __future__ import annotations

from remuda.kube import selectors
from remuda.kube.errors import duplicate, forbidden_field, invalid_value, not_supported, required
from remuda.kube.names import label_value_problems

from .. import checks
from ..checks import TAINT_EFFECTS, Errors, Obj

_OPERATOR = "not a valid selector operator"


def _requirement_errors(requirement: Obj, path: str, check_values: bool) -> Errors:
    operator, values = requirement.get("operator") or "", requirement.get("values") or []
    errors: Errors = []
    if operator in ("In", "NotIn"):
        if not values:
            errors.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            errors.append(forbidden_field(f"{path}.values", why))
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            why = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            errors.append(required(f"{path}.values", why))
    else:
        errors.append(invalid_value(f"{path}.operator", operator, _OPERATOR))
    errors += checks.qualified(requirement.get("key") or "", f"{path}.key")
    if check_values:
        for index, value in enumerate(values):
            errors += [invalid_value(f"{path}.values[{index}]", value, why) for why in label_value_problems(value)]
    return errors


def _field_requirement_errors(requirement: Obj, path: str) -> Errors:
    operator, values = requirement.get("operator") or "", requirement.get("values") or []
    errors: Errors = []
    if operator not in ("In", "NotIn"):
        errors.append(invalid_value(f"{path}.operator", operator, _OPERATOR))
    elif len(values) != 1:
        why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        errors.append(required(f"{path}.values", why))
    key = requirement.get("key") or ""
    if key != "metadata.name":
        return [*errors, invalid_value(f"{path}.key", key, "not a valid field selector key")]
    for index, value in enumerate(values):
        errors += checks.subdomain(value, f"{path}.values[{index}]")
    return errors


def _term_errors(term: Obj, path: str, check_values: bool) -> Errors:
    errors: Errors = []
    for index, requirement in enumerate(term.get("matchExpressions") or ()):
        errors += _requirement_errors(requirement, f"{path}.matchExpressions[{index}]", check_values)
    for index, requirement in enumerate(term.get("matchFields") or ()):
        errors += _field_requirement_errors(requirement, f"{path}.matchFields[{index}]")
    return errors


def node_selector_errors(selector: Obj, path: str) -> Errors:
    terms = selector.get("nodeSelectorTerms") or []
    if not terms:
        return [required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")]
    return [e for i, term in enumerate(terms) for e in _term_errors(term, f"{path}.nodeSelectorTerms[{i}]", True)]


def _weight_errors(weight: int, path: str) -> Errors:
    return [] if 1 <= weight <= 100 else [invalid_value(f"{path}.weight", weight, "must be in the range 1-100")]


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def affinity_errors(affinity: Obj | None, path: str) -> Errors:
    if affinity is None:
        return []
    errors: Errors = []
    nodes = affinity.get("nodeAffinity")
    if nodes is not None:
        if nodes.get(_REQUIRED) is not None:
            errors += node_selector_errors(nodes[_REQUIRED], f"{path}.nodeAffinity.{_REQUIRED}")
        for index, term in enumerate(nodes.get(_PREFERRED) or ()):
            at = f"{path}.nodeAffinity.{_PREFERRED}[{index}]"
            errors += _weight_errors(term.get("weight") or 0, at)
            errors += _term_errors(term.get("preference") or {}, f"{at}.preference", False)
    for field in ("podAffinity", "podAntiAffinity"):
        pods = affinity.get(field) or {}
        for index, term in enumerate(pods.get(_REQUIRED) or ()):
            errors += _pod_term_errors(term, f"{path}.{field}.{_REQUIRED}[{index}]")
        for index, weighted in enumerate(pods.get(_PREFERRED) or ()):
            at = f"{path}.{field}.{_PREFERRED}[{index}]"
            errors += _weight_errors(weighted.get("weight") or 0, at)
            errors += _pod_term_errors(weighted.get("podAffinityTerm") or {}, f"{at}.podAffinityTerm")
    return errors


def _pod_term_errors(term: Obj, path: str) -> Errors:
    errors = selectors.structure_errors(term.get("labelSelector"), f"{path}.labelSelector")
    errors += selectors.structure_errors(term.get("namespaceSelector"), f"{path}.namespaceSelector")
    for name in term.get("namespaces") or ():
        errors += checks.dns_label(name, f"{path}.namespace")
    errors += _label_key_errors(
        term.get("matchLabelKeys") or [], term.get("mismatchLabelKeys") or [], term.get("labelSelector"), path
    )
    key = term.get("topologyKey") or ""
    if not key:
        errors.append(required(f"{path}.topologyKey", "can not be empty"))
    return errors + checks.qualified(key, f"{path}.topologyKey")


def _label_key_errors(match: list[str], mismatch: list[str], selector: Obj | None, path: str) -> Errors:
    errors: Errors = []
    for field, keys in (("matchLabelKeys", match), ("mismatchLabelKeys", mismatch)):
        if keys and selector is None:
            errors.append(forbidden_field(f"{path}.{field}", "must not be specified when labelSelector is not set"))
        elif keys:
            for index, key in enumerate(keys):
                errors += checks.qualified(key, f"{path}.{field}[{index}]")
    known = set((selector or {}).get("matchLabels") or {})
    for expression in (selector or {}).get("matchExpressions") or ():
        key = expression.get("key") or ""
        if key in match and key in known:
            why = "exists in both matchLabelKeys and labelSelector"
            errors.append(invalid_value(f"{path}[{match.index(key)}]", key, why))
        known.add(key)
    for index, key in enumerate(match):
        if key in mismatch:
            why = "exists in both matchLabelKeys and mismatchLabelKeys"
            errors.append(invalid_value(f"{path}.matchLabelKeys[{index}]", key, why))
    return errors


def toleration_errors(tolerations: list[Obj], path: str) -> Errors:
    errors: Errors = []
    for index, each in enumerate(tolerations):
        at = f"{path}[{index}]"
        key, operator, value, effect = (each.get(field) or "" for field in ("key", "operator", "value", "effect"))
        if key:
            errors += checks.qualified(key, f"{at}.key")
        elif operator != "Exists":
            why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            errors.append(invalid_value(f"{at}.operator", operator, why))
        if each.get("tolerationSeconds") is not None and effect != "NoExecute":
            why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            errors.append(invalid_value(f"{at}.effect", effect, why))
        errors += _toleration_value_errors(operator, value, f"{at}.operator")
        if effect and effect not in TAINT_EFFECTS:
            errors.append(not_supported(f"{at}.effect", effect, TAINT_EFFECTS))
    return errors


def _toleration_value_errors(operator: str, value: str, path: str) -> Errors:
    match operator:
        case "Equal" | "":
            problems = label_value_problems(value)
            return [invalid_value(path, value, ";".join(problems))] if problems else []
        case "Exists":
            why = "value must be empty when `operator` is 'Exists'"
            return [invalid_value(path, value, why)] if value else []
        case "Lt" | "Gt":
            return [not_supported(path, operator, ("Equal", "Exists", "Lt", "Gt"))]
    return [not_supported(path, operator, ("Equal", "Exists"))]


def spread_errors(constraints: list[Obj], path: str) -> Errors:
    errors: Errors = []
    for index, each in enumerate(constraints):
        at = f"{path}[{index}]"
        key, action = each.get("topologyKey") or "", each.get("whenUnsatisfiable") or ""
        errors += checks.positive(each.get("maxSkew"), f"{at}.maxSkew")
        if not key:
            errors.append(required(f"{at}.topologyKey", "can not be empty"))
        if action not in ("DoNotSchedule", "ScheduleAnyway"):
            errors.append(not_supported(f"{at}.whenUnsatisfiable", action, ("DoNotSchedule", "ScheduleAnyway")))
        later = constraints[index + 1 :]
        if any((o.get("topologyKey") or "", o.get("whenUnsatisfiable") or "") == (key, action) for o in later):
            errors.append(duplicate(f"{at}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}"))
        least = each.get("minDomains")
        if least is not None:
            errors += checks.positive(least, f"{at}.minDomains")
            if action != "DoNotSchedule":
                why = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
                errors.append(invalid_value(f"{at}.minDomains", least, why))
        for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if each.get(field) not in (None, "Honor", "Ignore"):
                errors.append(not_supported(f"{at}.{field}", each[field], ("Honor", "Ignore")))
        errors += _label_key_errors(each.get("matchLabelKeys") or [], [], each.get("labelSelector"), at)
        errors += selectors.structure_errors(each.get("labelSelector"), f"{at}.labelSelector")
    return errors


def merge_label_keys(spec: Obj, labels: dict[str, str]) -> None:
    """A new pod's matchLabelKeys become requirements of its selectors, with the pod's own values."""

    def merge(term: Obj) -> None:
        selector = term.get("labelSelector")
        if selector is None:
            return
        for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
            for key in term.get(field) or ():
                if key in labels:
                    wanted = {"key": key, "operator": operator, "values": [labels[key]]}
                    selector["matchExpressions"] = [*(selector.get("matchExpressions") or ()), wanted]

    affinity = spec.get("affinity") or {}
    for field in ("podAffinity", "podAntiAffinity"):
        pods = affinity.get(field) or {}
        for weighted in pods.get(_PREFERRED) or ():
            merge(weighted.get("podAffinityTerm") or {})
        for term in pods.get(_REQUIRED) or ():
            merge(term)
    for constraint in spec.get("topologySpreadConstraints") or ():
        merge(constraint)
