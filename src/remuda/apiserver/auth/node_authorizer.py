"""The permissions of nodes: on themselves, on the pods bound to them, and on the objects that those pods need.

As Kubernetes' Node authorizer. A role could only allow "all Secrets" where a node may read those of its own pods, so the
certificate of one worker would give access to the cluster. To use it, add it to :class:`remuda.kube.authorization.rbac.Rbac`
(`besides`), with the admission plug-in :mod:`remuda.apiserver.admission.node_restriction`, which checks the written content.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

from remuda.kube.authorization.actions import Action
from remuda.kube.authorization.users import User
from remuda.kube.objects import Key, ObjectSource, dig, namespace_of

Obj = dict[str, Any]
# Resource, namespace, name.
Need = tuple[str, str, str]

GROUP: Final = "system:nodes"
_PREFIX: Final = "system:node:"
LEASES_IN: Final = "kube-node-lease"
_READ = frozenset(("get", "list", "watch"))
_WRITE = frozenset(("update", "patch"))
# By group, resource and subresource: public objects, and reviews and events that a node has to create.
_ANY: Final[dict[tuple[str, str, str], frozenset[str]]] = {
    ("", "services", ""): _READ,
    ("", "endpoints", ""): frozenset(("get",)),
    ("node.k8s.io", "runtimeclasses", ""): _READ,
    ("storage.k8s.io", "csidrivers", ""): _READ,
    ("authentication.k8s.io", "tokenreviews", ""): frozenset(("create",)),
    ("authorization.k8s.io", "subjectaccessreviews", ""): frozenset(("create",)),
    ("authorization.k8s.io", "localsubjectaccessreviews", ""): frozenset(("create",)),
    ("", "events", ""): frozenset(("create", *_WRITE)),
    ("events.k8s.io", "events", ""): frozenset(("create", *_WRITE)),
}
# Objects with the node's own name. On create, admission checks the name.
_OWN: Final[dict[tuple[str, str, str], frozenset[str]]] = {
    ("", "nodes", ""): frozenset(("create", *_READ, *_WRITE)),
    ("", "nodes", "status"): _WRITE,
    ("coordination.k8s.io", "leases", ""): frozenset(("create", "get", "delete", *_WRITE)),
    ("storage.k8s.io", "csinodes", ""): frozenset(("create", "get", "delete", *_WRITE)),
}
# Verbs by subresource, on pods that are bound to the node.
_OF_PODS: Final[dict[str, frozenset[str]]] = {
    "": frozenset(("get", "delete")),
    "status": _WRITE,
    "eviction": frozenset(("create",)),
}
_NEEDED = frozenset(("secrets", "configmaps", "serviceaccounts", "persistentvolumeclaims"))


def node_of(user: User) -> str:
    """The node's name; "" for other users."""
    return user.name.removeprefix(_PREFIX) if GROUP in user.groups and user.name.startswith(_PREFIX) else ""


class NodeRights:
    def __init__(self, source: ObjectSource) -> None:
        self._source = source
        self._needs: dict[str, Counter[Need]] = {}
        source.subscribe("", "pods", self._pod_changed)

    def allows(self, action: Action) -> bool:
        """True when the user is a node with this right; roles may grant it more."""
        node = node_of(action.user)
        if not node or not action.is_resource:
            return False
        what = (action.group, action.resource, action.subresource)
        if action.verb in _ANY.get(what, ()):
            return True
        if action.verb in _OWN.get(what, ()):
            in_place = action.resource != "leases" or action.namespace == LEASES_IN
            return in_place and (action.verb == "create" or action.name == node)
        if action.group == "storage.k8s.io" and what[1:] == ("volumeattachments", "") and action.verb == "get":
            return self._is_attached(action.name, node)
        return not action.group and self._allows_of_pods(action, node)

    def _allows_of_pods(self, action: Action, node: str) -> bool:
        verb, resource, subresource = action.verb, action.resource, action.subresource
        if resource == "pods":
            if verb in ("list", "watch") and not subresource:
                return f"spec.nodeName={node}" in action.field_selector.replace("==", "=").split(",")
            return verb in _OF_PODS.get(subresource, ()) and self._is_bound(Key(action.namespace, action.name), node)
        if resource == "persistentvolumes" and not subresource and verb == "get":
            return self._is_claimed(action.name, node)
        wanted = (resource, action.namespace, action.name)
        if (resource, subresource, verb) == ("serviceaccounts", "token", "create"):
            return self._is_needed(wanted, node)
        return resource in _NEEDED and not subresource and verb in _READ and self._is_needed(wanted, node)

    # --- what belongs to a node -------------------------------------------------------------------------------------------

    def _is_bound(self, key: Key, node: str) -> bool:
        """True when the pod is bound to the node, or absent: then the request fails with "not found"."""
        pod = self._source.get("", "pods", *key)
        return pod is None or dig(pod, "spec", "nodeName") == node

    def _is_needed(self, wanted: Need, node: str) -> bool:
        return bool(wanted[2]) and wanted in self._needs.get(node, ())

    def _is_claimed(self, volume: str, node: str) -> bool:
        claim = dig(self._source.get("", "persistentvolumes", "", volume) or {}, "spec", "claimRef") or {}
        return self._is_needed(("persistentvolumeclaims", claim.get("namespace") or "", claim.get("name") or ""), node)

    def _is_attached(self, attachment: str, node: str) -> bool:
        found = self._source.get("storage.k8s.io", "volumeattachments", "", attachment)
        return found is not None and bool(dig(found, "spec", "nodeName") == node)

    def _pod_changed(self, new: Obj | None, old: Obj | None) -> None:
        if new is not None and old is not None and new.get("spec") == old.get("spec"):
            return
        for pod, count in ((old, -1), (new, 1)):
            node = dig(pod, "spec", "nodeName") if pod is not None else None
            if pod is None or not node:
                continue
            held = self._needs.setdefault(node, Counter())
            for need in needs(pod):
                held[need] += count
                if held[need] <= 0:
                    del held[need]
            if not held:
                del self._needs[node]


def needs(pod: Obj) -> set[Need]:
    """Objects that a pod's node has to read."""
    spec, namespace = pod.get("spec") or {}, namespace_of(pod)
    found = {("serviceaccounts", spec.get("serviceAccountName") or "default")}
    found |= {("secrets", each.get("name") or "") for each in spec.get("imagePullSecrets") or ()}
    for volume in spec.get("volumes") or ():
        found |= set(_of_volume(volume))
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(kind) or ():
            found |= set(_of_container(container))
    return {(resource, namespace, name) for resource, name in found if name}


def _of_volume(volume: Obj) -> Iterator[tuple[str, str]]:
    yield "persistentvolumeclaims", dig(volume, "persistentVolumeClaim", "claimName") or ""
    yield "secrets", dig(volume, "secret", "secretName") or ""
    yield "configmaps", dig(volume, "configMap", "name") or ""
    for source in dig(volume, "projected", "sources") or ():
        yield "secrets", dig(source, "secret", "name") or ""
        yield "configmaps", dig(source, "configMap", "name") or ""
    for kind, content in volume.items():
        if isinstance(content, dict) and kind != "secret":
            # Several kinds of volume refer to a secret.
            yield "secrets", content.get("secretName") or ""
            for reference in ("secretRef", "nodePublishSecretRef"):
                yield "secrets", dig(content, reference, "name") or ""


def _of_container(container: Obj) -> Iterable[tuple[str, str]]:
    for source in container.get("envFrom") or ():
        yield "secrets", dig(source, "secretRef", "name") or ""
        yield "configmaps", dig(source, "configMapRef", "name") or ""
    for variable in container.get("env") or ():
        yield "secrets", dig(variable, "valueFrom", "secretKeyRef", "name") or ""
        yield "configmaps", dig(variable, "valueFrom", "configMapKeyRef", "name") or ""
