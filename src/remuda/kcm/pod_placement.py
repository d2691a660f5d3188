"""The nodes on which a pod may run: its spec's constraints on nodes, and the taints that it tolerates. Pure.

The DaemonSet controller checks every node, taint eviction the changed ones, a scheduler all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from remuda.kube.objects import dig, labels_of, name_of
from remuda.kube.selectors import Requirement

Obj = dict[str, Any]

KEEPS_OFF: Final = ("NoSchedule", "NoExecute")
_OPERATORS: Final = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!", "Gt": "gt", "Lt": "lt"}


def tolerates(toleration: Obj, taint: Obj) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    key = toleration.get("key") or ""
    if key and key != taint.get("key"):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(key) and (toleration.get("value") or "") == (taint.get("value") or "")


def untolerated(taints: Iterable[Obj], tolerations: Sequence[Obj], effects: Sequence[str] = KEEPS_OFF) -> Obj | None:
    """The first taint of these effects that nothing tolerates."""
    for taint in taints:
        if taint.get("effect") in effects and not any(tolerates(each, taint) for each in tolerations):
            return taint
    return None


def taints_of(node: Obj) -> list[Obj]:
    return dig(node, "spec", "taints") or []


@dataclass(frozen=True, slots=True)
class SelectorTerm:
    """Labels and fields that must all match. An empty term matches nothing."""

    labels: tuple[Requirement, ...]
    fields: tuple[Requirement, ...]

    @classmethod
    def of(cls, term: Obj) -> SelectorTerm:
        return cls(_requirements(term.get("matchExpressions")), _requirements(term.get("matchFields")))

    def matches(self, node: Obj) -> bool:
        if not self.labels and not self.fields:
            return False
        labels = labels_of(node)
        if not all(each.matches(labels) for each in self.labels):
            return False
        return all(each.matches({"metadata.name": name_of(node)}) for each in self.fields)


_ANY: Final = SelectorTerm((), ())


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """A pod's constraints on nodes, parsed once for checks of many nodes. `required` is None when there are none."""

    selector: dict[str, str]
    required: tuple[SelectorTerm, ...] | None
    preferred: tuple[tuple[int, SelectorTerm], ...]

    @classmethod
    def of(cls, spec: Obj) -> NodeChoice:
        affinity = dig(spec, "affinity", "nodeAffinity") or {}
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        terms = None if required is None else tuple(SelectorTerm.of(each) for each in required.get("nodeSelectorTerms") or ())
        preferred = tuple(
            (int(each.get("weight") or 0), SelectorTerm.of(each.get("preference") or {}))
            for each in affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        )
        return cls(spec.get("nodeSelector") or {}, terms, preferred)

    def allows(self, node: Obj) -> bool:
        if self.selector:
            labels = labels_of(node)
            if any(labels.get(name) != value for name, value in self.selector.items()):
                return False
        return self.required is None or any(term.matches(node) for term in self.required)

    def names(self) -> set[str] | None:
        """The only nodes that it may run on, if it names them; None otherwise."""
        found: set[str] = set()
        for term in self.required or (_ANY,):
            named = [set(each.values) for each in term.fields if each.operator == "in" and each.key == "metadata.name"]
            if not named:
                return None
            found |= set.intersection(*named)
        return found

    def likes(self, node: Obj) -> int:
        """The sum of the weights of its preferences that a node fulfils."""
        return sum(weight for weight, term in self.preferred if term.matches(node))


def _requirements(expressions: Any) -> tuple[Requirement, ...]:
    return tuple(
        Requirement(each.get("key") or "", _OPERATORS.get(each.get("operator") or "", "in"), tuple(each.get("values") or ()))
        for each in expressions or ()
    )
