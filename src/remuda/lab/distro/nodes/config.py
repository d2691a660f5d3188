"""The configuration of a simulated node; :mod:`.heartbeat` makes a Node of it, :mod:`.kubelet` runs its pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from remuda.client.interface import Client

from .builtin_programs import BUILT_IN, BuiltinProgram

Obj = dict[str, Any]

SIMULATED: Final = "remuda.dev/simulated"
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
# The default interval of a node's heartbeats.
REPORT_SECONDS: Final = 10.0
CAPACITY: Final[Mapping[str, str]] = MappingProxyType({"cpu": "4", "memory": "16Gi", "ephemeral-storage": "100Gi", "pods": "110"})


class NodeConfigError(ValueError):
    """A label or a taint that is invalid on a node."""


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str
    effect: str

    @classmethod
    def parse(cls, text: str) -> Taint:
        """`key=value:Effect` or `key:Effect`, as in `node-taint` of a config file."""
        rest, colon, effect = text.rpartition(":")
        key, _, value = rest.partition("=")
        if not colon or not key or effect not in EFFECTS:
            raise NodeConfigError(f"{text!r} is not a taint: key=value:Effect with an effect of {', '.join(EFFECTS)}")
        return cls(key, value, effect)

    def to_object(self) -> Obj:
        found = {"key": self.key, "effect": self.effect}
        return {**found, "value": self.value} if self.value else found


def parse_label(text: str) -> tuple[str, str]:
    """`key=value` or `key`, as in `node-label` of a config file."""
    key, _, value = text.partition("=")
    if not key:
        raise NodeConfigError(f"{text!r} is not a label")
    return key, value


@dataclass(frozen=True, slots=True)
class PodDelays:
    """Seconds that pods that run in name take: to start, to stop, and to finish when they are tasks.

    For pods that are processes: the first pause before a restart (later twice as long each time), and the interval for retrying
    missing dependencies.
    """

    start: float = 0.5
    stop: float = 0.5
    task: float = 2.0
    restart: float = 10.0
    retry: float = 5.0


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """`client` or `kubeconfig` is the connection to the API, as the node (`system:node:NAME`).

    version:     the node's kubelet version: the distribution's version.
    labels:      set on the Node at every start; taints only when it registers, as k3s does.
    root:        the directory for pods of our own images, which run as processes. Without one all pods run in name only.
    api_server:  the API's URL for processes in pods; by default the one of the kubeconfig.
    report_seconds:  the interval of heartbeats. If it is set, the status is reported as often, as kubelets do it.
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
    programs: tuple[BuiltinProgram, ...] = BUILT_IN
    pace: PodDelays = field(default=PodDelays())
    report_seconds: float = REPORT_SECONDS
