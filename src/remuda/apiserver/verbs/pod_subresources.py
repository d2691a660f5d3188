"""Binding a pod to a node, and evicting one within the limits of its disruption budget.

Both write to the pod below admission and validation, as kube-apiserver does: admission gets the Binding or the Eviction.
The budget's numbers come from :mod:`remuda.kcm.disruption`; an eviction takes one off and records the pod.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from remuda.kube import errors
from remuda.kube.admission_attributes import Attributes
from remuda.kube.clock import rfc3339
from remuda.kube.encoding import jsonio
from remuda.kube.errors import go_quote, not_supported, required
from remuda.kube.objects import dig
from remuda.kube.selectors import SelectorError, from_structure

from ..cache.entries import Entry
from ..registry.resources import Version
from ..storage.store import Mismatch
from . import delete, update
from .context import MANAGER, Api, Call, DeleteOptions

Obj = dict[str, Any]

_PODS, _BUDGETS = "pods", "poddisruptionbudgets"
_MAX_DISRUPTED = 2000
_VIOLATED = "Cannot evict pod as it would violate the pod's disruption budget."


class PodActions:
    def __init__(self, api: Api) -> None:
        self._api = api

    # --- binding -------------------------------------------------------------------------------------------------------

    async def bind(self, call: Call, attributes: Attributes) -> None:
        """Give the pod the node that the (admitted) Binding names."""
        body = attributes.obj or {}
        meta, target = body.get("metadata") or {}, body.get("target") or {}
        if (meta.get("name") or "") != call.name:
            raise errors.bad_request("name in URL does not match name in Binding object")
        _check_target(target)
        await self._api.admission.validate(attributes)
        if not call.name:
            raise errors.bad_request("Name parameter required.")
        now = rfc3339(self._api.clock.time())

        def assign(pod: Obj) -> Obj:
            _check_unbound(pod, call.name)
            found: Obj = jsonio.copy(pod)
            found["spec"]["nodeName"] = target["name"]
            for name in ("annotations", "labels"):
                if given := meta.get(name):
                    found["metadata"][name] = {**(found["metadata"].get(name) or {}), **given}
            status = found.setdefault("status", {})
            # The nomination has served its purpose.
            status.pop("nominatedNodeName", None)
            _set_condition(status, {"type": "PodScheduled", "status": "True"}, now)
            return found

        await self._rewrite(call, assign, meta.get("uid") or "", meta.get("resourceVersion") or "")

    async def _rewrite(self, call: Call, change: Callable[[Obj], Obj], uid: str = "", resource_version: str = "") -> Entry:
        pods = self._version("", _PODS)
        on_pod = replace(call, version=pods, subresource="")
        await self._api.before_trying(call)
        entry = self._api.entry(pods.resource, call.namespace, call.name)
        while True:
            if entry is None:
                raise pods.resource.not_found(call.name)
            live = await pods.load(entry)
            for what, wanted, key in (("UID", uid, "uid"), ("ResourceVersion", resource_version, "resourceVersion")):
                if wanted and wanted != live["metadata"].get(key):
                    raise update.precondition_failed(on_pod, what, wanted, live["metadata"].get(key) or "")
            changed = change(live)
            if call.dry_run:
                return entry
            try:
                return await self._api.put(pods.resource, entry.key, await pods.to_storage(changed), entry)
            except Mismatch as mismatch:
                entry = None if mismatch.current is None else self._api.cache.entry_of(mismatch.current)

    def _version(self, group: str, resource: str) -> Version:
        found = self._api.registry.find(group, "v1", resource)
        assert found is not None, f"{resource} are not served"
        return found

    # --- eviction ------------------------------------------------------------------------------------------------------

    async def evict(self, call: Call, attributes: Attributes) -> errors.ApiError | None:
        """Delete the pod if its budget allows; returns the one refusal that is answered like a success."""
        body = attributes.obj or {}
        if (dig(body, "metadata", "name") or "") != call.name:
            raise errors.bad_request("name in URL does not match name in Eviction object")
        asked = body.get("deleteOptions") or {}
        call = replace(call, subresource="", dry_run=call.dry_run or "All" in (asked.get("dryRun") or ()))
        await self._api.admission.validate(attributes)
        # The budgets are read now, not compared when the pod is written.
        await self._api.cache.consistent()
        pods = self._version("", _PODS)
        entry = self._api.entry(pods.resource, call.namespace, call.name)
        if entry is None:
            raise pods.resource.not_found(call.name)
        pod = await pods.load(entry)
        pinned = _never_ran(pod)
        budget = ""
        if not _ignores_budgets(pod):
            budgets = [found for found in self._api.source.list("policy", _BUDGETS, call.namespace) if _covers(found, pod)]
            if len(budgets) > 1:
                many = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
                return errors.ApiError(500, "", many)
            if budgets:
                budget = budgets[0]["metadata"]["name"]
                pinned = _costs_nothing(budgets[0], pod)
                if not pinned:
                    await self._spend(call, budget, pod)
        await self._condemn(call, asked, pod, pinned, budget)
        return None

    async def _condemn(self, call: Call, asked: Obj, pod: Obj, pinned: bool, budget: str) -> None:
        """Set the pod's disruption condition, then delete it. `pinned`: only if it did not change since it was read."""
        preconditions = asked.get("preconditions") or {}
        uid, wanted = preconditions.get("uid") or "", preconditions.get("resourceVersion") or ""
        version = wanted or (pod["metadata"]["resourceVersion"] if pinned else "")
        if not call.dry_run:
            entry = await self._mark(call, uid, version, budget if pinned and not wanted else "")
            version = entry.object()["metadata"]["resourceVersion"] if version else ""
        options = DeleteOptions(
            grace_seconds=asked.get("gracePeriodSeconds"),
            propagation=asked.get("propagationPolicy") or "",
            orphan_dependents=asked.get("orphanDependents"),
            uid=uid,
            resource_version=version,
        )
        await delete.delete(self._api, replace(call, version=self._version("", _PODS)), options, admit=False)

    async def _mark(self, call: Call, uid: str, resource_version: str, budget: str) -> Entry:
        now = rfc3339(self._api.clock.time())

        def mark(live: Obj) -> Obj:
            meta = live["metadata"]
            if uid and uid != meta["uid"]:
                raise _changed(call, "UID", uid, meta["uid"], "deleted and then recreated")
            if resource_version and resource_version != meta["resourceVersion"]:
                if budget:
                    raise _still_processed(budget)
                raise _changed(call, "ResourceVersion", resource_version, meta["resourceVersion"], "modified")
            found: Obj = jsonio.copy(live)
            why = {"reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
            _set_condition(found.setdefault("status", {}), {"type": "DisruptionTarget", "status": "True", **why}, now)
            return found

        return await self._rewrite(call, mark)

    async def _spend(self, call: Call, name: str, pod: Obj) -> None:
        """Take one allowed disruption from the budget, or refuse."""
        version = self._version("policy", _BUDGETS)
        on_budget = Call(version, "update", call.namespace, name, "status", trusted=True, manager=MANAGER, dry_run=call.dry_run)
        now = rfc3339(self._api.clock.time())

        async def compute(live: Obj | None) -> Obj:
            assert live is not None
            allowed = _allowed(live)
            found: Obj = jsonio.copy(live)
            status = found["status"]
            status["disruptionsAllowed"] = allowed - 1
            if allowed == 1:
                _note_exhausted(status, live["metadata"].get("generation") or 0, now)
            status["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod["metadata"]["name"]: now}
            return await version.managed(lambda fields: fields.on_update(live, found, MANAGER, "status"))

        await update.guaranteed_update(self._api, on_budget, compute)


def _check_target(target: Obj) -> None:
    found = []
    kind = target.get("kind") or ""
    if kind not in ("", "Node"):
        found.append(not_supported("target.kind", kind, ("Node", "<empty>")))
    if not target.get("name"):
        found.append(required("target.name"))
    if found:
        # These never became a proper Invalid upstream.
        raise errors.ApiError(500, "", errors.aggregate_text([str(each) for each in found]))


def _check_unbound(pod: Obj, name: str) -> None:
    spec = pod.get("spec") or {}
    why = ""
    if pod["metadata"].get("deletionTimestamp"):
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif node := spec.get("nodeName"):
        why = f"pod {name} is already assigned to node {go_quote(node)}"
    elif spec.get("schedulingGates"):
        why = f"pod {name} has non-empty .spec.schedulingGates"
    if why:
        raise errors.conflict("", "pods/binding", name, why)


def _set_condition(status: Obj, condition: Obj, now: str) -> None:
    """Add or replace a pod condition; its time only moves when its status does."""
    conditions = list(status.get("conditions") or ())
    made = {**condition, "lastProbeTime": None, "lastTransitionTime": now}
    for index, old in enumerate(conditions):
        if old.get("type") == condition["type"]:
            if old.get("status") == condition["status"]:
                made["lastTransitionTime"] = old.get("lastTransitionTime")
            conditions[index] = made
            break
    else:
        conditions.append(made)
    status["conditions"] = conditions


def _ignores_budgets(pod: Obj) -> bool:
    """Pods that are not running, or are being deleted anyway, count as no disruption."""
    if dig(pod, "status", "phase") in ("Succeeded", "Failed", "Pending"):
        return True
    return bool(pod["metadata"].get("deletionTimestamp"))


def _never_ran(pod: Obj) -> bool:
    """Such a pod could become ready, and count, between the read and the delete."""
    return dig(pod, "status", "phase") == "Pending" and not pod["metadata"].get("deletionTimestamp")


def _covers(budget: Obj, pod: Obj) -> bool:
    selector = dig(budget, "spec", "selector")
    if selector is None:
        return False
    try:
        return from_structure(selector).matches(pod["metadata"].get("labels"))
    except SelectorError:
        return False


def _costs_nothing(budget: Obj, pod: Obj) -> bool:
    """An unready pod may be evicted when the budget allows it, or when enough others are healthy."""
    conditions = dig(pod, "status", "conditions") or ()
    if any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions):
        return False
    if dig(budget, "spec", "unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    desired = status.get("desiredHealthy") or 0
    return desired > 0 and (status.get("currentHealthy") or 0) >= desired


def _allowed(budget: Obj) -> int:
    """The number of disruptions that the budget allows: one at least, else it raises."""
    status, name = budget.get("status") or {}, budget["metadata"]["name"]
    if (status.get("observedGeneration") or 0) < (budget["metadata"].get("generation") or 0):
        raise _still_processed(name)
    allowed: int = status.get("disruptionsAllowed") or 0
    if allowed < 0:
        raise errors.forbidden("policy", "poddisruptionbudget", name, "pdb disruptions allowed is negative")
    if len(status.get("disruptedPods") or {}) > _MAX_DISRUPTED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise errors.forbidden("policy", "poddisruptionbudget", name, why)
    if allowed == 0:
        raise _refused(0, _why_none(status, name))
    return allowed


def _why_none(status: Obj, name: str) -> str:
    found: Obj = next((each for each in status.get("conditions") or () if each.get("type") == "DisruptionAllowed"), {})
    message = found.get("message") or "" if found.get("status") == "False" else ""
    reason = found.get("reason") or ""
    desired, healthy = status.get("desiredHealthy") or 0, status.get("currentHealthy") or 0
    begin = f"The disruption budget {name}"
    if message and reason == "SyncFailed":
        return f"{begin} does not allow evicting pods currently because it failed sync: {message}"
    if healthy <= desired:
        return f"{begin} needs {desired} healthy pods and has {healthy} currently"
    if message:
        return f"{begin} does not allow evicting pods currently ({reason}): {message}"
    return f"{begin} does not allow evicting pods currently"


def _note_exhausted(status: Obj, generation: int, now: str) -> None:
    conditions = list(status.get("conditions") or ())
    old = next((each for each in conditions if each.get("type") == "DisruptionAllowed"), None)
    made = {
        "type": "DisruptionAllowed",
        "status": "False",
        "observedGeneration": generation,
        "lastTransitionTime": now if old is None or old.get("status") != "False" else old["lastTransitionTime"],
        "reason": "InsufficientPods",
        "message": "",
    }
    status["conditions"] = [made if each is old else each for each in conditions] if old is not None else [*conditions, made]


def _refused(retry: int, cause: str) -> errors.ApiError:
    details: Obj = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
    return errors.ApiError(429, "TooManyRequests", _VIOLATED, details, retry)


def _still_processed(name: str) -> errors.ApiError:
    return _refused(10, f"The disruption budget {name} is still being processed by the server.")


def _changed(call: Call, what: str, given: str, found: str, how: str) -> errors.ApiError:
    why = (
        f"the {what} in the precondition ({given}) does not match the {what} in record ({found}). "
        f"The object might have been {how}"
    )
    return errors.conflict("", "Pod", call.name, why)
