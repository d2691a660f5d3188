"""kube-apiserver's small default plug-ins for the kinds that we serve.

Each is a few lines and handles one or two resources. LimitRanger is :mod:`.limit_ranger`; quotas, whose usage is stored together
with the object, are :mod:`.resource_quota`; the Pod Security Standards are :mod:`.pod_security`.
"""

from __future__ import annotations

from remuda.kube import quantity
from remuda.kube.admission_attributes import CREATE, DELETE, UPDATE, Attributes
from remuda.kube.errors import forbidden, go_quote, not_found
from remuda.kube.objects import Obj, ObjectSource, annotations_of, dig, finalizers_of, labels_of, name_of, with_metadata
from remuda.kube.quantity import Quantity

from ..auth.escalation import GUARDED, EscalationGuard

NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
TOLERATION_SECONDS = 300


class DefaultTolerationSeconds:
    """Pods stay on a node that is not ready or unreachable for five minutes unless they say otherwise."""

    name = "DefaultTolerationSeconds"
    resources = frozenset((("", "pods"),))

    async def admit(self, attributes: Attributes) -> None:
        if attributes.subresource or attributes.obj is None or attributes.operation not in (CREATE, UPDATE):
            return
        spec = attributes.obj.get("spec") or {}
        tolerations = spec.get("tolerations") or []
        missing = [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECONDS}
            for key in (NOT_READY, UNREACHABLE)
            if not any(_tolerates(toleration, key) for toleration in tolerations)
        ]
        if missing:
            attributes.obj = {**attributes.obj, "spec": {**spec, "tolerations": [*tolerations, *missing]}}

    async def validate(self, attributes: Attributes) -> None:
        pass


def _tolerates(toleration: Obj, key: str) -> bool:
    return toleration.get("key") in (key, "", None) and toleration.get("effect") in ("NoExecute", "", None)


class Priority:
    """A pod's priority comes from its PriorityClass; at most one class is the default."""

    name = "Priority"
    resources = frozenset((("", "pods"), ("scheduling.k8s.io", "priorityclasses")))

    def __init__(self, source: ObjectSource) -> None:
        self._source = source

    async def admit(self, attributes: Attributes) -> None:
        if attributes.resource != "pods" or attributes.subresource or attributes.obj is None:
            return
        if attributes.operation == CREATE:
            self._set(attributes, attributes.obj)
        elif attributes.operation == UPDATE and attributes.old is not None:
            _keep(attributes, attributes.obj, attributes.old)

    async def validate(self, attributes: Attributes) -> None:
        if attributes.resource != "priorityclasses" or attributes.subresource or attributes.obj is None:
            return
        if attributes.operation not in (CREATE, UPDATE) or not attributes.obj.get("globalDefault"):
            return
        default = self._default()
        if default is None or (attributes.operation == UPDATE and name_of(default) == name_of(attributes.obj)):
            return
        why = f"PriorityClass {name_of(default)} is already marked as default. Only one default can exist"
        raise attributes.forbidden(why)

    def _default(self) -> Obj | None:
        marked = [found for found in self._source.list("scheduling.k8s.io", "priorityclasses") if found.get("globalDefault")]
        return min(marked, key=lambda found: int(found.get("value") or 0), default=None)

    def _resolve(self, attributes: Attributes, name: str) -> Obj | None:
        if not name:
            return self._default()
        found = self._source.get("scheduling.k8s.io", "priorityclasses", "", name)
        if found is None:
            raise attributes.forbidden(f"no PriorityClass with name {name} was found")
        return found

    def _set(self, attributes: Attributes, pod: Obj) -> None:
        spec = dict(pod.get("spec") or {})
        found = self._resolve(attributes, spec.get("priorityClassName") or "")
        if found is not None:
            spec["priorityClassName"] = name_of(found)
        value = int(found.get("value") or 0) if found else 0
        given = spec.get("priority")
        if given is not None and given != value:
            raise attributes.forbidden(
                f"the integer value of priority ({given}) must not be provided in pod spec; "
                f"priority admission controller computed {value} from the given PriorityClass name"
            )
        spec["priority"] = value
        policy = found.get("preemptionPolicy") if found else "PreemptLowerPriority"
        wanted = spec.get("preemptionPolicy")
        if policy and wanted is not None and wanted != policy:
            raise attributes.forbidden(
                f"the string value of PreemptionPolicy ({wanted}) must not be provided in pod spec; "
                f"priority admission controller computed {policy} from the given PriorityClass name"
            )
        if policy:
            spec["preemptionPolicy"] = policy
        attributes.obj = {**pod, "spec": spec}


def _keep(attributes: Attributes, pod: Obj, old: Obj) -> None:
    spec, before = pod.get("spec") or {}, old.get("spec") or {}
    kept = {f: before[f] for f in ("priority", "preemptionPolicy") if spec.get(f) is None and before.get(f) is not None}
    if kept:
        attributes.obj = {**pod, "spec": {**spec, **kept}}


class TaintNodesByCondition:
    """A new node takes no pods until it reports that it is ready."""

    name = "TaintNodesByCondition"
    resources = frozenset((("", "nodes"),))

    async def admit(self, attributes: Attributes) -> None:
        node = attributes.obj
        if attributes.operation != CREATE or attributes.subresource or node is None:
            return
        spec = node.get("spec") or {}
        taints = spec.get("taints") or []
        if any(taint.get("key") == NOT_READY and taint.get("effect") == "NoSchedule" for taint in taints):
            return
        taint = {"key": NOT_READY, "effect": "NoSchedule"}
        attributes.obj = {**node, "spec": {**spec, "taints": [*taints, taint]}}

    async def validate(self, attributes: Attributes) -> None:
        pass


class StorageObjectInUseProtection:
    """Volumes and claims carry a finalizer, so that they outlive their use; :mod:`remuda.kcm.volume_protection` removes it."""

    name = "StorageObjectInUseProtection"
    _finalizers = {
        ("", "persistentvolumes"): "kubernetes.io/pv-protection",
        ("", "persistentvolumeclaims"): "kubernetes.io/pvc-protection",
    }
    resources = frozenset(_finalizers)

    async def admit(self, attributes: Attributes) -> None:
        if attributes.operation != CREATE or attributes.subresource or attributes.obj is None:
            return
        finalizer = self._finalizers[attributes.group, attributes.resource]
        present = finalizers_of(attributes.obj)
        if finalizer not in present:
            attributes.obj = with_metadata(attributes.obj, finalizers=[*present, finalizer])

    async def validate(self, attributes: Attributes) -> None:
        pass


# --- classes --------------------------------------------------------------------------------------------------------------
#
# DefaultStorageClass and DefaultIngressClass: an object that names no class gets the one that is marked as the default.
# PersistentVolumeClaimResize: a claim grows only if its class allows it. RuntimeClass: a pod's class must exist.

_DEFAULT_STORAGE = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
_DEFAULT_INGRESS = ("ingressclass.kubernetes.io/is-default-class",)
_STORAGE_CLASS, _INGRESS_CLASS = "volume.beta.kubernetes.io/storage-class", "kubernetes.io/ingress.class"


def _default_class(source: ObjectSource, group: str, resource: str, marks: tuple[str, ...]) -> str:
    """The name of the newest class that is marked as default; "" without any."""
    marked = [found for found in source.list(group, resource) if any(annotations_of(found).get(mark) == "true" for mark in marks)]
    # Of equally old ones the first by name: sorting is stable.
    marked.sort(key=name_of)
    newest = sorted(marked, key=lambda found: dig(found, "metadata", "creationTimestamp") or "", reverse=True)
    return name_of(newest[0]) if newest else ""


class DefaultStorageClass:
    name = "DefaultStorageClass"
    resources = frozenset((("", "persistentvolumeclaims"),))

    def __init__(self, source: ObjectSource) -> None:
        self._source = source

    async def admit(self, attributes: Attributes) -> None:
        claim = attributes.obj
        if attributes.operation != CREATE or attributes.subresource or claim is None:
            return
        if _STORAGE_CLASS in annotations_of(claim) or dig(claim, "spec", "storageClassName") is not None:
            return
        if name := _default_class(self._source, "storage.k8s.io", "storageclasses", _DEFAULT_STORAGE):
            attributes.obj = {**claim, "spec": {**(claim.get("spec") or {}), "storageClassName": name}}

    async def validate(self, attributes: Attributes) -> None:
        pass


class DefaultIngressClass:
    name = "DefaultIngressClass"
    resources = frozenset((("networking.k8s.io", "ingresses"),))

    def __init__(self, source: ObjectSource) -> None:
        self._source = source

    async def admit(self, attributes: Attributes) -> None:
        ingress = attributes.obj
        if attributes.operation != CREATE or attributes.subresource or ingress is None:
            return
        if _INGRESS_CLASS in annotations_of(ingress) or dig(ingress, "spec", "ingressClassName") is not None:
            return
        if name := _default_class(self._source, "networking.k8s.io", "ingressclasses", _DEFAULT_INGRESS):
            attributes.obj = {**ingress, "spec": {**(ingress.get("spec") or {}), "ingressClassName": name}}

    async def validate(self, attributes: Attributes) -> None:
        pass


class PersistentVolumeClaimResize:
    name = "PersistentVolumeClaimResize"
    resources = frozenset((("", "persistentvolumeclaims"),))

    def __init__(self, source: ObjectSource) -> None:
        self._source = source

    async def admit(self, attributes: Attributes) -> None:
        pass

    async def validate(self, attributes: Attributes) -> None:
        claim, old = attributes.obj, attributes.old
        if attributes.operation != UPDATE or attributes.subresource or claim is None or old is None:
            return
        if not _size(old) < _size(claim):
            return
        if dig(old, "status", "phase") != "Bound":
            raise attributes.forbidden("Only bound persistent volume claims can be expanded")
        name = _class_of(claim)
        found = self._source.get("storage.k8s.io", "storageclasses", "", name) if name and name == _class_of(old) else None
        if found is None or not found.get("allowVolumeExpansion"):
            raise attributes.forbidden(
                "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
            )


def _size(claim: Obj) -> Quantity:
    return quantity.parse(str(dig(claim, "spec", "resources", "requests", "storage") or "0"))


def _class_of(claim: Obj) -> str:
    return annotations_of(claim).get(_STORAGE_CLASS, dig(claim, "spec", "storageClassName") or "")


class RuntimeClass:
    """No runtime classes are served, so none exists."""

    name = "RuntimeClass"
    resources = frozenset((("", "pods"),))

    async def admit(self, attributes: Attributes) -> None:
        name = dig(attributes.obj, "spec", "runtimeClassName")
        if attributes.operation == CREATE and not attributes.subresource and name is not None:
            raise attributes.forbidden(f"pod rejected: RuntimeClass {go_quote(name)} not found")

    async def validate(self, attributes: Attributes) -> None:
        if attributes.operation == CREATE and not attributes.subresource and dig(attributes.obj, "spec", "overhead") is not None:
            why = "Pod Overhead set without corresponding RuntimeClass defined Overhead"
            raise attributes.forbidden(f"pod rejected: {why}")


# --- pod topology ---------------------------------------------------------------------------------------------------------
#
# PodTopologyLabels: a pod carries the zone and region of the node it is bound to.

_COPIED = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


class PodTopologyLabels:
    name = "PodTopologyLabels"
    resources = frozenset((("", "pods"),))

    def __init__(self, source: ObjectSource) -> None:
        self._source = source

    async def admit(self, attributes: Attributes) -> None:
        obj = attributes.obj
        if attributes.operation != CREATE or attributes.subresource not in ("", "binding") or obj is None:
            return
        if labels := self._labels(_node_of(obj, attributes.subresource)):
            attributes.obj = with_metadata(obj, labels={**labels_of(obj), **labels})

    async def validate(self, attributes: Attributes) -> None:
        pass

    def _labels(self, node: str) -> dict[str, str]:
        found = self._source.get("", "nodes", "", node) if node else None
        given = labels_of(found) if found is not None else {}
        return {label: given[label] for label in _COPIED if label in given}


def _node_of(obj: Obj, subresource: str) -> str:
    if subresource:
        return dig(obj, "target", "name") or "" if dig(obj, "target", "kind") == "Node" else ""
    return dig(obj, "spec", "nodeName") or ""


# --- namespace lifecycle --------------------------------------------------------------------------------------------------
#
# NamespaceLifecycle: no creation in a namespace that is absent or terminating; three namespaces cannot be deleted.

IMMORTAL = frozenset(("default", "kube-system", "kube-public"))


class NamespaceLifecycle:
    name = "NamespaceLifecycle"

    def __init__(self, source: ObjectSource) -> None:
        self._source = source

    async def admit(self, attributes: Attributes) -> None:
        if not attributes.group and attributes.kind == "Namespace":
            if attributes.operation == DELETE and attributes.name in IMMORTAL:
                raise forbidden("", attributes.resource, attributes.name, "this namespace may not be deleted")
            return
        if not attributes.namespace or attributes.operation not in (CREATE, UPDATE):
            return
        # An access review must not reveal whether a namespace exists.
        if attributes.resource == "localsubjectaccessreviews" and attributes.group == "authorization.k8s.io":
            return
        namespace = self._source.get("", "namespaces", "", attributes.namespace)
        if namespace is None:
            raise not_found("", "namespaces", attributes.namespace)
        if attributes.operation == CREATE and dig(namespace, "status", "phase") == "Terminating":
            self._refuse(attributes)

    async def validate(self, attributes: Attributes) -> None:
        pass

    @staticmethod
    def _refuse(attributes: Attributes) -> None:
        name = attributes.namespace
        error = attributes.forbidden(f"unable to create new content in namespace {name} because it is being terminated")
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {name} is being terminated",
            "field": "metadata.namespace",
        }
        error.details = {**(error.details or {}), "causes": [cause]}
        raise error


# --- privilege escalation -------------------------------------------------------------------------------------------------


class Escalation:
    """Rejects roles and bindings that would grant more than their writer holds."""

    name = "RBACEscalation"
    resources = frozenset(("rbac.authorization.k8s.io", resource) for resource in GUARDED)

    def __init__(self, guard: EscalationGuard) -> None:
        self._guard = guard

    async def admit(self, attributes: Attributes) -> None:
        if attributes.operation == DELETE or attributes.obj is None:
            return
        name = "" if attributes.operation == CREATE else attributes.name
        self._guard.check(attributes.user, attributes.resource, attributes.namespace, name, attributes.obj, attributes.old)

    async def validate(self, attributes: Attributes) -> None:
        return
