"""The descriptions that `kubectl explain` shows for built-in kinds: our own, and few.

Structure comes from the generated description; a field without text here shows none.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ..scheme import builtin_types

Obj = dict[str, Any]

FIELDS = {
    "apiVersion": "The group and version whose schema this object follows.",
    "kind": "What this object is, in CamelCase; it never changes.",
    "metadata": "Name, namespace, labels and what else every object has.",
    "list metadata": "The revision of the list, and the token for its next page.",
    "spec": "What is wanted.",
    "status": "What was found; written by controllers.",
    "items": "The objects of the list.",
    "data": "Keys and values.",
    "labels": "Short keys and values to select objects by.",
    "annotations": "Keys and values for tools and people; not for selecting.",
    "name": "The name, unique for the kind within its namespace.",
    "namespace": "The namespace that the object lives in; empty for cluster-scoped kinds.",
    "uid": "The identity of this very object: a new one with the same name has another.",
    "resourceVersion": "Changes with every write; send it back to be told when somebody else was faster.",
    "generation": "Counts the changes of what is wanted.",
    "creationTimestamp": "When the object was created.",
    "deletionTimestamp": "When the object was asked to go; it goes once its finalizers are gone.",
    "finalizers": "Who still has to clean up before the object may go.",
    "ownerReferences": "The objects that this one belongs to; it goes when they are all gone.",
    "managedFields": "Which manager set which fields; kept by the server.",
    "replicas": "How many there should be.",
    "selector": "Which objects this one is about, by their labels.",
    "template": "What new objects look like.",
    "conditions": "The latest observations, one for each type.",
    "containers": "The containers that run in the pod.",
    "image": "The image to run.",
    "type": "Which variant this is.",
    "immutable": "When true the content can't be changed any more.",
    "stringData": "Values as plain text; the server moves them to data.",
    "rules": "What is allowed.",
    "subjects": "Who gets the role.",
    "roleRef": "The role that is given; it can't be changed later.",
}

KINDS = {
    "ConfigMap": "ConfigMap holds settings that programs read.",
    "Secret": "Secret holds values that only some may read; stored encrypted.",
    "Namespace": "Namespace is a room of its own for names, with its own permissions.",
    "Node": "Node is a machine of the cluster.",
    "Pod": "Pod is a group of containers that run together on one node.",
    "Service": "Service is a stable address for a changing set of pods.",
    "ServiceAccount": "ServiceAccount is an identity for programs.",
    "Event": "Event says what happened to an object; it goes away by itself after an hour.",
    "Deployment": "Deployment keeps so many pods of one template running, and replaces them step by step when it changes.",
    "ReplicaSet": "ReplicaSet keeps so many pods of one template running.",
    "StatefulSet": "StatefulSet keeps pods with fixed names and storage running.",
    "DaemonSet": "DaemonSet runs one pod on every node it selects.",
    "Job": "Job runs pods until so many have succeeded.",
    "CronJob": "CronJob makes Jobs on a schedule.",
    "Lease": "Lease says who holds something, and until when.",
    "Role": "Role is a set of permissions within one namespace.",
    "ClusterRole": "ClusterRole is a set of permissions that may hold everywhere.",
    "RoleBinding": "RoleBinding gives a role to subjects within one namespace.",
    "ClusterRoleBinding": "ClusterRoleBinding gives a cluster role to subjects everywhere.",
    "PodDisruptionBudget": "PodDisruptionBudget limits how many pods may be evicted at once.",
    "CustomResourceDefinition": "CustomResourceDefinition makes the API serve a kind of your own.",
}


@cache
def described(name: str, group: str, version: str) -> Obj:
    """The OpenAPI schema of a built-in definitionin the document of a group and version, with our descriptions."""
    schema = dict(builtin_types.definition_in(name, group, version))
    kind = name.rpartition(".")[2]
    if kind in KINDS:
        schema["description"] = KINDS[kind]
    properties = schema.get("properties")
    if properties:
        schema["properties"] = {field: _with_words(field, value) for field, value in properties.items()}
    return schema


def _with_words(field: str, value: Obj) -> Obj:
    words = FIELDS.get(field)
    return {"description": words, **value} if words and "description" not in value else value
