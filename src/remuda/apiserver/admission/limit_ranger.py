"""LimitRanger: the limits and defaults that a namespace's LimitRanges set for its pods, their containers, and claims.

New pods get the defaults that they lack, and an annotation that says which. Then new pods, and claims at every write, are
compared with minimum, maximum and ratio. All violations of one LimitRange are reported together, in kube-apiserver's words.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from remuda.kube.admission_attributes import CREATE, UPDATE, Attributes
from remuda.kube.errors import aggregate_text
from remuda.kube.objects import ObjectSource, annotations_of, dig, is_being_deleted, name_of, with_metadata
from remuda.kube.pod_resources import LIMITS, REQUESTS, Amounts, declared, read
from remuda.kube.quantity import ZERO, Quantity

Obj = dict[str, Any]

_ANNOTATION = "kubernetes.io/limit-ranger"
# Up to this, thousandths are compared; above it, whole units.
_MOST_IN_MILLI = ((1 << 63) - 1) // 1000


class LimitRanger:
    name = "LimitRanger"
    resources = frozenset((("", "pods"), ("", "persistentvolumeclaims")))

    def __init__(self, source: ObjectSource) -> None:
        self._source = source

    async def admit(self, attributes: Attributes) -> None:
        if attributes.resource != "pods":
            return
        for limit_range in self._ranges(attributes):
            if attributes.obj is not None:
                attributes.obj = _with_defaults(attributes.obj, limit_range)

    async def validate(self, attributes: Attributes) -> None:
        obj = attributes.obj or {}
        problems_of = _pod_problems if attributes.resource == "pods" else _claim_problems
        for limit_range in self._ranges(attributes):
            found = [why for item in _items(limit_range) for why in problems_of(item, obj)]
            if found:
                raise attributes.forbidden(aggregate_text(list(dict.fromkeys(found))))

    def _ranges(self, attributes: Attributes) -> list[Obj]:
        # The resources of a pod's containers never change, so an update of a pod has nothing to compare.
        operations = (CREATE,) if attributes.resource == "pods" else (CREATE, UPDATE)
        if attributes.subresource or attributes.operation not in operations:
            return []
        if attributes.old is not None and is_being_deleted(attributes.old):
            return []
        return sorted(self._source.list("", "limitranges", attributes.namespace), key=name_of)


def _items(limit_range: Obj) -> list[Obj]:
    return dig(limit_range, "spec", "limits") or []


# --- defaults -------------------------------------------------------------------------------------------------------------


def _with_defaults(pod: Obj, limit_range: Obj) -> Obj:
    requests: Obj = {}
    limits: Obj = {}
    for item in _items(limit_range):
        if item.get("type") == "Container":
            requests.update(item.get("defaultRequest") or {})
            limits.update(item.get("default") or {})
    if not requests and not limits:
        return pod
    notes: list[str] = []
    spec = dict(pod.get("spec") or {})
    for field, what in (("containers", "container"), ("initContainers", "init container")):
        if spec.get(field):
            spec[field] = [_completed(container, requests, limits, what, notes) for container in spec[field]]
    if not notes:
        return pod
    note = f"LimitRanger plugin set: {'; '.join(notes)}"
    return with_metadata({**pod, "spec": spec}, annotations={**annotations_of(pod), _ANNOTATION: note})


def _completed(container: Obj, requests: Obj, limits: Obj, what: str, notes: list[str]) -> Obj:
    resources = dict(container.get("resources") or {})
    for field, word, defaults in ((REQUESTS, "request", requests), (LIMITS, "limit", limits)):
        own = resources.get(field) or {}
        missing = sorted(name for name in defaults if name not in own)
        if missing:
            resources[field] = {**own, **{name: defaults[name] for name in missing}}
            notes.append(f"{', '.join(missing)} {word} for {what} {container.get('name')}")
    return {**container, "resources": resources}


# --- limits ---------------------------------------------------------------------------------------------------------------


def _pod_problems(item: Obj, pod: Obj) -> Iterator[str]:
    spec = pod.get("spec") or {}
    if item.get("type") == "Container":
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
            resources = container.get("resources") or {}
            yield from _problems(item, read(resources.get(REQUESTS)), read(resources.get(LIMITS)))
    elif item.get("type") == "Pod":
        yield from _problems(item, declared(spec, REQUESTS), declared(spec, LIMITS))


def _problems(item: Obj, requests: Amounts, limits: Amounts) -> Iterator[str]:
    kind = str(item.get("type"))
    for field, problem in (("min", _below), ("max", _above), ("maxLimitRequestRatio", _out_of_ratio)):
        for name, bound in sorted(read(item.get(field)).items()):
            if (why := problem(kind, name, bound, requests, limits)) is not None:
                yield why


def _claim_problems(item: Obj, claim: Obj) -> Iterator[str]:
    if item.get("type") != "PersistentVolumeClaim":
        return
    requests = read(dig(claim, "spec", "resources", "requests"))
    for name, bound in sorted(read(item.get("min")).items()):
        if (why := _below("PersistentVolumeClaim", name, bound, requests, {})) is not None:
            yield why
    for name, bound in sorted(read(item.get("max")).items()):
        said = f"maximum {name} usage per PersistentVolumeClaim is {bound}"
        if name not in requests:
            yield f"{said}.  No request is specified"
        elif _exceeds(requests[name], bound):
            yield f"{said}, but request is {requests[name]}"


def _below(kind: str, name: str, bound: Quantity, requests: Amounts, limits: Amounts) -> str | None:
    said = f"minimum {name} usage per {kind} is {bound}"
    if name not in requests:
        return f"{said}.  No request is specified"
    if _exceeds(bound, requests[name]):
        return f"{said}, but request is {requests[name]}"
    if name in limits and _exceeds(bound, limits[name]):
        return f"{said}, but limit is {limits[name]}"
    return None


def _above(kind: str, name: str, bound: Quantity, requests: Amounts, limits: Amounts) -> str | None:
    said = f"maximum {name} usage per {kind} is {bound}"
    if name not in limits:
        return f"{said}.  No limit is specified"
    if _exceeds(limits[name], bound):
        return f"{said}, but limit is {limits[name]}"
    if name in requests and _exceeds(requests[name], bound):
        return f"{said}, but request is {requests[name]}"
    return None


def _out_of_ratio(kind: str, name: str, bound: Quantity, requests: Amounts, limits: Amounts) -> str | None:
    said = f"{name} max limit to request ratio per {kind} is {bound}"
    request, limit = _comparable(requests.get(name, ZERO), limits.get(name, ZERO), bound)[:2]
    if not request:
        return f"{said}, but no request is specified or request is 0"
    if not limit:
        return f"{said}, but no limit is specified or limit is 0"
    ratio, most = limit / request, float(bound.value)
    if bound.value <= _MOST_IN_MILLI:
        exceeded = ratio * 1000 > bound.milli_value
    else:
        exceeded = ratio > most
    return f"{said}, but provided ratio is {ratio:f}" if exceeded else None


def _exceeds(value: Quantity, bound: Quantity) -> bool:
    left, right = _comparable(value, bound)
    return left > right


def _comparable(*values: Quantity) -> list[int]:
    if all(value.value <= _MOST_IN_MILLI for value in values):
        return [value.milli_value for value in values]
    return [value.value for value in values]
