"""References at admission: records the author of each (:mod:`..references.authors`), and refuses names that their writer
may not use.

The record is computed anew at every write, from its previous state and the write's changes; a client's own value is
ignored. A credential that the writer may not read is refused at once. All other objects may be named before they exist, so
they are accepted either way and checked when they are used (:mod:`..references.authorization`).

Machine configs are annotated with their creator: until a cluster has one, no role grants it. They also record the
author of each of their addresses (:mod:`..references.driver_addresses`). An address is refused if its writer may not read the
credential of a pool made from the config; in a pool, a config is refused if the author of one of its addresses may not read
the pool's credential. Clusters that the writer may not read are not mentioned: they are checked when the credential is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from remuda.access.clusters.admission import concerns
from remuda.access.roles.holdings import Holdings
from remuda.access.roles.role_names import CREATOR
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.api.rke_cattle_io.rkecontrolplane import RKEControlPlaneSpec
from remuda.kube.admission_attributes import CREATE, EVERY, Attributes
from remuda.kube.authorization.rbac import Rbac
from remuda.kube.authorization.users import MASTERS, User
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.errors import FieldError, forbidden_field, invalid_value
from remuda.kube.objects import Key, ObjectSource, annotations_of, name_of, resource_version_of, with_path, without_path
from remuda.runtime.admitted_types import AdmittedType

from ..graph.machine_pools import config_of, credential_of, pools_written
from ..references import authors, driver_addresses
from ..references.authorization import misdirected
from ..references.authors import ACCEPT, AUTHORS
from ..references.driver_addresses import DriverAddress
from ..references.spec_references import SpecReference, credential_key, references_in, references_of
from ..well_known import ADDRESS_AUTHORS, CONFIG_API_VERSION, CONFIG_GROUP, resource_of

Obj = dict[str, Any]

# This name must be right from the start: an error in a credential for snapshots would stay unnoticed for hours.
_SNAPSHOTS = ".etcd.s3.cloudCredentialName"
_CREATOR_PATH = f"metadata.annotations[{CREATOR}]"


def admitted(source: ObjectSource, rbac: Rbac, *, secrets: bool = True) -> tuple[AdmittedType, ...]:
    """`source` knows the kinds of node drivers that are served; without `secrets` it does not know Secrets."""
    rules = ReferenceRules(source, Holdings(source, rbac), secrets=secrets)
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
        AdmittedType(CONFIG_GROUP, "v1", EVERY, "DriverConfigs", default=rules.with_marks, validate=rules.config_errors),
    )


class ReferenceRules:
    def __init__(self, source: ObjectSource, held: Holdings, *, secrets: bool = True) -> None:
        self._source = source
        self._held = held
        self._secrets = secrets

    # --- clusters ---------------------------------------------------------------------------------------------------------

    def with_authors(self, attributes: Attributes) -> Obj | None:
        assert attributes.obj is not None
        obj, old = attributes.obj, attributes.old
        named, known = references_of(obj), references_of(old)
        accepted: list[SpecReference] = []
        if ACCEPT in annotations_of(obj):
            if annotations_of(obj)[ACCEPT] == "true":
                accepted = list(self._accepted(attributes, named))
            obj = without_path(obj, ("metadata", "annotations", ACCEPT))
        since = resource_version_of(old) if old is not None else ""
        ledger = authors.rewritten(authors.read(old), named, known, attributes.user, since, accepted)
        obj = _marked(obj, AUTHORS, authors.text_of(ledger))
        return None if obj is attributes.obj else obj

    def _accepted(self, attributes: Attributes, named: Iterable[SpecReference]) -> Iterator[SpecReference]:
        """The references that the writer may take responsibility for."""
        for reference in named:
            if self._may_use(attributes.user, reference):
                yield reference
            else:
                attributes.warnings.append(f"{reference.path} stays as it is: {_unreadable(attributes.user, reference)}")

    def _may_use(self, user: User, reference: SpecReference) -> bool:
        if self._may_get(user, reference):
            return True
        if reference.group != CONFIG_GROUP:
            return False
        return annotations_of(self._find(reference) or {}).get(CREATOR) == user.name

    def _find(self, reference: SpecReference) -> Obj | None:
        return self._source.get(reference.group, reference.resource, reference.namespace, reference.name)

    def _may_get(self, user: User, reference: SpecReference) -> bool:
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
        yield from self._pool_errors(attributes, obj, old)

    def control_plane_errors(self, attributes: Attributes) -> Iterable[FieldError]:
        """Controllers copy the cluster's fields, which were checked there. Another writer needs rights of its own."""
        obj, old = attributes.obj, attributes.old
        if obj is None or not concerns(attributes) or (old is not None and obj.get("spec") == old.get("spec")):
            return
        new, before = (references_in((each or {}).get("spec"), RKEControlPlaneSpec, attributes.namespace) for each in (obj, old))
        for reference in _written(new, before):
            if not self._may_get(attributes.user, reference):
                yield forbidden_field(reference.path, _unreadable(attributes.user, reference))

    # --- machine configs --------------------------------------------------------------------------------------------------

    def with_marks(self, attributes: Attributes) -> Obj | None:
        assert attributes.obj is not None
        obj = self._with_creator(attributes, attributes.obj)
        accepted: tuple[DriverAddress, ...] = ()
        if ACCEPT in annotations_of(obj):
            if annotations_of(obj)[ACCEPT] == "true":
                accepted = self._accepted_addresses(attributes, obj)
            obj = without_path(obj, ("metadata", "annotations", ACCEPT))
        since = resource_version_of(attributes.old) if attributes.old is not None else ""
        text = driver_addresses.record(attributes.kind, obj, attributes.old, attributes.user, since, accepted)
        obj = _marked(obj, ADDRESS_AUTHORS, text)
        return None if obj is attributes.obj else obj

    def _with_creator(self, attributes: Attributes, obj: Obj) -> Obj:
        said = annotations_of(obj)
        if attributes.operation == CREATE:
            if CREATOR in said or MASTERS in attributes.user.groups:
                return obj
            return _marked(obj, CREATOR, attributes.user.name)
        before = annotations_of(attributes.old or {}).get(CREATOR)
        # A client that omits the annotation does not mean to remove it.
        return _marked(obj, CREATOR, before) if before and CREATOR not in said else obj

    def _accepted_addresses(self, attributes: Attributes, config: Obj) -> tuple[DriverAddress, ...]:
        """The addresses that the writer takes responsibility for: all or none."""
        for _, secret in self._sent(attributes, config):
            if not self._may_read(attributes.user, secret):
                why = f"{attributes.user.name} may not read Secret {secret}"
                attributes.warnings.append(f"the addresses stay as they are: {why}")
                return ()
        return driver_addresses.addresses_of(driver_addresses.driver_of(attributes.kind), config)

    def config_errors(self, attributes: Attributes) -> Iterable[FieldError]:
        yield from self._creator_errors(attributes)
        obj, old = attributes.obj, attributes.old
        if obj is None or old is None or not concerns(attributes):
            return
        written = driver_addresses.written(attributes.kind, obj, old)
        if not written:
            return
        for where, secret in self._sent(attributes, obj):
            if not self._may_read(attributes.user, secret):
                why = f"{where} sends Secret {secret} to this address: only a user who may read that Secret changes it"
                yield from (forbidden_field(each.field, why) for each in written)

    def _creator_errors(self, attributes: Attributes) -> Iterable[FieldError]:
        said, before = (annotations_of(each or {}).get(CREATOR) for each in (attributes.obj, attributes.old))
        if said == before:
            return
        if attributes.operation != CREATE:
            yield invalid_value(_CREATOR_PATH, said or "", "field is immutable")
        elif said != attributes.user.name and not self._held.may_impersonate(attributes.user, said or ""):
            yield forbidden_field(_CREATOR_PATH, "is the user who makes the machine config")

    def _sent(self, attributes: Attributes, config: Obj) -> Iterator[tuple[str, Key]]:
        """The credentials that the driver of a config is given, each with its pool, in clusters that the writer may read:
        any cluster may name the config."""
        seen: set[Key] = set()
        for cluster in self._source.list(provisioning.GROUP, "clusters", attributes.namespace):
            for pool in pools_written(cluster):
                if config_of(pool) != (attributes.kind, name_of(config)) or not (credential := credential_of(cluster, pool)):
                    continue
                secret, named = credential_key(credential, attributes.namespace), name_of(cluster)
                if secret not in seen and self._held.may(
                    attributes.user, "get", provisioning.CLUSTERS, named, attributes.namespace
                ):
                    seen.add(secret)
                    yield f"machine pool {pool.get('name')} of the cluster {named}", secret

    def _may_read(self, user: User, secret: Key) -> bool:
        return self._held.may(user, "get", SECRETS, secret.name, secret.namespace)

    # --- configs in pools -------------------------------------------------------------------------------------------------

    def _pool_errors(self, attributes: Attributes, obj: Obj, old: Obj | None) -> Iterator[FieldError]:
        """Errors for pools with a new config or credential whose credential would go to an address of another author."""
        before = {(config_of(pool), credential_of(old or {}, pool)) for pool in pools_written(old)}
        for index, pool in enumerate(pools_written(obj)):
            (kind, name), credential = config_of(pool), credential_of(obj, pool)
            if not kind or not name or not credential or ((kind, name), credential) in before:
                continue
            config = self._usable_config(attributes, kind, name)
            ledger, secret = driver_addresses.recorded(config), credential_key(credential, attributes.namespace)
            for address in driver_addresses.addresses_of(driver_addresses.driver_of(kind), config):
                entry = driver_addresses.author_of(ledger, address)
                if entry is not None and not self._may_read(entry.author, secret):
                    why = misdirected(address, entry.author.name, secret, f"{kind} {name}")
                    yield forbidden_field(f"spec.rkeConfig.machinePools[{index}].machineConfigRef", why)

    def _usable_config(self, attributes: Attributes, kind: str, name: str) -> Obj | None:
        """A config that the writer may know of; None for all others."""
        resource = resource_of(CONFIG_API_VERSION, kind)
        found = self._source.get(resource.group, resource.resource, attributes.namespace, name)
        if found is None or annotations_of(found).get(CREATOR) == attributes.user.name:
            return found
        return found if self._held.may(attributes.user, "get", resource, name, attributes.namespace) else None


def _marked(obj: Obj, annotation: str, text: str) -> Obj:
    """Sets an annotation, or removes it if the text is empty; the same object if nothing changes."""
    if (annotations_of(obj).get(annotation) or "") == text:
        return obj
    path = ("metadata", "annotations", annotation)
    return with_path(obj, path, text) if text else without_path(obj, path)


def _written(named: Iterable[SpecReference], known: Iterable[SpecReference]) -> Iterator[SpecReference]:
    """The references that a write adds: new names, and names moved from another field."""
    before = {(each.place, each.key) for each in known}
    return (each for each in named if (each.place, each.key) not in before)


def _unreadable(user: User, reference: SpecReference) -> str:
    return f"{user.name} may not read the {reference}"
