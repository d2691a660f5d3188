"""The instructions of a task: what a machine does once for an operation (docs/reference/operations.md#steps)."""

from __future__ import annotations

from ...plans.plan import Instruction
from ..snapshot import SaveSnapshot
from .context import HostContext


def instructions(host: HostContext, task: SaveSnapshot) -> tuple[Instruction, ...]:
    match task:
        case SaveSnapshot():
            return (_save(host, task.name),)


def _save(host: HostContext, name: str) -> Instruction:
    cluster = host.cluster
    args = ("etcd-snapshot", "save", *(("--name", name) if name else ()))
    return Instruction("create", args=args, command=cluster.directories.command(cluster.runtime))
