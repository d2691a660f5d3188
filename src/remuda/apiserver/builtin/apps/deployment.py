"""Deployments and ReplicaSets."""

from __future__ import annotations

from remuda.kube import selectors
from remuda.kube.encoding.jsonio import dumps_text
from remuda.kube.errors import forbidden_field, invalid_value, not_supported, required

from ...registry import object_meta
from ...registry.strategy import (
    AGE,
    NAME,
    Column,
    Strategy,
    at,
    column,
    container_columns,
    format_selector,
    number,
    selector_text,
)
from .. import checks, workloads
from ..checks import Errors, Obj, same, sub
from ..pods.defaults import default_template


def _default(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    default_template(spec.setdefault("template", {}))
    if spec.get("replicas") is None:
        spec["replicas"] = 1
    strategy = spec.setdefault("strategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        rolling = strategy["rollingUpdate"] = strategy.get("rollingUpdate") or {}
        for field in ("maxUnavailable", "maxSurge"):
            if rolling.get(field) is None:
                rolling[field] = "25%"
    for field, value in (("revisionHistoryLimit", 10), ("progressDeadlineSeconds", 600)):
        if spec.get(field) is None:
            spec[field] = value


def _strategy_errors(strategy: Obj) -> Errors:
    path, rolling = "spec.strategy", strategy.get("rollingUpdate")
    match strategy.get("type"):
        case "Recreate":
            why = "may not be specified when strategy `type` is 'Recreate'"
            return [forbidden_field(f"{path}.rollingUpdate", why)] if rolling is not None else []
        case "RollingUpdate":
            if rolling is None:
                return [required(f"{path}.rollingUpdate", "this should be defaulted and never be nil")]
            return _rolling_errors(rolling, f"{path}.rollingUpdate")
    shown = checks.Verbatim(dumps_text({"Type": strategy.get("type") or "", "RollingUpdate": rolling}))
    return [not_supported(path, shown, ("Recreate", "RollingUpdate"))]


def _rolling_errors(rolling: Obj, path: str) -> Errors:
    unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    errors = checks.int_or_percent(unavailable, f"{path}.maxUnavailable")
    errors += checks.int_or_percent(surge, f"{path}.maxSurge")
    if checks.scaled(unavailable) == 0 and checks.scaled(surge) == 0:
        why = "may not be 0 when `maxSurge` is 0"
        errors.append(invalid_value(f"{path}.maxUnavailable", unavailable, why))
    return errors + checks.at_most_100_percent(unavailable, f"{path}.maxUnavailable")


def _template_errors(spec: Obj) -> Errors:
    """Selector and template, as ReplicaSets have them."""
    errors = workloads.selector_errors(spec, "deployment")
    selector = workloads.parsed_selector(spec.get("selector"))
    template = sub(spec, "template")
    if selector is None:
        shown = checks.shown_selector(spec.get("selector"))
        return [*errors, invalid_value("spec.selector", shown, "invalid label selector")]
    if not selector.empty:
        errors += workloads.mismatch_errors(selector, template, "spec.template")
    return errors + workloads.running_template_errors(template, "ReplicaSet", "spec.template")


def _spec_errors(obj: Obj) -> Errors:
    spec = sub(obj, "spec")
    errors = checks.nonnegative(spec.get("replicas"), "spec.replicas") + _template_errors(spec)
    errors += _strategy_errors(sub(spec, "strategy"))
    errors += checks.all_nonnegative(spec, ("minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"), "spec")
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= (spec.get("minReadySeconds") or 0):
        errors.append(invalid_value("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"))
    return errors


def _prepare_for_update(obj: Obj, old: Obj) -> None:
    checks.keep_status(obj, old)
    meta, before = obj.setdefault("metadata", {}), sub(old, "metadata")
    # A deployment's annotations count too: `kubectl rollout` works through them.
    changed = (meta.get("annotations") or {}) != (before.get("annotations") or {})
    if changed or not same(obj.get("spec"), old.get("spec")):
        meta["generation"] = (before.get("generation") or 0) + 1


def _validate_update(obj: Obj, old: Obj) -> Errors:
    errors = checks.meta_update_errors(obj, old) + _spec_errors(obj)
    return errors + workloads.immutable_selector(sub(obj, "spec"), sub(old, "spec"))


def _prepare_for_status_update(obj: Obj, old: Obj) -> None:
    checks.keep_spec(obj, old)
    checks.keep_labels(obj, old)


_COUNTS = (
    "observedGeneration",
    "replicas",
    "updatedReplicas",
    "readyReplicas",
    "availableReplicas",
    "unavailableReplicas",
    "terminatingReplicas",
    "collisionCount",
)


def _validate_status_update(obj: Obj, old: Obj) -> Errors:
    status = sub(obj, "status")
    errors = checks.meta_update_errors(obj, old) + checks.all_nonnegative(status, _COUNTS, "status")
    errors += workloads.at_most_replicas(status, ("updatedReplicas", "readyReplicas", "availableReplicas"))
    return errors + workloads.collision_errors(status, sub(old, "status"))


def _shown_selector(obj: Obj) -> str:
    try:
        return selector_text(sub(obj, "spec").get("selector") or {})
    except selectors.SelectorError:
        return "<invalid>"


def ready_of_desired(obj: Obj) -> str:
    return f"{sub(obj, 'status').get('readyReplicas') or 0}/{sub(obj, 'spec').get('replicas') or 0}"


def _selector_column() -> Column:
    return column("Selector", lambda obj: format_selector(sub(obj, "spec").get("selector")), "Its pods.", wide=True)


SELECTOR = _selector_column()
_CONTAINERS = container_columns("spec", "template", "spec", "containers")

DEPLOYMENT = Strategy(
    default=_default,
    prepare_for_create=checks.drop_status,
    validate=lambda obj: checks.meta_errors(obj, True, object_meta.subdomain_name) + _spec_errors(obj),
    prepare_for_update=_prepare_for_update,
    validate_update=_validate_update,
    prepare_for_status_update=_prepare_for_status_update,
    validate_status_update=_validate_status_update,
    warnings=workloads.warnings,
    name_problems=object_meta.subdomain_name,
    columns=(
        NAME,
        column("Ready", ready_of_desired, "Pods that are ready, of those there should be."),
        column("Up-to-date", at("status", "updatedReplicas", default=0), "Pods of the newest template."),
        column("Available", at("status", "availableReplicas", default=0), "Pods that have been ready long enough."),
        AGE,
        *_CONTAINERS,
        column("Selector", _shown_selector, "Its pods.", wide=True),
    ),
    generation=True,
)


# ---------------------------------------------------------------------------------------------------------------------
# Replica sets


def _default_set(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    default_template(spec.setdefault("template", {}))
    if spec.get("replicas") is None:
        spec["replicas"] = 1


def _set_errors(obj: Obj) -> Errors:
    spec = sub(obj, "spec")
    return checks.all_nonnegative(spec, ("replicas", "minReadySeconds"), "spec") + _template_errors(spec)


def _set_update_errors(obj: Obj, old: Obj) -> Errors:
    errors = checks.meta_update_errors(obj, old) + _set_errors(obj)
    return errors + workloads.immutable_selector(sub(obj, "spec"), sub(old, "spec"))


_SET_COUNTS = (
    "replicas",
    "fullyLabeledReplicas",
    "readyReplicas",
    "availableReplicas",
    "observedGeneration",
    "terminatingReplicas",
)


REPLICA_SET = Strategy(
    default=_default_set,
    prepare_for_create=checks.fresh_status(replicas=0),
    validate=lambda obj: checks.meta_errors(obj, True, object_meta.subdomain_name) + _set_errors(obj),
    prepare_for_update=checks.keep_status,
    validate_update=_set_update_errors,
    prepare_for_status_update=checks.keep_spec,
    validate_status_update=workloads.replica_status_errors(_SET_COUNTS),
    warnings=workloads.warnings,
    name_problems=object_meta.subdomain_name,
    columns=(
        NAME,
        number("Desired", at("spec", "replicas", default=0), "Pods that there should be."),
        number("Current", at("status", "replicas", default=0), "Pods that there are."),
        number("Ready", at("status", "readyReplicas", default=0), "Pods that are ready."),
        AGE,
        *_CONTAINERS,
        SELECTOR,
    ),
    generation=True,
)
