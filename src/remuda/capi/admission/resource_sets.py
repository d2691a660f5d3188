"""Admission of ClusterResourceSets and their bindings: the default strategy, and a selector that can't be changed.

Both served versions have the same fields, so that a conversion changes the version alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remuda.api.addons_cluster_x_k8s_io import GROUP, VERSION
from remuda.kube.admission_attributes import Attributes
from remuda.kube.errors import FieldError, invalid_value
from remuda.kube.objects import dig, with_path
from remuda.kube.selectors import SelectorError, checked_structure
from remuda.runtime.admitted_types import AdmittedType

Obj = dict[str, Any]


def admitted_resource_sets() -> tuple[AdmittedType, ...]:
    return (
        AdmittedType(
            GROUP, VERSION, "clusterresourcesets", "ClusterResourceSet", default_strategy, validate_selector, in_version
        ),
        AdmittedType(GROUP, VERSION, "clusterresourcesetbindings", "ClusterResourceSetBinding", convert=in_version),
    )


def default_strategy(attributes: Attributes) -> Obj | None:
    obj = attributes.obj or {}
    return None if dig(obj, "spec", "strategy") else with_path(obj, ("spec", "strategy"), "ApplyOnce")


def validate_selector(attributes: Attributes) -> Iterable[FieldError]:
    selector = dig(attributes.obj, "spec", "clusterSelector") or {}
    try:
        if checked_structure(selector).empty:
            yield invalid_value("spec.clusterSelector", selector, "selector must not be empty")
    except SelectorError as error:
        yield invalid_value("spec.clusterSelector", selector, str(error))
    if attributes.old is not None and dig(attributes.old, "spec", "clusterSelector") != selector:
        yield invalid_value("spec.clusterSelector", selector, "field is immutable")


def in_version(obj: Obj, version: str) -> Obj:
    return {**obj, "apiVersion": version}
