"""A snapshot of etcd before a change of the minor version, which waits for it (docs/reference/operations.md#before-an-upgrade).

No field of the spec requests it, but the annotation that `provisioning.graph.upgrade_snapshot` writes while it keeps the control
plane at the old version. The steps are those of :mod:`.etcd_snapshot_create`. A failure holds the upgrade and nothing else, and
is tried again after a while.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from remuda.kube.clock import time_of
from remuda.kube.waits import Actor, Code, Wait

from ... import well_known
from .. import waits
from ..snapshot import Condition, ControlPlane, SaveSnapshot
from ..tiers import Pass
from .etcd_snapshot_create import Saving, members_up, save
from .steps import OperationProgress

FIELD: Final = "upgradeSnapshot"
CONDITION: Final = "UpgradeSnapshotTaken"
_STARTED, _FINISHED, _FAILED, _RETRY = "Started", "Finished", "Failed", "Retry"
_AGAIN = 600.0
# For how long the planner waits for the new version before it goes on with the old one.
_RELEASE = 30.0
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9.-]")
_NONE_UP = "no member of etcd is up to take a snapshot before it; it is taken as soon as one is"
_WITHOUT = "set spec.rkeConfig.etcd.snapshotBeforeUpgrade to false to go on without"


class SnapshotRequest(NamedTuple):
    text: str
    before: str
    after: str

    @property
    def name(self) -> str:
        """The prefix of the names of the snapshot's files."""
        return f"pre-upgrade-{_NOT_IN_NAMES.sub('-', self.before)}"

    def state(self, phase: str, message: str = "") -> dict[str, Any]:
        found = {"request": self.text, "from": self.before, "to": self.after, "name": self.name, "phase": phase}
        return {**found, "message": message} if message else found


def request(control_plane: ControlPlane) -> SnapshotRequest | None:
    text = control_plane.annotations.get(well_known.UPGRADE_SNAPSHOT, "")
    parts = text.split()
    return SnapshotRequest(text, parts[0], parts[1]) if len(parts) == 3 else None


def is_wanted(control_plane: ControlPlane) -> bool:
    asked, state = request(control_plane), control_plane.upgrade_snapshot or {}
    if asked is None or not control_plane.initialized:
        return False
    return state.get("request") != asked.text or state.get("phase") == _RETRY


def is_running(control_plane: ControlPlane) -> bool:
    asked, state = request(control_plane), control_plane.upgrade_snapshot or {}
    return asked is not None and state.get("request") == asked.text and state.get("phase") == _STARTED


def run(run: Pass, paused: bool) -> OperationProgress:
    control_plane = run.snapshot.control_plane
    asked, state = request(control_plane), control_plane.upgrade_snapshot or {}
    if asked is None:
        # What was taken stays known: it is the way back.
        return OperationProgress() if state.get("phase") in (None, _FINISHED) else OperationProgress({FIELD: None})
    if is_running(control_plane):
        return _save(run, asked, paused)
    if not paused and is_wanted(control_plane):
        if _has_etcd(run) and not members_up(run):
            return OperationProgress(aside=(_waiting(run, asked, Actor.MACHINE, _NONE_UP),))
        wait = waits.of_control_plane(run.snapshot, Code.STEP, Actor.REMUDA, f"{_what(asked)}: beginning")
        return OperationProgress({FIELD: asked.state(_STARTED)}, (Condition(CONDITION, "Unknown", "Started"),), blocking=(wait,))
    return _held(run, asked) if state.get("phase") == _FAILED else _released(run, asked)


def end(run: Pass, paused: bool, reason: str) -> OperationProgress:
    asked = request(run.snapshot.control_plane)
    return _failed(asked, reason) if asked is not None else OperationProgress()


def _save(run: Pass, asked: SnapshotRequest, paused: bool) -> OperationProgress:
    if not _has_etcd(run):
        return _finished(run, asked, "the cluster has no etcd of its own")
    if not members_up(run):
        # A host that restarts is up again in a moment: nothing was tried, so nothing has failed.
        return OperationProgress({FIELD: asked.state(_RETRY)})
    saving = save(run, paused, SaveSnapshot(asked.name), _what(asked), CONDITION)
    if not isinstance(saving, Saving):
        return OperationProgress(blocking=saving)
    # One copy is enough for the way back.
    return _finished(run, asked, saving.text) if saving.done else _failed(asked, saving.text)


def _held(run: Pass, asked: SnapshotRequest) -> OperationProgress:
    """The upgrade waits; all else goes on, since it may be what helps."""
    failed = run.snapshot.control_plane.condition(CONDITION)
    since = time_of(failed.at) if failed is not None else None
    due = (since or 0.0) + _AGAIN
    if run.snapshot.now >= due:
        return OperationProgress({FIELD: asked.state(_RETRY)})
    run.draft.revisit.append(due)
    why = failed.message if failed is not None else "the snapshot before it could not be taken"
    why = f"the snapshot of etcd before it failed ({why}); it is tried again"
    return OperationProgress(aside=(_waiting(run, asked, Actor.USER, why),))


def _waiting(run: Pass, asked: SnapshotRequest, actor: Actor, why: str) -> Wait:
    text = f"the upgrade to {asked.after} waits: {why}, or {_WITHOUT}"
    return waits.of_control_plane(run.snapshot, Code.SNAPSHOT, actor, text)


def _has_etcd(run: Pass) -> bool:
    return any(machine.is_etcd for machine in run.machines)


def _released(run: Pass, asked: SnapshotRequest) -> OperationProgress:
    """The new version follows at once, so that no host gets a plan of the old one in between."""
    taken = run.snapshot.control_plane.condition(CONDITION)
    until = ((time_of(taken.at) if taken is not None else None) or 0.0) + _RELEASE
    if run.snapshot.now >= until:
        return OperationProgress()
    run.draft.revisit.append(until)
    return OperationProgress(blocking=(_beginning(run, asked),))


def _beginning(run: Pass, asked: SnapshotRequest) -> Wait:
    return waits.of_control_plane(run.snapshot, Code.STEP, Actor.REMUDA, f"{_what(asked)}: done, the upgrade begins")


def _what(asked: SnapshotRequest) -> str:
    return f"taking a snapshot of etcd before the upgrade to {asked.after}"


def _finished(run: Pass, asked: SnapshotRequest, text: str) -> OperationProgress:
    taken = Condition(CONDITION, "True", message=text)
    return OperationProgress({FIELD: asked.state(_FINISHED, text)}, (taken,), blocking=(_beginning(run, asked),))


def _failed(asked: SnapshotRequest, text: str) -> OperationProgress:
    return OperationProgress({FIELD: asked.state(_FAILED, text)}, (Condition(CONDITION, "False", "Failed", text),))
