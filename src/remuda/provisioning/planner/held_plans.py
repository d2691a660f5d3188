"""A new version of Remuda restarts no machine by itself: a plan that only the new program renders differently is held
(docs/upgrades.md#plans-that-are-held).

Each plan's Secret says which version rendered its plan. Where that is another one, the cluster's spec is applied, and the new
rendering would restart the machine, its plan stays as it is, with a note: the digest of the new rendering. As long as the
rendering has this digest, nothing but the program has changed. A change of the user, or of anything else that the plan is made
of, gives another digest, and the machine gets its new plan. So it does when the user accepts the renderings of this version.
What restarts nothing, minor files, comes by itself, and is no part of the digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from .. import well_known
from ..plans.plan import Plan, restarts_nothing, same
from . import waits
from .managesystemagent import lasting
from .snapshot import ClusterSnapshot, Condition, Machine


@dataclass(frozen=True, slots=True)
class Rendering:
    """The plan that a machine is to have, and the notes on its Secret. `held`: it is not the one that was rendered."""

    plan: Plan
    annotations: Mapping[str, str | None]
    held: bool = False


def judge(snapshot: ClusterSnapshot, machine: Machine, desired: Plan) -> Rendering:
    """`desired` is the plan as this program renders it."""
    node, notes = machine.node, machine.plan_annotations
    if node is None or notes.get(well_known.RENDERED_BY) == snapshot.rendering:
        return Rendering(desired, {well_known.HELD_RENDERING: None})
    if same(lasting(node.plan), lasting(desired)):
        return Rendering(desired, marks(snapshot, machine))
    if restarts_nothing(node.plan, desired) or not _may_hold(snapshot, machine):
        return Rendering(desired, {})
    found = _digest(snapshot, desired)
    if notes.get(well_known.HELD_RENDERING) == found or (not is_noted(snapshot, machine) and _is_applied(snapshot)):
        return Rendering(_with_minor_files(node.plan, desired), {well_known.HELD_RENDERING: found}, held=True)
    return Rendering(desired, {})


def marks(snapshot: ClusterSnapshot, machine: Machine) -> Mapping[str, str | None]:
    """The notes on the Secret of a plan as this program renders it."""
    was_held = well_known.HELD_RENDERING in machine.plan_annotations
    return {well_known.RENDERED_BY: snapshot.rendering, **({well_known.HELD_RENDERING: None} if was_held else {})}


def is_noted(snapshot: ClusterSnapshot, machine: Machine) -> bool:
    """True if a pass before has held the machine's plan."""
    return machine.plan_annotations.get(well_known.HELD_RENDERING, "").startswith(f"{snapshot.rendering} ")


def condition(snapshot: ClusterSnapshot, held: Iterable[Machine]) -> Condition | None:
    """None for a cluster that never had such a plan."""
    listed = sorted(held, key=lambda machine: machine.name)
    if not listed:
        return Condition(waits.PLANS_HELD, "False") if snapshot.control_plane.condition(waits.PLANS_HELD) is not None else None
    return Condition(waits.PLANS_HELD, "True", "NewRendering", text_of(snapshot, listed))


def text_of(snapshot: ClusterSnapshot, held: Sequence[Machine]) -> str:
    before = sorted({each.plan_annotations.get(well_known.RENDERED_BY) or "an unknown version" for each in held})
    return (
        f"{waits.some_names([each.name for each in held])} would restart for the plan of version {snapshot.rendering}, and "
        f"{'keeps its' if len(held) == 1 else 'keep their'} plan of {' and '.join(before)} until the cluster is changed, or "
        f"annotated with {well_known.ACCEPT_RENDERING}={snapshot.rendering}"
    )


def _may_hold(snapshot: ClusterSnapshot, machine: Machine) -> bool:
    """Not before a machine works, nor where its plan fails or belongs to an operation."""
    node, plane = machine.node, snapshot.control_plane
    if node is None or node.applied is None or node.failed or well_known.TASK in machine.plan_annotations:
        return False
    return plane.annotations.get(well_known.ACCEPT_RENDERING) != snapshot.rendering


def _is_applied(snapshot: ClusterSnapshot) -> bool:
    """True if no change of the user's was on its way when this program began."""
    return snapshot.control_plane.spec == snapshot.control_plane.applied_spec


def _with_minor_files(plan: Plan, of: Plan) -> Plan:
    """The plan with the minor files of another one in place of its own."""
    minor = {file.path: file for file in of.files if file.minor}
    kept = [minor.pop(file.path, None) if file.minor else file for file in lasting(plan).files]
    files = (*(file for file in kept if file is not None), *minor.values())
    return msgspec.structs.replace(lasting(plan), files=files)


def _digest(snapshot: ClusterSnapshot, desired: Plan) -> str:
    bare = _with_minor_files(desired, Plan())
    return f"{snapshot.rendering} {hashlib.sha256(msgspec.json.encode(bare)).hexdigest()}"
