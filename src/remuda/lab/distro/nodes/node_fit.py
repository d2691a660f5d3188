"""Selection of the best node for a pod: pure, on numbers that :mod:`.scheduler` keeps per node.

A node is excluded when it is cordoned or tainted, when the pod may not be there, or when it is full. Of the rest the pod's own
preferences count first, then few pods of the same owner (so that they are spread), then free capacity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from remuda.kcm.pod_placement import NodeChoice, taints_of, untolerated
from remuda.kube.objects import dig, labels_of, namespace_of
from remuda.kube.owners import controller_of
from remuda.kube.quantity import QuantityError, from_json
from remuda.kube.selectors import LabelSelector, SelectorError, from_structure

Obj = dict[str, Any]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
# The best of this many suitable nodes is good enough.
ENOUGH = 100
_UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


@dataclass(frozen=True, slots=True)
class Room:
    """CPU in thousandths, memory in bytes, and number of pods."""

    cpu: int = 0
    memory: int = 0
    pods: int = 0

    def plus(self, other: Room) -> Room:
        return Room(self.cpu + other.cpu, self.memory + other.memory, self.pods + other.pods)

    def minus(self, other: Room) -> Room:
        return Room(self.cpu - other.cpu, self.memory - other.memory, self.pods - other.pods)


def _amount(values: Obj | None, name: str, *, milli: bool = False) -> int:
    try:
        found = from_json((values or {}).get(name, "0"))
    except QuantityError:
        return 0
    return found.milli_value if milli else found.value


def room_of(resources: Obj | None) -> Room:
    return Room(_amount(resources, "cpu", milli=True), _amount(resources, "memory"), _amount(resources, "pods"))


def asked_by(pod: Obj) -> Room:
    """The sum of its containers' requests, or the largest request of its init containers if that is more."""
    spec = pod.get("spec") or {}
    total = Room(pods=1)
    for container in spec.get("containers") or ():
        total = total.plus(room_of(dig(container, "resources", "requests")))
    for container in spec.get("initContainers") or ():
        first = room_of(dig(container, "resources", "requests"))
        total = Room(max(total.cpu, first.cpu), max(total.memory, first.memory), 1)
    return total


def family_of(pod: Obj) -> str:
    """The pod's owner; pods of one owner are to be spread."""
    found = controller_of(pod)
    return str(found.get("uid")) if found is not None else ""


@dataclass(slots=True)
class Slot:
    """A node, and its pods."""

    node: Obj
    room: Room
    pods: dict[tuple[str, str], Obj] = field(default_factory=dict)
    asked: dict[tuple[str, str], Room] = field(default_factory=dict)
    used: Room = Room()
    families: Counter[str] = field(default_factory=Counter)

    def put(self, key: tuple[str, str], pod: Obj) -> None:
        self.take(key)
        self.pods[key] = pod
        self.asked[key] = asked_by(pod)
        self.used = self.used.plus(self.asked[key])
        self.families[family_of(pod)] += 1

    def take(self, key: tuple[str, str]) -> None:
        found = self.pods.pop(key, None)
        if found is not None:
            self.used = self.used.minus(self.asked.pop(key))
            self.families[family_of(found)] -= 1


@dataclass(frozen=True, slots=True)
class Apart:
    """Pods that a pod must (not) be together with, where nodes with the same value of `topology` are one place."""

    topology: str
    selector: LabelSelector
    namespaces: frozenset[str]

    @classmethod
    def of(cls, pod: Obj, kind: str) -> list[Apart]:
        found: list[Apart] = []
        for term in dig(pod, "spec", "affinity", kind, _REQUIRED) or ():
            try:
                selector = from_structure(term.get("labelSelector"))
            except SelectorError:
                continue
            spaces = frozenset(term.get("namespaces") or (namespace_of(pod),))
            found.append(cls(term.get("topologyKey") or "", selector, spaces))
        return found

    def concerns(self, pod: Obj) -> bool:
        return namespace_of(pod) in self.namespaces and self.selector.matches(labels_of(pod))

    def places(self, slots: Iterable[Slot]) -> set[str]:
        """The places with such pods."""
        found: set[str] = set()
        for slot in slots:
            place = labels_of(slot.node).get(self.topology)
            if place is not None and place not in found and any(self.concerns(pod) for pod in slot.pods.values()):
                found.add(place)
        return found


@dataclass(slots=True)
class FitResult:
    """The chosen node, or the reasons for none, and how many nodes each of them excludes."""

    node: str = ""
    seen: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def message(self, nodes: int) -> str:
        if not nodes:
            return "no nodes available to schedule pods"
        said = ", ".join(f"{count} {reason}" for reason, count in sorted(self.reasons.items()))
        return f"0/{nodes} nodes are available: {said}."


def choose(pod: Obj, slots: Mapping[str, Slot], order: Sequence[str] | None = None, begin: int = 0) -> FitResult:
    """Choose a node. With `order`, nodes are tried from the one at `begin` on, until enough suitable ones are found."""
    spec = pod.get("spec") or {}
    choice, asked, family = NodeChoice.of(spec), asked_by(pod), family_of(pod)
    tolerations = spec.get("tolerations") or []
    apart = [(each.topology, each.places(slots.values())) for each in Apart.of(pod, "podAntiAffinity")]
    together = [(each, each.places(slots.values())) for each in Apart.of(pod, "podAffinity")]
    found = FitResult()
    best: tuple[int, ...] | None = None
    would_do = 0
    for name in _looked_at(choice, slots, order, begin):
        slot = slots[name]
        found.seen += 1
        reason = _problem(slot, choice, tolerations, asked) or _company_problem(pod, slot, apart, together)
        if reason:
            found.reasons[reason] += 1
            continue
        score = (choice.likes(slot.node), -slot.families[family] if family else 0, _free(slot), -len(slot.pods))
        if best is None or score > best or (score == best and name < found.node):
            best, found.node = score, name
        would_do += 1
        if would_do >= ENOUGH:
            break
    return found


def _looked_at(choice: NodeChoice, slots: Mapping[str, Slot], order: Sequence[str] | None, begin: int) -> Iterable[str]:
    if (named := choice.names()) is not None and (known := sorted(named & slots.keys())):
        return known
    if order is None:
        return slots
    return (order[(begin + number) % len(order)] for number in range(len(order)))


def _problem(slot: Slot, choice: NodeChoice, tolerations: list[Obj], asked: Room) -> str:
    node = slot.node
    if dig(node, "spec", "unschedulable") and untolerated([_UNSCHEDULABLE], tolerations) is not None:
        return "node(s) were unschedulable"
    if (taint := untolerated(taints_of(node), tolerations)) is not None:
        shown = f"{taint.get('key')}: {taint.get('value') or ''}"
        return f"node(s) had untolerated taint {{{shown}}}"
    if not choice.allows(node):
        return "node(s) didn't match Pod's node affinity/selector"
    if slot.used.pods + 1 > slot.room.pods:
        return "Too many pods"
    if asked.cpu and slot.used.cpu + asked.cpu > slot.room.cpu:
        return "Insufficient cpu"
    if asked.memory and slot.used.memory + asked.memory > slot.room.memory:
        return "Insufficient memory"
    return ""


def _company_problem(pod: Obj, slot: Slot, apart: list[tuple[str, set[str]]], together: list[tuple[Apart, set[str]]]) -> str:
    labels = labels_of(slot.node)
    if any(labels.get(topology) in places for topology, places in apart if topology in labels):
        return "node(s) didn't match pod anti-affinity rules"
    for each, places in together:
        # The first of pods with affinity to each other can be anywhere.
        first = not places and each.concerns(pod)
        if each.topology not in labels or not (first or labels[each.topology] in places):
            return "node(s) didn't match pod affinity rules"
    return ""


def _free(slot: Slot) -> int:
    """The free capacity, in percent."""
    if not slot.room.cpu or not slot.room.memory:
        return 0
    cpu = 100 - 100 * slot.used.cpu // slot.room.cpu
    memory = 100 - 100 * slot.used.memory // slot.room.memory
    return (cpu + memory) // 2
