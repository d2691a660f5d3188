"""The hosts of a simulated cluster as the cluster knows them, and what happened to each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Obj = dict[str, Any]

What = Literal["stopped", "started", "saved", "left"]


class Move(NamedTuple):
    """A change of a host: what, when, and how many members etcd had then, and how many of them were up."""

    at: float
    host: str
    what: What
    members: int
    up: int


@dataclass(slots=True)
class SimulatedMember:
    """One host as the cluster knows it. `provider_id` is its Node's, if the distribution is not to make one."""

    name: str
    address: str
    etcd: bool = False
    control_plane: bool = False
    worker: bool = False
    up: bool = False
    version: str = ""
    config: Obj = field(default_factory=dict)
    provider_id: str = ""
    # True from the stop for a restore until it has other data.
    void: bool = False
    # The number of restores that the etcd has seen whose data the host has.
    epoch: int = 0

    @property
    def kind(self) -> str:
        return "etcd" if self.etcd else "control plane" if self.control_plane else "worker"
