"""Refusals and warnings for writes to machine configs, machine templates and machines.

A config may be changed: every pool that refers to it then gets new machines, and a warning tells the user how many. The objects
made from it (`<D>MachineTemplate`, `<D>Machine`) describe what exists and can't be changed; the refusal names the config. Only a
user who may read the credential that such an object sends to an address may create it, as controllers may; for configs that rule
is in :mod:`remuda.provisioning.admission.references`. A config or a template belongs to one cluster. The kinds are those of node
drivers, which come and go, so the rules are for whole groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from remuda.access.clusters.admission import concerns
from remuda.access.roles.holdings import Holdings
from remuda.api import cluster_x_k8s_io as capi
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.api.management_cattle_io import DYNAMIC_SCHEMAS
from remuda.capi.well_known import DEPLOYMENT_NAME
from remuda.kube.admission_attributes import DELETE, EVERY, Attributes
from remuda.kube.authorization.rbac import Rbac
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.errors import FieldError, forbidden_field, invalid_value
from remuda.kube.objects import (
    GroupVersion,
    ObjectSource,
    annotations_of,
    dig,
    is_being_deleted,
    labels_of,
    name_of,
    owner_references_of,
)
from remuda.provisioning.admission.protected_machines import DeletionRules as ProtectedMachines
from remuda.provisioning.bootstrap.machine_objects import UserdataError, cloud_config
from remuda.provisioning.graph import Unrenderable
from remuda.provisioning.graph.machine_pools import has_config, known_fields, pools_written, template_digest
from remuda.provisioning.references.driver_addresses import addresses_of
from remuda.provisioning.references.spec_references import credential_key
from remuda.provisioning.well_known import (
    ADDRESS_AUTHORS,
    CLONED_FROM_KIND,
    CLONED_FROM_NAME,
    CONFIG_API_VERSION,
    CONFIG_GROUP,
    MACHINE_API_VERSION,
    MACHINE_GROUP,
    pool_name,
    resource_of,
)
from remuda.runtime.admitted_types import AdmittedType

from .nodedrivers.driver_schemas import PASSWORD, STRING, STRINGS
from .nodedrivers.machine_crds import WITHOUT_EFFECT
from .secretfields.markers import DriverFields, is_marker, last_applied, with_last_applied

Obj = dict[str, Any]

_VERSION = "v1"
_POOLS = "spec.rkeConfig.machinePools"
# Cluster API's annotation on objects that it makes from a template.
_TEMPLATE = "cluster.x-k8s.io/cloned-from-name"
# The parts of a machine's spec that may change.
_CHANGING = frozenset({"common", "providerID"})
_ENVELOPE = frozenset({"apiVersion", "kind", "metadata", "status"})
_CLUSTERS = frozenset({(provisioning.GROUP, "Cluster"), (capi.GROUP, "Cluster")})


def admitted(source: ObjectSource, rbac: Rbac) -> tuple[AdmittedType, ...]:
    """`source` knows clusters.provisioning.cattle.io, Machines, and the kinds of node drivers as far as they are served."""
    rules = MachineRules(source, Holdings(source, rbac))
    return (
        AdmittedType(MACHINE_GROUP, _VERSION, EVERY, "DriverMachines", validate=rules.machine_errors, validates_deletion=True),
        AdmittedType(
            CONFIG_GROUP,
            _VERSION,
            EVERY,
            "DriverConfigs",
            default=ConfigCompatibility(source).default,
            validate=rules.config_errors,
            validates_deletion=True,
        ),
        AdmittedType(provisioning.GROUP, provisioning.VERSION, "clusters", "Cluster", validate=rules.cluster_errors),
    )


class MachineRules:
    def __init__(self, source: ObjectSource, held: Holdings) -> None:
        self._source = source
        self._held = held
        self._protected = ProtectedMachines(source)

    # --- made objects -----------------------------------------------------------------------------------------------------

    def machine_errors(self, attributes: Attributes) -> Iterable[FieldError]:
        if attributes.operation == DELETE:
            return self._protected.infrastructure(attributes)
        obj, old = attributes.obj, attributes.old
        if obj is None or not concerns(attributes):
            return []
        is_template = attributes.kind.endswith("MachineTemplate")
        path = "spec.template.spec" if is_template else "spec"
        errors = self._sent_errors(attributes, obj, path)
        if old is None:
            return errors
        errors += _moved(obj, old) if is_template else []
        new, before = (dig(each, *path.split(".")) for each in (obj, old))
        changed = [name for name in _changed(new, before) if name not in _CHANGING and not _was_sealed(name, new, before)]
        if not changed:
            return errors
        why = f"what machines were made from stays as it is: change {self._origin(attributes.kind, old)} instead"
        return [*errors, *(forbidden_field(f"{path}.{name}", why) for name in changed)]

    def _sent_errors(self, attributes: Attributes, obj: Obj, path: str) -> list[FieldError]:
        """Errors of a credential that a machine would send to an address, if the writer changed one of these or the authors."""
        place = DriverFields.of(attributes.group, attributes.kind)
        fields, before = (dig(each, *path.split(".")) for each in (obj, attributes.old))
        if place is None or not isinstance(fields, dict):
            return []
        name, known = (str(dig(each, "common", "cloudCredentialSecretName") or "") for each in (fields, before))
        addresses = addresses_of(place.driver, fields)
        marks = [annotations_of(each or {}).get(ADDRESS_AUTHORS) for each in (obj, attributes.old)]
        unchanged = name == known and addresses == addresses_of(place.driver, before) and marks[0] == marks[1]
        if not name or not addresses or (attributes.old is not None and unchanged):
            return []
        secret = credential_key(name, attributes.namespace)
        if self._held.may(attributes.user, "get", SECRETS, secret.name, secret.namespace):
            return []
        why = f"{attributes.user.name} may not read Secret {secret}, which would be sent to this address"
        return [forbidden_field(f"{path}.{each.field}", why) for each in addresses]

    def _origin(self, kind: str, obj: Obj) -> str:
        """The config that it was made from, in words."""
        marks = annotations_of(obj)
        if CLONED_FROM_NAME not in marks and (template := marks.get(_TEMPLATE)):
            resource = resource_of(MACHINE_API_VERSION, f"{kind}Template").resource
            namespace = obj["metadata"].get("namespace") or ""
            marks = annotations_of(self._source.get(MACHINE_GROUP, resource, namespace, template) or {})
        if CLONED_FROM_NAME not in marks:
            return "the machine config of its pool"
        return f"{marks.get(CLONED_FROM_KIND) or 'machine config'} {marks[CLONED_FROM_NAME]}"

    # --- configs ----------------------------------------------------------------------------------------------------------

    def config_errors(self, attributes: Attributes) -> Iterable[FieldError]:
        old = attributes.old
        if old is None or is_being_deleted(old):
            return []
        if attributes.operation == DELETE:
            self._warn_of_deletion(attributes, old)
        elif attributes.obj is not None:
            self._warn_of_change(attributes, old, attributes.obj)
            return _given_away(attributes.obj, old)
        return []

    def _warn_of_deletion(self, attributes: Attributes, old: Obj) -> None:
        for cluster, pools in self._users(attributes, old):
            if is_being_deleted(cluster):
                continue
            named = _pools(pool["name"] for pool in pools)
            attributes.warnings.append(f"{named} of the cluster {name_of(cluster)} can't be changed any more without this config")

    def _warn_of_change(self, attributes: Attributes, old: Obj, new: Obj) -> None:
        fields = set(_changed(_fields(new), _fields(old)))
        if not fields:
            return
        for cluster, pools in self._users(attributes, old):
            rolled = [pool for pool in pools if _is_replaced(cluster, pool, old, new)]
            if rolled:
                number = sum(len(self._machines(cluster, pool["name"])) for pool in rolled)
                named = _pools(pool["name"] for pool in rolled)
                attributes.warnings.append(f"{named} of the cluster {name_of(cluster)}: {_machines(number)} replaced by new ones")
            attributes.warnings += _unknown(cluster, pools, fields)

    def _users(self, attributes: Attributes, config: Obj) -> Iterator[tuple[Obj, list[Obj]]]:
        """Clusters and their pools that refer to a config, as far as the writer may read them: any cluster may name it."""
        wanted = (CONFIG_GROUP, attributes.kind, name_of(config))
        namespace = config["metadata"].get("namespace") or ""
        for cluster in sorted(self._source.list(provisioning.GROUP, "clusters", namespace), key=name_of):
            pools = [pool for pool in pools_written(cluster) if _reference(pool) == wanted]
            if pools and self._may_read(attributes, name_of(cluster), namespace):
                yield cluster, pools

    def _may_read(self, attributes: Attributes, cluster: str, namespace: str) -> bool:
        return self._held.may(attributes.user, "get", provisioning.CLUSTERS, cluster, namespace)

    def _machines(self, cluster: Obj, pool: str) -> list[Obj]:
        deployment = pool_name(name_of(cluster), pool)
        listed = self._source.list(capi.GROUP, "machines", cluster["metadata"].get("namespace") or "")
        return [
            each
            for each in listed
            if labels_of(each).get(DEPLOYMENT_NAME) == deployment
            and dig(each, "spec", "clusterName") == name_of(cluster)
            and not is_being_deleted(each)
        ]

    # --- clusters ---------------------------------------------------------------------------------------------------------

    def cluster_errors(self, attributes: Attributes) -> Iterable[FieldError]:
        obj, old = attributes.obj, attributes.old
        if obj is None or not concerns(attributes):
            return []
        before = {pool.get("name"): pool for pool in pools_written(old)}
        errors: list[FieldError] = []
        for index, pool in enumerate(pools_written(obj)):
            was, path = before.pop(pool.get("name"), None), f"{_POOLS}[{index}]"
            if was is None or was.get("machineConfigRef") != pool.get("machineConfigRef"):
                errors += self._reference_errors(attributes, pool, f"{path}.machineConfigRef.name")
                if was is not None and old is not None and not errors:
                    self._warn_of_another_config(attributes, old, was, pool)
            if pool.get("userdata") != (was or {}).get("userdata"):
                errors += _userdata_errors(attributes, obj, pool, f"{path}.userdata")
        for name in before:
            if old is not None and name and (machines := self._machines(old, str(name))):
                attributes.warnings.append(f"without the machine pool {name} {_machines(len(machines))} deleted")
        return errors

    def _reference_errors(self, attributes: Attributes, pool: Obj, path: str) -> list[FieldError]:
        group, kind, name = _reference(pool)
        if not kind or not name:
            return []
        own, namespace = attributes.name or name_of(attributes.obj or {}), attributes.namespace
        resource = resource_of(f"{group}/{_VERSION}", kind)
        found = self._source.get(group, resource.resource, namespace, name)
        owner = _cluster_of(found or {})
        if owner and owner != own:
            # A writer who may read neither is not told: the cluster waits for an object that it may use.
            told = self._may_read(attributes, owner, namespace) or self._held.may(
                attributes.user, "get", resource, name, namespace
            )
            owner = owner if told else ""
        elif not owner:
            owner = self._first_user(attributes, own, (group, kind, name))
        if not owner or owner == own:
            return []
        return [invalid_value(path, name, f"this {kind} belongs to the cluster {owner}: make one for each cluster")]

    def _first_user(self, attributes: Attributes, own: str, reference: tuple[str, str, str]) -> str:
        """Another cluster that the writer may read and that refers to it; its controller will make it the owner. References of
        other users' clusters do not count: naming an object gives no right to it."""
        for cluster in self._source.list(provisioning.GROUP, "clusters", attributes.namespace):
            name = name_of(cluster)
            if name == own or not any(_reference(pool) == reference for pool in pools_written(cluster)):
                continue
            if self._may_read(attributes, name, attributes.namespace):
                return name
        return ""

    def _warn_of_another_config(self, attributes: Attributes, old: Obj, was: Obj, pool: Obj) -> None:
        machines = self._machines(old, str(pool.get("name") or ""))
        if not machines:
            return
        if has_config(was) and has_config(pool):
            before, after = (self._config(attributes.namespace, each) for each in (was, pool))
            same_kind = _reference(was)[:2] == _reference(pool)[:2]
            if before is not None and after is not None and same_kind and not _is_replaced(old, was, before, after):
                return
        attributes.warnings.append(f"machine pool {pool.get('name')}: {_machines(len(machines))} replaced by new ones")

    def _config(self, namespace: str, pool: Obj) -> Obj | None:
        group, kind, name = _reference(pool)
        return self._source.get(group, resource_of(CONFIG_API_VERSION, kind).resource, namespace, name) if kind and name else None


# --- reads of objects ---------------------------------------------------------------------------------------------------------


def _reference(pool: Obj) -> tuple[str, str, str]:
    """Group, kind and name of the object from which a pool's machines are made."""
    named = pool.get("machineConfigRef")
    if not isinstance(named, dict):
        return ("", "", "")
    group = GroupVersion.parse(str(named.get("apiVersion") or CONFIG_API_VERSION)).group
    return group, str(named.get("kind") or ""), str(named.get("name") or "")


def _cluster_of(obj: Obj) -> str:
    """The cluster that owns a config or a template, if any does."""
    for owner in owner_references_of(obj):
        if (GroupVersion.parse(owner.get("apiVersion") or "").group, owner.get("kind")) in _CLUSTERS:
            return str(owner.get("name") or "")
    return ""


def _fields(config: Obj) -> Obj:
    return {name: value for name, value in config.items() if name not in _ENVELOPE}


def _changed(new: Any, old: Any) -> list[str]:
    """The fields of two maps that differ; null counts as absent."""
    left, right = (each if isinstance(each, dict) else {} for each in (new, old))
    return sorted(name for name in left.keys() | right.keys() if left.get(name) != right.get(name))


def _was_sealed(name: str, new: Any, old: Any) -> bool:
    """True if a value that an older version stored became its marker (:mod:`.secretfields.admission` compares them)."""
    before = dig(old, name)
    return is_marker(dig(new, name)) and isinstance(before, str) and before != "" and not is_marker(before)


def _is_replaced(cluster: Obj, pool: Obj, old: Obj, new: Obj) -> bool:
    try:
        return template_digest(cluster, pool, old) != template_digest(cluster, pool, new)
    except Unrenderable:
        # Without the schema of its driver the pool has no machines yet.
        return False


def _unknown(cluster: Obj, pools: list[Obj], fields: set[str]) -> Iterator[str]:
    """Warnings of fields that pools are too old for: a user should not wait for their effect."""
    for pool in pools:
        try:
            known = known_fields(pool, dict.fromkeys(fields))
        except Unrenderable:
            continue
        if ignored := sorted(fields - known.keys()):
            yield (
                f"machine pool {pool['name']} of the cluster {name_of(cluster)} does not use {', '.join(ignored)}: "
                "it was made before its driver knew that"
            )


def _moved(obj: Obj, old: Obj) -> list[FieldError]:
    before = dig(old, "spec", "clusterName")
    if not before or dig(obj, "spec", "clusterName") == before:
        return []
    return [forbidden_field("spec.clusterName", f"it belongs to the cluster {before}")]


def _given_away(obj: Obj, old: Obj) -> list[FieldError]:
    owner, wanted = _cluster_of(old), _cluster_of(obj)
    if not owner or not wanted or owner == wanted:
        return []
    return [forbidden_field("metadata.ownerReferences", f"it belongs to the cluster {owner}")]


def _userdata_errors(attributes: Attributes, cluster: Obj, pool: Obj, path: str) -> list[FieldError]:
    text = dig(pool, "userdata", "inlineUserdata")
    if not isinstance(text, str) or not text:
        return []
    group = GroupVersion.parse(str(dig(cluster, "spec", "rkeConfig", "infrastructureRef", "apiVersion") or "")).group
    if group in ("", rke.GROUP):
        attributes.warnings.append(
            f"{path}: only machines of other infrastructure providers get it; use the machine config's own"
        )
        return []
    try:
        cloud_config(b"", text)
    except UserdataError as error:
        return [invalid_value(f"{path}.inlineUserdata", text, str(error))]
    return []


def _pools(names: Iterable[str]) -> str:
    listed = sorted(names)
    return f"machine pool {listed[0]}" if len(listed) == 1 else f"machine pools {', '.join(listed[:-1])} and {listed[-1]}"


def _machines(number: int) -> str:
    return "1 machine is" if number == 1 else f"{number} machines are"


# --- configs as users of Rancher have them ------------------------------------------------------------------------------
#
# They have `common`, `type` and `spec`, which nothing uses, and numbers for texts: all integers of drivers are texts, as in
# Rancher, where older versions took numbers as well. Fields that nothing uses are removed with a warning before the object is
# stored: `spec` may hold secrets that only fields at the top are sealed for. The definitions (:mod:`.nodedrivers.machine_crds`)
# have these fields, or a strict client would be refused before.


class ConfigCompatibility:
    def __init__(self, source: ObjectSource) -> None:
        """`source` knows DynamicSchemas."""
        self._source = source

    def default(self, attributes: Attributes) -> Obj | None:
        """The config as it is stored; None when nothing changes."""
        obj = attributes.obj
        schema = self._source.get(DYNAMIC_SCHEMAS.group, DYNAMIC_SCHEMAS.resource, "", attributes.kind.lower())
        fields = dig(schema, "spec", "resourceFields")
        if obj is None or not isinstance(fields, dict):
            return None
        for name, why in WITHOUT_EFFECT.items():
            warning = f"{name} has no effect: {why}"
            if obj.get(name) and name not in fields and warning not in attributes.warnings:
                attributes.warnings.append(warning)
        changed = understood(obj, fields)
        applied = last_applied(changed)
        if applied is not None and (kept := understood(applied, fields)) != applied:
            changed = with_last_applied(changed, kept)
        return None if changed == obj else changed


def understood(config: Obj, fields: Mapping[str, Obj]) -> Obj:
    """A config without what has no effect, and with texts for numbers where `fields`, those of its driver, are texts."""
    kept = {name: value for name, value in config.items() if name in fields or name not in WITHOUT_EFFECT}
    return kept | {name: _as_type(kept[name], str(said.get("type") or STRING)) for name, said in fields.items() if name in kept}


def _as_type(value: Any, type_: str) -> Any:
    if type_ in (STRING, PASSWORD):
        return _text(value)
    if type_ == STRINGS and isinstance(value, list):
        return [_text(each) for each in value]
    return value


def _text(value: Any) -> Any:
    return msgspec.json.encode(value).decode() if isinstance(value, (bool, int, float)) else value
