"""Built-in kinds: the strategy of each for the generic verbs, one module per group.

:func:`strategy_for` finds a kind's :class:`~remuda.apiserver.registry.strategy.Strategy`. The structure of the kinds (fields,
list keys, protobuf numbers) is in :mod:`..scheme.builtin_types`; here are the rules beyond the structure.
"""

from __future__ import annotations

from ..registry.strategy import Strategy
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


def is_known(group: str, version: str, kind: str) -> bool:
    return (group, version, kind) in _STRATEGIES


def strategy_for(group: str, version: str, kind: str) -> Strategy:
    """The kind's own strategy; KeyError when it has none."""
    return _STRATEGIES[group, version, kind]
