"""admissionregistration.k8s.io: webhook configurations.

Match conditions are CEL: an expression that does not compile is refused when the configuration is written.
"""

from __future__ import annotations

from collections.abc import Callable

from remuda.kube import names, selectors
from remuda.kube.errors import duplicate, invalid_value, not_supported, required, too_many

from ..registry import object_meta
from ..registry.strategy import AGE, NAME, Strategy, length, number
from ..webhook_client import service_errors, url_errors
from . import checks
from .checks import Errors, Obj, sub

# The errors of a CEL expression; an empty list means that it compiles.
ExpressionProblems = Callable[[str], list[str]]

_VERSIONS = ("v1", "v1beta1")
_NO_EFFECTS = ("None", "NoneOnDryRun")
_ALL_EFFECTS = ("None", "NoneOnDryRun", "Some", "Unknown")
_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")


def condition_problems(expression: str) -> list[str]:
    """The CEL compiler's errors for a match condition."""
    # Imported late, with the first condition: see :mod:`remuda.apiserver.crd`.
    from ..cel import MATCH_CONDITION_VARIABLES, CompileError, compile_condition

    try:
        compile_condition(expression, MATCH_CONDITION_VARIABLES)
    except CompileError as error:
        return [error.detail]
    return []


def _default(mutating: bool) -> Callable[[Obj], None]:
    defaults: tuple[tuple[str, object], ...] = (("failurePolicy", "Fail"), ("matchPolicy", "Equivalent"), ("timeoutSeconds", 10))

    def default(obj: Obj) -> None:
        for hook in obj.get("webhooks") or ():
            for field, value in defaults:
                if hook.get(field) is None:
                    hook[field] = value
            for field in ("namespaceSelector", "objectSelector"):
                if hook.get(field) is None:
                    hook[field] = {}
            if mutating and hook.get("reinvocationPolicy") is None:
                hook["reinvocationPolicy"] = "Never"
            for rule in hook.get("rules") or ():
                if rule.get("scope") is None:
                    rule["scope"] = "*"
            service = sub(hook, "clientConfig").get("service")
            if service is not None and service.get("port") is None:
                service["port"] = 443

    return default


def _resource_errors(resources: list[str], path: str) -> Errors:
    errors: Errors = [] if resources else [required(path)]
    all_below: set[str] = set()
    all_with: set[str] = set()
    plain = False
    for index, each in enumerate(resources):
        if not each:
            errors.append(required(f"{path}[{index}]"))
            continue
        resource, slash, subresource = each.partition("/")
        if not slash:
            plain = each != "*"
            continue
        if resource in all_below:
            why = f"if '{resource}/*' is present, must not specify {each}"
            errors.append(invalid_value(f"{path}[{index}]", each, why))
        if subresource in all_with:
            why = f"if '*/{subresource}' is present, must not specify {each}"
            errors.append(invalid_value(f"{path}[{index}]", each, why))
        if subresource == "*":
            all_below.add(resource)
        if resource == "*":
            all_with.add(subresource)
    if len(resources) > 1 and "*/*" in resources:
        errors.append(invalid_value(path, resources, "if '*/*' is present, must not specify other resources"))
    if "*" in resources and plain:
        why = "if '*' is present, must not specify other resources without subresources"
        errors.append(invalid_value(path, resources, why))
    return errors


def _rule_errors(rule: Obj, path: str) -> Errors:
    operations = rule.get("operations") or []
    errors: Errors = [] if operations else [required(f"{path}.operations")]
    if len(operations) > 1 and "*" in operations:
        why = "if '*' is present, must not specify other operations"
        errors.append(invalid_value(f"{path}.operations", operations, why))
    for index, operation in enumerate(operations):
        if operation not in _OPERATIONS:
            errors.append(not_supported(f"{path}.operations[{index}]", operation, _OPERATIONS))
    for field, what in (("apiGroups", "API groups"), ("apiVersions", "API versions")):
        values = rule.get(field) or []
        if not values:
            errors.append(required(f"{path}.{field}"))
        if len(values) > 1 and "*" in values:
            errors.append(invalid_value(f"{path}.{field}", values, f"if '*' is present, must not specify other {what}"))
    for index, version in enumerate(rule.get("apiVersions") or ()):
        if not version:
            errors.append(required(f"{path}.apiVersions[{index}]"))
    errors += _resource_errors(rule.get("resources") or [], f"{path}.resources")
    scopes = ("*", "Cluster", "Namespaced")
    return errors + checks.supported(rule.get("scope"), scopes, f"{path}.scope", False)


def _name_errors(name: str, path: str) -> Errors:
    if not name:
        return [required(path)]
    problems = names.dns_subdomain_problems(name)
    if problems:
        return [invalid_value(path, name, ",".join(problems))]
    if name.count(".") < 2:
        return [invalid_value(path, name, "should be a domain with at least three segments separated by dots")]
    return []


def _condition_errors(conditions: list[Obj], problems: ExpressionProblems, path: str) -> Errors:
    errors: Errors = [too_many(path, len(conditions), 64)] if len(conditions) > 64 else []
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        at, name = f"{path}[{index}]", condition.get("name") or ""
        expression = (condition.get("expression") or "").strip()
        if not expression:
            errors.append(required(f"{at}.expression"))
        else:
            errors += [invalid_value(f"{at}.expression", expression, why) for why in problems(expression)]
        errors += checks.qualified(name, f"{at}.name") if name else [required(f"{at}.name")]
        if name and name in seen:
            errors.append(duplicate(f"{at}.name", name))
        seen.add(name)
    return errors


def _review_version_errors(versions: list[str], recognized: bool, path: str) -> Errors:
    if not versions:
        return [required(path, f"must specify one of {', '.join(_VERSIONS)}")]
    errors: Errors = []
    for index, version in enumerate(versions):
        if version in versions[:index]:
            errors.append(invalid_value(f"{path}[{index}]", version, "duplicate version"))
            continue
        errors += [invalid_value(f"{path}[{index}]", version, why) for why in names.dns1035_label_problems(version)]
    if recognized and not any(version in _VERSIONS for version in versions):
        errors.append(invalid_value(path, versions, f"must include at least one of {', '.join(_VERSIONS)}"))
    return errors


class _Rules:
    """Rules that an update may still break because the old object breaks them."""

    def __init__(self, old: Obj | None) -> None:
        hooks = (old or {}).get("webhooks") or []
        self.no_effects = all(hook.get("sideEffects") in _NO_EFFECTS for hook in hooks)
        versions = [hook.get("admissionReviewVersions") or [] for hook in hooks]
        self.recognized = all(not each or any(version in _VERSIONS for version in each) for each in versions)
        found = [hook.get("name") for hook in hooks]
        self.unique = len(found) == len(set(found))
        self.conditions = None if old is None else [hook.get("matchConditions") or [] for hook in hooks]


def _hook_errors(hook: Obj, rules: _Rules, mutating: bool, path: str) -> Errors:
    errors = _name_errors(hook.get("name") or "", f"{path}.name")
    for index, rule in enumerate(hook.get("rules") or ()):
        errors += _rule_errors(rule, f"{path}.rules[{index}]")
    errors += checks.supported(hook.get("failurePolicy"), ("Fail", "Ignore"), f"{path}.failurePolicy", False)
    errors += checks.supported(hook.get("matchPolicy"), ("Equivalent", "Exact"), f"{path}.matchPolicy", False)
    effects, allowed = hook.get("sideEffects"), _NO_EFFECTS if rules.no_effects else _ALL_EFFECTS
    if effects is None:
        errors.append(required(f"{path}.sideEffects", f"must specify one of {', '.join(allowed)}"))
    elif effects not in allowed:
        errors.append(not_supported(f"{path}.sideEffects", effects, allowed))
    timeout = hook.get("timeoutSeconds")
    if timeout is not None and not 1 <= timeout <= 30:
        why = "the timeout value must be between 1 and 30 seconds"
        errors.append(invalid_value(f"{path}.timeoutSeconds", timeout, why))
    for field in ("namespaceSelector", "objectSelector"):
        errors += selectors.structure_errors(hook.get(field), f"{path}.{field}")
    if mutating:
        policies = ("IfNeeded", "Never")
        errors += checks.supported(hook.get("reinvocationPolicy"), policies, f"{path}.reinvocationPolicy", False)
    client = sub(hook, "clientConfig")
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        errors.append(required(f"{path}.clientConfig", "exactly one of url or service is required"))
    elif url is not None:
        errors += url_errors(url, f"{path}.clientConfig.url")
    else:
        errors += service_errors(service or {}, f"{path}.clientConfig.service")
    return errors


def _validate(problems: ExpressionProblems, mutating: bool) -> Callable[[Obj, Obj | None], Errors]:
    def validate(obj: Obj, old: Obj | None = None) -> Errors:
        errors = object_meta.validate_object_meta(sub(obj, "metadata"), False, object_meta.subdomain_name)
        rules, hooks = _Rules(old), obj.get("webhooks") or []
        check_conditions = rules.conditions != [hook.get("matchConditions") or [] for hook in hooks]
        seen: set[str] = set()
        for index, hook in enumerate(hooks):
            path, name = f"webhooks[{index}]", hook.get("name") or ""
            errors += _hook_errors(hook, rules, mutating, path)
            if check_conditions:
                errors += _condition_errors(hook.get("matchConditions") or [], problems, f"{path}.matchConditions")
            versions = hook.get("admissionReviewVersions") or []
            errors += _review_version_errors(versions, rules.recognized, f"{path}.admissionReviewVersions")
            if rules.unique and name and name in seen:
                errors.append(duplicate(f"{path}.name", name))
            seen.add(name)
        return errors

    return validate


def _strategy(problems: ExpressionProblems, mutating: bool) -> Strategy:
    validate = _validate(problems, mutating)
    return Strategy(
        default=_default(mutating),
        validate=lambda obj: validate(obj, None),
        validate_update=validate,
        name_problems=object_meta.subdomain_name,
        columns=(NAME, number("Webhooks", length("webhooks"), "Webhooks in this configuration."), AGE),
        allow_unconditional_update=False,
        generation=True,
    )


def webhook_strategies(problems: ExpressionProblems = condition_problems) -> tuple[Strategy, Strategy]:
    """The strategies of mutating and of validating webhook configurations."""
    return _strategy(problems, True), _strategy(problems, False)


MUTATING, VALIDATING = webhook_strategies()
