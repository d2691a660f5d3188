"""DaemonSets: a pod on every eligible node, even on one that is unhealthy."""

from __future__ import annotations

from typing import Any, Final

from remuda.kube.builtin_resources import DAEMON_SETS, NODES, PODS
from remuda.kube.objects import dig, is_being_deleted, labels_of, metadata, name_of, without_path
from remuda.runtime import Manager, Result, Watch, changed

from ..disruption_counts import is_ready, scaled
from ..pod_placement import NodeChoice, taints_of, untolerated
from .pod_adoption import OwningController
from .pods import has_ended, is_active, name_prefix, pod_from, template_hash, with_labels

Obj = dict[str, Any]

HASH: Final = "controller-revision-hash"
_GENERATION: Final = "pod-template-generation"
# A node may get any of these taints, and its daemon pods stay.
_STAYING: Final = tuple(
    {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": effect}
    for name, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
)
_NETWORK: Final = {"key": "node.kubernetes.io/network-unavailable", "operator": "Exists", "effect": "NoSchedule"}


def daemon_template(found: Obj) -> Obj:
    template = dig(found, "spec", "template") or {}
    spec = template.get("spec") or {}
    more = (*_STAYING, _NETWORK) if spec.get("hostNetwork") else _STAYING
    tolerations = [*(spec.get("tolerations") or ()), *more]
    marks = {HASH: template_hash(template), _GENERATION: str(metadata(found).get("generation") or 1)}
    return with_labels({**template, "spec": {**spec, "tolerations": tolerations}}, **marks)


def on_node(template: Obj, node: str) -> Obj:
    """The template of the pod for that node: its affinity allows no other. The template's own constraints were checked before."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    spec = template["spec"]
    affinity = dict(spec.get("affinity") or {})
    path = "requiredDuringSchedulingIgnoredDuringExecution"
    node_affinity = without_path(dict(affinity.get("nodeAffinity") or {}), (path,))
    affinity["nodeAffinity"] = {**node_affinity, path: {"nodeSelectorTerms": [term]}}
    return {**template, "spec": {**spec, "affinity": affinity}}


def node_of(pod: Obj) -> str:
    """The pod's node, or the node that its affinity names."""
    if placed := dig(pod, "spec", "nodeName"):
        return str(placed)
    path = ("spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms", 0)
    fields = dig(pod, *path, "matchFields", 0, "values", 0)
    return str(fields or "")


class DaemonSets(OwningController):
    def __init__(self, manager: Manager) -> None:
        self._nodes = manager.informers.of(NODES)
        nodes = Watch(NODES, lambda _: list(self.owners.keys()), changed(labels_of, taints_of))
        super().__init__(manager, "daemonset", "DaemonSet", DAEMON_SETS, PODS, nodes, concurrency=2)

    async def sync(self, found: Obj) -> Result:
        pods = await self.made.claimed(found)
        template = daemon_template(found)
        wanted, kept = self._nodes_for(template)
        by_node: dict[str, list[Obj]] = {}
        for pod in pods:
            by_node.setdefault(node_of(pod), []).append(pod)
        if not is_being_deleted(found):
            await self._manage(found, template, wanted, kept, by_node)
        waits = self.waits(found, pods)
        return await self.write_outcome(found, _status(found, template, wanted, by_node, waits), waits)

    def _nodes_for(self, template: Obj) -> tuple[set[str], set[str]]:
        """Nodes that should have a pod, and nodes where an existing pod may stay."""
        choice = NodeChoice.of(template["spec"])
        tolerations = template["spec"]["tolerations"]
        wanted: set[str] = set()
        kept: set[str] = set()
        for node in self._nodes.objects():
            if not choice.allows(node):
                continue
            if untolerated(taints_of(node), tolerations, ("NoExecute",)) is None:
                kept.add(name_of(node))
                if untolerated(taints_of(node), tolerations) is None:
                    wanted.add(name_of(node))
        return wanted, kept

    async def _manage(self, found: Obj, template: Obj, wanted: set[str], kept: set[str], by_node: dict[str, list[Obj]]) -> None:
        missing: list[str] = []
        for node in wanted:
            here = by_node.get(node, [])
            for pod in here:
                if has_ended(pod) and not is_being_deleted(pod):
                    # A daemon pod that ended is replaced, one look later.
                    await self.made.drop(found, pod)
            if not here:
                missing.append(node)
        for node, here in by_node.items():
            living = sorted((pod for pod in here if is_active(pod)), key=lambda pod: metadata(pod)["creationTimestamp"])
            gone = living if node not in kept else living[1:]
            for pod in gone:
                await self.made.drop(found, pod)
        prefix = name_prefix(found)
        await self.made.make_many(
            found, [pod_from(on_node(template, node), found, generateName=prefix) for node in sorted(missing)]
        )
        if not missing and dig(found, "spec", "updateStrategy", "type") == "RollingUpdate":
            await self._update(found, template, wanted, by_node)

    async def _update(self, found: Obj, template: Obj, wanted: set[str], by_node: dict[str, list[Obj]]) -> None:
        """Delete old pods, as many at a time as may be missing; pods that are not ready first."""
        living = [pod for node in wanted for pod in by_node.get(node, []) if is_active(pod)]
        current = template["metadata"]["labels"][HASH]
        old = [pod for pod in living if labels_of(pod).get(HASH) != current]
        if not old:
            return
        most = scaled(dig(found, "spec", "updateStrategy", "rollingUpdate", "maxUnavailable") or 1, len(wanted))
        room = max(most, 1) - (len(wanted) - sum(1 for pod in living if is_ready(pod)))
        unwell = [pod for pod in old if not is_ready(pod)]
        well = sorted((pod for pod in old if is_ready(pod)), key=node_of)
        for pod in (*unwell, *well[: max(room, 0)]):
            await self.made.drop(found, pod)


def _status(found: Obj, template: Obj, wanted: set[str], by_node: dict[str, list[Obj]], waits: dict[str, float | None]) -> Obj:
    scheduled = ready = available = updated = misplaced = 0
    current = template["metadata"]["labels"][HASH]
    for node, here in by_node.items():
        living = [pod for pod in here if is_active(pod)]
        if node not in wanted:
            misplaced += bool(living)
            continue
        if not living:
            continue
        pod = living[0]
        scheduled += 1
        ready += is_ready(pod)
        available += waits.get(name_of(pod)) == 0.0
        updated += labels_of(pod).get(HASH) == current
    made: Obj = {
        "currentNumberScheduled": scheduled,
        "numberMisscheduled": misplaced,
        "desiredNumberScheduled": len(wanted),
        "numberReady": ready,
        "observedGeneration": metadata(found).get("generation") or 0,
    }
    rest = {"updatedNumberScheduled": updated, "numberAvailable": available, "numberUnavailable": len(wanted) - available}
    return made | {name: number for name, number in rest.items() if number}
