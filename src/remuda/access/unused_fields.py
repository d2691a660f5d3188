"""Warnings for fields of `management.cattle.io` that are stored for Rancher's clients and have no effect here.

The types mark them (:class:`remuda.api.schema.NoEffect`). Fields of clusters.provisioning.cattle.io have the same marks, which
:mod:`remuda.provisioning.admission.clusters` reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from remuda.api.management_cattle_io import GROUP, VERSION
from remuda.api.management_cattle_io.cluster import Cluster
from remuda.api.management_cattle_io.node import Node
from remuda.api.management_cattle_io.project import Project
from remuda.api.management_cattle_io.roles import GlobalRole, RoleTemplate
from remuda.api.management_cattle_io.users import Token, User
from remuda.api.schema import fields_without_effect, values_at
from remuda.kube.admission_attributes import Attributes
from remuda.kube.errors import FieldError
from remuda.runtime.admitted_types import AdmittedType

from .clusters.admission import concerns

Obj = dict[str, Any]

KINDS: Mapping[str, type] = {
    "clusters": Cluster,
    "globalroles": GlobalRole,
    "nodes": Node,
    "projects": Project,
    "roletemplates": RoleTemplate,
    "tokens": Token,
    "users": User,
}


def admitted() -> tuple[AdmittedType, ...]:
    return tuple(AdmittedType(GROUP, VERSION, resource, kind.__name__, validate=warn) for resource, kind in KINDS.items())


def warn(attributes: Attributes) -> Iterable[FieldError]:
    """Warns of new and changed fields; refuses nothing."""
    if concerns(attributes):
        kind = KINDS[attributes.resource]
        before = {path: value for path, _, value in _written(kind, attributes.old)}
        found = _written(kind, attributes.obj)
        attributes.warnings += [f"{path} has no effect: {why}" for path, why, value in found if before.get(path) != value]
    return ()


def _written(kind: type, obj: Obj | None) -> Iterator[tuple[str, str, Any]]:
    """The set fields that nothing reads: path, reason, value."""
    for parts, why in fields_without_effect(kind):
        for _, path, value in values_at(obj or {}, parts, "", ""):
            if value:
                yield path.removeprefix("."), why, value
