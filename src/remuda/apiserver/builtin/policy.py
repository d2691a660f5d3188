"""policy: PodDisruptionBudgets."""

from __future__ import annotations

from remuda.kube import names, selectors
from remuda.kube.encoding.jsonio import dumps_text
from remuda.kube.errors import invalid_value, not_supported

from ..registry.strategy import AGE, NAME, Strategy, at, column, number
from . import checks
from .checks import Errors, Obj, sub


def _errors(obj: Obj, old: Obj | None = None) -> Errors:
    spec = sub(obj, "spec")
    errors: Errors = []
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if least is not None and most is not None:
        shown = {
            "MinAvailable": least,
            "Selector": spec.get("selector"),
            "MaxUnavailable": most,
            "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
        }
        why = "minAvailable and maxUnavailable cannot be both set"
        errors.append(invalid_value("spec", checks.Verbatim(dumps_text(shown)), why))
    for field, value in (("minAvailable", least), ("maxUnavailable", most)):
        errors += checks.int_or_percent(value, f"spec.{field}") + checks.at_most_100_percent(value, f"spec.{field}")
    errors += selectors.structure_errors(spec.get("selector"), "spec.selector")
    policy, allowed = spec.get("unhealthyPodEvictionPolicy"), ("AlwaysAllow", "IfHealthyBudget")
    if policy is not None and policy not in allowed:
        errors.append(not_supported("spec.unhealthyPodEvictionPolicy", policy, allowed))
    return errors


_COUNTS = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")


def _status_errors(obj: Obj, old: Obj) -> Errors:
    status = sub(obj, "status")
    errors = checks.condition_errors(status.get("conditions"), "status.conditions")
    return errors + checks.all_nonnegative(status, _COUNTS, "status")


def _shown(field: str, obj: Obj) -> str:
    value = sub(obj, "spec").get(field)
    return "N/A" if value is None else str(value)


BUDGET = Strategy(
    prepare_for_create=checks.fresh_status(disruptionsAllowed=0, currentHealthy=0, desiredHealthy=0, expectedPods=0),
    validate=_errors,
    prepare_for_update=checks.keep_status,
    validate_update=_errors,
    prepare_for_status_update=checks.keep_spec,
    validate_status_update=_status_errors,
    name_problems=lambda name, prefix: names.path_segment_problems(name),
    columns=(
        NAME,
        column("Min Available", lambda obj: _shown("minAvailable", obj), "Pods that must stay up."),
        column("Max Unavailable", lambda obj: _shown("maxUnavailable", obj), "Pods that may be down."),
        number("Allowed Disruptions", at("status", "disruptionsAllowed", default=0), "Pods that may go down now."),
        AGE,
    ),
    allow_unconditional_update=False,
    generation=True,
)
