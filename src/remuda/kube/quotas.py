"""The usage of an object in a ResourceQuota: the names that a quota may limit, the amounts, and the scopes.

Every namespaced resource has an :class:`Evaluator`: pods, services and claims have amounts of their own, all others are only
counted. Admission charges a quota before an object is stored (:mod:`remuda.apiserver.admission.resource_quota`), and the quota
controller counts what is there (:mod:`remuda.kcm.resourcequota`): both with the same functions, so that they agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from .clock import parse_rfc3339
from .objects import dig, metadata
from .pod_resources import LIMITS, REQUESTS, Amounts, counted, has_pod_level, is_huge_page, qos_class, read
from .quantity import ZERO, Quantity
from .selectors import Requirement

Obj = dict[str, Any]
Resource = tuple[str, str]

PODS: Final = ("", "pods")
SERVICES: Final = ("", "services")
CLAIMS: Final = ("", "persistentvolumeclaims")
# Of these the amounts count, of all others only their number.
LIMITED_BY_AMOUNT: Final = frozenset((PODS, SERVICES, CLAIMS))
_ONE: Final = Quantity(1)
# Also counted without the prefix, as they were before every resource could be.
_ALSO_PLAIN: Final = frozenset(("", name) for name in ("configmaps", "resourcequotas", "replicationcontrollers", "secrets"))
# Never stored, or never limited.
_IGNORED: Final = frozenset(
    (
        ("", "bindings"),
        ("", "componentstatuses"),
        ("", "events"),
        ("events.k8s.io", "events"),
        ("authentication.k8s.io", "tokenreviews"),
        ("authentication.k8s.io", "selfsubjectreviews"),
        ("authorization.k8s.io", "subjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "localsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectrulesreviews"),
    )
)
_OF_PODS: Final = frozenset(
    (
        "count/pods",
        "pods",
        *(f"{prefix}{name}" for prefix in ("", "requests.", "limits.") for name in ("cpu", "memory", "ephemeral-storage")),
    )
)
_OF_SERVICES: Final = frozenset(("count/services", "services", "services.nodeports", "services.loadbalancers"))
_OF_CLAIMS: Final = ("persistentvolumeclaims", "requests.storage")
_BY_CLASS: Final = ".storageclass.storage.k8s.io/"
_DEVICE_CLASS: Final = "deviceclass.resource.kubernetes.io/"
# A quota of one of these requires that every container says how much it wants.
_DEMANDED: Final = frozenset(f"{prefix}{name}" for prefix in ("", "requests.", "limits.") for name in ("cpu", "memory"))


class QuotaInputError(Exception):
    """An object lacks what a quota needs to know; the text is kube-apiserver's."""


@dataclass(frozen=True, slots=True)
class Evaluator:
    """One resource. `usage` takes an object and the time; `in_scope` one requirement of a quota and an object."""

    matches: Callable[[str], bool]
    usage: Callable[[Obj, float], Amounts]
    in_scope: Callable[[Obj, Obj], bool]
    # True if an update (old, new, subresource) may change what the object counts for.
    concerns: Callable[[Obj, Obj, str], bool]

    def names(self, hard: Iterable[str]) -> list[str]:
        """The names in a quota that objects of this resource count for."""
        return sorted(name for name in hard if self.matches(name))

    def covers(self, quota: Obj, obj: Obj) -> bool:
        """True if the object is in all scopes of the quota."""
        return all(self.in_scope(requirement, obj) for requirement in scopes_of(quota))


def evaluator(group: str, resource: str) -> Evaluator | None:
    """The evaluator of a resource; None if quotas ignore it."""
    key = (group, resource)
    if key in _IGNORED:
        return None
    return _SPECIAL.get(key) or _counter(key)


def scopes_of(quota: Obj) -> Iterator[Obj]:
    spec = quota.get("spec") or {}
    for scope in spec.get("scopes") or ():
        yield {"scopeName": scope, "operator": "Exists"}
    yield from (spec.get("scopeSelector") or {}).get("matchExpressions") or ()


def count_name(group: str, resource: str) -> str:
    return f"count/{resource}.{group}" if group else f"count/{resource}"


# --- objects that are only counted ----------------------------------------------------------------------------------------


def _no_scope(requirement: Obj, obj: Obj) -> bool:
    return False


def _never(old: Obj, new: Obj, subresource: str) -> bool:
    return False


@cache
def _counter(resource: Resource) -> Evaluator:
    names = {count_name(*resource)} | ({resource[1]} if resource in _ALSO_PLAIN else set())
    amounts = dict.fromkeys(sorted(names), _ONE)
    return Evaluator(names.__contains__, lambda obj, now: amounts, _no_scope, _never)


# --- services -------------------------------------------------------------------------------------------------------------


def _service_usage(service: Obj, now: float) -> Amounts:
    spec = service.get("spec") or {}
    ports = spec.get("ports") or []
    kind = spec.get("type")
    node_ports = 0
    if kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is False:
        node_ports = sum(1 for port in ports if port.get("nodePort"))
    elif kind in ("NodePort", "LoadBalancer"):
        node_ports = len(ports)
    return {
        "count/services": _ONE,
        "services": _ONE,
        "services.loadbalancers": Quantity(int(kind == "LoadBalancer")),
        "services.nodeports": Quantity(node_ports),
    }


# --- claims ---------------------------------------------------------------------------------------------------------------


def _is_claim_name(name: str) -> bool:
    return name == "count/persistentvolumeclaims" or any(name == each or name.endswith(_BY_CLASS + each) for each in _OF_CLAIMS)


def _claim_usage(claim: Obj, now: float) -> Amounts:
    found = {"persistentvolumeclaims": _ONE, "count/persistentvolumeclaims": _ONE}
    legacy = (metadata(claim).get("annotations") or {}).get("volume.beta.kubernetes.io/storage-class")
    storage_class = legacy if legacy is not None else dig(claim, "spec", "storageClassName")
    size = _claimed(claim)
    if size is not None:
        found["requests.storage"] = size
    if storage_class:
        found[f"{storage_class}{_BY_CLASS}persistentvolumeclaims"] = _ONE
        if size is not None:
            found[f"{storage_class}{_BY_CLASS}requests.storage"] = size
    return found


def _claimed(claim: Obj) -> Quantity | None:
    wanted = read(dig(claim, "spec", "resources", "requests")).get("storage")
    allocated = read(dig(claim, "status", "allocatedResources")).get("storage")
    if wanted is None:
        return None
    size = allocated if allocated is not None and allocated > wanted else wanted
    return size if size == Quantity(size.value) else Quantity(size.value, 0, size.format)


def _claim_in_scope(requirement: Obj, claim: Obj) -> bool:
    if requirement.get("scopeName") != "VolumeAttributesClass":
        return False
    classes = _attribute_classes(claim)
    if requirement.get("operator") == "Exists":
        return bool(classes)
    test = _requirement(requirement)
    return any(test.matches({test.key: name}) for name in classes) if classes else test.matches({})


def _attribute_classes(claim: Obj) -> set[str]:
    named = (
        dig(claim, "spec", "volumeAttributesClassName"),
        dig(claim, "status", "currentVolumeAttributesClassName"),
        dig(claim, "status", "modifyVolumeStatus", "targetVolumeAttributesClassName"),
    )
    return {name for name in named if name}


def _claim_concerned(old: Obj, new: Obj, subresource: str) -> bool:
    if not subresource:
        return True
    if subresource != "status":
        return False
    path = ("status", "allocatedResources", "storage")
    return dig(old, *path) != dig(new, *path) or _attribute_classes(old) != _attribute_classes(new)


# --- pods -----------------------------------------------------------------------------------------------------------------


def _is_pod_name(name: str) -> bool:
    if name in _OF_PODS or is_huge_page(name) or name.startswith("requests.hugepages-"):
        return True
    if not name.startswith("requests."):
        return False
    return ("/" in name and "kubernetes.io/" not in name) or name.startswith(f"requests.{_DEVICE_CLASS}")


def pod_counts(pod: Obj, now: float) -> bool:
    """False for a pod that has ended, or that should have been gone by now: then it is only an object."""
    if dig(pod, "status", "phase") in ("Failed", "Succeeded"):
        return False
    until = pod_counts_until(pod)
    return until is None or now <= until


def pod_counts_until(pod: Obj) -> float | None:
    """The time from which a pod that is being deleted counts no more; None while it is not being deleted."""
    meta = metadata(pod)
    deleted, grace = meta.get("deletionTimestamp"), meta.get("deletionGracePeriodSeconds")
    return None if not deleted or grace is None else parse_rfc3339(deleted) + float(grace)


def _pod_usage(pod: Obj, now: float) -> Amounts:
    if not pod_counts(pod, now):
        return {"count/pods": _ONE}
    return {"count/pods": _ONE, **_compute(counted(pod, REQUESTS), counted(pod, LIMITS))}


def _compute(requests: Amounts, limits: Amounts) -> Amounts:
    found: Amounts = {"pods": _ONE}
    for name, value in requests.items():
        if name in ("cpu", "memory", "ephemeral-storage") or is_huge_page(name):
            found[name] = value
        elif "/" not in name or ("kubernetes.io/" in name and not name.startswith(_DEVICE_CLASS)):
            continue
        found[f"requests.{name}"] = value
    for name in ("cpu", "memory", "ephemeral-storage"):
        if name in limits:
            found[f"limits.{name}"] = limits[name]
    return found


def check_pod(pod: Obj, names: Iterable[str]) -> None:
    """Raises Unfit when a container does not say what quotas of these names demand."""
    spec = pod.get("spec") or {}
    demanded = sorted(_DEMANDED.intersection(names))
    if not demanded or has_pod_level(spec):
        return
    lacking: dict[str, set[str]] = {}
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        resources = container.get("resources") or {}
        said = _compute(read(resources.get(REQUESTS)), read(resources.get(LIMITS)))
        for name in demanded:
            if name not in said:
                lacking.setdefault(name, set()).add(container.get("name") or "")
    if lacking:
        listed = (f"{name} for: {','.join(sorted(lacking[name]))}" for name in sorted(lacking))
        raise QuotaInputError(f"must specify {'; '.join(listed)}")


def _terminates(pod: Obj) -> bool:
    seconds = dig(pod, "spec", "activeDeadlineSeconds")
    return seconds is not None and seconds >= 0


def _pod_in_scope(requirement: Obj, pod: Obj) -> bool:
    match requirement.get("scopeName"):
        case "Terminating":
            return _terminates(pod)
        case "NotTerminating":
            return not _terminates(pod)
        case "BestEffort":
            return _is_best_effort(pod)
        case "NotBestEffort":
            return not _is_best_effort(pod)
        case "PriorityClass":
            name = dig(pod, "spec", "priorityClassName")
            return _requirement(requirement).matches({"PriorityClass": name} if name else {})
        case "CrossNamespacePodAffinity":
            return any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in _affinity_terms(pod))
    return False


def _is_best_effort(pod: Obj) -> bool:
    return (dig(pod, "status", "qosClass") or qos_class(pod.get("spec") or {})) == "BestEffort"


def _affinity_terms(pod: Obj) -> Iterator[Obj]:
    for kind in ("podAffinity", "podAntiAffinity"):
        affinity = dig(pod, "spec", "affinity", kind) or {}
        yield from affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for weighted in affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield weighted.get("podAffinityTerm") or {}


def _pod_concerned(old: Obj, new: Obj, subresource: str) -> bool:
    return not subresource and _terminates(old) != _terminates(new)


_OPERATORS: Final = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


def _requirement(requirement: Obj) -> Requirement:
    operator = _OPERATORS[requirement.get("operator") or "Exists"]
    return Requirement(str(requirement.get("scopeName")), operator, tuple(requirement.get("values") or ()))


_SPECIAL: Final = {
    PODS: Evaluator(_is_pod_name, _pod_usage, _pod_in_scope, _pod_concerned),
    SERVICES: Evaluator(_OF_SERVICES.__contains__, _service_usage, _no_scope, lambda old, new, subresource: not subresource),
    CLAIMS: Evaluator(_is_claim_name, _claim_usage, _claim_in_scope, _claim_concerned),
}


# --- amounts --------------------------------------------------------------------------------------------------------------


def masked(amounts: Amounts, names: Iterable[str]) -> Amounts:
    return {name: amounts[name] for name in names if name in amounts}


def subtracted(left: Amounts, right: Amounts) -> Amounts:
    return {
        **{name: value.sub(right[name]) if name in right else value for name, value in left.items()},
        **{name: ZERO.sub(value) for name, value in right.items() if name not in left},
    }


def raised(new: Amounts, old: Amounts) -> Amounts:
    """The amounts by which `new` exceeds `old`."""
    return {name: value for name, value in subtracted(new, old).items() if value > ZERO}
