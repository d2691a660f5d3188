"""Who owned a cluster and does no more: pure, from the bindings that are there and those that should be.

An owner may read the cluster's kubeconfig Secret, whose token opens the cluster for our controllers and never ends. So when one
leaves, that token has to be replaced, or they would still get in. What tells that somebody could read it is the RoleBinding that
let them: it is in the store until all is done. :mod:`.cluster_access` acts on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remuda.kube.objects import Key, labels_of, namespace_of

from ..users.tokens import CONTROLLERS_KIND, KIND_LABEL
from .role_names import workspace_role

Obj = dict[str, Any]


def opens(token: Obj) -> Iterable[str]:
    """For an index of Tokens: the cluster that one opens for our controllers."""
    cluster = token.get("clusterName")
    return (cluster,) if isinstance(cluster, str) and cluster and labels_of(token).get(KIND_LABEL) == CONTROLLERS_KIND else ()


def leaving(provisioning: Iterable[Key], existing: Iterable[Obj], wanted: Iterable[Obj]) -> set[str]:
    """Who (`User/<name>`, `Group/<name>`) could read the Secrets of these provisioning Clusters, and now may not."""
    roles = {(key.namespace, workspace_role(key.name, admin=True)) for key in provisioning}
    return _subjects(existing, roles) - _subjects(wanted, roles)


def _subjects(objects: Iterable[Obj], roles: set[tuple[str, str]]) -> set[str]:
    bound = (obj for obj in objects if (namespace_of(obj), (obj.get("roleRef") or {}).get("name")) in roles)
    return {f"{subject.get('kind')}/{subject.get('name')}" for obj in bound for subject in obj.get("subjects") or ()}
