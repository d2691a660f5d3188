"""MachineSets: defaults and checks."""

from __future__ import annotations

from collections.abc import Iterable

from remuda.kube.admission_attributes import UPDATE, Attributes
from remuda.kube.errors import FieldError, go_quote, invalid_value
from remuda.kube.objects import dig

from .. import well_known
from .machine_templates import (
    cluster_agrees,
    metadata_errors,
    naming_errors,
    selects_nothing_in_particular,
    template_taint_errors,
    version_errors,
    with_cluster_label,
    with_replicas,
    with_selected_label,
    with_version_prefix,
)
from .shared_rules import (
    Errors,
    Obj,
    bootstrap_is_named,
    same_cluster_as_before,
    section,
    selector_of,
    skipped_preflight_checks,
    text,
)


def default(attributes: Attributes) -> Obj | None:
    obj = attributes.obj or {}
    old = attributes.old if attributes.operation == UPDATE else None
    filled = with_replicas("MachineSet", with_cluster_label(obj), old)
    if selects_nothing_in_particular(filled):
        filled = with_selected_label(filled, well_known.SET_NAME, well_known.label_value(text(obj, "metadata", "name")))
    filled = with_version_prefix(filled, "spec", "template", "spec", "version")
    return None if filled is obj else filled


def validate(attributes: Attributes) -> Iterable[FieldError]:
    obj = attributes.obj or {}
    errors = bootstrap_is_named(section(obj, "spec", "template", "spec"), "spec.template.spec")
    errors += _selector_errors(obj)
    errors += skipped_preflight_checks(obj)
    errors += same_cluster_as_before(obj, attributes.old)
    errors += cluster_agrees(obj)
    errors += version_errors(obj)
    errors += template_taint_errors(obj)
    errors += naming_errors(obj)
    return errors + metadata_errors(obj)


def _selector_errors(obj: Obj) -> Errors:
    errors: Errors = []
    selector = selector_of(section(obj, "spec", "selector"), "spec.selector", errors)
    labels = dig(obj, "spec", "template", "metadata", "labels")
    if selector is not None and not selector.matches(labels):
        why = f"must match spec.selector {go_quote(str(selector))}"
        errors.append(invalid_value("spec.template.metadata.labels", labels, why))
    return errors
