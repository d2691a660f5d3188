"""The next step of a whole cluster: :func:`plan`, a pure function of a snapshot (docs/reference/planner.md#steps-of-a-pass,
docs/reference/planner.md#one-machine).

Steps come in order and each may end the pass with a typed wait; `revisit_at` makes sure that a lost event never stalls a
cluster. Machines of tiers that the pass did not reach get a condition that says why they have no plan yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from remuda.capi.well_known import HOLDS_DATA
from remuda.kube.waits import Actor, Code, Wait

from .. import well_known
from ..etcd.removal import LAST_ETCD
from . import certificate_expiry, drain, election, etcd_liveness, held_plans, machine_health, managesystemagent, operations, waits
from .concurrency import InvalidConcurrency
from .decision import Decision, Draft, MachineEvent
from .operations import etcd_snapshot_restore, recover
from .operations.steps import OperationProgress
from .snapshot import ClusterSnapshot, Condition, ControlPlane, Join, Machine, Render
from .tiers import Pass, Tier, TierOutcome, reconcile

Filter = Callable[[Machine], bool]

# The interval of passes without an event: they find missed changes.
RESYNC = 300.0
# Cluster API expects these; nothing here scales or rolls.
_STILL = tuple(Condition(kind, "False") for kind in ("ScalingUp", "ScalingDown", "RollingOut"))
# Waits of servers that other servers may resolve, once there is a cluster: the pass continues with those servers.
_MENDED_BY_OTHERS = frozenset({Code.QUORUM, Code.PROBES, Code.TURN})


class _PassEnded(Exception):
    """The pass ends here, with waits; with an error, too, if it can't continue by itself."""

    def __init__(self, *ended_by: Wait, error: str = "") -> None:
        super().__init__()
        self.waits = ended_by
        self.error = error


def plan(snapshot: ClusterSnapshot, render: Render) -> Decision:
    if snapshot.control_plane.deleting:
        return Decision()
    if snapshot.cluster is not None and snapshot.cluster.deleting:
        return Decision(unpause_cluster=snapshot.cluster.paused)
    work = _Pass(snapshot, render)
    try:
        work.run()
    except _PassEnded as end:
        return work.ended(end)
    return work.finished()


class _Pass:
    """One pass. Changes are collected in `draft`; `conditions` are the control plane's wanted ones, by type."""

    def __init__(self, snapshot: ClusterSnapshot, render: Render) -> None:
        self.snapshot = snapshot
        self.control_plane: ControlPlane = snapshot.control_plane
        self.draft = Draft()
        restores = etcd_snapshot_restore.restarts_all(self.control_plane)
        begins = etcd_snapshot_restore.begins_on_restored(self.control_plane)
        self.pass_ = Pass(snapshot, render, list(snapshot.by_name()), self.draft, restores=restores, begins=begins)
        self.conditions: dict[str, Condition] = {condition.type: condition for condition in _STILL}
        self.aside: list[Wait] = []  # waits that only block the end
        self.notes: list[Wait] = []  # reports that block nothing
        self.status: dict[str, Any] = {}
        self.initialized: bool | None = None
        self.cluster_condition: Condition | None = None
        self.pause_for: str | None = None
        self.create_tokens = False

    # The steps.

    def run(self) -> None:
        self._check_surroundings()
        self._mark_members()
        self._report_unsupported()
        self._progress(recover.prepare(self.pass_, self._is_paused))
        self._check_roles()
        self._set_condition(Condition("Provisioned", "True"))
        self._ensure_tokens()
        self._keep_join_urls()
        self._report_certificates()
        self._run_operations()
        self._check_etcd_data()
        init = self._elect()
        self._run_tiers(init)
        self._look_after_agents()
        if not self.aside:
            self._progress(etcd_snapshot_restore.after_tiers(self.pass_))

    def _check_surroundings(self) -> None:
        snapshot, cluster = self.snapshot, self.snapshot.cluster
        if snapshot.release_error:
            raise self._end(Code.RELEASE, Actor.USER, snapshot.release_error)
        if cluster is None:
            raise self._end(Code.REFERENCE, Actor.REMUDA, waits.NO_CLUSTER, True)
        self._hold_machines()
        if not operations.is_running(self.control_plane):
            self._check_pause()
        if not cluster.infrastructure_provisioned:
            raise self._end(Code.PROVISIONING, Actor.PROVIDER, waits.INFRASTRUCTURE, True)

    def _check_pause(self) -> None:
        if self._is_paused:
            of_cluster = self.snapshot.cluster is not None and self.snapshot.cluster.paused and not self.control_plane.paused
            raise self._end(Code.PAUSED, Actor.USER, waits.PAUSED, of_cluster)

    @property
    def _is_paused(self) -> bool:
        """True if a user has paused it; an operation's own pause is for Cluster API."""
        cluster = self.snapshot.cluster
        return self.control_plane.paused or (cluster is not None and cluster.paused and not cluster.paused_for)

    def _hold_machines(self) -> None:
        """Pause Cluster API while an operation needs that, and end that pause."""
        cluster, hold = self.snapshot.cluster, etcd_snapshot_restore.holds_machines(self.control_plane)
        hold = hold and not recover.replaces_machines(self.control_plane)
        if cluster is None or (cluster.paused and not cluster.paused_for):
            return
        if hold != (cluster.paused and bool(cluster.paused_for)):
            self.pause_for = etcd_snapshot_restore.FIELD if hold else ""

    def _mark_members(self) -> None:
        """Cluster API takes a machine without a node for one that never started. Members of etcd may lack one for a while."""
        machines = self.pass_.machines
        members = [each for each in machines if each.is_etcd and each.has_host and not each.node_name and not each.deleting]
        if members and election.has_data(self.snapshot, machines):
            for machine in members:
                self.draft.annotate_machine(machine, {HOLDS_DATA: "true"}, {})

    def _check_roles(self) -> None:
        staying = [machine for machine in self.pass_.machines if not machine.deleting]
        etcd = any(machine.is_etcd for machine in staying)
        control_plane = any(machine.is_control_plane for machine in staying)
        worker = any(machine.is_worker for machine in staying)
        if etcd and control_plane and worker:
            return
        lacking = [role for role, found in zip(waits.ROLE_NAMES, (etcd, control_plane, worker), strict=True) if not found]
        self._set_condition(Condition("Stable", "False"))
        going = [machine for machine in self.pass_.machines if machine.is_etcd and machine.deleting]
        if not etcd:
            self._hold_last_etcd_machines(going)
        if not (etcd and control_plane):
            self._take_back_initialized()
        if etcd or not going:
            # Where there is no machine at all, the text says it as it is.
            missing = f"missing: {', '.join(lacking)}" if len(lacking) < len(waits.ROLE_NAMES) else ""
            raise self._end(Code.ROLES, Actor.USER, waits.ROLES, evidence=missing)
        # No member is left from which another could leave in order. (While one stays, members must leave in order.)
        for machine in going:
            self.draft.release(machine)
        raise _PassEnded(waits.of_control_plane(self.snapshot, Code.DELETION, Actor.REMUDA, waits.ETCD_GOING, going[0].ref()))

    def _hold_last_etcd_machines(self, going: list[Machine]) -> None:
        """Hold the etcd machines if all are being deleted, and their data with them: that needs a user's consent."""
        if not election.has_data(self.snapshot, self.pass_.machines):
            return
        held = [machine for machine in going if _is_member(machine) and not _may_go(machine)]
        if not held:
            return
        for machine in going:
            if machine not in held:
                self.draft.release(machine)
        text = f"{waits.some_names([machine.name for machine in held])}: {LAST_ETCD}"
        raise _PassEnded(waits.of_control_plane(self.snapshot, Code.LAST_ETCD, Actor.USER, text, held[0].ref()))

    def _take_back_initialized(self) -> None:
        if self.control_plane.initialized:
            self.initialized = False
        cluster = self.snapshot.cluster
        if cluster and cluster.control_plane_initialized and cluster.control_plane_initialized.status == "True":
            self.cluster_condition = Condition("ControlPlaneInitialized", "False", "NotInitialized")

    def _report_unsupported(self) -> None:
        told = []
        if self.snapshot.ignored_arguments and not self.control_plane.spec.get("unmanagedConfig"):
            text = f"{waits.WITHOUT_EFFECT} {'; '.join(self.snapshot.ignored_arguments)}"
            told.append(text)
            self.notes.append(waits.of_control_plane(self.snapshot, Code.WITHOUT_EFFECT, Actor.USER, text))
        if told:
            self._set_condition(Condition("OperationsSupported", "False", "NotSupported", "; ".join(told)))
        elif self.control_plane.condition("OperationsSupported") is not None:
            self._set_condition(Condition("OperationsSupported", "True"))
        windows = [machine for machine in self.pass_.machines if machine.is_windows and not machine.deleting]
        text = "windows machines are not offered yet"
        for machine in windows:
            self.pass_.visited.add(machine.name)
            self.draft.set_reconciled(machine, Condition("Reconciled", "False", "NotSupported", text))
            self.aside.append(waits.of_machine(self.snapshot, machine, Code.UNSUPPORTED, Actor.USER, text))

    def _run_operations(self) -> None:
        self._progress(operations.run_all(self.pass_, self._is_paused))
        self._check_pause()

    def _progress(self, progress: OperationProgress) -> None:
        self.status |= progress.status
        if progress.initialized is not None:
            self.initialized = progress.initialized
        for condition in progress.conditions:
            self._set_condition(condition)
        self.notes.extend(progress.notes)
        self.aside.extend(progress.aside)
        if progress.blocking:
            raise _PassEnded(*progress.blocking)

    def _ensure_tokens(self) -> None:
        if self.snapshot.tokens is not None:
            return
        if self.snapshot.tokens_error:
            raise self._error(Code.MALFORMED, self.snapshot.tokens_error)
        if any(machine.node is not None for machine in self.pass_.machines):
            why = "the tokens of the cluster are lost: its machines have joined by them, so that none can be made anew"
            raise self._error(Code.CONTENT, why)
        self.create_tokens = True
        raise self._end(Code.STEP, Actor.REMUDA, "making the tokens by which machines join")

    def _keep_join_urls(self) -> None:
        for index, machine in enumerate(self.pass_.machines):
            wanted = election.join_annotations(self.snapshot, machine)
            self.draft.annotate(machine, wanted)
            self.pass_.machines[index] = machine.with_plan_metadata({}, wanted)

    def _report_certificates(self) -> None:
        """Report the certificates of the hosts, and those that expire soon."""
        now, machines = self.snapshot.now, self.pass_.machines
        for machine in machines:
            found = certificate_expiry.of_machine(machine)
            warned = certificate_expiry.warning(now, machine)
            notes = {well_known.CERTIFICATES: certificate_expiry.annotation(found)} if found else {}
            if warned is not None:
                notes[well_known.CERTIFICATE_WARNING] = warned.note
                self.pass_.events.append(MachineEvent(machine.name, "CertificatesExpire", warned.message))
            self.draft.annotate_machine(machine, notes, {})
        condition = certificate_expiry.condition(now, machines)
        if condition is not None:
            self._set_condition(condition)

    def _check_etcd_data(self) -> None:
        machines = self.pass_.machines
        if any(machine.is_etcd and machine.node is not None for machine in machines):
            return
        if election.has_begun(self.snapshot, machines):
            self._set_condition(Condition("Stable", "False"))
            raise self._end(Code.RESTORE, Actor.USER, waits.ETCD_REPLACED)

    def _elect(self) -> Machine:
        if etcd_snapshot_restore.begins_on_restored(self.control_plane):
            restored = next((machine for machine in self.pass_.machines if machine.is_init and _is_staying_init(machine)), None)
            if restored is None:
                raise self._end(Code.RESTORE, Actor.USER, waits.RESTORED_GONE)
            return restored
        result = election.elect(self.snapshot, self.pass_.machines)
        if result.after is not None:
            going = result.after
            text = f"{going.name} is being deleted; the cluster is begun anew when it is gone"
            raise _PassEnded(waits.of_control_plane(self.snapshot, Code.DELETION, Actor.REMUDA, text, going.ref()))
        if self.control_plane.is_true("Bootstrapped") and not election.has_begun(self.snapshot, self.pass_.machines):
            # The machine that began the cluster is gone, and the cluster held no data.
            self._set_condition(Condition("Bootstrapped", "False"))
        if result.init is None:
            lacking = "; ".join(f"{name}: {why or 'has not joined'}" for name, why in result.unfit)
            raise self._end(Code.INIT_NODE, Actor.USER, waits.INIT_NODE, evidence=lacking)
        if result.marks:
            for machine, mark in result.marks:
                self.draft.set_labels(machine, {well_known.INIT_NODE: mark})
            text = f"electing {result.init.name} as init node"
            raise _PassEnded(waits.of_control_plane(self.snapshot, Code.STEP, Actor.REMUDA, text, result.init.ref()))
        return result.init

    def _run_tiers(self, init: Machine) -> None:
        first = self._tier(self._server_tier("bootstrap", _is_etcd, _is_staying_init, Join(init=True)))
        if not first.blocking and _has_begun_a_cluster(init):
            self._set_condition(Condition("Bootstrapped", "True"))
        has_begun = self.control_plane.is_true("Bootstrapped")
        if first.blocking and not (has_begun and first.codes <= _MENDED_BY_OTHERS and init.join_url):
            raise _PassEnded(*first.blocking)
        if not init.join_url:
            text = self._with_aside(waits.JOIN_URL)
            raise _PassEnded(waits.of_control_plane(self.snapshot, Code.JOIN_URL, Actor.REMUDA, text, init.ref()))
        to_init = Join(server=init.join_url)
        etcd = self._tier(self._server_tier("etcd", _is_etcd, _is_other_member, to_init))
        # Machines with etcd were changed one by one before; they count here, but are not changed again.
        servers = self._server_tier("control plane", _is_control_plane, _is_only_control_plane, to_init)
        servers = replace(servers, concurrency=self._strategy("controlPlaneConcurrency"))
        if first.blocking or etcd.blocking:
            if not has_begun or not first.codes | etcd.codes <= _MENDED_BY_OTHERS:
                raise _PassEnded(*first.blocking, *etcd.blocking)
            # A drain that had begun before another wait is completed, for others wait for it.
            late = self._tier(replace(servers, changed=lambda m: _is_only_control_plane(m) and drain.is_in_drain(m)))
            raise _PassEnded(*first.blocking, *etcd.blocking, *late.blocking)
        self._block(self._tier(servers))
        self._mark_initialized()
        self._block(self._tier(self._worker_tier()))

    def _server_tier(self, name: str, of: Filter, changed: Filter, join: Join) -> Tier:
        options = self._drain_options("controlPlane")
        return Tier(name, of, changed, _is_server, lambda _: join, drain=options)

    def _worker_tier(self) -> Tier:
        options = self._drain_options("worker")
        at_once = self._strategy("workerConcurrency")
        servers = election.Servers.among(self.pass_.machines)

        def join(machine: Machine) -> Join | None:
            server = servers.for_worker(machine)
            return Join(server=server) if server else None

        return Tier("worker", _is_linux_worker, _is_not_deleted, _is_linux_worker, join, at_once, options, required=False)

    def _drain_options(self, tier: str) -> Mapping[str, Any]:
        if etcd_snapshot_restore.restarts_all(self.control_plane):
            return {}
        return drain.options_of(self.control_plane.spec.get("upgradeStrategy"), tier)

    def _strategy(self, key: str) -> str:
        if etcd_snapshot_restore.restarts_all(self.control_plane):
            # All of them are stopped, so that the order costs only time.
            return "0"
        return str((self.control_plane.spec.get("upgradeStrategy") or {}).get(key) or "")

    def _tier(self, tier: Tier) -> TierOutcome:
        try:
            outcome = reconcile(self.pass_, tier)
        except InvalidConcurrency as problem:
            raise self._error(Code.MALFORMED, f"upgradeStrategy of the {tier.name} tier: {problem}") from None
        self.aside.extend(outcome.aside)
        return outcome

    def _block(self, outcome: TierOutcome) -> None:
        if outcome.blocking:
            raise _PassEnded(*outcome.blocking)

    def _wait_for_leaving_members(self) -> None:
        """A dead member being deleted stays until no machine is joined to it; and no machine may change until it is gone.

        So machines joined to it are marked as joined to others at once. Their plans follow when etcd's quorum allows it.
        """
        machines = self.pass_.machines
        dead = [machine for machine in machines if machine.deleting and machine.name in self.pass_.endangering]
        gone = {machine.join_url for machine in dead if machine.join_url}
        init = next((machine for machine in machines if machine.is_init and _is_not_deleted(machine)), None)
        if not gone or init is None or not init.join_url:
            return
        servers = election.Servers.among(machines)
        for machine in machines:
            written = self.draft.secrets.get(machine.name)
            if machine.deleting or machine.joined_to not in gone or (written and written.plan is not None):
                continue
            others = init.join_url if _is_server(machine) else servers.for_worker(machine)
            self.draft.annotate(machine, {well_known.JOINED_TO: "" if machine.is_init else others})

    def _look_after_agents(self) -> None:
        unmade = {wait.subject.name for wait in self.aside if wait.code is Code.RENDER}
        written = {name for name, change in self.draft.secrets.items() if change.plan is not None or change.retry}
        update = managesystemagent.update(self.snapshot, self.pass_.machines, unmade | written)
        for machine, wanted, marks in update.plans:
            self.draft.write_plan(machine, wanted, marks, failure_threshold=1)
            written.add(machine.name)
        idle = etcd_liveness.of_idle(self.snapshot, self.pass_.machines, written)
        for machine in idle.ask:
            self.draft.ask(machine, self.snapshot.now)
        for found in (update, idle):
            self.notes.extend(found.waits)
            self.draft.revisit.extend(found.revisit)
            if found.condition is not None:
                self._set_condition(found.condition)

    def _mark_initialized(self) -> None:
        if not any(_is_not_deleted(machine) and machine.is_control_plane and machine.join_url for machine in self.pass_.machines):
            raise self._end(Code.JOIN_URL, Actor.REMUDA, self._with_aside(waits.CONTROL_PLANE))
        if not self.control_plane.initialized:
            self.initialized = True

    def _with_aside(self, text: str) -> str:
        """A machine's side problem is often the reason why nothing else continues."""
        return f"{self.aside[0].evidence}: {text}" if self.aside else text

    # The answer.

    def _end(self, code: Code, actor: Actor, text: str, on_cluster: bool = False, evidence: str = "") -> _PassEnded:
        on = waits.cluster_ref(self.snapshot) if on_cluster else None
        text = f"{text} ({evidence})" if evidence else text
        return _PassEnded(waits.of_control_plane(self.snapshot, code, actor, text, on))

    def _error(self, code: Code, text: str) -> _PassEnded:
        """An error that only a user's change resolves."""
        return _PassEnded(waits.of_control_plane(self.snapshot, code, Actor.USER, text), error=text)

    def _set_condition(self, condition: Condition) -> None:
        self.conditions[condition.type] = condition

    def ended(self, end: _PassEnded) -> Decision:
        if end.error:
            for kind in ("Ready", "Reconciled"):
                self._set_condition(Condition(kind, "False", "Error", end.error))
            return self._decision((*end.waits, *self.notes), error=end.error)
        self._wait_for_leaving_members()
        return self._waiting([*end.waits, *self.aside, *self.notes])

    def finished(self) -> Decision:
        if self.aside:
            return self._waiting([*self.aside, *self.notes])
        for kind in ("Ready", "Stable", "Reconciled"):
            self._set_condition(Condition(kind, "True"))
        return self._decision(tuple(self.notes), applied=True)

    def _waiting(self, found: Iterable[Wait]) -> Decision:
        self.draft.wait(found)
        self._report_unreached_machines()
        gathered = tuple(self.draft.waits)
        self._set_condition(Condition("Ready", "Unknown", "Waiting", gathered[0].evidence))
        if self.control_plane.spec != self.control_plane.applied_spec:
            self._set_condition(Condition("Reconciled", "Unknown", "Waiting", waits.NOT_RECONCILED))
        return self._decision(gathered)

    def _report_unreached_machines(self) -> None:
        """Sets conditions of machines without a plan that the pass did not reach."""
        if self.snapshot.cluster is None or self._is_paused:
            return
        first = next(iter(self.draft.waits), None)
        on = first.on or first.subject if first else None
        for machine in self.pass_.machines:
            roleless = not (machine.is_etcd or machine.is_control_plane or machine.is_worker)
            if machine.node is not None or machine.deleting or roleless or machine.name in self.pass_.visited:
                continue
            text = waits.withheld(machine)
            self.draft.set_reconciled(machine, Condition("Reconciled", "Unknown", "Waiting", text))
            self.draft.wait([waits.of_machine(self.snapshot, machine, Code.TIER, Actor.REMUDA, text, on)])

    def _report_held_plans(self) -> None:
        unvisited = (each for each in self.pass_.machines if each.name not in self.pass_.visited)
        noted = [each for each in unvisited if held_plans.is_noted(self.snapshot, each)]
        condition = held_plans.condition(self.snapshot, [*self.pass_.held, *noted])
        if condition is not None:
            self._set_condition(condition)

    def _decision(self, found: tuple[Wait, ...], *, applied: bool = False, error: str = "") -> Decision:
        self._report_held_plans()
        old = {condition.type: condition for condition in self.control_plane.conditions}
        news = tuple(condition for kind, condition in self.conditions.items() if not condition.says(old.get(kind)))
        return Decision(
            secrets=self.draft.secrets,
            machines=self.draft.machines,
            conditions=news,
            status=self.status,
            initialized=self.initialized,
            cluster_condition=self.cluster_condition,
            pause_for=self.pause_for,
            create_tokens=self.create_tokens,
            applied=applied,
            waits=found,
            events=tuple(self.pass_.events),
            error=error,
            revisit_at=min([self.snapshot.now + RESYNC, *self.draft.revisit]),
        )


def _is_member(machine: Machine) -> bool:
    return bool(machine.node_name) or HOLDS_DATA in machine.annotations


def _may_go(machine: Machine) -> bool:
    forced = machine.bootstrap_annotations.get(well_known.ETCD_FORCE_REMOVE) == "true"
    return forced or machine.annotations.get(well_known.DELETE_LAST_ETCD) == "true"


def _has_begun_a_cluster(init: Machine) -> bool:
    """True if its plan is applied and healthy: one that can't be rendered blocks no tier, but has begun nothing."""
    node = init.node
    return not init.deleting and node is not None and node.in_sync and machine_health.is_healthy(node)


def _is_etcd(machine: Machine) -> bool:
    return machine.is_etcd and not machine.is_windows


def _is_staying_init(machine: Machine) -> bool:
    return machine.is_init and _is_not_deleted(machine)


def _is_other_member(machine: Machine) -> bool:
    return not machine.is_init and _is_not_deleted(machine)


def _is_control_plane(machine: Machine) -> bool:
    return machine.is_control_plane and not machine.is_windows


def _is_server(machine: Machine) -> bool:
    return _is_etcd(machine) or _is_control_plane(machine)


def _is_only_control_plane(machine: Machine) -> bool:
    return _is_control_plane(machine) and not machine.is_etcd and _is_not_deleted(machine)


def _is_linux_worker(machine: Machine) -> bool:
    return machine.is_only_worker and not machine.is_windows


def _is_not_deleted(machine: Machine) -> bool:
    return not machine.deleting
