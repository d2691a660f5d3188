"""The machinedrain controller: drains a machine's node before its plan changes, and uncordons it after
(docs/reference/planner.md#drain).

:func:`decide` chooses the step and :func:`sort_pods` the pods; the planner requests a drain, and waits for the
answer. These drains are for changes: Cluster API drains a machine that is deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import rke_cattle_io as rke
from remuda.capi.machine.drain_plan import MIRROR, daemon_set_of, is_finished, shown
from remuda.capi.machine.eviction import evict, find_node, read_all
from remuda.capi.workload_clusters import Workloads
from remuda.client.interface import Client
from remuda.kube.builtin_resources import DAEMON_SETS, NODES, PODS, SECRETS
from remuda.kube.clock import deadline, time_of
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError
from remuda.kube.objects import (
    Key,
    annotations_of,
    dig,
    is_being_deleted,
    metadata,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
)
from remuda.kube.owners import controller_of
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import DONE, Controller, Manager, Result, Retry, Watch, changed, logger
from remuda.runtime.informer import without_managed_fields

from ..machine_caches import PLAN_FIELDS, MachineCaches
from ..well_known import DRAIN_DONE, DRAIN_ERROR, DRAIN_OPTIONS, POST_DRAIN, PRE_DRAIN, UNCORDON

log = logger(__name__)

Obj = dict[str, Any]

CONTROLLER = "machine-drain"
_AGAIN = 5.0
_AT_ONCE = 16
_ROUND = 40.0
_LONGEST = 1024


class MachineDrain:
    controller = Controller(CONTROLLER, rke.RKE_BOOTSTRAPS, when=lambda new, old: old is None)

    def __init__(self, manager: Manager, workloads: Workloads) -> None:
        self._manager = manager
        self._client = manager.client
        self._clock = manager.clock
        self._workloads = workloads
        self._views = MachineCaches(manager.informers)
        plans = Watch(
            SECRETS, self._views.bootstrap_of_plan, changed(annotations_of), fields=PLAN_FIELDS, transform=without_managed_fields
        )
        self.controller = replace(type(self).controller, watches=(plans,), concurrency=8, wait=15.0)

    async def reconcile(self, key: Key) -> Result:
        who = (CONTROLLER, key)
        await self._views.synced()
        await self._manager.freshness.caught_up(who)
        bootstrap = self._views.bootstraps.get(*key)
        secret = None if bootstrap is None else self._views.plan_of(bootstrap)
        machine = None if bootstrap is None else self._views.machine_of(bootstrap)
        if secret is None or machine is None or not _is_asked(secret) or is_being_deleted(machine):
            self._manager.freshness.forget(who)
            return DONE
        cluster = self._views.cluster_of(machine)
        if cluster is None or self._views.control_plane_of(cluster) is None:
            return DONE
        subject = Ref(capi.GROUP, "Machine", *Key.of(machine))
        try:
            return await self._go_on(who, secret, Key.of(cluster), dig(machine, "status", "nodeRef", "name") or "", subject)
        except DrainError as error:
            await self._mark(who, secret, {DRAIN_ERROR: str(error)[:_LONGEST]})
            return Result(_AGAIN * 3, (Wait(Code.DRAIN, subject, Actor.USER, evidence=str(error)),))

    async def _go_on(self, who: tuple[str, Key], secret: Obj, cluster: Key, node: str, subject: Ref) -> Result:
        step = decide(annotations_of(secret))
        if step.do is DrainAction.NOTHING:
            return DONE
        workload = self._workloads.get(cluster)
        if not node or workload is None:
            evidence = "its cluster can't be reached" if node else "its node is not known"
            return Result(_AGAIN, (Wait(Code.CONNECTION if node else Code.NODE, subject, Actor.REMUDA, evidence=evidence),))
        client = workload.client
        if step.hooks:
            if step.do is DrainAction.CORDON:
                await self._schedulable(client, node, False)
            await self._mark(who, secret, step.write or {})
            evidence = f"these hooks have not answered: {', '.join(step.hooks)}"
            return Result(waits=(Wait(Code.HOOK, subject, Actor.OTHER_CONTROLLER, evidence=evidence),))
        if step.do is DrainAction.UNCORDON:
            await self._schedulable(client, node, True)
        elif not await self._drained(who, secret, client, node, step):
            return Result(_AGAIN, (Wait(Code.DRAIN, subject, Actor.REMUDA, evidence="pods are still on its node"),), rest=1.0)
        await self._mark(who, secret, step.write or {})
        log.info("node %s: %s is done", node, step.do.value)
        return DONE

    # --- the node --------------------------------------------------------------------------------------------------------

    async def _schedulable(self, client: Client, name: str, wanted: bool) -> Obj | None:
        """Cordon or uncordon a node; None if it is gone."""
        node = await find_node(client, name)
        if node is not None and bool(dig(node, "spec", "unschedulable")) is wanted:
            await client.patch(
                NODES, name, {"metadata": {"uid": uid_of(node)}, "spec": {"unschedulable": None if wanted else True}}
            )
        return node

    async def _drained(self, who: tuple[str, Key], secret: Obj, client: Client, node: str, step: NodeDrainStep) -> bool:
        """One round; true if no pod that must go is left. Raises DrainError."""
        if await self._schedulable(client, node, False) is None or not step.options.enabled:
            return True
        pods = await read_all(client, PODS, fields=f"spec.nodeName={node}")
        sets = await read_all(client, DAEMON_SETS, metadata_only=True)
        found = sort_pods(pods, frozenset(map(Key.of, sets)), step.options, self._clock.time())
        refusals = await self._evict_pods(client, found.evict, step.options)
        if refusals:
            raise DrainError("; ".join(f"{name}: {why}" for name, why in sorted(refusals.items())))
        if not found.done and DRAIN_ERROR in annotations_of(secret):
            await self._mark(who, secret, {DRAIN_ERROR: None})
        return found.done

    async def _evict_pods(self, client: Client, pods: tuple[Obj, ...], options: NodeDrainOptions) -> dict[str, str]:
        """The objections, by pod."""
        refusals: dict[str, str] = {}
        turns = iter(pods)

        async def work() -> None:
            for pod in turns:
                why = await _send(client, pod, options)
                if why:
                    refusals[str(Key.of(pod))] = why

        try:
            async with deadline(self._clock, _ROUND), asyncio.TaskGroup() as group:
                for _ in range(min(_AT_ONCE, len(pods))):
                    group.create_task(work())
        except TimeoutError:
            raise Retry("evictions take long; the rest is tried again") from None
        return refusals

    # --- the Secret ------------------------------------------------------------------------------------------------------

    async def _mark(self, who: tuple[str, Key], secret: Obj, marks: Mapping[str, str | None]) -> None:
        present = annotations_of(secret)
        changed = {key: value for key, value in marks.items() if present.get(key) != value}
        if not changed:
            return
        # Bound to the version read: the planner may have requested another change meanwhile.
        patch = {"metadata": {"resourceVersion": resource_version_of(secret), "annotations": changed}}
        written = await self._client.patch(SECRETS, name_of(secret), patch, namespace_of(secret), field_manager=CONTROLLER)
        self._manager.freshness.wrote(who, self._views.plans, written)


async def _send(client: Client, pod: Obj, options: NodeDrainOptions) -> str:
    """Evict or delete a pod; "" on success, else the objection."""
    try:
        if options.disable_eviction:
            await client.delete(PODS, name_of(pod), namespace_of(pod), uid=uid_of(pod), grace_seconds=options.grace)
        else:
            await evict(client, pod, options.grace)
    except ApiError as error:
        return "" if error.is_not_found or error.is_conflict else error.message
    except OSError as error:
        return str(error)
    return ""


def _is_asked(secret: Obj) -> bool:
    return any(annotations_of(secret).get(key) for key in (DRAIN_OPTIONS, UNCORDON))


# --- machinedrain decision ------------------------------------------------------------------------------------------------
#
# The drain of a node before a change of its plan, and the uncordon: the steps, and the pods to evict
# (docs/reference/planner.md#drain). Pure.
#
# The planner makes its requests by annotations on the plan's Secret, and :class:`MachineDrain` answers there: `drain-options`
# requests a drain, `drain-done` with the same text confirms it, `uncordon` requests the uncordon. Hooks may run before the drain
# and before the uncordon: other controllers, which write that text into their own annotation when they are ready.
#
# A drain takes as long as it needs. `drain-error` tells what blocks it; a time limit would only end one try and begin the
# next.


class DrainError(ValueError):
    """A drain that can't continue by itself; the text is for the user."""


@dataclass(frozen=True, slots=True)
class NodeDrainOptions:
    """The user's options; `grace` None means the pod's own."""

    enabled: bool = False
    force: bool = False
    ignore_daemon_sets: bool = True
    delete_empty_dir: bool = False
    disable_eviction: bool = False
    grace: int | None = None
    skip_deleted_after: int = 0
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


def parse(text: str) -> NodeDrainOptions:
    """Raises DrainError."""
    try:
        said = jsonio.loads(text)
    except jsonio.JsonError:
        said = None
    if not isinstance(said, dict):
        raise DrainError("the options for the drain can not be read")
    grace = said.get("gracePeriod")
    skip = said.get("skipWaitForDeleteTimeoutSeconds")
    return NodeDrainOptions(
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


class DrainAction(Enum):
    NOTHING = "nothing"
    CORDON = "cordon"  # and let the hooks before the drain have their turn
    DRAIN = "drain"  # and report when it is done
    HOOKS_BACK = "hooks back"  # the hooks before the way back have their turn
    UNCORDON = "uncordon"  # and remove all annotations


@dataclass(frozen=True, slots=True)
class NodeDrainStep:
    """`write` are annotations to set or remove (None) now; `hooks` are those that have not answered yet."""

    do: DrainAction
    options: NodeDrainOptions = NodeDrainOptions()
    write: Mapping[str, str | None] | None = None
    hooks: tuple[str, ...] = ()


def decide(annotations: Mapping[str, str]) -> NodeDrainStep:
    """The next step, by the annotations on the plan's Secret. Raises DrainError."""
    asked, back = annotations.get(DRAIN_OPTIONS) or "", annotations.get(UNCORDON) or ""
    if back:
        return _uncordon_step(annotations, back)
    if not asked or annotations.get(DRAIN_DONE) == asked:
        return NodeDrainStep(DrainAction.NOTHING)
    options = parse(asked)
    missing = _unanswered_hooks(annotations, options.before, asked)
    if options.before and annotations.get(PRE_DRAIN) != asked:
        return NodeDrainStep(DrainAction.CORDON, options, {PRE_DRAIN: asked}, options.before)
    if missing:
        return NodeDrainStep(DrainAction.CORDON, options, hooks=missing)
    return NodeDrainStep(DrainAction.DRAIN, options, {DRAIN_DONE: asked, DRAIN_ERROR: None})


def _uncordon_step(annotations: Mapping[str, str], asked: str) -> NodeDrainStep:
    options = parse(asked)
    if options.after and annotations.get(POST_DRAIN) != asked:
        return NodeDrainStep(DrainAction.HOOKS_BACK, options, {POST_DRAIN: asked}, options.after)
    missing = _unanswered_hooks(annotations, options.after, asked)
    if missing:
        return NodeDrainStep(DrainAction.HOOKS_BACK, options, hooks=missing)
    ours = (PRE_DRAIN, POST_DRAIN, DRAIN_OPTIONS, DRAIN_DONE, DRAIN_ERROR, UNCORDON)
    marks: dict[str, str | None] = {key: None for key in (*ours, *options.before, *options.after) if key in annotations}
    return NodeDrainStep(DrainAction.UNCORDON, options, marks)


def _unanswered_hooks(annotations: Mapping[str, str], hooks: Sequence[str], text: str) -> tuple[str, ...]:
    return tuple(hook for hook in hooks if annotations.get(hook) != text)


@dataclass(frozen=True, slots=True)
class Pods:
    """Pods to evict, and pods being deleted."""

    evict: tuple[Obj, ...] = ()
    going: tuple[Obj, ...] = ()

    @property
    def done(self) -> bool:
        return not self.evict and not self.going


def sort_pods(pods: Sequence[Obj], daemon_sets: Collection[Key], options: NodeDrainOptions, now: float) -> Pods:
    """Like `kubectl drain`: raises DrainError, before any eviction, if one pod may not go."""
    refused: dict[str, list[str]] = {}
    evict: list[Obj] = []
    going: list[Obj] = []
    for pod in sorted(pods, key=shown):
        why = _why_not_evictable(pod, daemon_sets, options)
        if why is None or _deletion_is_overdue(pod, options, now):
            continue
        if why:
            refused.setdefault(why, []).append(shown(pod))
        (going if is_being_deleted(pod) else evict).append(pod)
    if refused:
        raise DrainError("; ".join(f"{why}: {', '.join(names)}" for why, names in refused.items()))
    return Pods(tuple(evict), tuple(going))


def _why_not_evictable(pod: Obj, daemon_sets: Collection[Key], options: NodeDrainOptions) -> str | None:
    """The reason why a pod may not be evicted; "" if it may, None if it stays."""
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


def _deletion_is_overdue(pod: Obj, options: NodeDrainOptions, now: float) -> bool:
    """True if its deletion has taken longer than the option's limit."""
    since = time_of(metadata(pod).get("deletionTimestamp"))
    return bool(options.skip_deleted_after) and since is not None and now - since > options.skip_deleted_after
