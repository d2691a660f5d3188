"""The plan for the pods of a node that is being drained, and messages about the pods that are left.

Pure: a snapshot of the node's pods in, a plan out; :mod:`.eviction` reads the one and carries out the other. The order of the
filters is the one of `kubectl drain`, then the pod's own label, then MachineDrainRules. The texts are parsed by the
controllers above (is it PodDisruptionBudgets that delay this?), so they are Cluster API's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from remuda.kube.clock import parse_rfc3339
from remuda.kube.errors import ApiError, aggregate_text, go_quote
from remuda.kube.objects import Key, annotations_of, dig, is_being_deleted, labels_of, metadata, name_of, namespace_of
from remuda.kube.owners import controller_of
from remuda.kube.selectors import EVERYTHING, LabelSelector, from_structure

from ..admission.kind_rules import drain_rule_selector_errors
from ..machine_messages import listed
from ..well_known import POD_DRAIN

# --- drain rules ----------------------------------------------------------------------------------------------------------
#
# MachineDrainRules for one Machine: which pods are drained, skipped or waited for, and in what order.
#
# Pure. The drain plan asks them about every pod that no earlier filter has decided on.

DRAIN, SKIP, WAIT_COMPLETED = "Drain", "Skip", "WaitCompleted"
BEHAVIORS = (DRAIN, SKIP, WAIT_COMPLETED)


class DrainError(Exception):
    """A problem that keeps a node from being drained until a user repairs it, or until the next look."""


@contextmanager
def doing(what: str) -> Iterator[None]:
    """Put the operation into the error when a request fails."""
    try:
        yield
    except (ApiError, OSError, DrainError) as error:
        raise DrainError(f"{what}: {error}") from error


@dataclass(frozen=True, slots=True)
class DrainRule:
    """A rule that applies to the Machine. `pods` are pairs (of the pod, of its namespace); empty: every pod."""

    name: str
    behavior: str
    order: int
    pods: tuple[tuple[LabelSelector, LabelSelector], ...]

    @property
    def needs_namespaces(self) -> bool:
        return any(not namespaces.empty for _, namespaces in self.pods)

    def applies_to(self, pod: Obj, namespaces: Mapping[str, Obj]) -> bool:
        """`namespaces` by name; those that no selector needs may be missing."""
        return not self.pods or any(
            selector.matches(labels_of(pod)) and (of_namespace.empty or of_namespace.matches(_labels(pod, namespaces)))
            for selector, of_namespace in self.pods
        )


def _labels(pod: Obj, namespaces: Mapping[str, Obj]) -> dict[str, str]:
    found = namespaces.get(namespace_of(pod))
    if found is None:
        raise pods_error("Pod Namespace does not exist", pod)
    return labels_of(found)


def pods_error(why: str, pod: Obj) -> DrainError:
    shown = f"{namespace_of(pod)}/{name_of(pod)}"
    return DrainError(f"Pods with error {go_quote(why)}: {shown}")


def rules_for(machine: Obj, cluster: Obj, rules: Iterable[Obj]) -> list[DrainRule]:
    """The rules that apply to the Machine, by name: the first that applies to a pod decides. Raises DrainError."""
    found = sorted((rule for rule in rules if namespace_of(rule) == namespace_of(machine)), key=name_of)
    # An invalid rule might be the one that protects a pod, so no pod is drained before it is repaired.
    wrong = [
        f"invalid selectors in MachineDrainRule {name_of(rule)}: {aggregate_text([str(error) for error in errors])}"
        for rule in found
        if (errors := drain_rule_selector_errors(rule))
    ]
    if wrong:
        raise DrainError(f"failed to get matching MachineDrainRules: {aggregate_text(wrong)}")
    return [_read(rule) for rule in found if _applies_to_machine(rule, machine, cluster)]


def _applies_to_machine(rule: Obj, machine: Obj, cluster: Obj) -> bool:
    pairs = _pairs(rule, "machines", "clusterSelector")
    return not pairs or any(own.matches(labels_of(machine)) and of.matches(labels_of(cluster)) for own, of in pairs)


def _read(rule: Obj) -> DrainRule:
    order = dig(rule, "spec", "drain", "order")
    return DrainRule(
        name_of(rule),
        dig(rule, "spec", "drain", "behavior") or "",
        order if isinstance(order, int) else 0,
        _pairs(rule, "pods", "namespaceSelector"),
    )


def _pairs(rule: Obj, field: str, around: str) -> tuple[tuple[LabelSelector, LabelSelector], ...]:
    """An absent selector selects everything, as an empty one does."""
    found = dig(rule, "spec", field) or ()
    return tuple((_selector(item.get("selector")), _selector(item.get(around))) for item in found)


def _selector(structure: Any) -> LabelSelector:
    return from_structure(structure) if structure else EVERYTHING


# --- drain plan -----------------------------------------------------------------------------------------------------------

Obj = dict[str, Any]

MIRROR = "kubernetes.io/config.mirror"
# For an unreachable node: the grace period of pods, and the time after it until they are skipped.
UNREACHABLE_GRACE_SECONDS = 1
_MOST_FAILURES, _MOST_PODS = 5, 3
_VIOLATED = "annot evict pod as it would violate the pod's disruption budget."


@dataclass(frozen=True, slots=True)
class DrainSnapshot:
    """`daemon_sets` are the keys of existing ones; `namespaces`, by name, are only needed where a rule selects them."""

    pods: Sequence[Obj]
    now: float
    unreachable: bool = False
    daemon_sets: Collection[Key] = ()
    rules: Sequence[DrainRule] = ()
    namespaces: Mapping[str, Obj] = field(default_factory=dict)


class PodVerdict(NamedTuple):
    """The drain decision for one pod."""

    behavior: str
    order: int = 0


_GO, _STAY = PodVerdict(DRAIN), PodVerdict(SKIP)


@dataclass(frozen=True, slots=True)
class DrainPlan:
    """Pods by namespace and name: to evict now; already terminating; to evict when those are gone; to wait for, now and then;
    and those that stay."""

    evict: tuple[Obj, ...] = ()
    going: tuple[Obj, ...] = ()
    evict_later: tuple[Obj, ...] = ()
    complete: tuple[Obj, ...] = ()
    complete_later: tuple[Obj, ...] = ()
    skipped: tuple[Obj, ...] = ()

    @property
    def done(self) -> bool:
        return not (self.evict or self.going or self.evict_later or self.complete or self.complete_later)


def plan(snapshot: DrainSnapshot) -> DrainPlan:
    """Raises DrainError when a pod can't be judged."""
    pods = sorted(snapshot.pods, key=shown)
    judged = [(pod, verdict(pod, snapshot)) for pod in pods]
    # Only the lowest order that is still on the node has its turn, even if its pods are already terminating.
    first = min((found.order for _, found in judged if found.behavior != SKIP), default=0)
    made: dict[str, list[Obj]] = {name: [] for name in DrainPlan.__slots__}
    for pod, found in judged:
        made[_place(pod, found, first)].append(pod)
    return DrainPlan(**{name: tuple(found) for name, found in made.items()})


def _place(pod: Obj, found: PodVerdict, first: int) -> str:
    if found.behavior == SKIP:
        return "skipped"
    if found.behavior == WAIT_COMPLETED:
        return "complete" if found.order == first else "complete_later"
    if is_being_deleted(pod):
        return "going"
    return "evict" if found.order == first else "evict_later"


def verdict(pod: Obj, snapshot: DrainSnapshot) -> PodVerdict:
    if snapshot.unreachable and _gone_for(pod, snapshot.now) > UNREACHABLE_GRACE_SECONDS:
        return _STAY  # it is only there because its node can't say that it ended
    if needs_daemon_set(pod) and daemon_set_of(pod) in snapshot.daemon_sets:
        return _STAY
    if MIRROR in annotations_of(pod):
        return _STAY
    return _by_label(pod) or _by_rules(pod, snapshot)


def _gone_for(pod: Obj, now: float) -> int:
    """Seconds since a pod should have been gone (its grace is in the timestamp); 0 when it is not being deleted."""
    text = metadata(pod).get("deletionTimestamp")
    return int(now - parse_rfc3339(text)) if text else 0


def is_finished(pod: Obj) -> bool:
    return dig(pod, "status", "phase") in ("Succeeded", "Failed")


def daemon_set_of(pod: Obj) -> Key | None:
    owner = controller_of(pod)
    return Key(namespace_of(pod), owner.get("name") or "") if owner is not None and owner.get("kind") == "DaemonSet" else None


def needs_daemon_set(pod: Obj) -> bool:
    """True if the pod's treatment depends on whether its DaemonSet exists."""
    return daemon_set_of(pod) is not None and not is_finished(pod)


def _by_label(pod: Obj) -> PodVerdict | None:
    value = (labels_of(pod).get(POD_DRAIN) or "").lower()
    if value == SKIP.lower():
        return _STAY
    if value.replace("-", "", 1) == WAIT_COMPLETED.lower():
        return _wait_for(pod)
    return None


def _by_rules(pod: Obj, snapshot: DrainSnapshot) -> PodVerdict:
    rule = next((rule for rule in snapshot.rules if rule.applies_to(pod, snapshot.namespaces)), None)
    if rule is None:
        return _GO
    if rule.behavior not in BEHAVIORS:
        named = f"MachineDrainRule {go_quote(rule.name)} has unknown spec.drain.behavior: {go_quote(rule.behavior)}"
        raise pods_error(named, pod)
    if rule.behavior == WAIT_COMPLETED:
        return _wait_for(pod)
    return PodVerdict(DRAIN, rule.order) if rule.behavior == DRAIN else _STAY


def _wait_for(pod: Obj) -> PodVerdict:
    """A completed pod need not be waited for; its object may stay as long as its Job keeps it."""
    return _STAY if is_finished(pod) else PodVerdict(WAIT_COMPLETED)


def shown(pod: Obj) -> str:
    return str(Key.of(pod))


@dataclass(frozen=True, slots=True)
class Remaining:
    """The pods left after evictions were tried; `failed` has pods by the server's message."""

    going: tuple[Obj, ...] = ()
    failed: Mapping[str, Sequence[Obj]] = field(default_factory=dict)
    evict_later: tuple[Obj, ...] = ()
    complete: tuple[Obj, ...] = ()
    complete_later: tuple[Obj, ...] = ()

    @property
    def done(self) -> bool:
        return not (self.going or self.failed or self.evict_later or self.complete or self.complete_later)

    def message(self, started: str) -> str:
        if self.done:
            return ""
        lines = [f"Drain not completed yet (started at {started}):"]
        if self.going:
            lines.append(_line(self.going, "deletionTimestamp set, but still not removed from the Node"))
        lines += self._failures()
        if self.complete:
            lines.append(_line(self.complete, "waiting for completion"))
        after = "After above Pods have been removed from the Node,"
        if self.evict_later:
            lines.append(f"{after} the following Pods will be evicted: {_names(self.evict_later)}")
        if self.complete_later:
            waits = "waiting for the following Pods to complete without eviction"
            lines.append(f"{after} {waits}: {_names(self.complete_later)}")
        return "\n".join(lines)

    def _failures(self) -> Iterable[str]:
        texts = sorted(self.failed, key=lambda text: text.encode())
        for text in texts[:_MOST_FAILURES]:
            yield _line(self.failed[text], _failure(text))
        others = sum(len(self.failed[text]) for text in texts[_MOST_FAILURES:])
        if others:
            yield f"* {others} Pod{'s' if others > 1 else ''} with other issues"


def _line(pods: Sequence[Obj], what: str) -> str:
    return f"* Pod{'s' if len(pods) > 1 else ''} {_names(pods)}: {what}"


def _names(pods: Sequence[Obj]) -> str:
    return listed([shown(pod) for pod in pods], _MOST_PODS)


def _failure(text: str) -> str:
    text = text.replace(f"C{_VIOLATED}", f"c{_VIOLATED}")
    return text if text.startswith(f"c{_VIOLATED}") else f"failed to evict Pod, {text}"
