"""What a simulated node is told when it starts; :mod:`.registration` makes a Node of it, :mod:`.kubelet` runs its pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from remuda.client.interface import Client

from .builtin_programs import BUILT_IN, Program

Obj = dict[str, Any]

SIMULATED: Final = "remuda.dev/simulated"
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
# How often a node says that it is there, unless it is told otherwise.
REPORT_SECONDS: Final = 10.0
CAPACITY: Final[Mapping[str, str]] = MappingProxyType({"cpu": "4", "memory": "16Gi", "ephemeral-storage": "100Gi", "pods": "110"})


class NodeConfigError(ValueError):
    """A label or a taint that no node can have."""


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str
    effect: str

    @classmethod
    def parse(cls, text: str) -> Taint:
        """`key=value:Effect` or `key:Effect`, as `node-taint` of a config file says it."""
        rest, colon, effect = text.rpartition(":")
        key, _, value = rest.partition("=")
        if not colon or not key or effect not in EFFECTS:
            raise NodeConfigError(f"{text!r} is no taint: key=value:Effect with an effect of {', '.join(EFFECTS)}")
        return cls(key, value, effect)

    def to_object(self) -> Obj:
        found = {"key": self.key, "effect": self.effect}
        return {**found, "value": self.value} if self.value else found


def parse_label(text: str) -> tuple[str, str]:
    """`key=value` or `key`, as `node-label` of a config file says it."""
    key, _, value = text.partition("=")
    if not key:
        raise NodeConfigError(f"{text!r} is no label")
    return key, value


@dataclass(frozen=True, slots=True)
class Pace:
    """How many seconds pods that run in name take: to start, to stop, and to finish when they are tasks.

    Of those that are processes, how long they pause before they are started for the second time (later twice as long each
    time), and when something is tried again that they need and do not find.
    """

    start: float = 0.5
    stop: float = 0.5
    task: float = 2.0
    restart: float = 10.0
    retry: float = 5.0


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """`client` or `kubeconfig` say how the API is reached, as the node (`system:node:NAME`).

    version:     what the node says of its kubelet: the distribution's version.
    labels:      brought onto the Node at every start; taints only when it registers, as k3s does.
    root:        where pods of our own images run, as processes. Without one all pods run in name only.
    api_server:  the URL that processes in pods are told; by default the one of the kubeconfig.
    report_seconds:  how often it says that it is there. If that is said, its status is reported as often, as kubelets do it.
    """

    name: str
    client: Client | None = None
    kubeconfig: Path | None = None
    version: str = "v0.0.0+remuda0"
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    internal_ip: str = "127.0.0.1"
    external_ip: str = ""
    hostname: str = ""
    provider_id: str = ""
    capacity: Mapping[str, str] = field(default_factory=lambda: CAPACITY)
    root: Path | None = None
    api_server: str = ""
    programs: tuple[Program, ...] = BUILT_IN
    pace: Pace = field(default=Pace())
    report_seconds: float = REPORT_SECONDS
