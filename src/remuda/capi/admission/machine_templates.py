"""Common checks of MachineSets and MachineDeployments: a template, a selector and a way to name machines."""

from __future__ import annotations

from typing import Any

from remuda.kube.encoding.go_format import IntegerError, parse_int32
from remuda.kube.errors import ApiError, FieldError, invalid_value
from remuda.kube.names import annotation_errors, dns_subdomain_problems, label_errors, qualified_name_problems
from remuda.kube.objects import dig, with_metadata, with_path

from .. import well_known
from ..naming import NameTemplateError, machine_name
from .shared_rules import Errors, Obj, items, section, text, version_is_semantic, whole_number

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
    """The object with a label in its selector and on every machine."""
    for path in (("spec", "selector", "matchLabels"), (*_TEMPLATE, "metadata", "labels")):
        labels = section(obj, *path)
        if labels.get(key) != value:
            obj = with_path(obj, path, {**labels, key: value})
    return obj


def selects_nothing_in_particular(obj: Obj) -> bool:
    selector = section(obj, "spec", "selector")
    return not selector.get("matchLabels") and not selector.get("matchExpressions")


def with_version_prefix(obj: Obj, *path: str) -> Obj:
    """Versions may be written without the `v`, and are stored with it."""
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
    """A template of names must give different names for different machines, and names that Kubernetes accepts."""
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


# --- replicas -------------------------------------------------------------------------------------------------------------
#
# The default number of machines.
#
# The autoscaler takes over only once the number is within its bounds, so an object that carries both of its annotations is
# brought there; unsetting the field hands a running group over without scaling it down. Everything else gets one machine.


def default_replicas(kind: str, obj: Obj, old: Obj | None) -> int:
    """For an object without `spec.replicas`; `old` is None when it is new."""
    annotations = section(obj, "metadata", "annotations")
    if well_known.AUTOSCALER_MIN not in annotations or well_known.AUTOSCALER_MAX not in annotations:
        return 1
    low = _bound(kind, annotations, well_known.AUTOSCALER_MIN)
    high = _bound(kind, annotations, well_known.AUTOSCALER_MAX)
    before = whole_number(old, "spec", "replicas")
    if before is None or before < low:
        return low
    return min(before, high)


def _bound(kind: str, annotations: Obj, name: str) -> int:
    try:
        return parse_int32(str(annotations[name]))
    except IntegerError as error:
        # The misspelt word is what clients of upstream see.
        what = f'failed to caculate {kind} replicas value: could not parse the value of the "{name}" annotation'
        raise ApiError(403, "Forbidden", f"{what}: {error}") from None


# --- taints ---------------------------------------------------------------------------------------------------------------
#
# Taints that a machine may ask for: not those that the system itself adds to nodes and removes.

_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
_CONTROL_PLANE_ROLE = "node-role.kubernetes.io/control-plane"


def taint_errors(taints: list[Any], path: str, *, worker: bool) -> list[FieldError]:
    """The errors in a machine's taints; a worker may not pose as a control plane."""
    errors: list[FieldError] = []
    for index, taint in enumerate(taints):
        key = text(taint, "key")
        reserved = _reserved(key)
        problems = ([reserved] if reserved else []) + qualified_name_problems(key)
        errors += [invalid_value(f"{path}[{index}].key", key, why) for why in problems]
    if worker:
        errors += [
            invalid_value(f"{path}[{index}].key", _CONTROL_PLANE_ROLE, "taint is not allowed for worker Machines")
            for index, taint in enumerate(taints)
            if text(taint, "key") == _CONTROL_PLANE_ROLE
        ]
    return errors


def _reserved(key: str) -> str:
    if key in (well_known.UNINITIALIZED_TAINT, well_known.OUTDATED_REVISION_TAINT):
        return "taint key is not allowed"
    if key.startswith("node.kubernetes.io/") and key != _OUT_OF_SERVICE:
        return f"taint key must not have the prefix node.kubernetes.io/, except for {_OUT_OF_SERVICE}"
    if key.startswith("node.cloudprovider.kubernetes.io/"):
        return "taint key must not have the prefix node.cloudprovider.kubernetes.io/"
    if key == "node-role.kubernetes.io/master":
        return "taint is deprecated since 1.24 and should not be used anymore"
    return ""
