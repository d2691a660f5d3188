"""PodDisruptionBudget status: recomputed whenever a budget, one of its pods, or their controller changes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from remuda.client.interface import Client
from remuda.kube.builtin_resources import DEPLOYMENTS, POD_DISRUPTION_BUDGETS, PODS, REPLICA_SETS
from remuda.kube.clock import Clock, Rng, parse_rfc3339, rfc3339
from remuda.kube.errors import ApiError
from remuda.kube.objects import (
    GroupResource,
    GroupVersion,
    GroupVersionResource,
    Key,
    dig,
    find_by,
    is_being_deleted,
    labels_of,
    name_of,
    namespace_of,
    owner_references_of,
    uid_of,
)
from remuda.kube.selectors import NOTHING, LabelSelector, SelectorError, from_structure
from remuda.runtime import Informers, Result, Workers, WorkQueue, synced
from remuda.runtime.events import Recorder

from .disruption_counts import DisruptionBudgetError, count, failed_status, needs_scale, status_of
from .served_resources import Discovery

Obj = dict[str, Any]


MANAGER = "kube-controller-manager"
# An eviction marks the pod (DisruptionTarget); a pod that is still there after this time is unmarked.
_STALE_TARGET_SECONDS = 120.0


class DisruptionController:
    name = "disruption-controller"

    def __init__(
        self, client: Client, clock: Clock, rng: Rng, watches: Informers, discovery: Discovery, recorder: Recorder
    ) -> None:
        self._client = client
        self._clock = clock
        self._discovery = discovery
        self._recorder = recorder
        self._budgets = watches.of(POD_DISRUPTION_BUDGETS)
        self._pods = watches.of(PODS)
        self._by_namespace = "namespace"
        for informer in (self._budgets, self._pods):
            informer.add_index(self._by_namespace, lambda obj: [namespace_of(obj)])
        self._selectors: dict[Key, LabelSelector] = {}
        self._queue: WorkQueue[Key] = WorkQueue(clock, rng, metrics=watches.registry.queue(self.name))
        self._stale: WorkQueue[Key] = WorkQueue(clock, rng, metrics=watches.registry.queue("stale_pod_disruption"))

    async def run(self) -> None:
        await synced(self._budgets, self._pods)
        await self._discovery.ready.wait()
        self._budgets.on_change(self._budget_changed)
        self._pods.on_change(self._pod_changed)
        async with asyncio.TaskGroup() as group:
            group.create_task(Workers(self.name, self._queue, self.reconcile).run())
            group.create_task(Workers(self.name, self._stale, self.unmark).run())

    # --- what to look at ------------------------------------------------------------------------------------------------

    def _budget_changed(self, new: Obj | None, old: Obj | None) -> None:
        key = Key.of(new or old or {})
        if new is None:
            self._selectors.pop(key, None)
            return
        try:
            self._selectors[key] = from_structure(dig(new, "spec", "selector"))
        except SelectorError:
            self._selectors[key] = NOTHING
        self._queue.add(key)

    def _pod_changed(self, new: Obj | None, old: Obj | None) -> None:
        pod = new or old or {}
        for budget in self._budgets.indexed(self._by_namespace, namespace_of(pod)):
            selector = self._selectors.get(Key.of(budget))
            if selector is not None and any(obj is not None and selector.matches(labels_of(obj)) for obj in (new, old)):
                self._queue.add(Key.of(budget))
        if new is not None and _target_condition(new) is not None:
            self._stale.add(Key.of(new))

    # --- a budget -------------------------------------------------------------------------------------------------------

    async def reconcile(self, key: Key) -> Result | None:
        budget = self._budgets.get(key.namespace, key.name)
        if budget is None:
            return None
        try:
            return await self._sync(key, budget)
        except ApiError as error:
            if error.is_conflict:
                raise
            await self._write(budget, failed_status(budget, error.message, self._now()))
        except (DisruptionBudgetError, SelectorError) as error:
            await self._write(budget, failed_status(budget, str(error), self._now()))
        return None

    async def _sync(self, key: Key, budget: Obj) -> Result | None:
        selector = from_structure(dig(budget, "spec", "selector"))
        here = self._pods.indexed(self._by_namespace, key.namespace)
        pods = [pod for pod in here if selector.matches(labels_of(pod))]
        if not pods:
            await self._recorder.record(_reference(budget), "Normal", "NoPods", "No matching pods found")
        scale = 0
        if needs_scale(budget):
            scale, unmanaged = await self._scale(pods)
            if unmanaged:
                await self._tell_unmanaged(budget)
        counts = count(budget, pods, scale, self._clock.time())
        for name in counts.not_deleted:
            await self._tell_not_deleted(budget, name)
        await self._write(budget, status_of(budget, counts, self._now()))
        return None if counts.recheck_at is None else Result(after=max(counts.recheck_at - self._clock.time(), 0.0) + 0.001)

    async def _write(self, budget: Obj, status: Obj) -> None:
        if status == budget.get("status"):
            return
        await self._client.update(
            POD_DISRUPTION_BUDGETS, {**budget, "status": status}, subresource="status", field_manager=MANAGER
        )

    def _now(self) -> str:
        return rfc3339(self._clock.time())

    async def _tell_unmanaged(self, budget: Obj) -> None:
        shown = _show_selector(dig(budget, "spec", "selector"))
        message = (
            f"Pods selected by this PodDisruptionBudget (selector: {shown}) were found to be unmanaged. As a result, the "
            "status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these "
            'pods please set ".spec.minAvailable" field of the PDB to an integer value.'
        )
        await self._recorder.record(_reference(budget), "Warning", "UnmanagedPods", message)

    async def _tell_not_deleted(self, budget: Obj, pod_name: str) -> None:
        namespace = namespace_of(budget)
        pod = self._pods.get(namespace, pod_name)
        if pod is None:
            return
        # kube-controller-manager's message has the namespace twice, too.
        message = f"Pod was expected by PDB {namespace}/{namespace} to be deleted but it wasn't"
        await self._recorder.record(_reference(pod), "Warning", "NotDeleted", message)

    # --- what scales the pods -------------------------------------------------------------------------------------------

    async def _scale(self, pods: Iterable[Obj]) -> tuple[int, list[str]]:
        """The number of pods that their controllers want together, and the pods that have no controller."""
        scales: dict[str, int] = {}
        asked: set[str] = set()
        unmanaged: list[str] = []
        for pod in pods:
            controller = find_by(owner_references_of(pod), "controller", True)
            if controller is None:
                unmanaged.append(name_of(pod))
                continue
            if controller.get("uid") in asked:
                continue
            asked.add(str(controller.get("uid")))
            found = await self._controller_scale(controller, namespace_of(pod))
            if found is None:
                raise DisruptionBudgetError(f'found no controllers for pod "{name_of(pod)}"')
            scales[found[0]] = found[1]
        return sum(scales.values()), unmanaged

    async def _controller_scale(self, reference: Obj, namespace: str) -> tuple[str, int] | None:
        """Uid and replicas of the scaling object: a ReplicaSet's Deployment rather than the ReplicaSet."""
        group = GroupVersion.parse(reference.get("apiVersion") or "").group
        if reference.get("kind") == "ReplicaSet" and group in ("apps", "extensions"):
            owned = await self._owner(REPLICA_SETS, reference, namespace)
            if owned is None:
                return None
            above = find_by(owner_references_of(owned), "controller", True)
            if above is not None and above.get("kind") == "Deployment":
                deployment = await self._owner(DEPLOYMENTS, above, namespace)
                if deployment is not None:
                    return uid_of(deployment), int(dig(deployment, "spec", "replicas", default=1))
            return uid_of(owned), int(dig(owned, "spec", "replicas", default=1))
        return await self._through_scale(reference, namespace)

    async def _owner(self, resource: GroupVersionResource, reference: Obj, namespace: str) -> Obj | None:
        try:
            found = await self._client.get(resource, str(reference.get("name")), namespace)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise
        return found if uid_of(found) == reference.get("uid") else None

    async def _through_scale(self, reference: Obj, namespace: str) -> tuple[str, int] | None:
        api_version, kind = str(reference.get("apiVersion")), str(reference.get("kind"))
        served = self._discovery.snapshot.kinds.get((api_version, kind))
        if served is None:
            group, version = GroupVersion.parse(api_version)
            raise DisruptionBudgetError(f'no matches for kind "{kind}" in version "{group}/{version}"')
        try:
            scale = await self._client.get(served.resource, str(reference.get("name")), namespace, subresource="scale")
        except ApiError as error:
            if not error.is_not_found:
                raise
            if await self._owner(served.resource, reference, namespace) is not None:
                resource = GroupResource(served.resource.group, served.resource.resource)
                raise DisruptionBudgetError(f"{resource} does not implement the scale subresource") from None
            return None
        if uid_of(scale) != reference.get("uid"):
            return None
        return uid_of(scale), int(dig(scale, "spec", "replicas", default=0) or 0)

    # --- pods that were to be disrupted and were not --------------------------------------------------------------------

    async def unmark(self, key: Key) -> Result | None:
        pod = self._pods.get(key.namespace, key.name)
        condition = _target_condition(pod) if pod is not None else None
        if pod is None or condition is None:
            return None
        left = parse_rfc3339(condition["lastTransitionTime"]) + _STALE_TARGET_SECONDS - self._clock.time()
        if left > 0:
            return Result(after=left)
        cleared = {"type": "DisruptionTarget", "status": "False", "lastTransitionTime": self._now()}
        conditions = [cleared if found is condition else found for found in dig(pod, "status", "conditions")]
        changed = {**pod, "status": {**pod["status"], "conditions": conditions}}
        await self._client.update(PODS, changed, subresource="status", field_manager=MANAGER)
        return None


def _target_condition(pod: Obj) -> Obj | None:
    """The mark of a coming disruption, on a pod that is neither being deleted nor finished."""
    if is_being_deleted(pod) or dig(pod, "status", "phase") in ("Succeeded", "Failed"):
        return None
    condition = find_by((dig(pod, "status", "conditions") or []), "type", "DisruptionTarget")
    if condition is None or condition.get("status") != "True" or condition.get("reason") == "TerminationByKubelet":
        return None
    return condition


def _reference(obj: Obj) -> Obj:
    return {
        "kind": obj.get("kind", ""),
        "apiVersion": obj.get("apiVersion", ""),
        "namespace": namespace_of(obj),
        "name": name_of(obj),
        "uid": uid_of(obj),
        "resourceVersion": (obj.get("metadata") or {}).get("resourceVersion", ""),
    }


def _show_selector(selector: Obj | None) -> str:
    """A LabelSelector as Go prints it."""
    labels = "".join(f"{key}: {value}," for key, value in sorted(((selector or {}).get("matchLabels") or {}).items()))
    expressions = "".join(
        "LabelSelectorRequirement{"
        f"Key:{each.get('key')},Operator:{each.get('operator')},Values:[{' '.join(each.get('values') or ())}],"
        "},"
        for each in (selector or {}).get("matchExpressions") or ()
    )
    listed = f"MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},"
    return f"&LabelSelector{{{listed}}}"
