"""The requests and limits of a whole pod, and sums of resource lists, as Kubernetes computes them.

A pod needs the sum of its containers, or the peak of its start if that is more: init containers run one after the other, beside
the sidecars that were started before them. Values of the pod itself replace the sum of its containers.
Quotas (:mod:`remuda.kube.quotas`) count the overhead and what the kubelet reports; a LimitRange looks at the spec alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .objects import dig, find_by
from .quantity import ZERO, Quantity, from_json

Obj = dict[str, Any]
Amounts = dict[str, Quantity]

REQUESTS, LIMITS = "requests", "limits"


def read(given: Mapping[str, Any] | None) -> Amounts:
    """A resource list as numbers."""
    return {name: from_json(value) for name, value in (given or {}).items()}


def shown(amounts: Amounts) -> dict[str, str]:
    return {name: str(amounts[name]) for name in sorted(amounts)}


def added(left: Amounts, right: Amounts) -> Amounts:
    total = dict(left)
    for name, value in right.items():
        total[name] = total[name].add(value) if name in total else value
    return total


def most(*lists: Amounts) -> Amounts:
    """The largest amount of each resource."""
    found: Amounts = {}
    for amounts in lists:
        for name, value in amounts.items():
            if name not in found or value > found[name]:
                found[name] = value
    return found


def is_huge_page(name: str) -> bool:
    return name.startswith("hugepages-")


def _is_pod_level(name: str) -> bool:
    return name in ("cpu", "memory") or is_huge_page(name)


def has_pod_level(spec: Obj) -> bool:
    """True if the pod itself says what it needs; then its containers need not."""
    own = spec.get("resources") or {}
    return any(_is_pod_level(name) for what in (REQUESTS, LIMITS) for name in own.get(what) or ())


def of_containers(spec: Obj, what: str) -> Amounts:
    """The requests or the limits (`what`) of the containers together, as the spec has them."""
    return _over_containers(spec, lambda container: read(dig(container, "resources", what)))


def declared(spec: Obj, what: str) -> Amounts:
    """The requests or the limits (`what`) in the spec, without overhead."""
    total = of_containers(spec, what)
    own = read(dig(spec, "resources", what))
    return {**total, **{name: own[name] for name in own if name in ("cpu", "memory")}}


def counted(pod: Obj, what: str) -> Amounts:
    """The requests or the limits (`what`) that count for a quota: with overhead, and with what the kubelet reports."""
    spec = pod.get("spec") or {}
    total = _over_containers(spec, lambda container: _effective(pod, container, what))
    own = read(dig(spec, "resources", what))
    total = {**total, **{name: own[name] for name in own if _is_pod_level(name)}}
    overhead = read(spec.get("overhead"))
    if what == LIMITS:
        # Overhead limits only what has a limit.
        overhead = {name: value for name, value in overhead.items() if total.get(name, ZERO) != ZERO}
    return added(total, overhead)


def _over_containers(spec: Obj, of: Callable[[Obj], Amounts]) -> Amounts:
    running = _sum(of(container) for container in spec.get("containers") or ())
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        own = of(container)
        if container.get("restartPolicy") == "Always":
            running, sidecars = added(running, own), added(sidecars, own)
            peak = most(peak, sidecars)
        else:
            peak = most(peak, added(own, sidecars))
    return most(running, peak)


def _sum(lists: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for amounts in lists:
        total = added(total, amounts)
    return total


def _effective(pod: Obj, container: Obj, what: str) -> Amounts:
    """The resources of a container: while it is resized, the larger of both sizes."""
    wanted = read(dig(container, "resources", what))
    sidecar = container.get("restartPolicy") == "Always"
    listed = "initContainerStatuses" if sidecar else "containerStatuses"
    status = find_by(dig(pod, "status", listed) or [], "name", container.get("name"))
    if status is None or status.get("resources") is None:
        return wanted
    actual = read(dig(status, "resources", what))
    allocated = read(status.get("allocatedResources")) if what == REQUESTS else {}
    if _is_infeasible(pod):
        return most(actual, allocated)
    return most(wanted, actual, allocated)


def _is_infeasible(pod: Obj) -> bool:
    resize = find_by(dig(pod, "status", "conditions") or [], "type", "PodResizePending")
    return resize is not None and resize.get("reason") == "Infeasible"


# --- quality of service ---------------------------------------------------------------------------------------------------


def qos_class(spec: Obj) -> str:
    """Guaranteed, Burstable or BestEffort, from the requests and limits of the containers."""
    holders = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    if spec.get("resources"):
        holders = [spec]
    requests: Amounts = {}
    limits: Amounts = {}
    guaranteed = True
    for holder in holders:
        requests = added(requests, _counting(holder, REQUESTS))
        own = _counting(holder, LIMITS)
        limits = added(limits, own)
        guaranteed = guaranteed and own.keys() == {"cpu", "memory"}
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if guaranteed and requests == limits else "Burstable"


def _counting(holder: Obj, what: str) -> Amounts:
    given = read(dig(holder, "resources", what))
    return {name: given[name] for name in ("cpu", "memory") if name in given and given[name] > ZERO}
