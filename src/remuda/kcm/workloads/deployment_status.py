"""What a Deployment says of itself: numbers, whether it is available, whether it gets anywhere. Pure."""

from __future__ import annotations

from typing import Any

from remuda.kube.clock import rfc3339, time_of
from remuda.kube.objects import dig, find_by, metadata, name_of

from .rollout import Bounds

Obj = dict[str, Any]


def status_of(found: Obj, new: Obj | None, old: list[Obj], now: float) -> tuple[Obj, float | None]:
    """The status, and in how many seconds the rollout would have taken too long."""
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
    bounds = Bounds.of(found)
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
    wanted = Bounds.of(found).replicas
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
    """Something got nearer to what is wanted."""

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
