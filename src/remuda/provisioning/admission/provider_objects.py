"""Validation of provisioned clusters and of the objects they consist of, besides the schemas.

Rules apply to changed fields only: objects older than a rule can still be changed elsewhere, and deleted. For clusters,
:mod:`remuda.provisioning.admission.clusters` has further rules; the server applies both. Version order is in
:mod:`.version_changes`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Any

from remuda.access.clusters.admission import concerns
from remuda.api import cluster_x_k8s_io as capi
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.kube import conditions
from remuda.kube.admission_attributes import Attributes
from remuda.kube.errors import FieldError, forbidden_field, invalid_value, not_supported, required
from remuda.kube.names import dns_subdomain_problems, qualified_name_problems
from remuda.kube.objects import ObjectSource, annotations_of, dig, is_being_deleted, labels_of, name_of, with_path
from remuda.kube.selectors import structure_errors
from remuda.runtime.admitted_types import AdmittedType

from .. import well_known
from ..etcd.removal import is_etcd
from ..etcd.snapshot_specs import NONE, SnapshotSpecError, cluster_spec, is_pending
from ..host_layout import VARIABLES
from ..plans.host_write_rules import refusal
from ..releases.catalog import NO_IMAGE
from .clusters import directory_errors
from .machine_pools import pool_errors
from .protected_machines import admitted as protected_machine_rules
from .protected_machines import pool_loss_errors
from .snapshots import import_errors, recovery_errors
from .version_changes import RunningVersion, change_problem, form_problem, goes_back

Obj = dict[str, Any]

KEEP_SCHEMA_OFF = "provisioning.cattle.io/allow-dynamic-schema-drop"
AGENT_DIRECTORY = "CATTLE_AGENT_VAR_DIR"
NO_PROXY = "NO_PROXY"
_RKE = "spec.rkeConfig"
_RESTORE = f"{_RKE}.etcdSnapshotRestore"
_IMMUTABLE = "field is immutable"
# The fields that a restore needs in a snapshot's metadata, by `restoreRKEConfig`.
_REMEMBERED = {"kubernetesVersion": ("kubernetesVersion",), "all": ("kubernetesVersion", "rkeConfig")}


def admitted(source: ObjectSource) -> tuple[AdmittedType, ...]:
    """`source` knows the RKEControlPlanes, ETCDSnapshots and Machines."""
    clusters = ClusterRules(source)
    return (
        AdmittedType(
            provisioning.GROUP, provisioning.VERSION, "clusters", "Cluster", with_dynamic_schemas, validate=clusters.errors
        ),
        AdmittedType(rke.GROUP, rke.VERSION, "rkecontrolplanes", "RKEControlPlane", validate=control_plane_errors),
        AdmittedType(rke.GROUP, rke.VERSION, "rkeclusters", "RKECluster", validate=infrastructure_errors),
        AdmittedType(rke.GROUP, rke.VERSION, "rkebootstraps", "RKEBootstrap", validate=owned_errors),
        AdmittedType(rke.GROUP, rke.VERSION, "etcdsnapshots", "ETCDSnapshot", validate=owned_errors),
        AdmittedType("", "v1", "secrets", "PlanSecret", validate=plan_secret_errors, only_if=_BY_ITS_ACCOUNT),
        *protected_machine_rules(source),
    )


# --- plan secrets -------------------------------------------------------------------------------------------------------------


# A host's account has the name of the Secret with its plan; a webhook is not called for other Secrets.
_BY_ITS_ACCOUNT = "request.userInfo.username == 'system:serviceaccount:' + request.namespace + ':' + request.name"


def plan_secret_errors(attributes: Attributes) -> Iterable[FieldError]:
    """Validates a host's write to its own plan's Secret; raises if it is not allowed."""
    old, new, user = attributes.old, attributes.obj, attributes.user.name
    if old is None or new is None or user != f"system:serviceaccount:{attributes.namespace}:{attributes.name}":
        return ()
    if old.get("type") == well_known.PLAN_TYPE and (why := refusal(old, new)):
        raise attributes.forbidden(why)
    return ()


# --- clusters -----------------------------------------------------------------------------------------------------------------


def with_dynamic_schemas(attributes: Attributes) -> Obj | None:
    """Keeps the pools' `dynamicSchemaSpec` when a client that does not know the field omits it."""
    obj, old = attributes.obj, attributes.old
    if obj is None or old is None or annotations_of(obj).get(KEEP_SCHEMA_OFF) == "true":
        return None
    kept = {pool.get("name"): pool.get("dynamicSchemaSpec") for pool in _items(old, "spec", "rkeConfig", "machinePools")}
    pools = _items(obj, "spec", "rkeConfig", "machinePools")
    filled = [
        {**pool, "dynamicSchemaSpec": had} if (had := kept.get(pool.get("name"))) and not pool.get("dynamicSchemaSpec") else pool
        for pool in pools
    ]
    return with_path(obj, ("spec", "rkeConfig", "machinePools"), filled) if filled != pools else None


class ClusterRules:
    """Rules for clusters.provisioning.cattle.io with rkeConfig."""

    def __init__(self, source: ObjectSource) -> None:
        self._source = source

    def errors(self, attributes: Attributes) -> Iterable[FieldError]:
        obj, old = attributes.obj or {}, attributes.old
        if not concerns(attributes):
            return []
        errors = [*recovery_errors(self._source, attributes), *import_errors(attributes)]
        if old is not None and obj.get("spec") == old.get("spec"):
            return errors
        errors += [*_variable_errors(obj, old), *_customization_errors(obj, old)]
        if not isinstance(dig(obj, "spec", "rkeConfig"), dict):
            return errors
        return [
            *errors,
            *self._version_errors(attributes),
            *_pool_errors(obj, old),
            *_selector_errors(obj, old),
            *_credential_errors(obj, old),
            *self._restore_errors(attributes),
            *pool_loss_errors(self._source, attributes),
        ]

    def _version_errors(self, attributes: Attributes) -> list[FieldError]:
        path, obj = "spec.kubernetesVersion", attributes.obj or {}
        new, old = (dig(each, "spec", "kubernetesVersion") or "" for each in (obj, attributes.old))
        if not new or new == old:
            return []
        if problem := form_problem(new):
            return [invalid_value(path, new, problem)]
        if attributes.old is None or not old:
            return []
        plane = self._source.get(rke.GROUP, "rkecontrolplanes", attributes.namespace, attributes.name)
        initialized = dig(plane, "status", "initialization", "controlPlaneInitialized") is True
        restoring = self._restored_version(attributes, plane) or _held_version(plane)
        machines = list(self._machines(attributes.namespace, attributes.name))
        if problem := change_problem(old, new, machines, initialized=initialized, restoring=restoring):
            return [invalid_value(path, new, problem)]
        if initialized and not restoring and goes_back(old, new):
            attributes.warnings.append(f"{path}: {new} is older than {old}: what was repaired since comes back")
        return []

    def _machines(self, namespace: str, cluster: str) -> Iterator[RunningVersion]:
        for machine in self._source.list(capi.GROUP, "machines", namespace):
            if dig(machine, "spec", "clusterName") != cluster or is_being_deleted(machine):
                continue
            labels = labels_of(machine)
            server = any(labels.get(role) == "true" for role in (well_known.CONTROL_PLANE_ROLE, well_known.ETCD_ROLE))
            reconciled = str((conditions.get(machine, "Reconciled") or {}).get("message") or "")
            version = dig(machine, "status", "nodeInfo", "kubeletVersion") or ""
            yield RunningVersion(name_of(machine), version, server, NO_IMAGE in reconciled)

    def _restored_version(self, attributes: Attributes, plane: Obj | None) -> str:
        """The version that a pending restore of a snapshot brings back."""
        restore = dig(attributes.obj, "spec", "rkeConfig", "etcdSnapshotRestore")
        if not dig(restore, "name") or dig(restore, "restoreRKEConfig") not in _REMEMBERED:
            return ""
        if not is_pending(restore, dig(plane, "status") or {}):
            return ""
        snapshot = self._source.get(rke.GROUP, "etcdsnapshots", attributes.namespace, restore["name"])
        try:
            return dig(cluster_spec(snapshot or {}), "kubernetesVersion") or ""
        except SnapshotSpecError:
            return ""

    def _restore_errors(self, attributes: Attributes) -> list[FieldError]:
        restore, before = (
            dig(each, "spec", "rkeConfig", "etcdSnapshotRestore") for each in (attributes.obj, attributes.old or {})
        )
        name = dig(restore, "name")
        # A new cluster has nothing to restore yet, but its spec may be a copy of one that had.
        if not name or restore == before or attributes.old is None:
            return []
        snapshot = self._source.get(rke.GROUP, "etcdsnapshots", attributes.namespace, name)
        if snapshot is None and (restore.get("restoreRKEConfig") or "") in NONE and self._is_one_file(attributes, name):
            return []
        of = dig(snapshot, "spec", "clusterName") or attributes.name
        if snapshot is None or of != attributes.name:
            # The writer must not learn of another cluster's snapshot: the same message.
            why = f"etcd restore references missing snapshot {name} in namespace {attributes.namespace}"
            return [invalid_value(f"{_RESTORE}.name", name, why)]
        needed = _REMEMBERED.get(restore.get("restoreRKEConfig") or "")
        if needed is None:
            return []
        try:
            spec = cluster_spec(snapshot) or {}
        except SnapshotSpecError as error:
            return [invalid_value(f"{_RESTORE}.name", name, f"can't bring back {' and '.join(needed)}: {error}")]
        missing = [field for field in needed if spec.get(field) in (None, "")]
        if missing:
            why = f"does not remember {' and '.join(missing)}: only none can be restored with it"
            return [invalid_value(f"{_RESTORE}.restoreRKEConfig", restore["restoreRKEConfig"], why)]
        return []

    def _is_one_file(self, attributes: Attributes, name: str) -> bool:
        """True if the name may be that of a file on the only machine that can have it."""
        machines = self._source.list(capi.GROUP, "machines", attributes.namespace)
        ours = [each for each in machines if dig(each, "spec", "clusterName") == attributes.name and not is_being_deleted(each)]
        return "/" not in name and sum(is_etcd(each) for each in ours) == 1


def _credential_errors(obj: Obj, old: Obj | None) -> list[FieldError]:
    path = ("spec", "rkeConfig", "etcd", "s3", "cloudCredentialName")
    named = dig(obj, *path)
    if not named or named == dig(old, *path):
        return []
    namespace, colon, name = str(named).partition(":")
    if not colon or not namespace or not name:
        return [invalid_value(".".join(path), named, "must be namespace:name of a Secret")]
    return []


def _items(obj: Obj | None, *path: str) -> list[Obj]:
    found = dig(obj, *path)
    return [each if isinstance(each, dict) else {} for each in found] if isinstance(found, list) else []


def _variable_errors(obj: Obj, old: Obj | None) -> list[FieldError]:
    before = {each.get("name"): each.get("value") or "" for each in _items(old, "spec", "agentEnvVars")}
    made_here = isinstance(dig(obj, "spec", "rkeConfig"), dict)
    errors = []
    for index, variable in enumerate(_items(obj, "spec", "agentEnvVars")):
        path, name, value = f"spec.agentEnvVars[{index}]", variable.get("name"), variable.get("value") or ""
        if name == AGENT_DIRECTORY and made_here and before.get(name) != value:
            errors.append(forbidden_field(f"{path}.name", f"say it in {_RKE}.dataDirectories.systemAgent instead"))
        if name in VARIABLES and before.get(name) != value:
            errors.append(forbidden_field(f"{path}.name", "a host says this of itself"))
        if name == NO_PROXY and " " in value and " " not in before.get(name, ""):
            errors.append(invalid_value(f"{path}.value", value, "must not have blanks in it: commas alone go between hosts"))
    return errors


def _customization_errors(obj: Obj, old: Obj | None) -> list[FieldError]:
    errors: list[FieldError] = []
    for field in CUSTOMIZATIONS:
        wanted = dig(obj, "spec", field)
        if isinstance(wanted, dict) and wanted != dig(old, "spec", field):
            errors += customization_errors(wanted, f"spec.{field}")
    return errors


def _pool_errors(obj: Obj, old: Obj | None) -> list[FieldError]:
    before = {pool.get("name"): pool for pool in _items(old, "spec", "rkeConfig", "machinePools")}
    errors: list[FieldError] = []
    for index, pool in enumerate(_items(obj, "spec", "rkeConfig", "machinePools")):
        if pool != before.get(pool.get("name")):
            errors += pool_errors(pool, f"{_RKE}.machinePools[{index}]")
    return errors


def _selector_errors(obj: Obj, old: Obj | None) -> list[FieldError]:
    errors: list[FieldError] = []
    for field in ("machineSelectorConfig", "machineSelectorFiles"):
        if dig(obj, "spec", "rkeConfig", field) == dig(old, "spec", "rkeConfig", field):
            continue
        for index, each in enumerate(_items(obj, "spec", "rkeConfig", field)):
            errors += structure_errors(each.get("machineLabelSelector"), f"{_RKE}.{field}[{index}].machineLabelSelector")
    return errors


# --- the objects of clusters --------------------------------------------------------------------------------------------------


def control_plane_errors(attributes: Attributes) -> Iterable[FieldError]:
    """Versions may change freely here: the cluster they come from was validated."""
    if not _spec_changed(attributes):
        return []
    spec, old = dig(attributes.obj, "spec") or {}, attributes.old
    before = None if old is None else dig(old, "spec") or {}
    errors = directory_errors(spec, before, "spec.dataDirectories")
    version = spec.get("kubernetesVersion") or ""
    if version and version != dig(before, "kubernetesVersion") and (problem := form_problem(version)):
        errors.append(invalid_value("spec.kubernetesVersion", version, problem))
    return [*errors, *_same(attributes, "clusterName"), *_same(attributes, "managementClusterName")]


def infrastructure_errors(attributes: Attributes) -> Iterable[FieldError]:
    """An endpoint needs host and port. It may change at any time: its controller tells Cluster API."""
    if not _spec_changed(attributes):
        return []
    path = "spec.controlPlaneEndpoint"
    endpoint, before = (dig(each, "spec", "controlPlaneEndpoint") for each in (attributes.obj, attributes.old or {}))
    if endpoint == before:
        return []
    if not isinstance(endpoint, dict):
        return []
    errors = [required(f"{path}.{field}", "host and port go together") for field in ("host", "port") if not endpoint.get(field)]
    host = endpoint.get("host")
    if isinstance(host, str) and host and not _is_host(host):
        why = "must be a host name or an address, without scheme, port or path"
        errors.append(invalid_value(f"{path}.host", host, why))
    return errors


def owned_errors(attributes: Attributes) -> Iterable[FieldError]:
    """An object of one cluster can't be moved to another."""
    return _same(attributes, "clusterName") if _spec_changed(attributes) else []


def _spec_changed(attributes: Attributes) -> bool:
    if not concerns(attributes):
        return False
    return attributes.old is None or dig(attributes.obj, "spec") != dig(attributes.old, "spec")


def _same(attributes: Attributes, field: str) -> list[FieldError]:
    before = dig(attributes.old, "spec", field)
    if not before or dig(attributes.obj, "spec", field) == before:
        return []
    return [forbidden_field(f"spec.{field}", _IMMUTABLE)]


def _is_host(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        # Digits and dots alone are a mistyped address.
        return not dns_subdomain_problems(text.lower()) and not text.rpartition(".")[2].isdigit()
    return True


# --- agents' customization ------------------------------------------------------------------------------------------------
#
# Validation of changes to the deployments that this server makes in a cluster: its agent, fleet's agent, the webhook.
#
# A deployment that its cluster rejects cuts the cluster off, so the cluster's own checks are made here first.

CUSTOMIZATIONS = ("clusterAgentDeploymentCustomization", "fleetAgentDeploymentCustomization", "webhookDeploymentCustomization")
_POLICIES = ("Never", "PreemptLowerPriority")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def customization_errors(customization: Obj, path: str) -> list[FieldError]:
    errors = [
        invalid_value(f"{path}.appendTolerations[{index}].key", key, why)
        for index, toleration in enumerate(_objects(customization, "appendTolerations"))
        if (key := toleration.get("key") or "")
        for why in qualified_name_problems(key)
    ]
    errors += _affinity_errors(customization, f"{path}.overrideAffinity")
    errors += _budget_errors(dig(customization, "podDisruptionBudget"), f"{path}.podDisruptionBudget")
    scheduling = dig(customization, "schedulingCustomization")
    if not isinstance(scheduling, dict):
        return errors
    at = f"{path}.schedulingCustomization"
    errors += _budget_errors(scheduling.get("podDisruptionBudget"), f"{at}.podDisruptionBudget")
    policy = dig(scheduling, "priorityClass", "preemptionPolicy")
    if policy and policy not in _POLICIES:
        errors.append(not_supported(f"{at}.priorityClass.preemptionPolicy", policy, _POLICIES))
    return errors


def _objects(obj: Obj | None, *path: str) -> list[Obj]:
    found = dig(obj, *path)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _budget_errors(budget: object, path: str) -> list[FieldError]:
    if not isinstance(budget, dict):
        return []
    # The schema refuses "0%" already.
    said = [name for name in ("minAvailable", "maxUnavailable") if budget.get(name) not in (None, "", "0")]
    return [forbidden_field(path, "only one of minAvailable and maxUnavailable can be set")] if len(said) > 1 else []


def _affinity_errors(customization: Obj, path: str) -> list[FieldError]:
    affinity = dig(customization, "overrideAffinity")
    if not isinstance(affinity, dict):
        return []
    errors: list[FieldError] = []
    for at, term in _node_terms(affinity, path):
        for index, expression in enumerate(_objects(term, "matchExpressions")):
            key = expression.get("key") or ""
            errors += [invalid_value(f"{at}.matchExpressions[{index}].key", key, why) for why in qualified_name_problems(key)]
    for at, term in _pod_terms(affinity, path):
        for selector in ("labelSelector", "namespaceSelector"):
            errors += structure_errors(dig(term, selector), f"{at}.{selector}")
    return errors


def _node_terms(affinity: Obj, path: str) -> Iterator[tuple[str, Obj]]:
    at = f"{path}.nodeAffinity"
    for index, term in enumerate(_objects(affinity, "nodeAffinity", _REQUIRED, "nodeSelectorTerms")):
        yield f"{at}.{_REQUIRED}.nodeSelectorTerms[{index}]", term
    for index, term in enumerate(_objects(affinity, "nodeAffinity", _PREFERRED)):
        yield f"{at}.{_PREFERRED}[{index}].preference", dig(term, "preference") or {}


def _pod_terms(affinity: Obj, path: str) -> Iterator[tuple[str, Obj]]:
    for kind in ("podAffinity", "podAntiAffinity"):
        for index, term in enumerate(_objects(affinity, kind, _REQUIRED)):
            yield f"{path}.{kind}.{_REQUIRED}[{index}]", term
        for index, term in enumerate(_objects(affinity, kind, _PREFERRED)):
            yield f"{path}.{kind}.{_PREFERRED}[{index}].podAffinityTerm", dig(term, "podAffinityTerm") or {}


def _held_version(plane: Obj | None) -> str:
    """The version that all machines still have while an upgrade waits for its snapshot, so that it can be taken back."""
    held = plane is not None and annotations_of(plane).get(well_known.UPGRADE_SNAPSHOT)
    if not held or dig(plane, "status", "upgradeSnapshot", "phase") == "Finished":
        return ""
    return str(dig(plane, "spec", "kubernetesVersion") or "")
