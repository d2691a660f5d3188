"""StatefulSets: numbered pods, created in ascending and deleted in descending order, one after the other by default.

Left out: claims from `volumeClaimTemplates`, and old revisions. A pod below `partition` that has to be recreated gets the new
template.
"""

from __future__ import annotations

import re
from typing import Any, Final

from remuda.kube.builtin_resources import PODS, STATEFUL_SETS
from remuda.kube.objects import dig, is_being_deleted, labels_of, metadata, name_of
from remuda.runtime import Manager, Result

from ..disruption_counts import is_ready
from .pod_adoption import OwningController
from .pods import has_ended, is_active, name_prefix, pod_from, template_hash, with_labels

Obj = dict[str, Any]

HASH: Final = "controller-revision-hash"
_POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
_POD_INDEX: Final = "apps.kubernetes.io/pod-index"
_NUMBER = re.compile(r"(.*)-([0-9]+)")


def number_of(pod: Obj) -> int:
    found = _NUMBER.fullmatch(name_of(pod))
    return int(found[2]) if found is not None else -1


class StatefulSets(OwningController):
    def __init__(self, manager: Manager) -> None:
        super().__init__(manager, "statefulset", "StatefulSet", STATEFUL_SETS, PODS, concurrency=2)

    async def sync(self, found: Obj) -> Result:
        pods = {number_of(pod): pod for pod in await self.made.claimed(found) if number_of(pod) >= 0}
        revision = template_hash(dig(found, "spec", "template") or {})
        if not is_being_deleted(found):
            await self._manage(found, pods, revision)
        waits = self.waits(found, pods.values())
        return await self.write_outcome(found, _status(found, list(pods.values()), waits, revision), waits)

    async def _manage(self, found: Obj, pods: dict[int, Obj], revision: str) -> None:
        start = int(dig(found, "spec", "ordinals", "start") or 0)
        wanted = range(start, start + int(dig(found, "spec", "replicas", default=1)))
        ordered = dig(found, "spec", "podManagementPolicy") != "Parallel"
        for number in wanted:
            pod = pods.get(number)
            if pod is None:
                await self.made.make(found, self._pod(found, number, revision))
            elif has_ended(pod) and not is_being_deleted(pod):
                await self.made.drop(found, pod)
            elif is_active(pod) and is_ready(pod):
                continue
            if ordered:
                return
        for number in sorted((number for number in pods if number not in wanted), reverse=True):
            if not is_being_deleted(pods[number]):
                await self.made.drop(found, pods[number])
            if ordered:
                return
        if dig(found, "spec", "updateStrategy", "type") != "OnDelete":
            await self._update(found, [pods[number] for number in reversed(wanted) if number in pods], revision)

    async def _update(self, found: Obj, downwards: list[Obj], revision: str) -> None:
        """Delete the highest old pod, once all higher ones are ready."""
        partition = int(dig(found, "spec", "updateStrategy", "rollingUpdate", "partition") or 0)
        for pod in downwards:
            if number_of(pod) < partition:
                return
            if labels_of(pod).get(HASH) != f"{name_of(found)}-{revision}" and not is_being_deleted(pod):
                await self.made.drop(found, pod)
                return
            if not (is_active(pod) and is_ready(pod)):
                return

    def _pod(self, found: Obj, number: int, revision: str) -> Obj:
        name = f"{name_of(found)}-{number}"
        template = dig(found, "spec", "template") or {}
        marks = {HASH: f"{name_of(found)}-{revision}", _POD_NAME: name, _POD_INDEX: str(number)}
        spec = {**(template.get("spec") or {}), "hostname": name, "subdomain": dig(found, "spec", "serviceName") or ""}
        return pod_from(with_labels({**template, "spec": spec}, **marks), found, name=name, generateName=name_prefix(found))


def _status(found: Obj, pods: list[Obj], waits: dict[str, float | None], revision: str) -> Obj:
    before = found.get("status") or {}
    update = f"{name_of(found)}-{revision}"
    updated = sum(1 for pod in pods if is_active(pod) and labels_of(pod).get(HASH) == update)
    wanted = int(dig(found, "spec", "replicas", default=1))
    current = before.get("currentRevision") or update
    if updated == len(pods) == wanted and all(is_ready(pod) for pod in pods):
        current = update
    old = sum(1 for pod in pods if is_active(pod) and labels_of(pod).get(HASH) == current)
    made: Obj = {
        "observedGeneration": metadata(found).get("generation") or 0,
        "replicas": len(pods),
        "currentRevision": current,
        "updateRevision": update,
        "collisionCount": before.get("collisionCount") or 0,
        "availableReplicas": sum(1 for wait in waits.values() if wait == 0.0),
    }
    rest = {
        "readyReplicas": sum(1 for pod in pods if is_active(pod) and is_ready(pod)),
        "currentReplicas": old,
        "updatedReplicas": updated,
    }
    return made | {name: number for name, number in rest.items() if number}
