"""What the hosts of a cluster are to do with files of snapshots now (docs/reference/operations.md#files). Pure.

The requests are on ETCDSnapshots (:mod:`remuda.provisioning.etcd.file_requests`). They wait while an operation runs, which may
need the very files; and a plan that has failed is not written for them, since that would try it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..etcd.file_requests import FileRequest, of_machines
from ..plans.plan import without_file_work
from . import operations
from .snapshot import ControlPlane, Machine

Obj = dict[str, Any]


def file_requests(
    control_plane: ControlPlane, machines: Iterable[Machine], snapshots: Iterable[Obj]
) -> Mapping[str, tuple[FileRequest, ...]]:
    """By Machine. `snapshots` are the cluster's ETCDSnapshots."""
    if operations.is_running(control_plane):
        return {}
    asked = of_machines(snapshots)
    return {each.name: asked[each.name] for each in machines if each.name in asked and _takes_work(each)}


def _takes_work(machine: Machine) -> bool:
    node = machine.node
    if node is None or machine.deleting or not machine.is_etcd:
        return False
    return not node.failed or without_file_work(node.plan) is not node.plan
