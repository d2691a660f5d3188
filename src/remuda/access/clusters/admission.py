"""Admission rules for managed clusters, their tokens, projects and workspaces that hold for every user.

Rules that depend on the user are with the roles (:mod:`remuda.access.roles.protected_cluster_fields`). Rules apply to the fields
that change: an older object that breaks them can still be changed elsewhere, and deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remuda.api.management_cattle_io import GROUP, VERSION
from remuda.kube.admission_attributes import CREATE, DELETE, UPDATE, Attributes
from remuda.kube.errors import FieldError, invalid_value
from remuda.kube.names import DNS1123_SUBDOMAIN_MAX, dns_label_problems
from remuda.kube.objects import dig, is_being_deleted, name_of, with_path
from remuda.runtime.admitted_types import AdmittedType

from .clusterregistrationtoken import LONGEST_TTL, SHORTEST_GRACE, SHORTEST_TTL
from .well_known import LOCAL, is_cluster_id, token_secret

Obj = dict[str, Any]

OURS = "it is the cluster that this server itself runs on"
_IMMUTABLE = "field is immutable"


def admitted() -> tuple[AdmittedType, ...]:
    return (
        AdmittedType(GROUP, VERSION, "clusters", "Cluster", validate=cluster_errors, validates_deletion=True),
        AdmittedType(
            GROUP, VERSION, "clusterregistrationtokens", "ClusterRegistrationToken", with_cluster_name, registration_errors
        ),
        AdmittedType(GROUP, VERSION, "projects", "Project", with_cluster_name, project_errors),
        AdmittedType(GROUP, VERSION, "fleetworkspaces", "FleetWorkspace", validate=workspace_errors),
    )


def concerns(attributes: Attributes) -> bool:
    """True if there is anything to check: objects that are being deleted are not checked."""
    return attributes.obj is not None and not (attributes.old is not None and is_being_deleted(attributes.old))


def refuse_local(attributes: Attributes) -> None:
    if attributes.operation == DELETE and attributes.name == LOCAL:
        raise attributes.forbidden(f"{OURS}, and can't be deleted")


# --- clusters -----------------------------------------------------------------------------------------------------------------


def cluster_errors(attributes: Attributes) -> Iterable[FieldError]:
    refuse_local(attributes)
    if not concerns(attributes):
        return []
    assert attributes.obj is not None
    name, internal = attributes.name or name_of(attributes.obj), bool(dig(attributes.obj, "spec", "internal"))
    errors: list[FieldError] = []
    if attributes.operation == CREATE and name and not is_cluster_id(name):
        # Its namespace has the same name, and is deleted with it.
        why = "must begin with c- and be a lower-case DNS label, such as c-m-bcdfg245: a namespace of this name is made for it"
        errors.append(invalid_value("metadata.name", name, why))
    if internal != (name == LOCAL) and not (attributes.operation == UPDATE and not _changed(attributes, "spec", "internal")):
        why = (
            f"must be true: {OURS}"
            if name == LOCAL
            else f"must not be true: only {LOCAL} is the cluster that this server runs on"
        )
        errors.append(invalid_value("spec.internal", internal, why))
    workspace = dig(attributes.obj, "spec", "fleetWorkspaceName")
    if isinstance(workspace, str) and workspace and _changed(attributes, "spec", "fleetWorkspaceName"):
        errors += [invalid_value("spec.fleetWorkspaceName", workspace, why) for why in dns_label_problems(workspace)]
    return errors


def _changed(attributes: Attributes, *path: str) -> bool:
    return bool(dig(attributes.obj, *path) != dig(attributes.old, *path))


# --- tokens -------------------------------------------------------------------------------------------------------------------


def with_cluster_name(attributes: Attributes) -> Obj | None:
    """A token or project that names no cluster belongs to the cluster whose namespace it is in."""
    if attributes.operation != CREATE or attributes.obj is None or dig(attributes.obj, "spec", "clusterName"):
        return None
    return with_path(attributes.obj, ("spec", "clusterName"), attributes.namespace)


def registration_errors(attributes: Attributes) -> Iterable[FieldError]:
    if not concerns(attributes):
        return []
    errors: list[FieldError] = []
    own = attributes.name or name_of(attributes.obj or {})
    if attributes.operation == CREATE and len(token_secret(own)) > DNS1123_SUBDOMAIN_MAX:
        errors.append(
            invalid_value("metadata.name", own, f"is part of a Secret's name: {token_secret('')}<name> would be too long")
        )
    name = dig(attributes.obj, "spec", "clusterName")
    if attributes.operation == UPDATE and _changed(attributes, "spec", "clusterName"):
        errors.append(invalid_value("spec.clusterName", name or "", _IMMUTABLE))
    elif attributes.operation == CREATE and name != attributes.namespace:
        errors.append(invalid_value("spec.clusterName", name or "", "must be the namespace that the token is in"))
    if attributes.operation == CREATE or _changed(attributes, "spec"):
        errors += _term_errors(dig(attributes.obj, "spec") or {})
    return errors


def _term_errors(spec: Obj) -> list[FieldError]:
    ttl, grace = (_minutes(spec.get(field)) for field in ("ttl", "gracePeriod"))
    errors: list[FieldError] = []
    if ttl and not SHORTEST_TTL <= ttl <= LONGEST_TTL:
        why = f"must be 0, for the value of the settings, or from {SHORTEST_TTL} to {LONGEST_TTL} minutes"
        errors.append(invalid_value("spec.ttl", ttl, why))
    if grace and grace < SHORTEST_GRACE:
        why = f"must be 0, for the value of the settings, or at least {SHORTEST_GRACE} minutes"
        errors.append(invalid_value("spec.gracePeriod", grace, why))
    if ttl and grace and grace >= ttl:
        errors.append(invalid_value("spec.gracePeriod", grace, f"must be less than spec.ttl, which is {ttl}"))
    return errors


def _minutes(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


# --- projects -----------------------------------------------------------------------------------------------------------------


def project_errors(attributes: Attributes) -> Iterable[FieldError]:
    name = dig(attributes.obj, "spec", "clusterName")
    if not concerns(attributes) or name == attributes.namespace or not _changed(attributes, "spec", "clusterName"):
        return []
    return [invalid_value("spec.clusterName", name or "", "must be the namespace that the project is in")]


# --- workspaces ---------------------------------------------------------------------------------------------------------------


def workspace_errors(attributes: Attributes) -> Iterable[FieldError]:
    if attributes.operation != CREATE or attributes.obj is None:
        return []
    name = attributes.name or name_of(attributes.obj)
    return [invalid_value("metadata.name", name, f"is the name of a namespace, too: {why}") for why in dns_label_problems(name)]
