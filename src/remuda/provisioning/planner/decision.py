"""The planner's changes and waits: the answer of :mod:`.decide`, which the controller carries out.

There is one change per object, so that no secret is written twice in a pass. Secrets are written in the order of the mapping,
and the controller stops at the first failure: a label is removed from one machine before another gets it.

The functions at the end apply it to the objects: a plan Secret, a Machine, the Cluster, the RKEControlPlane. The controller
reads each object again and writes the result if it differs. :mod:`.snapshot_reader` has the opposite direction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from remuda.kube import conditions
from remuda.kube.clock import rfc3339
from remuda.kube.objects import annotations_of, dig, labels_of, with_metadata, with_path, without_path
from remuda.kube.waits import Wait

from .. import well_known
from ..plans.machine_plan_secret import with_plan, with_question, with_retry
from ..plans.plan import Plan, encode
from ..well_known import PAUSED_FOR
from .snapshot import Condition, Machine, merged

Changes = Mapping[str, str | None]  # None removes the key
Obj = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SecretChange:
    """The change of one plan secret. A `plan` is written with `plan-state: pending` and without `probe-statuses`; `retry` writes
    only `plan-state: pending`, which makes the agent apply the same plan once more; `ask` requests an answer of its agent."""

    labels: Changes = field(default_factory=dict)
    annotations: Changes = field(default_factory=dict)
    plan: Plan | None = None
    retry: bool = False
    ask: bool = False
    max_failures: int = -1
    failure_threshold: int = 1

    @property
    def only_asks(self) -> bool:
        return self.ask and self.plan is None and not self.retry and not self.labels


@dataclass(frozen=True, slots=True)
class MachineChange:
    """The change of one Machine (its `Reconciled` condition, in both sets; annotations; its deletion, after all else) and of its
    RKEBootstrap."""

    reconciled: Condition | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    bootstrap_annotations: Mapping[str, str] = field(default_factory=dict)
    delete: bool = False


@dataclass(frozen=True, slots=True)
class MachineEvent:
    machine: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Decision:
    """`conditions` are the changed ones of the RKEControlPlane. `waits[0]` is the subject of its Ready condition."""

    secrets: Mapping[str, SecretChange] = field(default_factory=dict)
    machines: Mapping[str, MachineChange] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    # Changed fields of the RKEControlPlane's status; None removes one.
    status: Mapping[str, Any] = field(default_factory=dict)
    initialized: bool | None = None
    cluster_condition: Condition | None = None
    unpause_cluster: bool = False
    # The operation for which the Cluster is to be paused; "" ends that pause, None leaves it.
    pause_for: str | None = None
    create_tokens: bool = False
    # All of the spec is done: status.appliedSpec becomes spec, and the beacon is released.
    applied: bool = False
    waits: tuple[Wait, ...] = ()
    # Warnings about machines, each once.
    events: tuple[MachineEvent, ...] = ()
    error: str = ""
    revisit_at: float | None = None

    @property
    def changes_plans(self) -> bool:
        """True if it is more than questions to agents that is written into plan secrets."""
        return any(not change.only_asks for change in self.secrets.values())

    @property
    def writes(self) -> bool:
        made = self.secrets or self.machines or self.conditions or self.status or self.cluster_condition
        return (
            bool(made) or self.pause_for is not None or self.initialized is not None or self.unpause_cluster or self.create_tokens
        )


class Draft:
    """Changes collected in one pass. The first decision for a key stays unless it is replaced.

    A machine without a plan's Secret is not written to: it has none yet, or is being deleted, and its host may take longer.
    """

    def __init__(self) -> None:
        self.secrets: dict[str, SecretChange] = {}
        self.machines: dict[str, MachineChange] = {}
        self.waits: dict[Wait, None] = {}  # in order, each once
        self.revisit: list[float] = []

    def set_labels(self, machine: Machine, labels: Changes) -> None:
        """Written after all labels that were set before, regardless of other changes to the secrets."""
        if machine.secret is None:
            return
        change = self.secrets.pop(machine.name, SecretChange())
        self.secrets[machine.name] = replace(change, labels={**change.labels, **labels})

    def annotate(self, machine: Machine, annotations: Changes) -> None:
        """Writes only annotations that differ."""
        old = machine.plan_annotations
        wanted = {key: value for key, value in annotations.items() if old.get(key) != value}
        if not wanted or machine.secret is None:
            return
        change = self.secrets.get(machine.name, SecretChange())
        self.secrets[machine.name] = replace(change, annotations={**change.annotations, **wanted})

    def write_plan(
        self, machine: Machine, plan: Plan, annotations: Changes, failure_threshold: int, max_failures: int = -1
    ) -> None:
        if machine.secret is None:
            return
        change = self.secrets.get(machine.name, SecretChange())
        self.secrets[machine.name] = replace(
            change,
            annotations={**change.annotations, **annotations},
            plan=plan,
            failure_threshold=failure_threshold,
            max_failures=max_failures,
        )

    def retry(self, machine: Machine, annotations: Changes) -> None:
        if machine.secret is None:
            return
        change = self.secrets.get(machine.name, SecretChange())
        self.secrets[machine.name] = replace(change, retry=True, annotations={**change.annotations, **annotations})

    def ask(self, machine: Machine, now: float) -> None:
        change = self.secrets.get(machine.name, SecretChange())
        self.secrets[machine.name] = replace(
            change, ask=True, annotations={**change.annotations, well_known.ASKED_AT: rfc3339(now)}
        )

    def set_reconciled(self, machine: Machine, condition: Condition) -> None:
        """Set only on a Machine whose infrastructure is ready: before that, other controllers write it."""
        if not machine.infrastructure_ready or condition.says(machine.reconciled):
            return
        change = self.machines.get(machine.name, MachineChange())
        self.machines[machine.name] = replace(change, reconciled=condition)

    def annotate_machine(self, machine: Machine, own: Mapping[str, str], of_bootstrap: Mapping[str, str]) -> None:
        own = {key: value for key, value in own.items() if machine.annotations.get(key) != value}
        of_bootstrap = {key: value for key, value in of_bootstrap.items() if machine.bootstrap_annotations.get(key) != value}
        if not own and not of_bootstrap:
            return
        change = self.machines.get(machine.name, MachineChange())
        self.machines[machine.name] = replace(
            change,
            annotations={**change.annotations, **own},
            bootstrap_annotations={**change.bootstrap_annotations, **of_bootstrap},
        )

    def release(self, machine: Machine) -> None:
        """Let a deleted etcd machine go without a drain, and without the removal of its member."""
        own = {well_known.EXCLUDE_NODE_DRAINING: "true", well_known.EXCLUDE_VOLUME_DETACH: "true"}
        self.annotate_machine(machine, own, {well_known.ETCD_FORCE_REMOVE: "true"})

    def delete(self, machine: Machine) -> None:
        """Delete a Machine, also if it is the last with etcd, whose data is given up."""
        self.annotate_machine(machine, {well_known.DELETE_LAST_ETCD: "true"}, {})
        self.release(machine)
        change = self.machines.get(machine.name, MachineChange())
        self.machines[machine.name] = replace(change, delete=True)

    def wait(self, waits: Iterable[Wait]) -> None:
        self.waits.update(dict.fromkeys(waits))


def changed_secret(secret: Obj, change: SecretChange, now: float) -> Obj:
    if change.plan is not None:
        most, threshold = change.max_failures, change.failure_threshold
        secret = with_plan(secret, encode(change.plan), now=now, max_failures=most, failure_threshold=threshold)
    elif change.retry:
        secret = with_retry(secret)
    elif change.ask:
        secret = with_question(secret)
    if change.annotations:
        secret = with_metadata(secret, annotations=dict(merged(annotations_of(secret), change.annotations)))
    if change.labels:
        secret = with_metadata(secret, labels=dict(merged(labels_of(secret), change.labels)))
    return secret


def changed_machine(obj: Obj, change: MachineChange, now: float) -> Obj:
    """The Machine with its annotations and its condition; the latter is in its status, in both sets."""
    if change.annotations:
        obj = with_metadata(obj, annotations={**annotations_of(obj), **change.annotations})
    return _with_capi_condition(obj, change.reconciled, now) if change.reconciled else obj


def changed_cluster(obj: Obj, decision: Decision, now: float) -> Obj:
    """The Cluster API Cluster: paused or not, or with the condition that its control plane is no longer initialized."""
    if decision.pause_for is not None:
        marks = {key: value for key, value in annotations_of(obj).items() if key != PAUSED_FOR}
        marks |= {PAUSED_FOR: decision.pause_for} if decision.pause_for else {}
        obj = with_path(with_metadata(obj, annotations=marks), ("spec", "paused"), bool(decision.pause_for))
    if decision.unpause_cluster:
        obj = with_path(obj, ("spec", "paused"), False)
    return _with_capi_condition(obj, decision.cluster_condition, now) if decision.cluster_condition else obj


def changed_control_plane(obj: Obj, decision: Decision, now: float) -> Obj:
    """The RKEControlPlane with its new status."""
    found = list(dig(obj, "status", "conditions") or ())
    for condition in decision.conditions:
        found = _with_condition(found, condition, now)
    if decision.conditions:
        obj = with_path(obj, ("status", "conditions"), found)
    for name, value in decision.status.items():
        obj = with_path(obj, ("status", name), value) if value is not None else without_path(obj, ("status", name))
    if decision.initialized is not None:
        obj = with_path(obj, ("status", "initialization", "controlPlaneInitialized"), decision.initialized)
    if decision.applied and dig(obj, "status", "appliedSpec") != obj.get("spec"):
        obj = with_path(obj, ("status", "appliedSpec"), obj.get("spec") or {})
    return obj


def _with_condition(found: list[Obj], condition: Condition, now: float) -> list[Obj]:
    """Rancher's format: any change sets `lastUpdateTime`, only a change of status the transition."""
    at = rfc3339(now)
    old: Mapping[str, Any] = next((each for each in found if each.get("type") == condition.type), {})
    moved = at if old.get("status") != condition.status else str(old.get("lastTransitionTime") or at)
    new = {"type": condition.type, "status": condition.status, "lastUpdateTime": at, "lastTransitionTime": moved}
    new |= {key: text for key, text in (("reason", condition.reason), ("message", condition.message)) if text}
    if not old:
        return [*found, new]
    return [new if each.get("type") == condition.type else each for each in found]


def _with_capi_condition(obj: Obj, condition: Condition, now: float) -> Obj:
    said = (condition.type, condition.status, condition.reason, condition.message)
    return conditions.with_legacy(conditions.with_condition(obj, *said, now=now), *said, now=now)
