"""MachineHealthChecks: defaults and checks."""

from __future__ import annotations

from collections.abc import Iterable

from remuda.kube.admission_attributes import Attributes
from remuda.kube.errors import FieldError, invalid_value, required
from remuda.kube.objects import dig, with_path

from .. import well_known
from .machine_templates import with_cluster_label
from .shared_rules import (
    Errors,
    Obj,
    int_or_percent,
    same_cluster_as_before,
    section,
    selector_of,
    shown_selector,
    text,
    whole_number,
)

_STARTUP_TIMEOUT = ("spec", "checks", "nodeStartupTimeoutSeconds")
NODE_STARTUP_TIMEOUT_SECONDS = 600
# Zero switches the check off; a shorter timeout would hit machines that are merely starting.
_SHORTEST_STARTUP_SECONDS = 30


def default(attributes: Attributes) -> Obj | None:
    obj = attributes.obj or {}
    filled = with_cluster_label(obj)
    if dig(filled, *_STARTUP_TIMEOUT) is None:
        filled = with_path(filled, _STARTUP_TIMEOUT, NODE_STARTUP_TIMEOUT_SECONDS)
    return None if filled is obj else filled


def validate(attributes: Attributes) -> Iterable[FieldError]:
    obj = attributes.obj or {}
    errors = _selector_errors(obj)
    errors += same_cluster_as_before(obj, attributes.old)
    seconds = whole_number(obj, *_STARTUP_TIMEOUT)
    if seconds and seconds < _SHORTEST_STARTUP_SECONDS:
        errors.append(invalid_value(".".join(_STARTUP_TIMEOUT), seconds, "must be at least 30s"))
    most = ("spec", "remediation", "triggerIf", "unhealthyLessThanOrEqualTo")
    return errors + int_or_percent(dig(obj, *most), ".".join(most))


def _selector_errors(obj: Obj) -> Errors:
    errors: Errors = []
    structure = section(obj, "spec", "selector")
    selector = selector_of(structure, "spec.selector", errors)
    if selector is not None and selector.empty:
        errors.append(required("spec.selector", "selector must not be empty"))
    wanted = section(structure, "matchLabels")
    if well_known.CLUSTER_NAME in wanted and wanted[well_known.CLUSTER_NAME] != text(obj, "spec", "clusterName"):
        why = "cannot specify a cluster selector other than the one specified by ClusterName"
        errors.append(invalid_value("spec.selector", shown_selector(structure), why))
    return errors
