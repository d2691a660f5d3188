"""ResourceQuota: whether a write fits into its namespace's quotas, and what they have used then.

Pure: the verbs give the quotas and the write, and store the new usage together with the object
(:mod:`remuda.apiserver.verbs.quotas`). What an object counts for is in :mod:`remuda.kube.quotas`. The order of the checks and
the words of the refusals are kube-apiserver's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from remuda.kube.admission_attributes import CREATE, UPDATE, Attributes
from remuda.kube.objects import dig, name_of
from remuda.kube.pod_resources import Amounts, added, read, shown
from remuda.kube.quantity import ZERO
from remuda.kube.quotas import PODS, Evaluator, QuotaInputError, check_pod, evaluator, masked, raised

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Charge:
    """`used` is the new usage. None: nothing is charged yet, but the quota's limits are new and their usage is being counted.

    Then the quota is written as it is, so that a count that lacks this object is refused as outdated.
    """

    quota: Obj
    used: Amounts | None


def concerned(attributes: Attributes) -> Evaluator | None:
    """The evaluator, if the write may change what any quota has used."""
    if not attributes.namespace or attributes.obj is None or (not attributes.group and attributes.kind == "Namespace"):
        return None
    if attributes.operation == CREATE:
        return None if attributes.subresource else evaluator(attributes.group, attributes.resource)
    if attributes.operation != UPDATE or attributes.old is None:
        return None
    found = evaluator(attributes.group, attributes.resource)
    return found if found is not None and found.concerns(attributes.old, attributes.obj, attributes.subresource) else None


def charges(quotas: Sequence[Obj], attributes: Attributes, counts: Evaluator, now: float) -> list[Charge]:
    """The quotas that this write changes. Raises Forbidden when one of them is too small, or not known well enough."""
    obj, old = attributes.obj, attributes.old
    assert obj is not None
    limiting = [quota for quota in quotas if _limits(quota, attributes, counts)]
    fresh = [quota for quota in quotas if quota not in limiting and _is_new(quota) and _will_limit(quota, obj, counts)]
    if not limiting and not fresh:
        return []
    usage = counts.usage(obj, now)
    if negative := [name for name, value in usage.items() if value < ZERO]:
        raise attributes.forbidden(f"quota usage is negative for resource(s): {_listed(negative)}")
    before = counts.usage(old, now) if old is not None else {}
    found: list[Charge] = []
    for quota in limiting:
        known = old is not None and counts.covers(quota, old)
        delta = raised(usage, before if known else {})
        if delta:
            charged = _charged(quota, delta, attributes)
            found.append(Charge(quota, charged))
    if raised(usage, before):
        found += [Charge(quota, None) for quota in fresh]
    return found


def _limits(quota: Obj, attributes: Attributes, counts: Evaluator) -> bool:
    """True if the quota limits such an object, by what is known of its usage."""
    status = quota.get("status") or {}
    names = counts.names(status.get("hard") or ())
    assert attributes.obj is not None
    if not names or not counts.covers(quota, attributes.obj):
        return False
    if (attributes.group, attributes.resource) == PODS:
        try:
            check_pod(attributes.obj, names)
        except QuotaInputError as error:
            raise attributes.forbidden(f"failed quota: {name_of(quota)}: {error}") from None
    used = status.get("used") or {}
    if any(name not in used for name in names):
        raise attributes.forbidden(f"status unknown for quota: {name_of(quota)}, resources: {_listed(names)}")
    return True


def _is_new(quota: Obj) -> bool:
    """True if limits were set that the quota controller has not counted yet."""
    return read(dig(quota, "spec", "hard")) != read(dig(quota, "status", "hard"))


def _will_limit(quota: Obj, obj: Obj, counts: Evaluator) -> bool:
    return bool(counts.names(dig(quota, "spec", "hard") or ())) and counts.covers(quota, obj)


def _charged(quota: Obj, delta: Amounts, attributes: Attributes) -> Amounts:
    status = quota["status"]
    hard, used = read(status.get("hard")), read(status.get("used"))
    requested = masked(delta, hard)
    after = added(used, requested)
    exceeded = [name for name in requested if after[name] > hard[name]] if attributes.subresource != "status" else []
    if exceeded:
        raise attributes.forbidden(
            f"exceeded quota: {name_of(quota)}, requested: {_amounts(requested, exceeded)}, "
            f"used: {_amounts(used, exceeded)}, limited: {_amounts(hard, exceeded)}"
        )
    return after


def _amounts(amounts: Amounts, names: Iterable[str]) -> str:
    return ",".join(f"{name}={value}" for name, value in shown(masked(amounts, names)).items())


def _listed(names: Iterable[str]) -> str:
    return ",".join(sorted(names))
