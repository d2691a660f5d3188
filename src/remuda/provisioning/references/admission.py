"""What admission keeps and refuses of references: who wrote each (:mod:`.authors`), and names that their writer may not use.

The record is made anew at every write, from what it was before and what the write changes: what a client sends of it counts for
nothing. A credential is refused at once to a writer who may not read it. Everything else may be named before it is there, so it
is accepted whether it is there or not, and decided when it is used (:mod:`.using`).

Machine configs are marked with who made them: until a cluster has one, no role gives it to anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.api.rke_cattle_io.v1.controlplane import RKEControlPlaneSpec
from remuda.apiserver.admission import CREATE, Attributes
from remuda.apiserver.admission.chain import EVERY
from remuda.apiserver.authz.rbac import Rbac
from remuda.apiserver.source import ObjectSource
from remuda.apiserver.users import MASTERS, User
from remuda.kube.errors import FieldError, forbidden_field, invalid_value
from remuda.kube.objects import annotations_of, resource_version_of, with_path, without_path
from remuda.management.clusters.admission import concerns
from remuda.management.roles.held import Holdings
from remuda.management.roles.names import CREATOR
from remuda.runtime.admission import AdmittedType

from ..graph.names import CONFIG_GROUP
from . import authors
from .authors import ACCEPT, AUTHORS
from .naming import Reference, references_in, references_of

Obj = dict[str, Any]

# The one name that must be right from the start: of a credential for snapshots nothing else would tell for hours.
_SNAPSHOTS = ".etcd.s3.cloudCredentialName"
_CREATOR_PATH = f"metadata.annotations[{CREATOR}]"


def admitted(source: ObjectSource, rbac: Rbac, *, secrets: bool = True) -> tuple[AdmittedType, ...]:
    """`source` knows the kinds of node drivers as far as they are served; without `secrets` it does not know those."""
    rules = Rules(source, Holdings(source, rbac), secrets=secrets)
    return (
        AdmittedType(
            provisioning.GROUP,
            provisioning.VERSION,
            "clusters",
            "Cluster",
            default=rules.with_authors,
            validate=rules.cluster_errors,
        ),
        AdmittedType(rke.GROUP, rke.VERSION, "rkecontrolplanes", "RKEControlPlane", validate=rules.control_plane_errors),
        AdmittedType(CONFIG_GROUP, "v1", EVERY, "DriverConfigs", default=rules.with_creator, validate=rules.creator_errors),
    )


class Rules:
    def __init__(self, source: ObjectSource, held: Holdings, *, secrets: bool = True) -> None:
        self._source = source
        self._held = held
        self._secrets = secrets

    # --- clusters ---------------------------------------------------------------------------------------------------------

    def with_authors(self, attributes: Attributes) -> Obj | None:
        assert attributes.obj is not None
        obj, old = attributes.obj, attributes.old
        named, known = references_of(obj), references_of(old)
        accepted: list[Reference] = []
        if ACCEPT in annotations_of(obj):
            if annotations_of(obj)[ACCEPT] == "true":
                accepted = list(self._accepted(attributes, named))
            obj = without_path(obj, ("metadata", "annotations", ACCEPT))
        since = resource_version_of(old) if old is not None else ""
        ledger = authors.rewritten(authors.read(old), named, known, attributes.user, since, accepted)
        text = authors.text_of(ledger)
        if (annotations_of(obj).get(AUTHORS) or "") != text:
            path = ("metadata", "annotations", AUTHORS)
            obj = with_path(obj, path, text) if text else without_path(obj, path)
        return None if obj is attributes.obj else obj

    def _accepted(self, attributes: Attributes, named: Iterable[Reference]) -> Iterator[Reference]:
        """The references that a writer may take upon themselves."""
        for reference in named:
            if self._may_use(attributes.user, reference):
                yield reference
            else:
                attributes.warnings.append(f"{reference.path} stays as it is: {_unreadable(attributes.user, reference)}")

    def _may_use(self, user: User, reference: Reference) -> bool:
        if self._may_get(user, reference):
            return True
        if reference.group != CONFIG_GROUP:
            return False
        return annotations_of(self._find(reference) or {}).get(CREATOR) == user.name

    def _find(self, reference: Reference) -> Obj | None:
        return self._source.get(reference.group, reference.resource, reference.namespace, reference.name)

    def _may_get(self, user: User, reference: Reference) -> bool:
        return self._held.may(user, "get", reference.gvr, reference.name, reference.namespace)

    def cluster_errors(self, attributes: Attributes) -> Iterable[FieldError]:
        obj, old = attributes.obj, attributes.old
        if obj is None or not concerns(attributes) or (old is not None and obj.get("spec") == old.get("spec")):
            return
        for reference in _written(references_of(obj), references_of(old)):
            if self._may_use(attributes.user, reference):
                if self._secrets and reference.place.endswith(_SNAPSHOTS) and self._find(reference) is None:
                    yield invalid_value(reference.path, reference.name, "there is no such Secret")
                continue
            why = _unreadable(attributes.user, reference)
            if reference.is_credential or not reference.is_bound:
                yield forbidden_field(reference.path, why)
            elif reference.group != CONFIG_GROUP:
                attributes.warnings.append(f"{reference.path}: {why}: it is not used until that changes")

    def control_plane_errors(self, attributes: Attributes) -> Iterable[FieldError]:
        """Controllers copy what a cluster says, which was checked there. Another writer says it for themselves."""
        obj, old = attributes.obj, attributes.old
        if obj is None or not concerns(attributes) or (old is not None and obj.get("spec") == old.get("spec")):
            return
        new, before = (references_in((each or {}).get("spec"), RKEControlPlaneSpec, attributes.namespace) for each in (obj, old))
        for reference in _written(new, before):
            if not self._may_get(attributes.user, reference):
                yield forbidden_field(reference.path, _unreadable(attributes.user, reference))

    # --- machine configs --------------------------------------------------------------------------------------------------

    def with_creator(self, attributes: Attributes) -> Obj | None:
        assert attributes.obj is not None
        said = annotations_of(attributes.obj)
        if attributes.operation == CREATE:
            if CREATOR in said or MASTERS in attributes.user.groups:
                return None
            return with_path(attributes.obj, ("metadata", "annotations", CREATOR), attributes.user.name)
        before = annotations_of(attributes.old or {}).get(CREATOR)
        # A client that sends only what it knows does not mean to take it away.
        if before and CREATOR not in said:
            return with_path(attributes.obj, ("metadata", "annotations", CREATOR), before)
        return None

    def creator_errors(self, attributes: Attributes) -> Iterable[FieldError]:
        said, before = (annotations_of(each or {}).get(CREATOR) for each in (attributes.obj, attributes.old))
        if said == before:
            return
        if attributes.operation != CREATE:
            yield invalid_value(_CREATOR_PATH, said or "", "field is immutable")
        elif said != attributes.user.name and not self._held.may_impersonate(attributes.user, said or ""):
            yield forbidden_field(_CREATOR_PATH, "is the user who makes the machine config")


def _written(named: Iterable[Reference], known: Iterable[Reference]) -> Iterator[Reference]:
    """The references that a write adds: a name that is new, or that another field had."""
    before = {(each.place, each.key) for each in known}
    return (each for each in named if (each.place, each.key) not in before)


def _unreadable(user: User, reference: Reference) -> str:
    return f"{user.name} may not read the {reference}"
