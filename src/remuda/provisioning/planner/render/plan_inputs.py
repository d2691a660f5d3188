"""The input of a plan besides the snapshot: release data, settings, and the objects that the cluster's spec names.

The controller reads them (:func:`needs` lists the named ones) and passes them in, so that rendering itself does no I/O. The
cluster agent's manifest comes as a function, since it depends on the machine's taints; a layer above this one writes it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from remuda.api.rke_cattle_io.rkecontrolplane import RKEControlPlaneSpec
from remuda.kube.objects import Key

from ...references import SpecReference, references_in
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
class NamedObject:
    """A Secret or a ConfigMap, its data decoded."""

    type: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    @classmethod
    def of_secret(cls, secret: Mapping[str, Any]) -> Self:
        """A Secret from the API; raises ValueError if its data is not base64, which no API accepts."""
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
    """The addresses that a node driver knows of its machine."""

    name: str = ""
    address: str = ""
    private_address: str = ""
    ipv6_address: str = ""


@dataclass(frozen=True, slots=True)
class BuiltInRegistry:
    """The host of our own image registry, and its CA (PEM)."""

    host: str
    ca: str = ""


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """`drivers` are by machine name; `pull_secrets` are those of the global registry, in the order of the setting. `withheld`
    has the reasons why the cluster may not use an object that it names, by its resource and key."""

    release: Release
    installer_prefix: str = "rancher/system-agent-installer-"
    default_registry: str = ""
    pull_secrets: tuple[NamedObject, ...] = ()
    prime_by_default: bool = False
    built_in_registry: BuiltInRegistry | None = None
    # None for a cluster without its own agent: the one we run in.
    agent_manifest: AgentManifest | None = None
    secrets: Mapping[Key, NamedObject] = field(default_factory=dict)
    config_maps: Mapping[Key, NamedObject] = field(default_factory=dict)
    withheld: Mapping[tuple[str, Key], str] = field(default_factory=dict)
    drivers: Mapping[str, Driver] = field(default_factory=dict)


# --- named objects --------------------------------------------------------------------------------------------------------
#
# Objects that a cluster's plans need: the controller reads them, and watches them for changes.


@dataclass(frozen=True, slots=True)
class Needs:
    secrets: frozenset[Key] = frozenset()
    config_maps: frozenset[Key] = frozenset()


def needs(spec: Mapping[str, Any], namespace: str) -> Needs:
    """The objects that the spec of an RKEControlPlane in a namespace names."""
    named = references_in(spec, RKEControlPlaneSpec, namespace)
    return Needs(_of(named, "secrets"), _of(named, "configmaps"))


def _of(named: Iterable[SpecReference], resource: str) -> frozenset[Key]:
    return frozenset(Key(each.namespace, each.name) for each in named if each.resource == resource)
