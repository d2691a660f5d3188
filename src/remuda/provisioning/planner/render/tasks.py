"""The instructions of a task: what a machine does once for an operation (docs/reference/operations.md#steps)."""

from __future__ import annotations

from ...plans.plan import Instruction
from ..snapshot import SaveSnapshot
from .context import HostContext


def instructions(host: HostContext, task: SaveSnapshot) -> tuple[Instruction, ...]:
    match task:
        case SaveSnapshot():
            return (_save(host),)


def _save(host: HostContext) -> Instruction:
    cluster = host.cluster
    return Instruction("create", args=("etcd-snapshot", "save"), command=cluster.directories.command(cluster.runtime))
