"""The pods of a node, by an index that several controllers share."""

from __future__ import annotations

from typing import Any, Final

from remuda.kube.objects import dig
from remuda.runtime import Informer

Obj = dict[str, Any]
_BY_NODE: Final = "node"


def follow_nodes(pods: Informer) -> None:
    pods.add_index(_BY_NODE, lambda pod: (dig(pod, "spec", "nodeName") or "",))


def pods_on(pods: Informer, node: str) -> list[Obj]:
    """With "" those that are on none."""
    return pods.indexed(_BY_NODE, node)
