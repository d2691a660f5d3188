"""What a plan is made of besides the snapshot: release data, settings, and the objects that the cluster's spec names.

The controller reads them (:mod:`.needs` says which) and hands them in, so that rendering itself asks nobody. The cluster
agent's manifest comes as a function, since it follows the taints of the machine that it is for, and is written by a layer
above this one.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from remuda.kube.objects import Key

from ...releases.catalog import Release


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        said = f"{self.key}={self.value}" if self.value else self.key
        return f"{said}:{self.effect}" if self.effect else said


AgentManifest = Callable[[tuple[Taint, ...]], str]


@dataclass(frozen=True, slots=True)
class Source:
    """A Secret or a ConfigMap, its data decoded."""

    type: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    @classmethod
    def of_secret(cls, secret: Mapping[str, Any]) -> Self:
        """A Secret as the API gives it; raises ValueError when its data is no base64, which no API lets through."""
        return cls(str(secret.get("type") or ""), _annotations(secret), _decoded(secret.get("data")))

    @classmethod
    def of_config_map(cls, config_map: Mapping[str, Any]) -> Self:
        texts = {key: str(value).encode() for key, value in (config_map.get("data") or {}).items()}
        return cls("", _annotations(config_map), texts | _decoded(config_map.get("binaryData")))


def _annotations(obj: Mapping[str, Any]) -> Mapping[str, str]:
    return (obj.get("metadata") or {}).get("annotations") or {}


def _decoded(data: Mapping[str, str] | None) -> dict[str, bytes]:
    return {key: base64.b64decode(value or "", validate=True) for key, value in (data or {}).items()}


@dataclass(frozen=True, slots=True)
class Driver:
    """What a node driver knows of the addresses of the machine that it made."""

    name: str = ""
    address: str = ""
    private_address: str = ""
    ipv6_address: str = ""


@dataclass(frozen=True, slots=True)
class BuiltInRegistry:
    """Where we serve images ourselves, and the CA (PEM) behind that name."""

    host: str
    ca: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """`drivers` are by name of the machine; `pull_secrets` are those of the global registry, in the order of the setting.
    `withheld` says why the cluster may not use an object that it names, by its resource and key."""

    release: Release
    installer_prefix: str = "rancher/system-agent-installer-"
    default_registry: str = ""
    pull_secrets: tuple[Source, ...] = ()
    prime_by_default: bool = False
    built_in_registry: BuiltInRegistry | None = None
    # None for a cluster that has no agent of its own: the one we run in.
    agent_manifest: AgentManifest | None = None
    secrets: Mapping[Key, Source] = field(default_factory=dict)
    config_maps: Mapping[Key, Source] = field(default_factory=dict)
    withheld: Mapping[tuple[str, Key], str] = field(default_factory=dict)
    drivers: Mapping[str, Driver] = field(default_factory=dict)
