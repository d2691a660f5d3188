"""The variables of admission expressions (match conditions, admission policies) and their types.

`object`, `oldObject` and `params` are whatever they are; `request` and `namespaceObject` have known fields.
"""

from __future__ import annotations

from .static_types import AUTHORIZER, BOOL, DYN, INT, RESOURCE_CHECK, STRING, TIMESTAMP, CelType, list_of, map_of, struct

_STRINGS = list_of(STRING)
_KIND = struct("kubernetes.GroupVersionKind", dict.fromkeys(("group", "version", "kind"), STRING))
_RESOURCE = struct("kubernetes.GroupVersionResource", dict.fromkeys(("group", "version", "resource"), STRING))
_USER = struct(
    "kubernetes.UserInfo",
    {"username": STRING, "uid": STRING, "groups": _STRINGS, "extra": map_of(STRING, _STRINGS)},
)

REQUEST = struct(
    "kubernetes.AdmissionRequest",
    {
        "kind": _KIND,
        "resource": _RESOURCE,
        "subResource": STRING,
        "requestKind": _KIND,
        "requestResource": _RESOURCE,
        "requestSubResource": STRING,
        "name": STRING,
        "namespace": STRING,
        "operation": STRING,
        "userInfo": _USER,
        "dryRun": BOOL,
        "options": DYN,
    },
)
_CONDITION = struct(
    "kubernetes.NamespaceCondition",
    {"status": STRING, "type": STRING, "lastTransitionTime": TIMESTAMP, "message": STRING, "reason": STRING},
)
_METADATA = struct(
    "kubernetes.NamespaceMetadata",
    {
        **dict.fromkeys(("name", "generateName", "namespace", "UID", "resourceVersion"), STRING),
        **dict.fromkeys(("labels", "annotations"), map_of(STRING, STRING)),
        **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), TIMESTAMP),
        **dict.fromkeys(("deletionGracePeriodSeconds", "generation"), INT),
        "finalizers": _STRINGS,
    },
)
NAMESPACE = struct(
    "kubernetes.Namespace",
    {
        "metadata": _METADATA,
        "spec": struct("kubernetes.NamespaceSpec", {"finalizers": _STRINGS}),
        "status": struct("kubernetes.NamespaceStatus", {"conditions": list_of(_CONDITION), "phase": STRING}),
    },
)

# What a webhook's match condition may use.
MATCH_CONDITION_VARIABLES: dict[str, CelType] = {
    "object": DYN,
    "oldObject": DYN,
    "request": REQUEST,
    "authorizer": AUTHORIZER,
    "authorizer.requestResource": RESOURCE_CHECK,
}
# What an admission policy may use on top.
POLICY_VARIABLES: dict[str, CelType] = {**MATCH_CONDITION_VARIABLES, "namespaceObject": NAMESPACE, "params": DYN}
