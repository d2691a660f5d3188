"""Initial labels and taints of a node: labels by which it is found again, and taints that keep pods off special roles."""

from __future__ import annotations

from typing import Any

from remuda.kube.encoding import jsonio
from remuda.kube.waits import Actor

from ... import well_known
from ..snapshot import CannotRender, Machine
from .context import Host, entries, mapping
from .plan_inputs import Taint

_LIFECYCLE = (
    well_known.PLAN_CLUSTER_GROUP,
    well_known.PLAN_CLUSTER_KIND,
    well_known.PLAN_CLUSTER_NAME,
    well_known.PLAN_MACHINE_GROUP,
    well_known.PLAN_MACHINE_KIND,
    well_known.PLAN_MACHINE_NAME,
)
_ETCD = Taint("node-role.kubernetes.io/etcd", effect="NoExecute")
_CONTROL_PLANE = Taint("node-role.kubernetes.io/control-plane", effect="NoSchedule")


def labels(host: Host) -> list[str]:
    machine = host.machine
    found = {key: str(value) for key, value in mapping(_read(machine, well_known.LABELS)).items()}
    found[well_known.NODE_MACHINE] = machine.uid
    found |= {key: machine.plan_labels[key] for key in _LIFECYCLE if machine.plan_labels.get(key)}
    return sorted(f"{key}={value}" for key, value in found.items())


def taints(host: Host) -> tuple[Taint, ...]:
    """Its own, and those of its roles unless it is also a worker."""
    machine = host.machine
    found = {_taint(said) for said in entries(_read(machine, well_known.TAINTS))}
    if not machine.is_worker:
        # A k3s server with both roles only gets the second.
        if machine.is_etcd and (host.ground.runtime.runs_static_pods or not machine.is_control_plane):
            found.add(_ETCD)
        if machine.is_control_plane:
            found.add(_CONTROL_PLANE)
    return tuple(sorted(found, key=str))


def _taint(said: Any) -> Taint:
    return Taint(*(str(said.get(key) or "") for key in ("key", "value", "effect")))


def _read(machine: Machine, annotation: str) -> Any:
    text = machine.plan_annotations.get(annotation)
    if not text:
        return None
    try:
        return jsonio.loads(text)
    except jsonio.JsonError as error:
        raise CannotRender(f"annotation {annotation} can not be read: {error}", Actor.OTHER_CONTROLLER, machine.ref()) from None
