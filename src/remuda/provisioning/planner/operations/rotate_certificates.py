"""`rotateCertificates`: new certificates for all machines, or for some services of them, one machine after another
(docs/reference/operations.md#rotation-of-certificates). The authorities stay.

A machine is done when it is healthy again, and only then the next one begins. A cluster whose certificates have expired has no
API and no quorum until several machines are done; then only the plans are waited for. The status has no phase for this
operation: its state is a condition, and each host's progress is its plan.
"""

from __future__ import annotations

from remuda.kube.waits import Actor, Code, Wait

from .. import machine_health, waits
from ..drain import is_in_drain
from ..snapshot import Condition, ControlPlane, Machine, RotateCertificates
from ..tiers import Pass, held_before_restart
from .steps import OperationProgress, assign, join_of, pending, was_written

FIELD = "rotateCertificates"
CONDITION = "CertificatesRotated"
_GENERATION = "certificateRotationGeneration"
_RUNNING = "Rotating"
_WHAT = "rotating certificates"

_KUBELET = frozenset(("kubelet", "kube-proxy", "auth-proxy", "api-server", "k3s-server", "rke2-server", "remuda-server"))
_OF_CONTROL_PLANES = _KUBELET | {
    "admin",
    "cloud-controller",
    "controller-manager",
    "k3s-controller",
    "remuda-controller",
    "rke2-controller",
    "scheduler",
    "supervisor",
}
_OF_ETCD = frozenset(("etcd", "kubelet", "k3s-server", "rke2-server", "remuda-server"))


def is_wanted(control_plane: ControlPlane) -> bool:
    """A generation other than that of the status requests a rotation, once there is a cluster. It need not be up."""
    asked = control_plane.spec.get(FIELD)
    if asked is None or is_running(control_plane) or not control_plane.initialized:
        return False
    return _generation(control_plane) != control_plane.certificate_rotation_generation


def is_running(control_plane: ControlPlane) -> bool:
    return control_plane.spec.get(FIELD) is not None and _has_begun(control_plane)


def run(run: Pass, paused: bool) -> OperationProgress:
    control_plane = run.snapshot.control_plane
    if control_plane.spec.get(FIELD) is None:
        stopped = Condition(CONDITION, "False", "Stopped", "the request was withdrawn before all machines were done")
        return OperationProgress(conditions=(stopped,)) if _has_begun(control_plane) else OperationProgress()
    if is_running(control_plane):
        return _rotate(run, paused)
    return _begin(run) if is_wanted(control_plane) and not paused else OperationProgress()


def end(run: Pass, paused: bool, reason: str) -> OperationProgress:
    """Give it up for now: it begins anew when it can."""
    return OperationProgress(conditions=(Condition(CONDITION, "False", "Stopped", reason),))


def _generation(control_plane: ControlPlane) -> int:
    return int((control_plane.spec.get(FIELD) or {}).get("generation") or 0)


def _has_begun(control_plane: ControlPlane) -> bool:
    found = control_plane.condition(CONDITION)
    return found is not None and found.status == "Unknown"


def _begin(run: Pass) -> OperationProgress:
    """Drains come first: a rotation would leave their nodes without pods for its whole time."""
    drained = next((machine for machine in run.machines if is_in_drain(machine)), None)
    if drained is not None:
        text = f"{_WHAT}: waiting until {drained.name} is uncordoned"
        return OperationProgress(notes=(waits.of_control_plane(run.snapshot, Code.STEP, Actor.REMUDA, text, drained.ref()),))
    wait = waits.of_control_plane(run.snapshot, Code.STEP, Actor.REMUDA, f"{_WHAT}: beginning")
    return OperationProgress(conditions=(Condition(CONDITION, "Unknown", _RUNNING),), blocking=(wait,))


def _rotate(run: Pass, paused: bool) -> OperationProgress:
    control_plane = run.snapshot.control_plane
    services = tuple(str(name) for name in control_plane.spec[FIELD].get("services") or ())
    task = RotateCertificates(_generation(control_plane), services)
    done: list[Machine] = []
    silent: list[Machine] = []
    for machine in in_turns(run.machines, services):

        def before(machine: Machine = machine) -> Wait | None:
            return _unhealthy(run, done) or (None if _is_down(run) else held_before_restart(run, machine))

        step = assign(
            run, machine, join_of(machine), task, _WHAT, attempts=0, paused=paused, restarts=True, before=before, probes=False
        )
        if step.done:
            done.append(machine)
        elif _is_silent(run, machine, step.wait):
            silent.append(machine)
        else:
            return OperationProgress(blocking=pending(run, _WHAT, [step]))
    late = _unhealthy(run, done)
    if late is not None:
        text = f"{_WHAT}: {late.evidence}"
        return OperationProgress(blocking=(waits.of_control_plane(run.snapshot, late.code, late.actor, text, late.subject), late))
    return OperationProgress({_GENERATION: task.generation}, (_result(task, done, silent),))


def in_turns(machines: list[Machine], services: tuple[str, ...] = ()) -> list[Machine]:
    """The machines that have certificates of these services: etcd, etcd with a control plane, control planes, workers. Those
    without a plan are new, and so are their certificates."""

    def turn(machine: Machine) -> int:
        if machine.is_etcd:
            return 1 if machine.is_control_plane else 0
        return 2 if machine.is_control_plane else 3

    known = [machine for machine in machines if machine.node is not None and not machine.deleting and not machine.is_windows]
    roled = [machine for machine in known if machine.is_etcd or machine.is_control_plane or machine.is_worker]
    return sorted((machine for machine in roled if _concerns(machine, services)), key=turn)


def _concerns(machine: Machine, services: tuple[str, ...]) -> bool:
    has: frozenset[str] = frozenset()
    has |= _KUBELET if machine.is_worker else has
    has |= _OF_CONTROL_PLANES if machine.is_control_plane else has
    has |= _OF_ETCD if machine.is_etcd else has
    return not services or not has.isdisjoint(services)


def _unhealthy(run: Pass, done: list[Machine]) -> Wait | None:
    """The wait for a machine that is done but not healthy yet, if it can be healthy now: that needs an API, and an API needs a
    majority of etcd's members and one control plane with valid certificates."""
    members = [machine for machine in run.machines if machine.is_etcd and machine.node is not None]
    up = [machine for machine in members if machine in done or machine_health.is_member_up(machine)]
    servers = [machine for machine in run.machines if machine.is_control_plane]
    if len(up) <= len(members) // 2 or not any(each in done or machine_health.serves(each) for each in servers):
        return None
    for machine in done:
        reason = machine_health.unapplied(machine.node) if machine.node else None
        if reason is not None:
            return waits.of_machine(run.snapshot, machine, reason.code, reason.actor, f"{machine.name}: {reason.message}")
    return None


def _is_down(run: Pass) -> bool:
    """True if nothing of the cluster works, so that no restart can take anything from it: a member of etcd may look well only
    because its host has no probes."""
    members = [machine for machine in run.machines if machine.is_etcd and machine.node is not None]
    up = [machine for machine in members if machine_health.is_member_up(machine)]
    serving = any(machine.is_control_plane and machine_health.serves(machine) for machine in run.machines)
    return not run.snapshot.control_plane.agent_connected and not serving and len(up) <= len(members) // 2


def _is_silent(run: Pass, machine: Machine, wait: Wait | None) -> bool:
    """True for a host whose agent has not fetched the plan for long: the others need not wait for it."""
    node = machine.node
    if wait is None or wait.code is not Code.PLAN or node is None or was_written(run, machine):
        return False
    return node.state in ("", "pending") and machine_health.is_hung(run.snapshot, machine)


def _result(task: RotateCertificates, done: list[Machine], silent: list[Machine]) -> Condition:
    text = f"generation {task.generation}: {len(done)} machines"
    if not silent:
        return Condition(CONDITION, "True", message=text)
    names = waits.some_names([machine.name for machine in silent])
    return Condition(CONDITION, "True", "Incomplete", f"{text}; not on {names}, whose agents do not answer")
