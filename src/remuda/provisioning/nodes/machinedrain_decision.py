"""Draining a node before a change of its plan, and the way back: who has a turn, and which pods go (capr.md §4.8). Pure.

The planner asks by annotations on the plan's Secret, and :mod:`.machinedrain` answers there: `drain-options` asks for a drain,
`drain-done` with the same text says that it is over, `uncordon` asks for the way back. Before the drain and before the way
back, hooks may have a turn: others, who write that text into an annotation of their own when they are ready.

A drain goes on for as long as it takes. What holds it up is told in `drain-error`; a time limit would only end one try and begin
the next.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from remuda.capi.machine.drain_plan import MIRROR, daemon_set_of, is_finished, shown
from remuda.kube.clock import time_of
from remuda.kube.encoding import jsonio
from remuda.kube.objects import Key, annotations_of, dig, is_being_deleted, metadata
from remuda.kube.owners import controller_of

from ..well_known import DRAIN_DONE, DRAIN_ERROR, DRAIN_OPTIONS, POST_DRAIN, PRE_DRAIN, UNCORDON

Obj = dict[str, Any]


class DrainError(ValueError):
    """A drain that can't go on by itself; the text is for a person."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the user chose; `grace` None is the pod's own."""

    enabled: bool = False
    force: bool = False
    ignore_daemon_sets: bool = True
    delete_empty_dir: bool = False
    disable_eviction: bool = False
    grace: int | None = None
    skip_deleted_after: int = 0
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


def parse(text: str) -> Options:
    """Raises DrainError."""
    try:
        said = jsonio.loads(text)
    except jsonio.JsonError:
        said = None
    if not isinstance(said, dict):
        raise DrainError("the options for the drain can not be read")
    grace = said.get("gracePeriod")
    skip = said.get("skipWaitForDeleteTimeoutSeconds")
    return Options(
        enabled=said.get("enabled") is True,
        force=said.get("force") is True,
        ignore_daemon_sets=said.get("ignoreDaemonSets") is not False,
        delete_empty_dir=said.get("deleteEmptyDirData") is True,
        disable_eviction=said.get("disableEviction") is True,
        grace=grace if isinstance(grace, int) and grace >= 0 else None,
        skip_deleted_after=skip if isinstance(skip, int) and skip > 0 else 0,
        before=_hooks(said.get("preDrainHooks")),
        after=_hooks(said.get("postDrainHooks")),
    )


def _hooks(found: Any) -> tuple[str, ...]:
    listed = found if isinstance(found, list) else ()
    return tuple(each["annotation"] for each in listed if isinstance(each, dict) and each.get("annotation"))


class Do(Enum):
    NOTHING = "nothing"
    CORDON = "cordon"  # and let the hooks before the drain have their turn
    DRAIN = "drain"  # and say that it is done when it is
    HOOKS_BACK = "hooks back"  # the hooks before the way back have their turn
    UNCORDON = "uncordon"  # and take all the marks away


@dataclass(frozen=True, slots=True)
class Step:
    """`write` are annotations to be set or taken away (None) now; `hooks` are those that have not answered yet."""

    do: Do
    options: Options = Options()
    write: Mapping[str, str | None] | None = None
    hooks: tuple[str, ...] = ()


def decide(annotations: Mapping[str, str]) -> Step:
    """What is next, by the marks on the plan's Secret. Raises DrainError."""
    asked, back = annotations.get(DRAIN_OPTIONS) or "", annotations.get(UNCORDON) or ""
    if back:
        return _way_back(annotations, back)
    if not asked or annotations.get(DRAIN_DONE) == asked:
        return Step(Do.NOTHING)
    options = parse(asked)
    missing = _unanswered(annotations, options.before, asked)
    if options.before and annotations.get(PRE_DRAIN) != asked:
        return Step(Do.CORDON, options, {PRE_DRAIN: asked}, options.before)
    if missing:
        return Step(Do.CORDON, options, hooks=missing)
    return Step(Do.DRAIN, options, {DRAIN_DONE: asked, DRAIN_ERROR: None})


def _way_back(annotations: Mapping[str, str], asked: str) -> Step:
    options = parse(asked)
    if options.after and annotations.get(POST_DRAIN) != asked:
        return Step(Do.HOOKS_BACK, options, {POST_DRAIN: asked}, options.after)
    missing = _unanswered(annotations, options.after, asked)
    if missing:
        return Step(Do.HOOKS_BACK, options, hooks=missing)
    ours = (PRE_DRAIN, POST_DRAIN, DRAIN_OPTIONS, DRAIN_DONE, DRAIN_ERROR, UNCORDON)
    marks: dict[str, str | None] = {key: None for key in (*ours, *options.before, *options.after) if key in annotations}
    return Step(Do.UNCORDON, options, marks)


def _unanswered(annotations: Mapping[str, str], hooks: Sequence[str], text: str) -> tuple[str, ...]:
    return tuple(hook for hook in hooks if annotations.get(hook) != text)


@dataclass(frozen=True, slots=True)
class Pods:
    """Pods that are to be asked to go, and those that are going."""

    evict: tuple[Obj, ...] = ()
    going: tuple[Obj, ...] = ()

    @property
    def done(self) -> bool:
        return not self.evict and not self.going


def sort_out(pods: Sequence[Obj], daemon_sets: Collection[Key], options: Options, now: float) -> Pods:
    """As `kubectl drain` does it: raises DrainError, before anything is touched, when one pod may not go."""
    refused: dict[str, list[str]] = {}
    evict: list[Obj] = []
    going: list[Obj] = []
    for pod in sorted(pods, key=shown):
        why = _objection(pod, daemon_sets, options)
        if why is None or _is_forgotten(pod, options, now):
            continue
        if why:
            refused.setdefault(why, []).append(shown(pod))
        (going if is_being_deleted(pod) else evict).append(pod)
    if refused:
        raise DrainError("; ".join(f"{why}: {', '.join(names)}" for why, names in refused.items()))
    return Pods(tuple(evict), tuple(going))


def _objection(pod: Obj, daemon_sets: Collection[Key], options: Options) -> str | None:
    """Why a pod may not go; "" when it may, None when it stays."""
    if MIRROR in annotations_of(pod):
        return None
    if is_finished(pod):
        return ""
    owner = daemon_set_of(pod)
    if owner is not None and owner in daemon_sets:
        return None if options.ignore_daemon_sets else "cannot delete DaemonSet-managed Pods (use ignoreDaemonSets to ignore)"
    if not options.delete_empty_dir and any("emptyDir" in each for each in dig(pod, "spec", "volumes") or ()):
        return "cannot delete Pods with local storage (use deleteEmptyDirData to override)"
    if controller_of(pod) is None and not options.force:
        return "cannot delete Pods that declare no controller (use force to override)"
    return ""


def _is_forgotten(pod: Obj, options: Options, now: float) -> bool:
    """Whether it has been going for longer than anybody wants to wait for it."""
    since = time_of(metadata(pod).get("deletionTimestamp"))
    return bool(options.skip_deleted_after) and since is not None and now - since > options.skip_deleted_after
