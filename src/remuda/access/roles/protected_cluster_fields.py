"""Fields of clusters that users can't set: the creator, the status, and the object that a cluster stands for.

The annotation `field.cattle.io/creatorId` is set on each new cluster from the requesting user, and stays; the owner's rights
follow from it. The kinds of management.cattle.io have no status subresource, so a user who may edit a cluster could also write
its status, which controllers trust (where its API is, which Secret opens it). Here it counts only from users who may update its
`status`; others' changes are undone, as a subresource would do. The same holds for the marks by which a controller finds the
objects that it made (`objectset.rio.cattle.io/…`): a user who could write them could take over another user's cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from remuda.api.management_cattle_io import CLUSTER_REGISTRATION_TOKENS, CLUSTERS, GROUP, NODES, VERSION
from remuda.api.provisioning_cattle_io import CLUSTERS as PROVISIONING_CLUSTERS
from remuda.api.provisioning_cattle_io import GROUP as PROVISIONING_GROUP
from remuda.api.provisioning_cattle_io import VERSION as PROVISIONING_VERSION
from remuda.kube.admission_attributes import CREATE, UPDATE, Attributes
from remuda.kube.authorization.users import MASTERS, User
from remuda.kube.builtin_resources import NAMESPACES
from remuda.kube.errors import FieldError, forbidden_field, invalid_value
from remuda.kube.objects import GroupVersionResource, annotations_of, dig, labels_of, metadata, name_of, with_path, without_path
from remuda.kube.wrangler import PREFIX
from remuda.runtime.admitted_types import AdmittedType

from .holdings import Holdings
from .role_names import CREATOR, CREATOR_BINDINGS, MANAGEMENT_CLUSTER, NO_CREATOR_RBAC, WORKSPACE

Obj = dict[str, Any]


# The prefix of clusters' ids; no other namespace has it.
_ID_PREFIX = "c-"
_CREATOR_PATH = f"metadata.annotations[{CREATOR}]"


def is_person(user: User) -> bool:
    """True for a user who can own a cluster, as opposed to a component of the server or an operator's certificate."""
    return not user.name.startswith("system:") and MASTERS not in user.groups


def _marks(obj: Obj, field: str) -> dict[str, str]:
    found = (labels_of if field == "labels" else annotations_of)(obj)
    return {key: value for key, value in found.items() if key.startswith(PREFIX) or key == CREATOR_BINDINGS}


def with_marks_kept(attributes: Attributes) -> Obj | None:
    """A client that sends only the fields it knows does not mean to remove the controllers' marks."""
    assert attributes.obj is not None
    changed = attributes.obj
    if attributes.operation != UPDATE or attributes.old is None or MASTERS in attributes.user.groups:
        return None
    for field in ("labels", "annotations"):
        present = metadata(changed).get(field) or {}
        missing = {key: value for key, value in _marks(attributes.old, field).items() if key not in present}
        if missing:
            changed = with_path(changed, ("metadata", field), {**present, **missing})
    return None if changed is attributes.obj else changed


def mark_errors(attributes: Attributes) -> list[FieldError]:
    assert attributes.obj is not None
    found = []
    for field in ("labels", "annotations"):
        before = _marks(attributes.old or {}, field)
        for key, value in _marks(attributes.obj, field).items():
            if before.get(key) != value:
                found.append(forbidden_field(f"metadata.{field}[{key}]", "is set by controllers only"))
    return found


class ClusterRules:
    def __init__(self, holdings: Holdings) -> None:
        self._held = holdings

    def admitted_types(self) -> tuple[AdmittedType, ...]:
        return (
            AdmittedType(GROUP, VERSION, "clusters", "Cluster", default=self.management_default, validate=self.management),
            AdmittedType(
                PROVISIONING_GROUP,
                PROVISIONING_VERSION,
                "clusters",
                "Cluster",
                default=self.provisioning_default,
                validate=self.provisioning,
            ),
            AdmittedType(
                GROUP,
                VERSION,
                "clusterregistrationtokens",
                "ClusterRegistrationToken",
                default=lambda attributes: self.with_status_kept(attributes, CLUSTER_REGISTRATION_TOKENS),
            ),
            AdmittedType(GROUP, VERSION, "nodes", "Node", default=lambda attributes: self.with_status_kept(attributes, NODES)),
        )

    # --- defaults and restored fields -----------------------------------------------------------------------------------

    def management_default(self, attributes: Attributes) -> Obj | None:
        changed = self.with_status_kept(attributes, CLUSTERS)
        return self.provisioning_default(attributes if changed is None else replace(attributes, obj=changed)) or changed

    def provisioning_default(self, attributes: Attributes) -> Obj | None:
        changed = with_marks_kept(attributes)
        return self.with_creator(attributes if changed is None else replace(attributes, obj=changed)) or changed

    def with_creator(self, attributes: Attributes) -> Obj | None:
        """On creation the requesting user, unless one is set (:meth:`_creator_errors` checks that); later the present one."""
        assert attributes.obj is not None
        marks = annotations_of(attributes.obj)
        if attributes.operation == UPDATE:
            before = annotations_of(attributes.old or {}).get(CREATOR)
            # A client that sends only the fields it knows does not mean to remove it.
            return (
                with_path(attributes.obj, ("metadata", "annotations", CREATOR), before)
                if before and CREATOR not in marks
                else None
            )
        if (
            attributes.operation != CREATE
            or CREATOR in marks
            or marks.get(NO_CREATOR_RBAC) == "true"
            or not is_person(attributes.user)
        ):
            return None
        return with_path(attributes.obj, ("metadata", "annotations", CREATOR), attributes.user.name)

    def with_status_kept(self, attributes: Attributes, resource: GroupVersionResource) -> Obj | None:
        assert attributes.obj is not None
        obj, before = attributes.obj, (attributes.old or {}).get("status")
        if obj.get("status") == before or MASTERS in attributes.user.groups:
            return None
        name = attributes.name or name_of(obj)
        if self._held.may_write_status(attributes.user, resource, name, attributes.namespace):
            return None
        return without_path(obj, ("status",)) if before is None else {**obj, "status": before}

    # --- refused writes ---------------------------------------------------------------------------------------------------

    def management(self, attributes: Attributes) -> Iterable[FieldError]:
        assert attributes.obj is not None
        obj, old, user = attributes.obj, attributes.old or {}, attributes.user
        found = self._creator_errors(attributes)
        name = attributes.name or name_of(obj)
        if MASTERS in user.groups or self._held.may_write_status(user, CLUSTERS, name):
            return found
        # For other users: fields that would give them more than the ownership of a cluster.
        found += mark_errors(attributes)
        if bool(dig(obj, "spec", "internal")) != bool(dig(old, "spec", "internal")):
            found.append(forbidden_field("spec.internal", "only the server's own cluster is internal"))
        workspace = dig(obj, "spec", "fleetWorkspaceName") or ""
        if workspace != (dig(old, "spec", "fleetWorkspaceName") or ""):
            found += self._workspace_errors(user, "spec.fleetWorkspaceName", workspace)
        if attributes.operation == CREATE and name:
            if not name.startswith(_ID_PREFIX):
                why = f"must begin with {_ID_PREFIX}: the namespace of this name becomes the cluster's"
                found.append(invalid_value("metadata.name", name, why))
            elif self._held.find(NAMESPACES, name) is not None:
                why = "there is a namespace of this name already, and it would become the cluster's"
                found.append(invalid_value("metadata.name", name, why))
        return found

    def _workspace_errors(self, user: User, path: str, workspace: str) -> list[FieldError]:
        if self._held.may(user, "create", PROVISIONING_CLUSTERS, "", workspace):
            return []
        return [forbidden_field(path, "you may not create clusters in this workspace")]

    def provisioning(self, attributes: Attributes) -> Iterable[FieldError]:
        assert attributes.obj is not None
        found = self._creator_errors(attributes)
        wanted = annotations_of(attributes.obj).get(MANAGEMENT_CLUSTER)
        before = annotations_of(attributes.old or {}).get(MANAGEMENT_CLUSTER)
        if wanted and wanted != before and not self._held.may(attributes.user, "update", CLUSTERS, wanted):
            path = f"metadata.annotations[{MANAGEMENT_CLUSTER}]"
            found.append(forbidden_field(path, "you may not edit the management Cluster of this name"))
        workspace = annotations_of(attributes.obj).get(WORKSPACE)
        if workspace and workspace != annotations_of(attributes.old or {}).get(WORKSPACE):
            found += self._workspace_errors(attributes.user, f"metadata.annotations[{WORKSPACE}]", workspace)
        name = attributes.name or name_of(attributes.obj)
        if not self._held.may_write_status(attributes.user, PROVISIONING_CLUSTERS, name, attributes.namespace):
            found += mark_errors(attributes)
        return found

    def _creator_errors(self, attributes: Attributes) -> list[FieldError]:
        assert attributes.obj is not None
        said = annotations_of(attributes.obj).get(CREATOR)
        before = annotations_of(attributes.old or {}).get(CREATOR)
        if said == before or attributes.operation not in (CREATE, UPDATE):
            return []
        if before is not None:
            return [invalid_value(_CREATOR_PATH, said or "", "field is immutable")]
        assert said is not None
        if annotations_of(attributes.obj).get(NO_CREATOR_RBAC) == "true":
            return [forbidden_field(_CREATOR_PATH, f"not together with {NO_CREATOR_RBAC}")]
        if said == attributes.user.name and attributes.operation == CREATE:
            return []
        if self._held.may_impersonate(attributes.user, said):
            return []
        return [forbidden_field(_CREATOR_PATH, "must be the user who creates the cluster")]
