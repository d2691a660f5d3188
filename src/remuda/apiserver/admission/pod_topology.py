"""PodTopologyLabels: a pod carries the zone and region of the node it is bound to."""

from __future__ import annotations

from remuda.kube.admission_attributes import CREATE, Attributes
from remuda.kube.object_reader import ObjectSource
from remuda.kube.objects import Obj, dig, labels_of, with_metadata

_COPIED = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


class PodTopologyLabels:
    name = "PodTopologyLabels"
    resources = frozenset((("", "pods"),))

    def __init__(self, source: ObjectSource) -> None:
        self._source = source

    async def admit(self, attributes: Attributes) -> None:
        obj = attributes.obj
        if attributes.operation != CREATE or attributes.subresource not in ("", "binding") or obj is None:
            return
        if labels := self._labels(_node_of(obj, attributes.subresource)):
            attributes.obj = with_metadata(obj, labels={**labels_of(obj), **labels})

    async def validate(self, attributes: Attributes) -> None:
        pass

    def _labels(self, node: str) -> dict[str, str]:
        found = self._source.get("", "nodes", "", node) if node else None
        given = labels_of(found) if found is not None else {}
        return {label: given[label] for label in _COPIED if label in given}


def _node_of(obj: Obj, subresource: str) -> str:
    if subresource:
        return dig(obj, "target", "name") or "" if dig(obj, "target", "kind") == "Node" else ""
    return dig(obj, "spec", "nodeName") or ""
