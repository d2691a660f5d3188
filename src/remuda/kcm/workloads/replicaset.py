"""ReplicaSets: the wanted number of pods, made from one template."""

from __future__ import annotations

from collections import Counter
from typing import Any

from remuda.kube.builtin_resources import PODS, REPLICA_SETS
from remuda.kube.clock import rfc3339
from remuda.kube.errors import ApiError
from remuda.kube.objects import dig, is_being_deleted, labels_of, metadata
from remuda.runtime import Manager, Result

from ..disruption_counts import is_ready
from .pod_adoption import OwningController
from .pods import first_to_go, is_active, name_prefix, pod_from

Obj = dict[str, Any]


class ReplicaSets(OwningController):
    def __init__(self, manager: Manager) -> None:
        super().__init__(manager, "replicaset", "ReplicaSet", REPLICA_SETS, PODS)

    async def sync(self, found: Obj) -> Result:
        pods = await self.made.claimed(found)
        active = [pod for pod in pods if is_active(pod)]
        failure: ApiError | None = None
        if not is_being_deleted(found):
            try:
                await self._scale(found, active)
            except ApiError as error:
                failure = error
        waits = self.waits(found, active)
        result = await self.write_outcome(found, _status(found, pods, active, waits, failure, self.clock.time()), waits)
        if failure is not None:
            raise failure
        return result

    async def _scale(self, found: Obj, active: list[Obj]) -> None:
        missing = int(dig(found, "spec", "replicas", default=1)) - len(active)
        if missing > 0:
            pod = pod_from(dig(found, "spec", "template") or {}, found, generateName=name_prefix(found))
            await self.made.make_many(found, [pod] * missing)
        elif missing < 0:
            crowds = Counter(dig(pod, "spec", "nodeName") for pod in active)
            ranked = sorted(active, key=lambda pod: first_to_go(pod, crowds[dig(pod, "spec", "nodeName")]))
            for pod in ranked[:-missing]:
                await self.made.drop(found, pod)


def _status(
    found: Obj, pods: list[Obj], active: list[Obj], waits: dict[str, float | None], failure: ApiError | None, now: float
) -> Obj:
    before = found.get("status") or {}
    wanted = labels_of(dig(found, "spec", "template") or {})
    numbers = {
        "fullyLabeledReplicas": sum(1 for pod in active if wanted.items() <= labels_of(pod).items()),
        "readyReplicas": sum(1 for pod in active if is_ready(pod)),
        "availableReplicas": sum(1 for wait in waits.values() if wait == 0.0),
    }
    made: Obj = {"replicas": len(active)}
    made |= {name: number for name, number in numbers.items() if number}
    made["terminatingReplicas"] = sum(1 for pod in pods if is_being_deleted(pod))
    made["observedGeneration"] = metadata(found).get("generation") or 0
    conditions = [each for each in before.get("conditions") or () if each.get("type") != "ReplicaFailure"]
    if failure is not None:
        since = next((each for each in before.get("conditions") or () if each.get("type") == "ReplicaFailure"), None)
        conditions.append(
            since
            or {
                "type": "ReplicaFailure",
                "status": "True",
                "reason": "FailedCreate",
                "message": failure.message,
                "lastTransitionTime": rfc3339(now),
            }
        )
    if conditions:
        made["conditions"] = conditions
    return made
