"""`rotateEncryptionKeys`: another key for the Secrets in etcd (docs/reference/operations.md#rotation-of-encryption-keys).

One control plane, the leader, runs the distribution's own command; the other servers then adopt the keys, most distributions'
by a restart. Newer versions have one command for all of it, older ones three, with restarts after each. No step begins before
all servers use the keys of the last one, which the distribution itself checks, too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from remuda.capi import kubernetes_versions
from remuda.kube.waits import Actor, Code, Wait

from ...releases import distributions
from ...releases.distributions import Runtime
from .. import waits
from ..render.rotation import STATUS
from ..snapshot import Condition, ControlPlane, Machine, RestartServer, RotateKeys
from ..tiers import Pass, held_before_restart
from .steps import MachineStep, OperationProgress, assign, join_of, pending

FIELD = "rotateEncryptionKeys"
CONDITION = "EncryptionKeysRotated"
_PHASE, _LEADER = "rotateEncryptionKeysPhase", "rotateEncryptionKeysLeader"
_DONE, _FAILED = "Done", "Failed"
_FEATURE = "encryption-key-rotation"
_RESTART_ATTEMPTS = 5
_FINISHED, _UNFINISHED = "reencrypt_finished", ("reencrypt_request", "reencrypt_active")

# The first patches of the minor versions in which upstream documents `secrets-encrypt rotate-keys`; newer minors have it.
_ONE_STEP_SINCE = {30: 5, 31: 1}
# Each phase with the leader's command; those without one restart the servers.
_ONE_STEP = {"Rotate": "rotate-keys", "PostRotateRestart": ""}
_STAGED = {
    "Prepare": "prepare",
    "PostPrepareRestart": "",
    "Rotate": "rotate",
    "PostRotateRestart": "",
    "Reencrypt": "reencrypt",
    "PostReencryptRestart": "",
}


class _Reported(NamedTuple):
    """A server's answer about the rotation."""

    stage: str = ""
    hashes_match: bool = False


def is_wanted(control_plane: ControlPlane) -> bool:
    asked, last = control_plane.spec.get(FIELD), control_plane.rotate_encryption_keys
    if asked is None or is_running(control_plane) or not control_plane.initialized:
        return False
    return bool(asked.get("generation")) and (last or {}).get("generation") != asked.get("generation")


def is_running(control_plane: ControlPlane) -> bool:
    phase = control_plane.rotate_encryption_keys_phase
    return control_plane.spec.get(FIELD) is not None and phase not in ("", _DONE, _FAILED)


def run(run: Pass, paused: bool) -> OperationProgress:
    control_plane = run.snapshot.control_plane
    if control_plane.spec.get(FIELD) is None:
        begun = control_plane.rotate_encryption_keys is not None or control_plane.rotate_encryption_keys_phase
        return OperationProgress({FIELD: None, _PHASE: None, _LEADER: None}) if begun else OperationProgress()
    if is_running(control_plane):
        return _Rotation(run, paused).step()
    return _begin(run) if is_wanted(control_plane) and not paused else OperationProgress()


def end(run: Pass, paused: bool, reason: str) -> OperationProgress:
    return _Rotation(run, paused).failed(reason)


def is_one_step(version: str) -> bool:
    """True if the version rotates keys by one command. Raises VersionError."""
    found = kubernetes_versions.parse(version.removeprefix("v"))
    if (found.major, found.minor) > (1, max(_ONE_STEP_SINCE)):
        return True
    return found.major == 1 and found.minor in _ONE_STEP_SINCE and found.patch >= _ONE_STEP_SINCE[found.minor]


def why_impossible(run: Pass) -> str:
    """The reason why this cluster's keys can't be rotated; empty if they can."""
    control_plane = run.snapshot.control_plane
    runtime = distributions.of_version(control_plane.version)
    if not runtime.encrypts_secrets and not control_plane.spec.get("unmanagedConfig") and not _is_encrypted(control_plane):
        return f"{runtime.name} does not encrypt Secrets unless machineGlobalConfig has `secrets-encryption: true`"
    if not is_one_step(control_plane.version) and run.snapshot.features.get(_FEATURE, "").partition(".")[0] != "2":
        return f"{control_plane.version} can not rotate encryption keys safely: upgrade the cluster first"
    return ""


def _is_encrypted(control_plane: ControlPlane) -> bool:
    spec = control_plane.spec
    said = [spec.get("machineGlobalConfig"), *(each.get("config") for each in spec.get("machineSelectorConfig") or ())]
    return any(str((config or {}).get("secrets-encryption")).lower() == "true" for config in said)


def _begin(run: Pass) -> OperationProgress:
    control_plane = run.snapshot.control_plane
    asked = dict(control_plane.spec[FIELD])
    if reason := why_impossible(run):
        return OperationProgress({FIELD: asked, _PHASE: _FAILED, _LEADER: None}, (_failure(asked, reason),))
    leader = _elected(run)
    # The version decides on the commands, so that all hosts must have it.
    upgraded = (control_plane.applied_spec or {}).get("kubernetesVersion") == control_plane.version
    if not control_plane.is_true("Ready") or not upgraded or leader is None:
        text = "rotating encryption keys: waiting until the cluster is ready"
        return OperationProgress(notes=(waits.of_control_plane(run.snapshot, Code.STEP, Actor.REMUDA, text),))
    first = next(iter(_phases(control_plane)))
    begun = Condition(CONDITION, "Unknown", first, f"{leader.name} leads")
    wait = waits.of_control_plane(run.snapshot, Code.STEP, Actor.REMUDA, "rotating encryption keys: beginning", leader.ref())
    return OperationProgress({FIELD: asked, _PHASE: first, _LEADER: leader.name}, (begun,), blocking=(wait,))


def _phases(control_plane: ControlPlane) -> dict[str, str]:
    return _ONE_STEP if is_one_step(control_plane.version) else _STAGED


def _elected(run: Pass) -> Machine | None:
    """The init node if it has an API, else the first server that has one."""
    fit = [machine for machine in run.machines if machine.is_control_plane and _is_fit(machine)]
    return next((machine for machine in fit if machine.is_init), fit[0] if fit else None)


def _is_fit(machine: Machine) -> bool:
    up = bool(machine.node_name) and not machine.failing and not machine.non_ready
    return up and machine.node is not None and not machine.deleting and not machine.is_windows


class _Rotation:
    """One pass of a rotation that has begun."""

    def __init__(self, run: Pass, paused: bool) -> None:
        control_plane = run.snapshot.control_plane
        self._run, self._paused = run, paused
        self._phases = _phases(control_plane)
        self._phase = control_plane.rotate_encryption_keys_phase
        self._asked: dict[str, Any] = dict(control_plane.rotate_encryption_keys or {})
        self._generation = int(self._asked.get("generation") or 0)
        self._runtime: Runtime = distributions.of_version(control_plane.version)
        self._leader = next((each for each in run.machines if each.name == control_plane.rotate_encryption_keys_leader), None)

    def step(self) -> OperationProgress:
        if self._phase not in self._phases:
            return self.failed(f"the phase {self._phase} is none of {self._run.snapshot.control_plane.version}'s")
        if self._leader is None or self._leader.deleting:
            return self.failed("the machine that led it is gone")
        command = self._phases[self._phase]
        return self._command(self._leader, command) if command else self._restart(self._leader)

    # --- the leader's command -------------------------------------------------------------------------------------------

    def _command(self, leader: Machine, command: str) -> OperationProgress:
        task = RotateKeys(self._generation, self._phase, command)
        join = join_of(leader)
        step = assign(self._run, leader, join, task, self._what, attempts=1, paused=self._paused, restarts=True)
        if not step.done:
            return self._unfinished(step)
        found, now = reported(leader)
        expected = (*_UNFINISHED, _FINISHED) if command in ("rotate-keys", "reencrypt") else (command,)
        if found.stage not in expected:
            return self.failed(f"{leader.name} reports the stage {found.stage or 'of no rotation'} after {command}")
        if now.stage != _FINISHED and expected != (command,):
            return self._waiting(leader, f"Secrets are written with the new key: {now.stage or found.stage}")
        if command == "rotate-keys" and not self._others_restart(leader):
            return self._done() if now.hashes_match else self._waiting(leader, "other servers have not adopted the keys yet")
        return self._next()

    def _others_restart(self, leader: Machine) -> bool:
        """True if servers must restart to use the new keys: a single one does already."""
        return not self._runtime.adopts_keys and any(machine is not leader for machine in self._servers)

    # --- restarts -------------------------------------------------------------------------------------------------------

    def _restart(self, leader: Machine) -> OperationProgress:
        """Restart one server after another; those with an API must then report the leader's stage."""
        expected, last = "", leader
        for machine in self._in_turns(leader):
            stage = expected if machine.is_control_plane else ""
            task = RestartServer(self._generation, self._phase, stage)
            step = assign(
                self._run,
                machine,
                join_of(machine),
                task,
                self._what,
                attempts=_RESTART_ATTEMPTS,
                paused=self._paused,
                restarts=True,
                before=lambda machine=machine: held_before_restart(self._run, machine),  # type: ignore[misc]
            )
            if not step.done:
                return self._unfinished(step)
            if not machine.is_control_plane:
                continue
            found = reported(machine)[0]
            if machine is leader:
                expected = found.stage
            elif found.stage != expected:
                return self.failed(f"{leader.name} is at the stage {expected}, and {machine.name} at {found.stage or 'none'}")
            last = machine
        if not reported(last)[1].hashes_match:
            return self._waiting(last, "the servers do not use the same keys yet")
        return self._next()

    @property
    def _servers(self) -> list[Machine]:
        known = [machine for machine in self._run.machines if machine.node is not None and not machine.deleting]
        return [machine for machine in known if (machine.is_etcd or machine.is_control_plane) and not machine.is_windows]

    def _in_turns(self, leader: Machine) -> list[Machine]:
        """Members of etcd without an API, the init node first; the leader; the other control planes.

        The staged rotation leaves out the first if the leader is the init node.
        """
        etcd = sorted((machine for machine in self._servers if machine.is_only_etcd), key=lambda machine: not machine.is_init)
        if self._phases is _STAGED and leader.is_init:
            etcd = []
        others = [machine for machine in self._servers if machine.is_control_plane and machine.name != leader.name]
        return [*etcd, leader, *others]

    # --- the answer -----------------------------------------------------------------------------------------------------

    @property
    def _what(self) -> str:
        number = list(self._phases).index(self._phase) + 1
        return f"rotating encryption keys, stage {number} of {len(self._phases)} ({self._phase})"

    def _unfinished(self, step: MachineStep) -> OperationProgress:
        if step.wait is None:
            return self.failed(f"{step.machine.name}: {step.failed}")
        return OperationProgress(blocking=pending(self._run, self._what, [step]))

    def _waiting(self, machine: Machine, why: str) -> OperationProgress:
        text = f"{self._what} on {machine.name}: {why}"
        wait: Wait = waits.of_control_plane(self._run.snapshot, Code.STEP, Actor.MACHINE, text, machine.ref())
        return OperationProgress(blocking=(wait,))

    def _next(self) -> OperationProgress:
        names = list(self._phases)
        following = names[names.index(self._phase) + 1 :]
        if not following:
            return self._done()
        wait = waits.of_control_plane(self._run.snapshot, Code.STEP, Actor.REMUDA, f"{self._what}: done")
        return OperationProgress({_PHASE: following[0]}, (Condition(CONDITION, "Unknown", following[0]),), blocking=(wait,))

    def _done(self) -> OperationProgress:
        done = Condition(CONDITION, "True", message=f"generation {self._generation}: all servers use the new key")
        return OperationProgress({_PHASE: _DONE, _LEADER: None}, (done,))

    def failed(self, reason: str) -> OperationProgress:
        status = f"`{self._runtime.name} secrets-encrypt status`"
        where = self._leader.name if self._leader else "a control plane"
        advice = (
            f"Secrets stay readable: the old key is kept until all are written with the new one. See {status} on {where}. At the "
            "stage start or reencrypt_finished with matching hashes, request another generation; otherwise finish the rotation "
            "there with `secrets-encrypt reencrypt --force` and restart the servers, or restore a snapshot"
        )
        text = f"in the phase {self._phase}: {reason}. {advice}"
        return OperationProgress({_PHASE: _FAILED, _LEADER: None}, (_failure(self._asked, text),))


def _failure(asked: dict[str, Any], reason: str) -> Condition:
    return Condition(CONDITION, "False", "Failed", f"generation {asked.get('generation')}: {reason}")


def reported(machine: Machine) -> tuple[_Reported, _Reported]:
    """The server's answers about the rotation: when it had applied its plan, and now."""
    node = machine.node
    if node is None:
        return _Reported(), _Reported()
    then = _parsed(node.output.get(STATUS, ""))
    later = node.periodic.get(STATUS)
    now = _parsed(later.stdout) if later is not None else then
    return then, now if now.stage else then


def _parsed(text: str) -> _Reported:
    found = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    return _Reported(
        found.get("Current Rotation Stage", "").strip(), "All hashes match" in found.get("Server Encryption Hashes", "")
    )
