"""The built-in resources that are served, made from the generated description and each kind's strategy.

:func:`strategy_for` finds a kind's :class:`~remuda.apiserver.registry.strategy.Strategy`: its rules for the generic verbs, one
module per group. The structure of the kinds (fields, list keys, protobuf numbers) is in :mod:`..scheme.builtin_types`.

Left out, because nothing here gives them meaning: admission policies, device and flow-control resources, autoscalers,
certificate requests, component statuses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remuda.kube import errors
from remuda.kube.clock import Clock

from ..apply import FieldManager, empty_builtin
from ..cache.watch_cache import WatchCache
from ..crd.definition_strategy import DEFINITION
from ..registry.resources import Registry, Resource, Subresource, Version
from ..registry.strategy import Strategy
from ..scheme import builtin_types, codec
from ..storage import key_layout
from . import (
    admissionregistration,
    apiregistration,
    coordination,
    discovery,
    networking,
    policy,
    rbac,
    reviews,
    scheduling,
    storage,
)
from .apps import deployment, sets
from .batch import cronjob, job
from .core import (
    configmap,
    endpoints,
    event,
    namespace,
    node,
    quota,
    replication_controller,
    secret,
    service,
    serviceaccount,
    volume,
)
from .pods import pod

Obj = dict[str, Any]

_SKIPPED_GROUPS = frozenset(
    ("resource.k8s.io", "flowcontrol.apiserver.k8s.io", "autoscaling", "certificates.k8s.io", "node.k8s.io")
)
_SKIPPED = frozenset(
    (
        "componentstatuses",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "ipaddresses",
        "servicecidrs",
        "csistoragecapacities",
        "volumeattributesclasses",
    )
)
# Subresources that need a kubelet or a network behind them.
NO_KUBELET = "this API server is connected to no kubelet"
_OF_KUBELETS = frozenset(("attach", "ephemeralcontainers", "exec", "log", "portforward", "resize"))
_UNSERVED = {"proxy": "this API server opens no connections to nodes, pods or services"}
# Kinds whose deletion kube-apiserver answers with the deleted object.
_SHOWN_DELETED = frozenset(
    (
        "csidrivers",
        "csinodes",
        "namespaces",
        "persistentvolumeclaims",
        "persistentvolumes",
        "pods",
        "podtemplates",
        "resourcequotas",
        "serviceaccounts",
        "services",
        "storageclasses",
        "volumeattachments",
    )
)
_REVIEW_GROUPS = frozenset(("authentication.k8s.io", "authorization.k8s.io"))


# Fields besides the spec that a write to the status does not change, and therefore does not own.
_STATUS_RESETS: dict[tuple[str, str], list[tuple[str, ...]]] = {
    ("apps", "deployments"): [("metadata", "labels")],
    ("", "pods"): [("metadata", "deletionTimestamp"), ("metadata", "ownerReferences")],
    ("storage.k8s.io", "volumeattachments"): [("metadata",)],
    ("apiextensions.k8s.io", "customresourcedefinitions"): [("metadata",)],
    ("apiregistration.k8s.io", "apiservices"): [("metadata",)],
}


def register(registry: Registry, cache: WatchCache, clock: Clock, no_kubelet: str = NO_KUBELET) -> None:
    """`no_kubelet` says why logs, exec and the like are not served."""
    unserved = {**dict.fromkeys(_OF_KUBELETS, no_kubelet), **_UNSERVED}
    for record in served():
        registry.add(_resource(record, registry, cache, clock, unserved))


def served() -> list[builtin_types.Resource]:
    """The built-in kinds that are served."""
    return [record for record in builtin_types.kinds() if record.group not in _SKIPPED_GROUPS and record.name not in _SKIPPED]


def _resource(
    record: builtin_types.Resource, registry: Registry, cache: WatchCache, clock: Clock, unserved: dict[str, str]
) -> Resource:
    resource = Resource(
        group=record.group,
        name=record.name,
        kind=record.kind,
        list_kind=f"{record.kind}List",
        singular=record.singular,
        namespaced=record.namespaced,
        bucket=cache.bucket(key_layout.prefix_for(record.group, record.name, builtin=True)),
        storage_version=record.version,
        short_names=record.short_names,
        categories=record.categories,
        virtual=record.group in _REVIEW_GROUPS or record.name == "bindings",
        shows_deleted=record.name in _SHOWN_DELETED,
    )
    resource.versions[record.version] = _version(record, resource, clock, unserved)
    if record.group == "events.k8s.io":
        _share_with_core_events(resource, registry)
    return resource


def _version(record: builtin_types.Resource, resource: Resource, clock: Clock, unserved: dict[str, str]) -> Version:
    definition = builtin_types.type_of(record.group, record.version, record.kind)
    assert definition is not None, f"{record.kind} has no definition"
    strategy = _strategy(record)
    version = Version(
        resource=resource,
        name=record.version,
        kind=record.kind,
        strategy=strategy,
        decode=decoder(definition, record.kind, record.version),
        verbs=frozenset(record.verbs),
        deprecation_warning=deprecation_warning(record.group, record.version, record.kind),
        subresources={
            sub.name: Subresource(sub.name, sub.group, sub.version, sub.kind, frozenset(sub.verbs))
            for sub in record.subresources
            if sub.name not in unserved
        },
        unserved={sub.name: unserved[sub.name] for sub in record.subresources if sub.name in unserved},
        schema_name=definition,
        resolve=builtin_types.definition,
        empty=lambda: {k: v for k, v in codec.zero_of(definition).items() if k not in ("apiVersion", "kind", "metadata")},
    )
    version.null_when_empty = codec.null_when_empty(definition)
    version.reset_fields = reset_fields(version, strategy)
    version.make_field_manager = lambda: field_manager(version, clock)
    return version


def _strategy(record: builtin_types.Resource) -> Strategy:
    if record.kind == "CustomResourceDefinition":
        return DEFINITION
    if record.kind == "Binding":
        # Never stored: a binding is an update of its pod.
        return Strategy()
    return strategy_for(record.group, record.version, record.kind)


def decoder(definition: str, kind: str, version: str) -> Callable[[Obj], tuple[Obj, list[str]]]:
    decode: Callable[[Obj], tuple[Obj, list[str]]] | None = None

    def run(obj: Obj) -> tuple[Obj, list[str]]:
        nonlocal decode
        if decode is None:
            decode = codec.decoder_for(definition)
        try:
            return decode(obj)
        except codec.DecodeError as error:
            raise errors.Unreadable(kind, version, kind, str(error), error.restoring) from None

    return run


def reset_fields(version: Version, strategy: Strategy) -> dict[str, list[tuple[str, ...]]]:
    """The fields that a write to each subresource does not own, because it can't set them."""
    if not version.has_status:
        return {}
    more = _STATUS_RESETS.get((version.group, version.resource.name), [])
    return {"": [("status",)], "status": [("spec",), *more]}


def field_manager(version: Version, clock: Clock) -> FieldManager:
    return FieldManager(
        version.schema,
        version.resolve,
        group=version.group,
        version=version.name,
        kind=version.kind,
        reset_fields=version.reset_fields,
        clock=clock,
        empty=empty_builtin(version.schema_name),
    )


def _share_with_core_events(resource: Resource, registry: Registry) -> None:
    """Events are stored once, as core/v1; this group shows the same objects under other field names."""
    core = registry.resource("", "events")
    assert core is not None
    resource.stored_as = core.storage

    async def convert(objs: list[Obj], to_version: str) -> list[Obj]:
        return [event.from_core(obj) if obj.get("apiVersion") == "v1" else event.to_core(obj) for obj in objs]

    resource.convert = convert


_STRATEGIES: dict[tuple[str, str, str], Strategy] = {
    ("", "v1", "ConfigMap"): configmap.STRATEGY,
    ("", "v1", "Endpoints"): endpoints.STRATEGY,
    ("", "v1", "Event"): event.STRATEGY,
    ("", "v1", "LimitRange"): quota.LIMIT_RANGE,
    ("", "v1", "Namespace"): namespace.STRATEGY,
    ("", "v1", "Node"): node.STRATEGY,
    ("", "v1", "PersistentVolume"): volume.VOLUME,
    ("", "v1", "PersistentVolumeClaim"): volume.CLAIM,
    ("", "v1", "Pod"): pod.STRATEGY,
    ("", "v1", "PodTemplate"): replication_controller.POD_TEMPLATE,
    ("", "v1", "ReplicationController"): replication_controller.STRATEGY,
    ("", "v1", "ResourceQuota"): quota.QUOTA,
    ("", "v1", "Secret"): secret.STRATEGY,
    ("", "v1", "Service"): service.STRATEGY,
    ("", "v1", "ServiceAccount"): serviceaccount.STRATEGY,
    ("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration"): admissionregistration.MUTATING,
    ("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration"): admissionregistration.VALIDATING,
    ("apiregistration.k8s.io", "v1", "APIService"): apiregistration.API_SERVICE,
    ("apps", "v1", "ControllerRevision"): sets.CONTROLLER_REVISION,
    ("apps", "v1", "DaemonSet"): sets.DAEMON_SET,
    ("apps", "v1", "Deployment"): deployment.DEPLOYMENT,
    ("apps", "v1", "ReplicaSet"): deployment.REPLICA_SET,
    ("apps", "v1", "StatefulSet"): sets.STATEFUL_SET,
    ("authentication.k8s.io", "v1", "SelfSubjectReview"): reviews.UNCHECKED,
    ("authentication.k8s.io", "v1", "TokenRequest"): reviews.TOKEN_REQUEST,
    ("authentication.k8s.io", "v1", "TokenReview"): reviews.UNCHECKED,
    ("authorization.k8s.io", "v1", "LocalSubjectAccessReview"): reviews.LOCAL_SUBJECT_ACCESS,
    ("authorization.k8s.io", "v1", "SelfSubjectAccessReview"): reviews.SELF_SUBJECT_ACCESS,
    ("authorization.k8s.io", "v1", "SelfSubjectRulesReview"): reviews.UNCHECKED,
    ("authorization.k8s.io", "v1", "SubjectAccessReview"): reviews.SUBJECT_ACCESS,
    ("batch", "v1", "CronJob"): cronjob.STRATEGY,
    ("batch", "v1", "Job"): job.STRATEGY,
    ("coordination.k8s.io", "v1", "Lease"): coordination.LEASE,
    ("discovery.k8s.io", "v1", "EndpointSlice"): discovery.ENDPOINT_SLICE,
    ("events.k8s.io", "v1", "Event"): event.EVENTS_STRATEGY,
    ("networking.k8s.io", "v1", "Ingress"): networking.INGRESS,
    ("networking.k8s.io", "v1", "IngressClass"): networking.INGRESS_CLASS,
    ("networking.k8s.io", "v1", "NetworkPolicy"): networking.NETWORK_POLICY,
    ("policy", "v1", "PodDisruptionBudget"): policy.BUDGET,
    ("rbac.authorization.k8s.io", "v1", "ClusterRole"): rbac.CLUSTER_ROLE,
    ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding"): rbac.CLUSTER_ROLE_BINDING,
    ("rbac.authorization.k8s.io", "v1", "Role"): rbac.ROLE,
    ("rbac.authorization.k8s.io", "v1", "RoleBinding"): rbac.ROLE_BINDING,
    ("scheduling.k8s.io", "v1", "PriorityClass"): scheduling.PRIORITY_CLASS,
    ("storage.k8s.io", "v1", "CSIDriver"): storage.CSI_DRIVER,
    ("storage.k8s.io", "v1", "CSINode"): storage.CSI_NODE,
    ("storage.k8s.io", "v1", "StorageClass"): storage.STORAGE_CLASS,
    ("storage.k8s.io", "v1", "VolumeAttachment"): storage.VOLUME_ATTACHMENT,
}


# Kinds for which every request gets a warning.
_DEPRECATED = {("", "v1", "Endpoints"): "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"}


def deprecation_warning(group: str, version: str, kind: str) -> str:
    """The warning for every request for this kind; "" for most kinds."""
    return _DEPRECATED.get((group, version, kind), "")


def strategy_for(group: str, version: str, kind: str) -> Strategy:
    """The kind's own strategy; KeyError when it has none."""
    return _STRATEGIES[group, version, kind]
