"""The machinedrain controller: drains a machine's node before its plan changes, and lets pods come back after (capr.md §2.12).

Whose turn it is and which pods go is :mod:`.machinedrain_decision`; the planner asks, and waits for the answer. This is
draining for changes: a machine that is deleted is drained by Cluster API.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import rke_cattle_io as rke
from remuda.capi.machine.eviction import DAEMON_SETS, PODS, evict, find_node, read_all
from remuda.capi.workload_clusters import NODES, Workloads
from remuda.client.interface import Client
from remuda.kube.clock import deadline
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, annotations_of, dig, is_being_deleted, name_of, namespace_of, resource_version_of, uid_of
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import DONE, Controller, Manager, Result, Retry, Watch, logger
from remuda.runtime.informer import without_managed_fields

from ..machine_caches import PLAN_FIELDS, Views
from ..well_known import DRAIN_ERROR, DRAIN_OPTIONS, SECRETS, UNCORDON
from .machinedrain_decision import Do, DrainError, Options, Step, decide, sort_out

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
        self._views = Views(manager.informers)
        plans = Watch(
            SECRETS, self._views.bootstrap_of_plan, _marks_changed, fields=PLAN_FIELDS, transform=without_managed_fields
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
        if step.do is Do.NOTHING:
            return DONE
        workload = self._workloads.get(cluster)
        if not node or workload is None:
            evidence = "its cluster can't be reached" if node else "its node is not known"
            return Result(_AGAIN, (Wait(Code.CONNECTION if node else Code.NODE, subject, Actor.REMUDA, evidence=evidence),))
        client = workload.client
        if step.hooks:
            if step.do is Do.CORDON:
                await self._schedulable(client, node, False)
            await self._mark(who, secret, step.write or {})
            evidence = f"these hooks have not answered: {', '.join(step.hooks)}"
            return Result(waits=(Wait(Code.HOOK, subject, Actor.OTHER_CONTROLLER, evidence=evidence),))
        if step.do is Do.UNCORDON:
            await self._schedulable(client, node, True)
        elif not await self._drained(who, secret, client, node, step):
            return Result(_AGAIN, (Wait(Code.DRAIN, subject, Actor.REMUDA, evidence="pods are still on its node"),), rest=1.0)
        await self._mark(who, secret, step.write or {})
        log.info("node %s: %s is done", node, step.do.value)
        return DONE

    # --- the node --------------------------------------------------------------------------------------------------------

    async def _schedulable(self, client: Client, name: str, wanted: bool) -> Obj | None:
        """Cordon a node, or take that back; None when it is gone."""
        node = await find_node(client, name)
        if node is not None and bool(dig(node, "spec", "unschedulable")) is wanted:
            await client.patch(
                NODES, name, {"metadata": {"uid": uid_of(node)}, "spec": {"unschedulable": None if wanted else True}}
            )
        return node

    async def _drained(self, who: tuple[str, Key], secret: Obj, client: Client, node: str, step: Step) -> bool:
        """One round: whether nothing is left that must go. Raises DrainError."""
        if await self._schedulable(client, node, False) is None or not step.options.enabled:
            return True
        pods = await read_all(client, PODS, fields=f"spec.nodeName={node}")
        sets = await read_all(client, DAEMON_SETS, metadata_only=True)
        found = sort_out(pods, frozenset(map(Key.of, sets)), step.options, self._clock.time())
        refusals = await self._send_away(client, found.evict, step.options)
        if refusals:
            raise DrainError("; ".join(f"{name}: {why}" for name, why in sorted(refusals.items())))
        if not found.done and DRAIN_ERROR in annotations_of(secret):
            await self._mark(who, secret, {DRAIN_ERROR: None})
        return found.done

    async def _send_away(self, client: Client, pods: tuple[Obj, ...], options: Options) -> dict[str, str]:
        """What was said against it, by pod."""
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
        # Bound to what was seen: the planner may have asked for something else meanwhile.
        patch = {"metadata": {"resourceVersion": resource_version_of(secret), "annotations": changed}}
        written = await self._client.patch(SECRETS, name_of(secret), patch, namespace_of(secret), field_manager=CONTROLLER)
        self._manager.freshness.wrote(who, self._views.plans, written)


async def _send(client: Client, pod: Obj, options: Options) -> str:
    """Ask a pod to go; "" when it goes, else what was said against it."""
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


def _marks_changed(new: Obj | None, old: Obj | None) -> bool:
    return new is None or old is None or annotations_of(new) != annotations_of(old)
