"""`etcdSnapshotRestore`: the cluster goes back to a snapshot of etcd (docs/reference/operations.md#restore).

The file is checked while the cluster still runs. Then everything stops, one machine makes the data of a new cluster of one member
from the snapshot, and the others join it with empty data. Between the two, no other machine may start: from the first stop on,
the condition `Bootstrapped` is False, and while it is, nothing else is planned, even if the request is withdrawn or has failed.
Only another request goes on from there, from the beginning. Each task is written once per request and phase, noted on its plan.
:mod:`.restore_source` judges the snapshot and chooses the machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

from remuda.kube.clock import time_of
from remuda.kube.waits import Actor, Code, Ref, Wait

from ... import well_known
from ...etcd.snapshot_specs import NONE, request_of
from ...etcd.stored_snapshots import Look, StoredSnapshot
from .. import etcd_liveness, machine_health, waits
from ..election import disqualifier
from ..snapshot import (
    CheckSnapshot,
    CleanNodes,
    CleanPods,
    ClusterSnapshot,
    Condition,
    ControlPlane,
    FindInBucket,
    Join,
    Machine,
    Obj,
    ResetMember,
    RestoreSnapshot,
    StopForRestore,
    Task,
)
from ..tiers import Pass
from .restore_source import choose, refusal, why_not_its_own
from .steps import MachineStep, OperationProgress, assign, join_of

FIELD = "etcdSnapshotRestore"
CONDITION = "EtcdSnapshotRestored"
_PHASE = "etcdSnapshotRestorePhase"
_STARTED, _SHUTDOWN, _RESTORE, _PODS = "Started", "Shutdown", "Restore", "PostRestorePodCleanup"
_INITIAL, _NODES, _RESTART = "InitialRestartCluster", "PostRestoreNodeCleanup", "RestartCluster"
_FINISHED, _FAILED = "Finished", "Failed"
_RUNNING = (_STARTED, _SHUTDOWN, _RESTORE, _PODS, _INITIAL, _NODES, _RESTART)
_WHAT = "restoring etcd"
_SHUTTING_DOWN = "shutting down cluster"
_VERIFYING = "verifying the snapshot"
# Seconds until the server looks again into a bucket that did not answer.
_LOOKED_AT_AGAIN = 31.0
_ATTEMPTS = 5


def is_wanted(control_plane: ControlPlane) -> bool:
    """A request other than that of the status, also while the last one runs: it may be what replaces a snapshot that is no good.
    A cluster that was never up has nothing to restore; its spec may be a copy of one that had."""
    asked, last = _asked(control_plane), control_plane.etcd_snapshot_restore
    if asked is None or (control_plane.initialized is None and control_plane.applied_spec is None):
        return False
    return last is None or request_of(last) != request_of(asked)


def is_running(control_plane: ControlPlane) -> bool:
    return control_plane.etcd_snapshot_restore_phase in _RUNNING or is_stopped(control_plane)


def is_stopped(control_plane: ControlPlane) -> bool:
    """True from the first stop until the state is restored, also if that has failed: a server that started now would begin an
    empty cluster, or go on with the old data."""
    bootstrapped = control_plane.condition("Bootstrapped")
    stopped = bootstrapped is not None and bootstrapped.status == "False"
    return stopped and control_plane.etcd_snapshot_restore_phase in (_STARTED, _SHUTDOWN, _RESTORE, _FAILED)


def holds_machines(control_plane: ControlPlane) -> bool:
    """True while Cluster API must not replace machines because their nodes do not answer."""
    return is_stopped(control_plane) or control_plane.etcd_snapshot_restore_phase == _PODS


def restarts_all(control_plane: ControlPlane) -> bool:
    """True while a whole pass brings back machines that are all stopped, so that drains and turns do not matter."""
    return control_plane.etcd_snapshot_restore_phase in (_INITIAL, _RESTART)


def begins_on_restored(control_plane: ControlPlane) -> bool:
    """True while no other machine than the restored one has the cluster's data."""
    return control_plane.etcd_snapshot_restore_phase in (_PODS, _INITIAL)


def run(run: Pass, paused: bool) -> OperationProgress:
    control_plane = run.snapshot.control_plane
    if _asked(control_plane) is None:
        return _without_request(run)
    if not paused and is_wanted(control_plane):
        return _begin(run)
    if paused:
        text = f"{_of_phase(control_plane)}: {waits.PAUSED}"
        held = waits.of_control_plane(run.snapshot, Code.PAUSED, Actor.USER, text)
        return OperationProgress(blocking=(held,)) if is_running(control_plane) else OperationProgress()
    step = _STEPS.get(control_plane.etcd_snapshot_restore_phase)
    if step is not None:
        return step(run)
    if is_stopped(control_plane):
        found = control_plane.condition(CONDITION)
        why = found.message if found is not None else "the restore has failed"
        return _blocked(run, Code.RESTORE, Actor.USER, f"{why}; the cluster is stopped: {_AGAIN}")
    return OperationProgress()


_AGAIN = "request a restore once more, of this or another snapshot (with a new generation)"


def after_tiers(run: Pass) -> OperationProgress:
    """The next phase, once a whole pass had nothing left to do."""
    control_plane = run.snapshot.control_plane
    if control_plane.etcd_snapshot_restore_phase == _INITIAL:
        return _next(run, _NODES, "deleting nodes without a machine")
    if control_plane.etcd_snapshot_restore_phase == _RESTART:
        name = _source(control_plane.etcd_snapshot_restore or {})
        return OperationProgress({_PHASE: _FINISHED}, (Condition(CONDITION, "True", message=f"restored {name}"),))
    return OperationProgress()


def _asked(control_plane: ControlPlane) -> Obj | None:
    asked = control_plane.spec.get(FIELD)
    return asked if asked and (asked.get("name") or asked.get("fromMachine")) else None


def _without_request(run: Pass) -> OperationProgress:
    control_plane = run.snapshot.control_plane
    if is_stopped(control_plane):
        text = f"{_of_phase(control_plane)}: the request was withdrawn, but the cluster is stopped: {_AGAIN}"
        return _blocked(run, Code.RESTORE, Actor.USER, text)
    if control_plane.etcd_snapshot_restore is None and not control_plane.etcd_snapshot_restore_phase:
        return OperationProgress()
    return OperationProgress({FIELD: None, _PHASE: None})


def _begin(run: Pass) -> OperationProgress:
    control_plane = run.snapshot.control_plane
    asked = dict(control_plane.spec[FIELD])
    state = {FIELD: asked, _PHASE: _STARTED}
    unsupported = control_plane.condition("OperationsSupported")
    if unsupported is not None and unsupported.status == "False" and FIELD in unsupported.message:
        # An older server of ours has refused it: it must not happen long afterwards, by an upgrade of the server.
        why = Condition(CONDITION, "False", "Failed", f"it was asked for when this was not offered: {_AGAIN}")
        return OperationProgress({**state, _PHASE: _FAILED}, (why,))
    name = _source(asked)
    wait = waits.of_control_plane(run.snapshot, Code.STEP, Actor.REMUDA, f"{_WHAT} from {name}: beginning")
    return OperationProgress(state, (Condition(CONDITION, "Unknown", "Started", name),), blocking=(wait,))


# --- before anything stops ------------------------------------------------------------------------------------------------


def _started(run: Pass) -> OperationProgress:
    why = refusal(run.snapshot)
    chosen = why or choose(run.snapshot, run.machines)
    if isinstance(chosen, str):
        return _failed(run, chosen)
    stored = run.snapshot.stored
    if _from_machine(run.snapshot.control_plane):
        unverified = None
    elif stored is not None and stored.s3 is not None:
        unverified = _verify_in_bucket(run, chosen, stored, stored.s3)
    else:
        # A machine without a plan runs nothing that could be stopped too early.
        unverified = _verify_on(run, chosen, _check(run, stored)) if chosen.node is not None else None
    if unverified is not None:
        return unverified
    silent = _silent_servers(run)
    if isinstance(silent, OperationProgress):
        return silent
    return OperationProgress(
        {_PHASE: _SHUTDOWN}, initialized=False, blocking=(_wait(run, Code.STEP, Actor.REMUDA, _SHUTTING_DOWN),)
    )


def _verify_on(run: Pass, machine: Machine, task: Task) -> OperationProgress | None:
    """The wait for a machine; None once it has found the snapshot to be valid."""
    checked = _assign(run, machine, join_of(machine), task, attempts=1)
    if checked.failed:
        return _failed(run, checked.failed, machine)
    if checked.wait is None:
        return None
    return _failed(run, "it does not answer", machine) if _is_hung(run, machine) else _waiting(run, [checked], _VERIFYING)


def _verify_in_bucket(run: Pass, chosen: Machine, stored: StoredSnapshot, s3: Obj) -> OperationProgress | None:
    """The server looks into the bucket. Where only hosts can, the machine that is to begin lists it, while etcd has a majority:
    the distribution's command needs that, and without it nothing runs that could be stopped too early."""
    copy = stored.copy
    if copy.look is Look.FOUND:
        why = why_not_its_own(run.snapshot)
        return _failed(run, why) if why else None
    if copy.look is Look.REFUSED:
        return _failed(run, copy.text)
    if copy.look is Look.LOOKING:
        return _blocked(run, Code.STEP, Actor.REMUDA, f"{_VERIFYING}: looking into its bucket")
    if copy.look is not Look.BUSY and chosen.node is not None and _has_majority(run):
        return _verify_on(run, chosen, FindInBucket(_request(run.snapshot.control_plane), stored.file, s3))
    if copy.look is Look.HOSTS_ONLY or (copy.look is Look.AWAY and run.snapshot.control_plane.is_recovering):
        # In a recovery nothing runs that could be stopped too early, and hosts may reach what the server does not.
        return None
    run.draft.revisit.append(run.snapshot.now + _LOOKED_AT_AGAIN)
    on = Ref("rke.cattle.io", "ETCDSnapshot", run.snapshot.control_plane.namespace, _name(run.snapshot.control_plane))
    text = f"{_VERIFYING}: {copy.text}; nothing is stopped before its bucket answers"
    return _blocked(run, Code.REFERENCE, Actor.PROVIDER, text, on)


def _has_majority(run: Pass) -> bool:
    members = [machine for machine in run.machines if machine.is_etcd and machine.node is not None]
    return sum(machine_health.is_member_up(machine) for machine in members) > len(members) // 2


def _check(run: Pass, stored: StoredSnapshot | None) -> CheckSnapshot:
    request = _request(run.snapshot.control_plane)
    if stored is None:
        return CheckSnapshot(request, _name(run.snapshot.control_plane))
    return CheckSnapshot(request, stored.file, stored.location, stored.size, stored.sha256, stored.uploaded)


def _silent_servers(run: Pass) -> OperationProgress | None:
    """The wait for an answer of all servers: one that can't be stopped would hold the restore up half-way."""
    now = run.snapshot.now
    started = run.snapshot.control_plane.condition(CONDITION)
    since = (time_of(started.at) if started is not None else None) or now
    servers = [machine for machine in run.machines if _is_server(machine) and machine.node is not None and not machine.deleting]
    awaited: list[Machine] = []
    for machine in servers:
        assert machine.node is not None
        if machine.node.state == "in-progress":
            continue
        if machine.asked_at is None or machine.asked_at <= since:
            run.draft.ask(machine, now)
            awaited.append(machine)
        elif machine.node.asked and etcd_liveness.is_silent(now, machine):
            why = "its agent does not answer, so that it can't be stopped: repair its host, or delete its Machine"
            return _failed(run, why, machine)
        elif machine.node.asked:
            awaited.append(machine)
    if not awaited:
        return None
    run.draft.revisit.append(now + etcd_liveness.FRESH + 1)
    names = waits.some_names([machine.name for machine in awaited])
    return _blocked(run, Code.STEP, Actor.MACHINE, f"waiting for an answer of {names}", awaited[0].ref())


# --- shutdown and restore -------------------------------------------------------------------------------------------------


def _shutdown(run: Pass) -> OperationProgress:
    snapshot, control_plane = run.snapshot, run.snapshot.control_plane
    if _mode(control_plane) not in NONE and control_plane.annotations.get(well_known.RESTORED_SPEC) != _request(control_plane):
        on = Ref("provisioning.cattle.io", "Cluster", control_plane.namespace, control_plane.name)
        text = f"waiting until the spec of the cluster has {_mode(control_plane)} of that time"
        return _blocked(run, Code.STEP, Actor.REMUDA, text, on)
    stopped = is_stopped(control_plane)
    leaving = [machine for machine in run.machines if machine.is_etcd and machine.deleting]
    if leaving and not stopped:
        for machine in leaving:
            run.draft.release(machine)
        return _blocked(run, Code.DELETION, Actor.REMUDA, waits.ETCD_GOING, leaving[0].ref())
    marked = _marked(run.machines)
    init = marked if stopped and marked is not None and not disqualifier(marked) else choose(snapshot, run.machines)
    if isinstance(init, str):
        return _failed(run, init)
    if marks := [machine for machine in run.machines if machine.is_init != (machine is init)]:
        for machine in sorted(marks, key=lambda each: each is init):
            run.draft.set_labels(machine, {well_known.INIT_NODE: "true" if machine is init else None})
        return _blocked(run, Code.STEP, Actor.REMUDA, f"electing {init.name} as init node", init.ref())
    if not stopped:
        wait = _wait(run, Code.STEP, Actor.REMUDA, _SHUTTING_DOWN)
        return OperationProgress(conditions=(Condition("Bootstrapped", "False"), Condition("Stable", "False")), blocking=(wait,))
    if not _is_held(snapshot):
        return _blocked(run, Code.STEP, Actor.REMUDA, "keeping Cluster API from replacing machines", waits.cluster_ref(snapshot))
    return _stop_all(run, init)


def _stop_all(run: Pass, init: Machine) -> OperationProgress:
    members = [machine for machine in run.machines if machine.node is not None and not machine.is_windows]
    if run.snapshot.control_plane.is_recovering:
        # Their pods go on: a worker that lost its servers has no state, and joins the new ones by its next plan.
        members = [machine for machine in members if not machine.is_only_worker]
    kept = _from_machine(run.snapshot.control_plane)
    steps = [
        _assign(run, machine, _join_when_stopped(machine, init), StopForRestore(keep=machine.name == kept)) for machine in members
    ]
    for step in steps:
        if step.failed and not step.machine.deleting:
            return _failed(run, step.failed, step.machine)
    pending = [step for step in steps if step.wait is not None and not _may_be_left(run, step.machine)]
    if pending:
        return _waiting(run, pending, _SHUTTING_DOWN)
    return _next(run, _RESTORE, "restoring the snapshot")


def _may_be_left(run: Pass, machine: Machine) -> bool:
    """True for a machine that need not be waited for: it goes, or it is a worker that does not answer, which has no data."""
    return machine.deleting or (machine.is_only_worker and _is_hung(run, machine))


def _join_when_stopped(machine: Machine, init: Machine) -> Join:
    """A server whose host restarts meanwhile must wait for the restored one, and begin nothing."""
    if machine is init:
        return Join(init=True)
    if _is_server(machine) and init.join_url:
        return Join(server=init.join_url)
    return Join(server=machine.joined_to or "")


def _restore(run: Pass) -> OperationProgress:
    init = _marked(run.machines)
    if init is None or init.deleting:
        return _failed(run, "the machine that was to begin with it is gone")
    stored, request = run.snapshot.stored, _request(run.snapshot.control_plane)
    task: Task = RestoreSnapshot(request, _name(run.snapshot.control_plane))
    if _from_machine(run.snapshot.control_plane):
        task = ResetMember(request)
    elif stored is not None:
        uploaded = stored.sha256 if stored.uploaded else ""
        task = RestoreSnapshot(request, stored.file, stored.location, stored.s3, uploaded)
    step = _assign(run, init, Join(init=True), task, attempts=1)
    if step.failed:
        return _failed(run, step.failed, init)
    if step.wait is not None:
        return _waiting(run, [step], "restoring the snapshot")
    # In one write: the state is restored, and every host gets another stamp.
    found = _next(run, _PODS, f"starting {init.name}")
    bootstrapped = Condition("Bootstrapped", "True")
    generation = {"configGeneration": run.snapshot.control_plane.config_generation + 1}
    return found.also(OperationProgress(generation, (bootstrapped,)))


# --- the way back ---------------------------------------------------------------------------------------------------------


def _clean_pods(run: Pass) -> OperationProgress:
    init = _marked(run.machines)
    if init is None or init.deleting:
        return _failed(run, "the machine that it was restored on is gone")
    text, uids = (
        "starting the restored server",
        [machine.uid for machine in (init,) if machine.node_name or init.is_control_plane],
    )
    if not init.is_control_plane:
        first = _assign(run, init, Join(init=True), None)
        if not first.done:
            return _not_done(run, first, text)
        if not init.join_url:
            return _blocked(run, Code.JOIN_URL, Actor.REMUDA, waits.JOIN_URL, init.ref())
    server = _control_plane(run, init)
    if server is None:
        return _blocked(run, Code.ROLES, Actor.USER, waits.CONTROL_PLANE)
    uids += [server.uid] if server is not init else []
    join = Join(init=True) if server is init else Join(server=init.join_url)
    step = _assign(run, server, join, CleanPods(_request(run.snapshot.control_plane), tuple(uids)))
    return _next(run, _INITIAL, "restarting the cluster") if step.done else _not_done(run, step, text)


def _clean_nodes(run: Pass) -> OperationProgress:
    init, control_plane = _marked(run.machines), run.snapshot.control_plane
    server = _control_plane(run, init)
    if server is None:
        return _blocked(run, Code.ROLES, Actor.USER, waits.CONTROL_PLANE)
    state = control_plane.etcd_snapshot_restore or {}
    said = f"{state.get('name') or ''}{state.get('restoreRKEConfig') or ''}{state.get('generation') or 0}"
    digits = hashlib.md5(said.encode(), usedforsecurity=False).hexdigest()[:10]
    nodes = tuple(sorted(machine.node_name for machine in run.machines if machine.node_name))
    uids = tuple(machine.uid for machine in run.machines)
    step = _assign(run, server, join_of(server), CleanNodes(_request(control_plane), digits, uids, nodes))
    text = "deleting nodes without a machine"
    return _next(run, _RESTART, "restarting the cluster") if step.done else _not_done(run, step, text)


def _control_plane(run: Pass, init: Machine | None) -> Machine | None:
    """The server that cleans up: the init node if it has an API."""
    fit = [machine for machine in run.machines if machine.is_control_plane and not machine.deleting and not machine.is_windows]
    return min(fit, key=lambda machine: (machine is not init, machine.node is None, machine.name), default=None)


_STEPS: Mapping[str, Callable[[Pass], OperationProgress]] = {
    _STARTED: _started,
    _SHUTDOWN: _shutdown,
    _RESTORE: _restore,
    _PODS: _clean_pods,
    _NODES: _clean_nodes,
}


# --- words ----------------------------------------------------------------------------------------------------------------


def _request(control_plane: ControlPlane) -> str:
    return request_of(control_plane.etcd_snapshot_restore or {})


def _name(control_plane: ControlPlane) -> str:
    return str((control_plane.etcd_snapshot_restore or {}).get("name") or "")


def _from_machine(control_plane: ControlPlane) -> str:
    """The machine whose own data is used, instead of a snapshot."""
    return str((control_plane.etcd_snapshot_restore or {}).get("fromMachine") or "")


def _source(restore: Obj) -> str:
    return str(restore.get("name") or f"the data of {restore.get('fromMachine')}")


def _mode(control_plane: ControlPlane) -> str:
    return str((control_plane.etcd_snapshot_restore or {}).get("restoreRKEConfig") or "")


def _of_phase(control_plane: ControlPlane) -> str:
    return f"{_WHAT} ({control_plane.etcd_snapshot_restore_phase or _STARTED})"


def _is_server(machine: Machine) -> bool:
    return machine.is_etcd or machine.is_control_plane


def _marked(machines: Sequence[Machine]) -> Machine | None:
    return next((machine for machine in machines if machine.is_init and machine.is_etcd), None)


def _is_held(snapshot: ClusterSnapshot) -> bool:
    return snapshot.cluster is not None and snapshot.cluster.paused and snapshot.cluster.paused_for == FIELD


def _assign(run: Pass, machine: Machine, join: Join, task: Task | None, *, attempts: int = _ATTEMPTS) -> MachineStep:
    control_plane = run.snapshot.control_plane
    text, note = _of_phase(control_plane), _note(control_plane)
    return assign(run, machine, join, task, text, attempts=attempts, paused=False, note=note)


def _note(control_plane: ControlPlane) -> str:
    return f"{FIELD} {control_plane.etcd_snapshot_restore_phase} {_request(control_plane)}"


def _is_hung(run: Pass, machine: Machine) -> bool:
    """True if it has had the plan of this phase for very long."""
    noted = machine.plan_annotations.get(well_known.TASK) == _note(run.snapshot.control_plane)
    return noted and machine_health.is_hung(run.snapshot, machine)


def _wait(run: Pass, code: Code, actor: Actor, text: str, on: Ref | None = None) -> Wait:
    return waits.of_control_plane(run.snapshot, code, actor, f"{_of_phase(run.snapshot.control_plane)}: {text}", on)


def _blocked(run: Pass, code: Code, actor: Actor, text: str, on: Ref | None = None) -> OperationProgress:
    if text.startswith(_WHAT) or code is Code.RESTORE:
        return OperationProgress(blocking=(waits.of_control_plane(run.snapshot, code, actor, text, on),))
    return OperationProgress(blocking=(_wait(run, code, actor, text, on),))


def _next(run: Pass, phase: str, text: str) -> OperationProgress:
    return OperationProgress({_PHASE: phase}, blocking=(_wait(run, Code.STEP, Actor.REMUDA, text),))


def _waiting(run: Pass, steps: Sequence[MachineStep], text: str) -> OperationProgress:
    """The control plane's own wait, then those of its machines."""
    each = [step.wait for step in steps if step.wait is not None]
    first = each[0]
    text = f"{text} on {waits.some_names([step.machine.name for step in steps])}"
    if len(each) == 1:
        text = f"{text}: {first.evidence.removeprefix(f'{_of_phase(run.snapshot.control_plane)}: ')}"
    return OperationProgress(blocking=(_wait(run, first.code, first.actor, text, first.subject), *each))


def _not_done(run: Pass, step: MachineStep, text: str) -> OperationProgress:
    return _failed(run, step.failed, step.machine) if step.failed else _waiting(run, [step], text)


def _failed(run: Pass, why: str, machine: Machine | None = None) -> OperationProgress:
    phase = run.snapshot.control_plane.etcd_snapshot_restore_phase
    text = f"{phase}{f' on {machine.name}' if machine is not None else ''}: {why}"
    if not is_stopped(run.snapshot.control_plane):
        text = f"{text}; the cluster goes on {'without it' if phase in (_STARTED, _SHUTDOWN) else 'with the restored state'}"
    failed = OperationProgress({_PHASE: _FAILED}, (Condition(CONDITION, "False", "Failed", text),))
    if not is_stopped(run.snapshot.control_plane):
        return failed
    return failed.also(_blocked(run, Code.RESTORE, Actor.USER, f"{text}; the cluster is stopped: {_AGAIN}"))
