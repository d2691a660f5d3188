"""`remuda.dev/recover`: a cluster comes back after the loss of its servers (docs/reference/operations.md#recovery).

Servers that do not answer are deleted, others take their places, and a restore (:mod:`.etcd_snapshot_restore`) does the rest:
from a snapshot, or from the data of a server that is left. Workers stay and go on running. A machine that answers is never
deleted.
The phases before the restore come first of all in a pass, since the cluster may lack every server (:func:`prepare`), and end
whatever operation was running. The request of the restore is written by the graph's controller (`..graph.restored_spec`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from remuda.kube.clock import time_of
from remuda.kube.waits import Actor, Code, Ref

from ... import well_known
from ...etcd.recovery_request import RecoveryRequest, noted, requested
from ...plans.plan import stops
from .. import machine_health, waits
from ..election import disqualifier
from ..etcd_liveness import FRESH, SILENT_AFTER
from ..snapshot import ClusterSnapshot, Condition, ControlPlane, Machine
from ..tiers import Pass
from . import etcd_snapshot_create, etcd_snapshot_restore, restore_source, rotate_certificates, rotate_encryption_keys
from .steps import OperationProgress

FIELD = "recover"
CONDITION = "ClusterRecovered"
_PHASE = "recoverPhase"
_SURVEY, _MACHINES, _HOSTS, _RESTORING = "Survey", "Machines", "Hosts", "Restoring"
_FINISHED, _FAILED = "Finished", "Failed"
_BEFORE = (_SURVEY, _MACHINES, _HOSTS)
_WHAT = "recovering"
_NEVER_UP = "the cluster was never up, so there is nothing to recover"
_AGAIN = "request the recovery once more (remuda cluster recover)"


def is_wanted(control_plane: ControlPlane) -> bool:
    asked = _asked(control_plane)
    return asked is not None and asked != noted(control_plane.recover)


def is_running(control_plane: ControlPlane) -> bool:
    return _asked(control_plane) is not None and control_plane.recover_phase in (*_BEFORE, _RESTORING)


def replaces_machines(control_plane: ControlPlane) -> bool:
    """True while Cluster API must work on machines, whatever a restore before that held."""
    return is_running(control_plane) and control_plane.recover_phase in _BEFORE


def snapshot_to_read(control_plane: ControlPlane) -> str:
    """The ETCDSnapshot that is judged before its restore is requested; "" if there is none."""
    asked = _asked(control_plane)
    if asked is None or not (is_wanted(control_plane) or control_plane.recover_phase in _BEFORE):
        return ""
    return asked.snapshot


def prepare(run: Pass, paused: bool) -> OperationProgress:
    """The phases before the restore."""
    control_plane = run.snapshot.control_plane
    asked = _asked(control_plane)
    if asked is None:
        return _without_request(control_plane)
    if is_wanted(control_plane):
        return OperationProgress() if paused else _begin(run, asked)
    step = _STEPS.get(control_plane.recover_phase)
    if step is None:
        return OperationProgress()
    return _blocked(run, Code.PAUSED, Actor.USER, waits.PAUSED) if paused else step(run, asked)


def run(run: Pass) -> OperationProgress:
    """The phase in which a restore runs: its result is the recovery's."""
    control_plane = run.snapshot.control_plane
    asked = _asked(control_plane)
    if asked is None or control_plane.recover_phase != _RESTORING:
        return OperationProgress()
    if control_plane.annotations.get(well_known.RECOVERED) != asked.text():
        on = Ref("provisioning.cattle.io", "Cluster", control_plane.namespace, control_plane.name)
        return _blocked(run, Code.STEP, Actor.REMUDA, "waiting until the restore is requested", on)
    if not control_plane.spec.get(etcd_snapshot_restore.FIELD):
        return _failed(run, "the request of the restore was withdrawn")
    if etcd_snapshot_restore.is_wanted(control_plane):
        return OperationProgress()
    match control_plane.etcd_snapshot_restore_phase:
        case "Finished":
            return OperationProgress(
                {_PHASE: _FINISHED}, (Condition(CONDITION, "True", message=f"recovered from {asked.source}"),)
            )
        case "Failed":
            found = control_plane.condition(etcd_snapshot_restore.CONDITION)
            return _failed(run, found.message if found is not None else "the restore has failed")
    return OperationProgress()


def _asked(control_plane: ControlPlane) -> RecoveryRequest | None:
    return requested(control_plane.annotations.get(well_known.RECOVER))


def _without_request(control_plane: ControlPlane) -> OperationProgress:
    if control_plane.recover is None and not control_plane.recover_phase:
        return OperationProgress()
    gone: Mapping[str, Any] = {FIELD: None, _PHASE: None}
    if control_plane.recover_phase not in (*_BEFORE, _RESTORING):
        return OperationProgress(gone)
    text = f"the request was withdrawn in the phase {control_plane.recover_phase}"
    return OperationProgress(gone, (Condition(CONDITION, "False", "TakenBack", text),))


def _begin(run: Pass, asked: RecoveryRequest) -> OperationProgress:
    control_plane = run.snapshot.control_plane
    state = {FIELD: asked.data(), _PHASE: _SURVEY}
    if control_plane.initialized is None and control_plane.applied_spec is None:
        # Also when it comes up later: its spec may be a copy of one that was up.
        return OperationProgress({**state, _PHASE: _FAILED}, (Condition(CONDITION, "False", "Failed", _NEVER_UP),))
    # The words are different for each request: the time of the condition is that of the first question to the servers.
    begun = Condition(CONDITION, "Unknown", "Started", f"request {asked.generation}: from {asked.source}")
    text = f"{_WHAT} from {asked.source}: beginning"
    wait = waits.of_control_plane(run.snapshot, Code.STEP, Actor.REMUDA, text)
    return OperationProgress(state, (begun,), blocking=(wait,)).also(_without_others(control_plane))


def _without_others(control_plane: ControlPlane) -> OperationProgress:
    """The end of operations that may wait for ever for lost machines. A restore is begun anew."""
    why = "a recovery of the cluster has begun"
    ended = OperationProgress()
    if etcd_snapshot_create.is_running(control_plane):
        failed = Condition(etcd_snapshot_create.CONDITION, "False", "Failed", why)
        ended = ended.also(OperationProgress({"etcdSnapshotCreatePhase": "Failed"}, (failed,)))
    if rotate_encryption_keys.is_running(control_plane):
        failed = Condition(rotate_encryption_keys.CONDITION, "False", "Failed", why)
        ended = ended.also(OperationProgress({"rotateEncryptionKeysPhase": "Failed"}, (failed,)))
    if rotate_certificates.is_running(control_plane):
        generation = int((control_plane.spec.get(rotate_certificates.FIELD) or {}).get("generation") or 0)
        stopped = Condition(rotate_certificates.CONDITION, "False", "Stopped", why)
        ended = ended.also(OperationProgress({"certificateRotationGeneration": generation}, (stopped,)))
    return ended


# --- survey ---------------------------------------------------------------------------------------------------------------
#
# Each server is asked for a sign of life; one that gives none for a minute is lost. Nothing is changed yet.

_NO_TOKENS = "the tokens with which machines join are lost: restore this server's backup, which has them"


def _survey(run: Pass, asked: RecoveryRequest) -> OperationProgress:
    why = _NO_TOKENS if run.snapshot.tokens is None else _refusal(run.snapshot, asked)
    if why:
        return _failed(run, why)
    now, servers = run.snapshot.now, [machine for machine in run.machines if _is_server(machine) and not machine.is_windows]
    began = run.snapshot.control_plane.condition(CONDITION)
    since = (time_of(began.at) if began is not None else None) or now
    present = [machine for machine in servers if not machine.deleting]
    silent = [machine for machine in present if _is_silent(run.snapshot, machine, since)]
    awaited = [machine for machine in present if machine not in silent and not _has_answered(machine, since)]
    for machine in awaited:
        if machine.asked_at is None or machine.asked_at <= since:
            run.draft.ask(machine, now)
    if awaited:
        run.draft.revisit.append(now + FRESH / 4)
        text = f"waiting for an answer of {waits.some_names([each.name for each in awaited])}"
        return _blocked(run, Code.STEP, Actor.MACHINE, text, awaited[0].ref())
    lost = [*silent, *(machine for machine in servers if machine.deleting)]
    if why := _lost_source(run, asked, lost):
        return _failed(run, why)
    state = {**asked.data(), "lost": [_told(machine) for machine in lost]}
    return _next(run, _MACHINES, f"{len(lost)} of {len(servers)} servers are lost", {FIELD: state})


def _has_answered(machine: Machine, since: float) -> bool:
    """True without a plan, too: such a machine has no data that could be lost."""
    node, at = machine.node, machine.asked_at
    return node is None or (not node.asked and at is not None and at > since)


def _is_silent(snapshot: ClusterSnapshot, machine: Machine, since: float) -> bool:
    """An agent answers at once, unless it is at work; also then it is heard of before long."""
    node, at = machine.node, machine.asked_at
    if node is None or not node.asked or at is None or at <= since or snapshot.now - at <= SILENT_AFTER:
        return False
    return node.state != "in-progress" or machine_health.is_hung(snapshot, machine)


def _refusal(snapshot: ClusterSnapshot, asked: RecoveryRequest) -> str:
    """The reason why it can't begin with what was named; "" if nothing speaks against it so far."""
    control_plane = snapshot.control_plane
    if asked.machine:
        return ""
    if snapshot.surveyed is None:
        return f"there is no ETCDSnapshot {asked.snapshot}: choose one that is listed (remuda snapshot ls), or import one"
    spec = {**control_plane.spec, etcd_snapshot_restore.FIELD: asked.restore(1)}
    plane = replace(control_plane, spec=spec)
    return restore_source.refusal(replace(snapshot, control_plane=plane, stored=snapshot.surveyed))


def _lost_source(run: Pass, asked: RecoveryRequest, lost: Sequence[Machine]) -> str:
    """The reason why the machine with the data or the file can't be used; "" if it can, or if there is none."""
    stored = run.snapshot.surveyed
    name = asked.machine or (stored.machine if stored is not None and stored.s3 is None else "")
    if not name:
        return ""
    owner = next((machine for machine in run.machines if machine.name == name), None)
    what = "" if asked.machine else ", the only one with the file,"
    if owner is None:
        return f"machine {name}{what} is gone: choose a snapshot in a bucket, or import one"
    if owner in lost:
        return f"machine {name}{what} does not answer: repair its host, choose a snapshot in a bucket, or import one"
    if asked.machine and not _has_data(run.snapshot.control_plane, owner):
        return f"machine {name} has no data of the cluster, or it was given up for another restore"
    why = disqualifier(owner)
    return f"machine {name}{what} can't begin: {why}" if why else ""


def _has_data(control_plane: ControlPlane, machine: Machine) -> bool:
    """True if the data of its member was neither replaced nor marked as void by a restore."""
    last, node = control_plane.etcd_snapshot_restore or {}, machine.node
    if last.get("fromMachine") == machine.name:
        return node is not None
    if etcd_snapshot_restore.is_stopped(control_plane) or node is None or node.applied is None:
        return False
    return not (stops(node.plan) or stops(node.applied))


def _told(machine: Machine) -> dict[str, Any]:
    pool = machine.infrastructure_kind != "CustomMachine"
    return {"name": machine.name, "roles": _roles(machine), **({"pool": True} if pool else {})}


def _roles(machine: Machine) -> str:
    has = {"etcd": machine.is_etcd, "controlplane": machine.is_control_plane, "worker": machine.is_worker}
    return ",".join(role for role, is_set in has.items() if is_set)


# --- machines and hosts ---------------------------------------------------------------------------------------------------


def _machines(run: Pass, asked: RecoveryRequest) -> OperationProgress:
    lost = {each["name"] for each in _lost(run.snapshot.control_plane)}
    for machine in run.machines:
        if machine.name in lost and not machine.deleting and machine.node is not None and machine.node.asked:
            run.draft.delete(machine)
    # One that has answered since is not lost.
    dead = [machine for machine in run.machines if machine.name in lost and machine.node is not None and machine.node.asked]
    going = [machine for machine in run.machines if machine.deleting and _is_server(machine)]
    for machine in going:
        run.draft.release(machine)
    left = {machine.name: machine for machine in (*dead, *going)}
    if not left:
        return _next(run, _HOSTS, "looking for machines that take their places")
    text = f"waiting until lost servers are deleted: {waits.some_names(list(left))}"
    return _blocked(run, Code.DELETION, Actor.REMUDA, text, left[min(left)].ref())


def _hosts(run: Pass, asked: RecoveryRequest) -> OperationProgress:
    present = [machine for machine in run.machines if not machine.deleting and not machine.is_windows]
    lacking = _lacking(present, asked)
    if not lacking:
        return _next(run, _RESTORING, "requesting the restore")
    lost = _lost(run.snapshot.control_plane)
    there = {machine.name for machine in present}
    counts = _counts([each for each in lost if each["name"] not in there], present)
    missing = f"missing: {', '.join(lacking)}"
    if lost and all(each.get("pool") for each in lost):
        text = f"waiting for machines of the pools: {counts or missing} ({missing})"
        return _blocked(run, Code.PROVISIONING, Actor.PROVIDER, text)
    how = f"remuda cluster registration-command {run.snapshot.control_plane.name}"
    text = f"waiting for hosts to be registered: {f'{counts} ({missing})' if counts else missing}; on each, run what {how} prints"
    return _blocked(run, Code.ROLES, Actor.USER, text)


def _lacking(present: Sequence[Machine], asked: RecoveryRequest) -> list[str]:
    """The roles without which no restore can begin. One machine of each is enough: others join when they come."""
    etcd = any(not disqualifier(machine) for machine in present)
    control_plane = any(machine.is_control_plane for machine in present)
    worker = any(machine.is_worker for machine in present)
    found = zip(waits.ROLE_NAMES, (etcd, control_plane, worker), strict=True)
    return [role for role, is_there in found if not is_there]


def _counts(lost: Iterable[Mapping[str, Any]], present: Sequence[Machine]) -> str:
    """The numbers of machines that have come in the place of the lost ones, by their roles."""
    wanted: dict[str, int] = {}
    for each in lost:
        wanted[str(each.get("roles"))] = wanted.get(str(each.get("roles")), 0) + 1
    found = {
        roles: sum(_roles(machine) == roles and machine.node is None and machine.infrastructure_ready for machine in present)
        for roles in wanted
    }
    return ", ".join(f"{min(found[roles], number)} of {number} with {roles}" for roles, number in sorted(wanted.items()))


_STEPS: Mapping[str, Callable[[Pass, RecoveryRequest], OperationProgress]] = {
    _SURVEY: _survey,
    _MACHINES: _machines,
    _HOSTS: _hosts,
}


# --- words ----------------------------------------------------------------------------------------------------------------


def _lost(control_plane: ControlPlane) -> Sequence[Mapping[str, Any]]:
    return list((control_plane.recover or {}).get("lost") or ())


def _is_server(machine: Machine) -> bool:
    return machine.is_etcd or machine.is_control_plane


def _blocked(run: Pass, code: Code, actor: Actor, text: str, on: Ref | None = None) -> OperationProgress:
    text = f"{_WHAT} ({run.snapshot.control_plane.recover_phase}): {text}"
    return OperationProgress(blocking=(waits.of_control_plane(run.snapshot, code, actor, text, on),))


def _next(run: Pass, phase: str, text: str, status: Mapping[str, Any] | None = None) -> OperationProgress:
    return OperationProgress({**(status or {}), _PHASE: phase}).also(_blocked(run, Code.STEP, Actor.REMUDA, text))


def _failed(run: Pass, why: str) -> OperationProgress:
    text = f"{run.snapshot.control_plane.recover_phase}: {why}; {_AGAIN}"
    return OperationProgress({_PHASE: _FAILED}, (Condition(CONDITION, "False", "Failed", text),))
