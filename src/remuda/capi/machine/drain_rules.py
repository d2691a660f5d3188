"""MachineDrainRules, read for one Machine: which pods are drained, skipped or waited for, and in what order.

Pure. :mod:`.drain_plan` asks them about every pod that nothing else has decided on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from remuda.kube.errors import ApiError, aggregate_text, go_quote
from remuda.kube.objects import dig, labels_of, name_of, namespace_of
from remuda.kube.selectors import EVERYTHING, LabelSelector, from_structure

from ..admission.machinedrainrule import selector_errors

Obj = dict[str, Any]

DRAIN, SKIP, WAIT_COMPLETED = "Drain", "Skip", "WaitCompleted"
BEHAVIORS = (DRAIN, SKIP, WAIT_COMPLETED)


class DrainError(Exception):
    """What keeps a node from being drained until somebody repairs it, or until the next look."""


@contextmanager
def doing(what: str) -> Iterator[None]:
    """Say what was being done when a request fails."""
    try:
        yield
    except (ApiError, OSError, DrainError) as error:
        raise DrainError(f"{what}: {error}") from error


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that applies to the Machine. `pods` are pairs (of the pod, of its namespace); empty: every pod."""

    name: str
    behavior: str
    order: int
    pods: tuple[tuple[LabelSelector, LabelSelector], ...]

    @property
    def needs_namespaces(self) -> bool:
        return any(not namespaces.empty for _, namespaces in self.pods)

    def applies_to(self, pod: Obj, namespaces: Mapping[str, Obj]) -> bool:
        """`namespaces` by name; those that no selector asks for may be missing."""
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


def rules_for(machine: Obj, cluster: Obj, rules: Iterable[Obj]) -> list[Rule]:
    """Those that apply to the Machine, by name: the first that applies to a pod decides. Raises DrainError."""
    found = sorted((rule for rule in rules if namespace_of(rule) == namespace_of(machine)), key=name_of)
    # A rule that can't be read might be the one that protects a pod, so that none is drained before it is repaired.
    wrong = [
        f"invalid selectors in MachineDrainRule {name_of(rule)}: {aggregate_text([str(error) for error in errors])}"
        for rule in found
        if (errors := selector_errors(rule))
    ]
    if wrong:
        raise DrainError(f"failed to get matching MachineDrainRules: {aggregate_text(wrong)}")
    return [_read(rule) for rule in found if _applies_to_machine(rule, machine, cluster)]


def _applies_to_machine(rule: Obj, machine: Obj, cluster: Obj) -> bool:
    pairs = _pairs(rule, "machines", "clusterSelector")
    return not pairs or any(own.matches(labels_of(machine)) and of.matches(labels_of(cluster)) for own, of in pairs)


def _read(rule: Obj) -> Rule:
    order = dig(rule, "spec", "drain", "order")
    return Rule(
        name_of(rule),
        dig(rule, "spec", "drain", "behavior") or "",
        order if isinstance(order, int) else 0,
        _pairs(rule, "pods", "namespaceSelector"),
    )


def _pairs(rule: Obj, field: str, around: str) -> tuple[tuple[LabelSelector, LabelSelector], ...]:
    """A selector that is not there selects everything, as an empty one does."""
    found = dig(rule, "spec", field) or ()
    return tuple((_selector(item.get("selector")), _selector(item.get(around))) for item in found)


def _selector(structure: Any) -> LabelSelector:
    return from_structure(structure) if structure else EVERYTHING
