"""Deployments: a ReplicaSet per template, the newest growing while the others shrink."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from remuda.kube.builtin_resources import DEPLOYMENTS, PODS, REPLICA_SETS
from remuda.kube.clock import rfc3339, time_of
from remuda.kube.objects import (
    Key,
    annotations_of,
    dig,
    find_by,
    is_being_deleted,
    labels_of,
    metadata,
    name_of,
    namespace_of,
    without_path,
)
from remuda.kube.owners import reference
from remuda.runtime import DONE, NORMAL, Manager, Result

from ..disruption_counts import scaled
from .pod_adoption import Dependents, OwningController
from .pods import MANAGER, template_hash, with_labels

Obj = dict[str, Any]

HASH: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
_DESIRED: Final = "deployment.kubernetes.io/desired-replicas"
_MOST: Final = "deployment.kubernetes.io/max-replicas"
_NOT_COPIED: Final = frozenset((REVISION, _DESIRED, _MOST, "kubectl.kubernetes.io/last-applied-configuration"))


class Deployments(OwningController):
    def __init__(self, manager: Manager) -> None:
        super().__init__(manager, "deployment", "Deployment", DEPLOYMENTS, REPLICA_SETS)
        self._pods = Dependents(manager, "deployment-controller", PODS)
        self._events = manager.recorder("deployment-controller")
        self._client = manager.client
        self._freshness = manager.freshness

    async def sync(self, found: Obj) -> Result:
        sets = await self.made.claimed(found)
        new = next((each for each in sets if _same_template(found, each)), None)
        old = [each for each in sets if each is not new]
        if not is_being_deleted(found) and not dig(found, "spec", "paused"):
            new = await self._roll(found, new, old)
            await self._clean_up(found, old)
        elif not is_being_deleted(found) and new is not None and not any(Group.of(each).wanted for each in old):
            # A paused Deployment still scales.
            new = await self._resized(found, new, RolloutBounds.of(found).replicas)
        status, left = status_of(found, new, old, self.clock.time())
        revision = annotations_of(new or {}).get(REVISION, "")
        marks = {REVISION: revision} if revision else None
        await self.made.write_status(DEPLOYMENTS, self.owners, found, status, marks)
        return Result(after=left) if left is not None else DONE

    async def _roll(self, found: Obj, new: Obj | None, old: list[Obj]) -> Obj | None:
        bounds = RolloutBounds.of(found)
        groups = {name_of(each): Group.of(each) for each in old}
        if dig(found, "spec", "strategy", "type") == "Recreate":
            if new is None or Group.of(new).wanted == 0:
                for each in old:
                    await self._resized(found, each, 0)
                if any(group.wanted for group in groups.values()) or self._pods_of(old):
                    return new
            if new is None:
                return await self._make(found, old, bounds.replicas)
            return await self._resized(found, new, bounds.replicas)
        if new is None:
            return await self._make(found, old, first_size(bounds, list(groups.values())))
        new = await self._marked(found, new, old)
        for name, size in rolling_sizes(bounds, Group.of(new), list(groups.values())).items():
            if name == name_of(new):
                new = await self._resized(found, new, size)
            else:
                await self._resized(found, next(each for each in old if name_of(each) == name), size)
        return new

    def _pods_of(self, sets: list[Obj]) -> bool:
        """True if any unfinished pod of these sets is left."""
        return any(dig(pod, "status", "phase") not in ("Succeeded", "Failed") for each in sets for pod in self._pods.owned(each))

    async def _make(self, found: Obj, old: list[Obj], size: int) -> Obj:
        template = dig(found, "spec", "template") or {}
        digest = template_hash(template)
        bounds = RolloutBounds.of(found)
        annotations = {name: value for name, value in annotations_of(found).items() if name not in _NOT_COPIED}
        annotations |= {
            REVISION: str(_newest(old) + 1),
            _DESIRED: str(bounds.replicas),
            _MOST: str(bounds.replicas + bounds.surge),
        }
        selector = dig(found, "spec", "selector") or {}
        labelled = with_labels(template, **{HASH: digest})
        name = f"{name_of(found)}-{digest}"
        made = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": name,
                "namespace": namespace_of(found),
                "labels": labels_of(labelled),
                "annotations": annotations,
                "ownerReferences": [reference(found, controller=True)],
            },
            "spec": {
                "replicas": size,
                "minReadySeconds": dig(found, "spec", "minReadySeconds") or 0,
                "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), HASH: digest}},
                "template": labelled,
            },
        }
        new = await self.made.make(found, made)
        self._events.event(found, NORMAL, "ScalingReplicaSet", f"Scaled up replica set {name} from 0 to {size}")
        return new

    async def _marked(self, found: Obj, new: Obj, old: list[Obj]) -> Obj:
        """A set that is used again after a rollback becomes the newest."""
        revision = int(annotations_of(new).get(REVISION, "0") or 0)
        if revision > _newest(old):
            return new
        patch = {"metadata": {"annotations": {REVISION: str(_newest(old) + 1)}}}
        return await self._patched(found, new, patch)

    async def _resized(self, found: Obj, replica_set: Obj, size: int) -> Obj:
        before = Group.of(replica_set).wanted
        if before == size:
            return replica_set
        bounds = RolloutBounds.of(found)
        marks = {_DESIRED: str(bounds.replicas), _MOST: str(bounds.replicas + bounds.surge)}
        changed = await self._patched(found, replica_set, {"spec": {"replicas": size}, "metadata": {"annotations": marks}})
        way = "up" if size > before else "down"
        message = f"Scaled {way} replica set {name_of(replica_set)} from {before} to {size}"
        self._events.event(found, NORMAL, "ScalingReplicaSet", message)
        return changed

    async def _patched(self, found: Obj, replica_set: Obj, patch: Obj) -> Obj:
        changed = await self._client.patch(
            REPLICA_SETS, name_of(replica_set), patch, namespace_of(replica_set), field_manager=MANAGER
        )
        self._freshness.wrote(("deployment-controller", Key.of(found)), self.made.informer, changed)
        return changed

    async def _clean_up(self, found: Obj, old: list[Obj]) -> None:
        """Delete empty sets above the history limit."""
        kept = int(dig(found, "spec", "revisionHistoryLimit", default=10))
        empty = [
            each
            for each in old
            if not Group.of(each).wanted and not dig(each, "status", "replicas") and not is_being_deleted(each)
        ]
        empty.sort(key=lambda each: int(annotations_of(each).get(REVISION, "0") or 0))
        for each in empty[: max(len(empty) - kept, 0)]:
            await self.made.drop(found, each)


def _newest(sets: list[Obj]) -> int:
    return max((int(annotations_of(each).get(REVISION, "0") or 0) for each in sets), default=0)


def _same_template(deployment: Obj, replica_set: Obj) -> bool:
    theirs = without_path(dig(replica_set, "spec", "template") or {}, ("metadata", "labels", HASH))
    return _told(theirs) == _told(dig(deployment, "spec", "template") or {})


def _told(template: Obj) -> Obj:
    """The template without empty fields and fields set by the server."""
    meta = {name: value for name, value in (metadata(template)).items() if value and name != "creationTimestamp"}
    return {**template, "metadata": meta}


# --- deployment status ----------------------------------------------------------------------------------------------------
#
# The status of a Deployment: numbers, availability, progress. Pure.


def status_of(found: Obj, new: Obj | None, old: list[Obj], now: float) -> tuple[Obj, float | None]:
    """The status, and the seconds until the rollout has taken too long."""
    before = found.get("status") or {}
    everything = [*old, new] if new is not None else old
    replicas, ready, available = (
        sum(int(dig(each, "status", field) or 0) for each in everything)
        for field in ("replicas", "readyReplicas", "availableReplicas")
    )
    wanted = sum(int(dig(each, "spec", "replicas", default=1)) for each in everything)
    numbers = {
        "replicas": replicas,
        "updatedReplicas": int(dig(new, "status", "replicas") or 0),
        "readyReplicas": ready,
        "availableReplicas": available,
        "unavailableReplicas": max(wanted - available, 0),
    }
    made: Obj = {"observedGeneration": metadata(found).get("generation") or 0}
    made |= {name: number for name, number in numbers.items() if number}
    made["terminatingReplicas"] = sum(int(dig(each, "status", "terminatingReplicas") or 0) for each in everything)
    bounds = RolloutBounds.of(found)
    enough = available >= bounds.least
    conditions = [_available(before, enough, now)]
    progressing, left = _progressing(found, before, numbers, new, now)
    if progressing is not None:
        conditions.append(progressing)
    made["conditions"] = conditions
    return made, left


def _available(before: Obj, enough: bool, now: float) -> Obj:
    if enough:
        told = ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    else:
        told = ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    return _condition(before, "Available", *told, now, updated=False)


def _progressing(
    found: Obj, before: Obj, numbers: dict[str, int], new: Obj | None, now: float
) -> tuple[Obj | None, float | None]:
    deadline = dig(found, "spec", "progressDeadlineSeconds")
    old: Obj = find_by(before.get("conditions") or (), "type", "Progressing") or {}
    if deadline is None or deadline >= 2**31 - 1:
        return None, None
    wanted = RolloutBounds.of(found).replicas
    what = f'ReplicaSet "{name_of(new)}"' if new is not None else f'Deployment "{name_of(found)}"'
    if dig(found, "spec", "paused"):
        return _condition(before, "Progressing", "Unknown", "DeploymentPaused", "Deployment is paused", now), None
    if numbers["updatedReplicas"] == wanted == numbers["replicas"] == numbers["availableReplicas"] and new is not None:
        if old.get("reason") == "NewReplicaSetAvailable":
            return old, None
        done = f"{what} has successfully progressed."
        return _condition(before, "Progressing", "True", "NewReplicaSetAvailable", done, now), None
    since = time_of(old.get("lastUpdateTime"))
    if since is None or old.get("reason") in ("NewReplicaSetAvailable", "DeploymentPaused") or _moved(before, numbers):
        moving = _condition(before, "Progressing", "True", "ReplicaSetUpdated", f"{what} is progressing.", now)
        return moving, float(deadline)
    if now >= since + deadline:
        late = f"{what} has timed out progressing."
        if old.get("reason") == "ProgressDeadlineExceeded":
            return old, None
        return _condition(before, "Progressing", "False", "ProgressDeadlineExceeded", late, now), None
    return old, since + deadline - now


def _moved(before: Obj, numbers: dict[str, int]) -> bool:
    """True if the rollout has made progress."""

    def was(field: str) -> int:
        return int(before.get(field) or 0)

    outdated = numbers["replicas"] - numbers["updatedReplicas"]
    return (
        numbers["updatedReplicas"] > was("updatedReplicas")
        or outdated < was("replicas") - was("updatedReplicas")
        or numbers["readyReplicas"] > was("readyReplicas")
        or numbers["availableReplicas"] > was("availableReplicas")
    )


def _condition(before: Obj, kind: str, status: str, reason: str, message: str, now: float, *, updated: bool = True) -> Obj:
    old: Obj = find_by(before.get("conditions") or (), "type", kind) or {}
    time = rfc3339(now)
    same = old.get("status") == status
    if same and not updated and old.get("reason") == reason:
        return old
    return {
        "type": kind,
        "status": status,
        "lastUpdateTime": time,
        "lastTransitionTime": old["lastTransitionTime"] if same else time,
        "reason": reason,
        "message": message,
    }


# --- rollout --------------------------------------------------------------------------------------------------------------
#
# The next size of each ReplicaSet of a Deployment. Pure; all state between calls is in the objects.
#
# The new set grows as far as `maxSurge` allows. Old ones shrink as far as `maxUnavailable` allows, first by pods that are not
# available anyway, the oldest set first.


@dataclass(frozen=True, slots=True)
class RolloutBounds:
    replicas: int
    surge: int
    unavailable: int

    @classmethod
    def of(cls, deployment: Obj) -> RolloutBounds:
        replicas = int(dig(deployment, "spec", "replicas", default=1))
        if dig(deployment, "spec", "strategy", "type") == "Recreate":
            return cls(replicas, 0, replicas)
        rolling = dig(deployment, "spec", "strategy", "rollingUpdate") or {}
        surge = scaled(rolling.get("maxSurge", "25%"), replicas)
        unavailable = scaled(rolling.get("maxUnavailable", "25%"), replicas, up=False)
        # A rollout could not move with both at 0.
        return cls(replicas, surge, min(unavailable, replicas) if surge or unavailable else 1)

    @property
    def least(self) -> int:
        return self.replicas - self.unavailable


@dataclass(frozen=True, slots=True)
class Group:
    """A ReplicaSet as the arithmetic sees it."""

    name: str
    wanted: int
    available: int
    created: str

    @classmethod
    def of(cls, replica_set: Obj) -> Group:
        return cls(
            name_of(replica_set),
            int(dig(replica_set, "spec", "replicas", default=1)),
            int(dig(replica_set, "status", "availableReplicas") or 0),
            metadata(replica_set).get("creationTimestamp") or "",
        )


def first_size(bounds: RolloutBounds, old: Sequence[Group]) -> int:
    """The initial size of a new set."""
    return min(bounds.replicas, max(bounds.replicas + bounds.surge - sum(each.wanted for each in old), 0))


def rolling_sizes(bounds: RolloutBounds, new: Group, old: Sequence[Group]) -> dict[str, int]:
    """The new sizes of the sets that change."""
    total = new.wanted + sum(each.wanted for each in old)
    if new.wanted > bounds.replicas:
        return {new.name: bounds.replicas}
    if new.wanted < bounds.replicas and (room := bounds.replicas + bounds.surge - total) > 0:
        return {new.name: new.wanted + min(room, bounds.replicas - new.wanted)}
    return _shrunk(bounds, new, sorted(old, key=lambda each: (each.created, each.name)), total)


def _shrunk(bounds: RolloutBounds, new: Group, old: Sequence[Group], total: int) -> dict[str, int]:
    budget = total - bounds.least - max(new.wanted - new.available, 0)
    if budget <= 0:
        return {}
    sizes = {each.name: each.wanted for each in old}
    for each in old:
        unwell = min(each.wanted - min(each.available, each.wanted), budget)
        sizes[each.name] -= unwell
        budget -= unwell
    spare = new.available + sum(each.available for each in old) - bounds.least
    for each in old:
        taken = min(sizes[each.name], max(spare, 0), budget)
        sizes[each.name] -= taken
        spare -= taken
        budget -= taken
    return {each.name: sizes[each.name] for each in old if sizes[each.name] != each.wanted}
