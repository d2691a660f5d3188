"""Default values are cleaned once, with the schema they are in, so that filling them in never adds an unknown field."""

from __future__ import annotations

from typing import Any

from remuda.kube.encoding.jsonio import copy

from . import pruning
from .node import MISSING, Node


def prune_defaults(node: Node, resource: bool) -> None:
    """Drop unknown fields from every default below `node`. Only for a tree of nodes of one's own."""
    stack: list[Node | None] = [node]
    while stack:
        current = stack.pop()
        if current is None:
            continue
        if type(current.default) in (dict, list):
            current.default = pruned(current)
        stack += current.properties.values()
        stack += (current.items, current.additional)


def pruned(node: Node) -> Any:
    """The node's default without what the node does not specify."""
    if node.default is MISSING:
        return MISSING
    value = copy(node.default)
    unknown: list[str] = []
    pruning.prune(value, node, unknown, "", node.embedded)
    pruning.coerce(value, node, unknown, "", drop_invalid=True)
    return value
