"""ReplicationControllers and PodTemplates."""

from __future__ import annotations

from remuda.kube.errors import invalid_value, required

from ...registry import object_meta
from ...registry.strategy import AGE, NAME, Strategy, at, column, container_columns, format_labels, number
from .. import checks, workloads
from ..checks import Errors, Obj, sub
from ..pods.defaults import default_template
from ..pods.spec import template_errors
from ..pods.warnings import template_warnings


def _default(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    if spec.get("replicas") is None:
        spec["replicas"] = 1
    template = spec.get("template")
    if template is None:
        return
    default_template(template)
    labels = sub(template, "metadata").get("labels")
    if labels:
        if not spec.get("selector"):
            spec["selector"] = dict(labels)
        meta = obj.setdefault("metadata", {})
        if not meta.get("labels"):
            meta["labels"] = dict(labels)


def _spec_errors(obj: Obj) -> Errors:
    spec = sub(obj, "spec")
    errors = checks.nonnegative(spec.get("minReadySeconds"), "spec.minReadySeconds")
    selector, template = spec.get("selector") or {}, spec.get("template")
    if not selector:
        errors.append(required("spec.selector"))
    if spec.get("replicas") is None:
        errors.append(required("spec.replicas"))
    errors += checks.nonnegative(spec.get("replicas"), "spec.replicas")
    if template is None:
        return [*errors, required("spec.template")]
    labels = sub(template, "metadata").get("labels") or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        why = "`selector` does not match template `labels`"
        errors.append(invalid_value("spec.template.metadata.labels", labels or None, why))
    return errors + workloads.running_template_errors(template, "ReplicationController", "spec.template")


_COUNTS = ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration")


STRATEGY = Strategy(
    default=_default,
    prepare_for_create=checks.fresh_status(replicas=0),
    validate=lambda obj: checks.meta_errors(obj, True, object_meta.subdomain_name) + _spec_errors(obj),
    prepare_for_update=checks.keep_status,
    validate_update=lambda obj, old: checks.meta_update_errors(obj, old) + _spec_errors(obj),
    prepare_for_status_update=checks.keep_spec,
    validate_status_update=workloads.replica_status_errors(_COUNTS),
    warnings=workloads.warnings,
    name_problems=object_meta.subdomain_name,
    fields=lambda obj: {"status.replicas": str(sub(obj, "status").get("replicas") or 0)},
    field_names=frozenset(("status.replicas",)),
    columns=(
        NAME,
        number("Desired", at("spec", "replicas", default=0), "Pods that there should be."),
        number("Current", at("status", "replicas", default=0), "Pods that there are."),
        number("Ready", at("status", "readyReplicas", default=0), "Pods that are ready."),
        AGE,
        *container_columns("spec", "template", "spec", "containers"),
        column("Selector", lambda obj: format_labels(sub(obj, "spec").get("selector")), "Its pods.", wide=True),
    ),
    generation=True,
)


def _default_pod_template(obj: Obj) -> None:
    default_template(obj.setdefault("template", {}))


def _template_errors(obj: Obj) -> Errors:
    return template_errors(sub(obj, "template"), "template")


def _template_warnings(obj: Obj, old: Obj | None) -> list[str]:
    if old is not None and checks.same(obj.get("template"), old.get("template")):
        return []
    return template_warnings(obj.get("template"), "template")


POD_TEMPLATE = Strategy(
    default=_default_pod_template,
    validate=lambda obj: checks.meta_errors(obj, True, object_meta.subdomain_name) + _template_errors(obj),
    validate_update=lambda obj, old: checks.meta_update_errors(obj, old) + _template_errors(obj),
    warnings=_template_warnings,
    name_problems=object_meta.subdomain_name,
    columns=(
        NAME,
        *container_columns("template", "spec", "containers", wide=False),
        column("Pod Labels", lambda o: format_labels(sub(o, "template", "metadata").get("labels")), "Labels of its pods."),
    ),
    generation=True,
)
