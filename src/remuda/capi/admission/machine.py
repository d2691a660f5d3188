"""Machines: defaults and checks."""

from __future__ import annotations

from collections.abc import Iterable

from remuda.kube.admission_attributes import Attributes
from remuda.kube.errors import FieldError
from remuda.kube.objects import dig, with_path

from .. import well_known
from .machine_templates import taint_errors, with_cluster_label, with_version_prefix
from .shared_rules import Errors, Obj, bootstrap_is_named, items, same_cluster_as_before, section, text, version_is_semantic

_DELETION_TIMEOUT = ("spec", "deletion", "nodeDeletionTimeoutSeconds")
NODE_DELETION_TIMEOUT_SECONDS = 10


def default(attributes: Attributes) -> Obj | None:
    obj = attributes.obj or {}
    filled = with_version_prefix(with_cluster_label(obj), "spec", "version")
    if dig(filled, *_DELETION_TIMEOUT) is None:
        filled = with_path(filled, _DELETION_TIMEOUT, NODE_DELETION_TIMEOUT_SECONDS)
    return None if filled is obj else filled


def validate(attributes: Attributes) -> Iterable[FieldError]:
    obj = attributes.obj or {}
    spec = section(obj, "spec")
    # The config of a machine in a pool belongs to the pool.
    errors: Errors = [] if _is_of_a_pool(obj) else bootstrap_is_named(spec, "spec")
    errors += same_cluster_as_before(obj, attributes.old)
    errors += version_is_semantic(text(spec, "version"), "spec.version")
    is_control_plane = well_known.CONTROL_PLANE in section(obj, "metadata", "labels")
    return errors + taint_errors(items(spec, "taints"), "spec.taints", worker=not is_control_plane)


def _is_of_a_pool(obj: Obj) -> bool:
    owners = items(obj, "metadata", "ownerReferences")
    return well_known.POOL_NAME in section(obj, "metadata", "labels") or any(
        text(owner, "kind") == "MachinePool" for owner in owners
    )
