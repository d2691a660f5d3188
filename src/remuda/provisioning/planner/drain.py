"""Drain before a change, and uncordon after it: the planner's half, by annotations (docs/reference/planner.md#drain).

The planner requests a drain by `drain-options` and continues when `drain-done` has the same value; machinedrain acts, and hooks
may delay it. After the change `uncordon` requests the uncordon, and machinedrain removes all of these annotations. Only a
change that affects pods needs a drain: the DRAIN_HASH of the applied plan is compared with the new one's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remuda.kube.waits import Actor, Code

from .. import well_known
from ..plans.plan import Plan, instruction, variable
from . import waits
from .snapshot import Machine

# machinedrain reaches a cluster by its tunnel, and retries; this is no error of the node.
_PASSING = "error trying to reach service"
_STATES = (well_known.PRE_DRAIN, well_known.POST_DRAIN, well_known.DRAIN_OPTIONS, well_known.UNCORDON)


@dataclass(frozen=True, slots=True)
class DrainStep:
    """The next step of a drain or uncordon: annotations to write, and the wait; `done` if nothing blocks the change."""

    done: bool
    annotations: Mapping[str, str | None]
    code: Code = Code.DRAIN
    actor: Actor = Actor.REMUDA
    message: str = ""


_DONE = DrainStep(True, {})


def is_in_drain(machine: Machine) -> bool:
    return any(machine.plan_annotations.get(key) for key in _STATES)


def options_of(strategy: Mapping[str, Any] | None, tier: str) -> Mapping[str, Any]:
    """`tier` is controlPlane or worker."""
    return (strategy or {}).get(f"{tier}DrainOptions") or {}


def options_text(options: Mapping[str, Any], machines: int) -> str:
    """The value shared by planner, machinedrain and hooks. With one machine, pods have nowhere to go."""
    kept = {key: value for key, value in options.items() if value is not None}
    kept["enabled"] = bool(kept.get("enabled")) and machines > 1
    return json.dumps(kept, sort_keys=True, separators=(",", ":"))


def is_wanted(machine: Machine, desired: Plan, options: Mapping[str, Any], machines: int) -> bool:
    if not machine.node_name or machine.is_windows or machine.node is None or machine.node.applied is None:
        return False
    if not _hooks(options, "pre") and not _hooks(options, "post") and (not options.get("enabled") or machines == 1):
        return False
    before = drain_hash(machine.node.applied) or machine.plan_annotations.get(well_known.DRAIN_HASH_BEFORE)
    return bool(before) and before != drain_hash(desired)


def marks(machine: Machine, plan: Plan) -> dict[str, str | None]:
    """The note of the applied drain hash, for as long as a machine's plan is one of an operation, which has none."""
    noted = machine.plan_annotations.get(well_known.DRAIN_HASH_BEFORE)
    if drain_hash(plan):
        # Kept until the plan is applied: only then does the host's state match the new hash.
        return {}
    applied = machine.node.applied if machine.node else None
    before = (drain_hash(applied) if applied else "") or noted
    return {well_known.DRAIN_HASH_BEFORE: before} if before else {}


def drain_hash(plan: Plan) -> str:
    return variable(instruction(plan, "install"), "DRAIN_HASH")


def before_change(machine: Machine, options: Mapping[str, Any], machines: int) -> DrainStep:
    """The state of the drain before a change. Call it only if a drain is wanted."""
    annotations = machine.plan_annotations
    if annotations.get(well_known.UNCORDON):
        # The uncordon after the last drain; a new drain begins when it ends.
        return back(machine, options)
    wanted = options_text(options, machines)
    if annotations.get(well_known.DRAIN_OPTIONS) != wanted:
        return DrainStep(False, {well_known.DRAIN_OPTIONS: wanted}, message="draining node")
    if annotations.get(well_known.DRAIN_DONE) == wanted:
        return _DONE
    held = _unanswered_hooks(machine, options, "pre", wanted) if annotations.get(well_known.PRE_DRAIN) else ()
    if held:
        return DrainStep(False, {}, Code.HOOK, Actor.OTHER_CONTROLLER, f"draining node: waiting for pre-drain hook {held[0]}")
    trouble = annotations.get(well_known.DRAIN_ERROR, "")
    if trouble and _PASSING not in trouble:
        return DrainStep(False, {}, actor=Actor.USER, message=f"draining node: {trouble}")
    return DrainStep(False, {}, message="draining node")


def back(machine: Machine, options: Mapping[str, Any]) -> DrainStep:
    """The state of the uncordon. Call it only if the machine's plan is in sync and healthy, or its uncordon has begun."""
    annotations = machine.plan_annotations
    if not is_in_drain(machine):
        return _DONE
    asked = (
        annotations.get(well_known.DRAIN_OPTIONS)
        or annotations.get(well_known.PRE_DRAIN)
        or annotations.get(well_known.POST_DRAIN)
    )
    change: dict[str, str | None] = {}
    if asked and annotations.get(well_known.UNCORDON) != asked:
        change[well_known.UNCORDON] = asked
    held = (
        _unanswered_hooks(machine, options, "post", annotations[well_known.POST_DRAIN])
        if annotations.get(well_known.POST_DRAIN)
        else ()
    )
    if held:
        return DrainStep(False, change, Code.HOOK, Actor.OTHER_CONTROLLER, f"{waits.UNCORDON}: post-drain hook {held[0]}")
    trouble = annotations.get(well_known.DRAIN_ERROR, "")
    if trouble and _PASSING not in trouble:
        return DrainStep(False, change, Code.UNCORDON, Actor.USER, f"{waits.UNCORDON}: {trouble}")
    return DrainStep(False, change, Code.UNCORDON, message=waits.UNCORDON)


def _hooks(options: Mapping[str, Any], when: str) -> list[str]:
    return [hook["annotation"] for hook in options.get(f"{when}DrainHooks") or () if hook.get("annotation")]


def _unanswered_hooks(machine: Machine, options: Mapping[str, Any], when: str, value: str) -> list[str]:
    return [key for key in _hooks(options, when) if machine.plan_annotations.get(key) != value]
