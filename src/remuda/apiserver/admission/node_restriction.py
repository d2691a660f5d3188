"""NodeRestriction: a node writes only about itself and the pods bound to it, and cannot give itself roles.

Kubernetes' plug-in of that name. :mod:`remuda.apiserver.auth.node_authorizer` decides which requests nodes may make; this
plug-in checks the content that they write.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from remuda.kube.admission_attributes import CREATE, Attributes
from remuda.kube.objects import Obj, ObjectSource, annotations_of, dig, labels_of, metadata, uid_of

from ..auth.node_authorizer import GROUP, LEASES_IN, node_of

_RESERVED: Final = "node-restriction.kubernetes.io"
_KUBELETS: Final = ("kubelet.kubernetes.io", "node.kubernetes.io")
_WELL_KNOWN: Final = frozenset(
    (
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.kubernetes.io/region",
        "failure-domain.kubernetes.io/zone",
        "kubernetes.io/arch",
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    )
)


class NodeRestriction:
    name = "NodeRestriction"
    resources = frozenset(
        (
            ("", "nodes"),
            ("", "pods"),
            ("", "serviceaccounts"),
            ("coordination.k8s.io", "leases"),
            ("storage.k8s.io", "csinodes"),
        )
    )

    def __init__(self, source: ObjectSource, annotations: Collection[str] = ()) -> None:
        """`annotations` of Nodes that controllers act upon: by their group, as in `etcd.example.com/remove`."""
        self._source = source
        self._annotations = frozenset(annotations)

    async def admit(self, attributes: Attributes) -> None:
        pass

    async def validate(self, attributes: Attributes) -> None:
        """Check the object after mutating admission."""
        if GROUP not in attributes.user.groups:
            return
        node = node_of(attributes.user)
        if not node:
            raise attributes.forbidden(f"could not determine node from user {attributes.user.name!r}")
        if attributes.resource == "pods":
            self._check_pod(attributes, node)
        elif attributes.resource == "serviceaccounts":
            self._check_token(attributes, node)
        else:
            self._check_own(attributes, node)

    def _check_own(self, attributes: Attributes, node: str) -> None:
        name = attributes.name or metadata(attributes.obj or {}).get("name") or ""
        if attributes.resource == "leases" and attributes.namespace != LEASES_IN:
            raise attributes.forbidden(f"node {node!r} can only have a lease in the namespace {LEASES_IN}")
        if name != node:
            raise attributes.forbidden(f"node {node!r} can only touch what has its own name")
        if attributes.resource == "nodes" and attributes.obj is not None:
            self._check_node(attributes, attributes.old or {}, attributes.obj)

    def _check_node(self, attributes: Attributes, old: Obj, new: Obj) -> None:
        before, after = labels_of(old), labels_of(new)
        changed = [label for label in before.keys() | after.keys() if before.get(label) != after.get(label)]
        refused = sorted(label for label in changed if not is_allowed(label))
        if refused:
            raise attributes.forbidden(f"a node must not give itself these labels, nor take them away: {', '.join(refused)}")
        if attributes.operation != CREATE and dig(old, "spec", "taints") != dig(new, "spec", "taints"):
            raise attributes.forbidden("a node must not change its taints")
        if metadata(old).get("ownerReferences") != metadata(new).get("ownerReferences"):
            raise attributes.forbidden("a node must not change its ownerReferences")
        was, is_ = annotations_of(old), annotations_of(new)
        for mark in sorted(was.keys() | is_.keys()):
            if was.get(mark) != is_.get(mark) and mark.partition("/")[0] in self._annotations:
                raise attributes.forbidden(f"a node must not change its annotation {mark}")

    def _check_pod(self, attributes: Attributes, node: str) -> None:
        if attributes.operation == CREATE and attributes.subresource == "eviction":
            found = self._source.get("", "pods", attributes.namespace, attributes.name)
        else:
            found = attributes.old
        if found is None or dig(found, "spec", "nodeName") != node:
            raise attributes.forbidden(f"node {node!r} can only touch pods that are bound to it")
        new = attributes.obj
        if attributes.subresource == "status" and new is not None and labels_of(found) != labels_of(new):
            raise attributes.forbidden("a node must not change the labels of a pod")

    def _check_token(self, attributes: Attributes, node: str) -> None:
        """Allow tokens only for pods of this node, bound to the pod."""
        bound = dig(attributes.obj or {}, "spec", "boundObjectRef") or {}
        pod = self._source.get("", "pods", attributes.namespace, bound.get("name") or "") if bound.get("kind") == "Pod" else None
        if pod is None or bound.get("uid") != uid_of(pod) or dig(pod, "spec", "nodeName") != node:
            raise attributes.forbidden(f"node {node!r} gets tokens only for pods that are bound to it")
        if (dig(pod, "spec", "serviceAccountName") or "default") != attributes.name:
            raise attributes.forbidden(f"the pod {bound.get('name')} has another service account")


def is_allowed(label: str) -> bool:
    """True for labels that a node may set on itself: all but those reserved by Kubernetes and for scheduling."""
    group, slash, _ = label.partition("/")
    if not slash or label in _WELL_KNOWN:
        return True
    if _is_below(group, _RESERVED):
        return False
    ours = _is_below(group, "kubernetes.io") or _is_below(group, "k8s.io")
    return not ours or any(_is_below(group, each) for each in _KUBELETS)


def _is_below(group: str, domain: str) -> bool:
    return group == domain or group.endswith(f".{domain}")
