"""What a MachineSet and a MachineDeployment have in common: a template, a selector and a way to name machines."""

from __future__ import annotations

from remuda.kube.errors import FieldError, invalid_value
from remuda.kube.names import annotation_errors, dns_subdomain_problems, label_errors
from remuda.kube.objects import dig, with_metadata, with_path

from .. import well_known
from ..naming import NameTemplateError, machine_name
from .reading import Obj, items, section, text
from .replicas import default_replicas
from .shared_rules import Errors, version_is_semantic
from .taints import taint_errors

_TEMPLATE = ("spec", "template")
_RANDOM = "{{ .random }}"


def with_cluster_label(obj: Obj) -> Obj:
    """The object labelled with its cluster."""
    cluster, labels = text(obj, "spec", "clusterName"), section(obj, "metadata", "labels")
    if labels.get(well_known.CLUSTER_NAME) == cluster:
        return obj
    return with_metadata(obj, labels={**labels, well_known.CLUSTER_NAME: cluster})


def with_replicas(kind: str, obj: Obj, old: Obj | None) -> Obj:
    if dig(obj, "spec", "replicas") is not None:
        return obj
    return with_path(obj, ("spec", "replicas"), default_replicas(kind, obj, old))


def with_selected_label(obj: Obj, key: str, value: str) -> Obj:
    """The label both asked for by the selector and given to every machine."""
    for path in (("spec", "selector", "matchLabels"), (*_TEMPLATE, "metadata", "labels")):
        labels = section(obj, *path)
        if labels.get(key) != value:
            obj = with_path(obj, path, {**labels, key: value})
    return obj


def selects_nothing_in_particular(obj: Obj) -> bool:
    selector = section(obj, "spec", "selector")
    return not selector.get("matchLabels") and not selector.get("matchExpressions")


def with_version_prefix(obj: Obj, *path: str) -> Obj:
    """Versions may be written without the `v`, and are kept with it."""
    version = text(obj, *path)
    return with_path(obj, path, f"v{version}") if version and not version.startswith("v") else obj


def cluster_agrees(obj: Obj) -> Errors:
    cluster = text(obj, "spec", "clusterName")
    if cluster == text(obj, *_TEMPLATE, "spec", "clusterName"):
        return []
    return [
        invalid_value(
            "spec.clusterName", cluster, "spec.clusterName and spec.template.spec.clusterName must be set to the same value"
        )
    ]


def version_errors(obj: Obj) -> Errors:
    return version_is_semantic(text(obj, *_TEMPLATE, "spec", "version"), "spec.template.spec.version")


def template_taint_errors(obj: Obj) -> Errors:
    return taint_errors(items(obj, *_TEMPLATE, "spec", "taints"), "spec.template.spec.taints", worker=True)


def metadata_errors(obj: Obj) -> Errors:
    metadata = section(obj, *_TEMPLATE, "metadata")
    errors = label_errors(metadata.get("labels"), "spec.template.metadata.labels")
    return errors + annotation_errors(metadata.get("annotations"), "spec.template.metadata.annotations")


def naming_errors(obj: Obj) -> Errors:
    """A template of names must differ from machine to machine, and give names that Kubernetes takes."""
    template = text(obj, "spec", "machineNaming", "template")
    if not template:
        return []
    errors = [] if _RANDOM in template else [_bad_name(template, f"invalid template, {_RANDOM} is missing")]
    try:
        name = machine_name(template, "cluster", "machineset", lambda length: "x" * length)
    except NameTemplateError as error:
        return [*errors, _bad_name(template, f"invalid template: {error}")]
    why = "invalid template, generated names would not be valid Kubernetes object names"
    return errors + [_bad_name(template, f"{why}: {problem}") for problem in dns_subdomain_problems(name)]


def _bad_name(template: str, why: str) -> FieldError:
    return invalid_value("spec.machineNaming.template", template, why)
