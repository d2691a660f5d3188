"""What a plan stands on: the cluster as hosts of one layout see it, and one host of it.

Every module here takes a :class:`Host` or its :class:`Ground`. A ground is made once for all hosts with the same layout,
so that what they share is worked out once in a pass over hundreds of machines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from remuda.kube import selectors
from remuda.kube.objects import Key
from remuda.kube.selectors import LabelSelector
from remuda.kube.waits import Actor, Ref

from ...host_layout import Layout
from ...releases.distributions import Directories, Runtime
from ..snapshot import CannotRender, ControlPlane, Join, Machine, Tokens
from .plan_inputs import Facts, Source

Config = dict[str, Any]
Spec = Mapping[str, Any]


@dataclass(frozen=True)
class Ground:
    """What all hosts of a cluster with one layout have in common."""

    control_plane: ControlPlane
    facts: Facts
    layout: Layout
    tokens: Tokens | None = None

    @property
    def spec(self) -> Spec:
        return self.control_plane.spec

    @property
    def runtime(self) -> Runtime:
        return self.facts.release.runtime

    @cached_property
    def directories(self) -> Directories:
        return Directories.of(self.runtime, mapping(self.spec.get("dataDirectories")), self.layout)

    @cached_property
    def loopback(self) -> str:
        return self.layout.loopback_for(str(mapping(self.spec.get("networking")).get("stackPreference") or ""))

    @cached_property
    def global_config(self) -> Spec:
        return mapping(self.spec.get("machineGlobalConfig"))

    @cached_property
    def selector_configs(self) -> tuple[tuple[LabelSelector, Spec], ...]:
        return tuple(
            (self._selector(entry), mapping(entry.get("config"))) for entry in entries(self.spec.get("machineSelectorConfig"))
        )

    @cached_property
    def selector_files(self) -> tuple[tuple[LabelSelector, tuple[Spec, ...]], ...]:
        found = entries(self.spec.get("machineSelectorFiles"))
        return tuple((self._selector(entry), entries(entry.get("fileSources"))) for entry in found)

    @cached_property
    def private_registry(self) -> str:
        """The registry that system images come from: the cluster's own, else the global one; empty for the public one."""
        for selector, config in reversed(self.selector_configs):
            if selector.empty and isinstance(config.get("system-default-registry"), str):
                return str(config["system-default-registry"])
        own = self.global_config.get("system-default-registry")
        return own if isinstance(own, str) and own else self.facts.default_registry

    @property
    def inherits_registry(self) -> bool:
        """Whether the registry is the global one."""
        return bool(self.facts.default_registry) and self.private_registry == self.facts.default_registry

    def config_file(self, name: str) -> str:
        """Where the content of an argument that must be a file is put."""
        return f"{self.directories.distro}/etc/config-files/{name}"

    def manifest(self, name: str) -> str:
        """Where a manifest is put that the distribution applies by itself."""
        return f"{self.directories.distro}/server/manifests/rancher/{name}"

    def tls(self, name: str) -> str:
        return f"{self.directories.distro}/server/tls/{name}"

    def secret(self, name: str, namespace: str = "") -> Source:
        """A Secret, of the cluster's namespace if none is named; raises CannotRender when it is not there."""
        return self._found(self.facts.secrets, "Secret", name, namespace)

    def config_map(self, name: str) -> Source:
        return self._found(self.facts.config_maps, "ConfigMap", name, "")

    def refused(self, message: str) -> CannotRender:
        """What to raise when the cluster's spec can't be followed: only its owner can help."""
        return CannotRender(message, Actor.USER, self.control_plane.ref())

    def _found(self, sources: Mapping[Key, Source], kind: str, name: str, namespace: str) -> Source:
        key = Key(namespace or self.control_plane.namespace, name)
        source = sources.get(key)
        if source is None:
            why = self.facts.withheld.get((f"{kind.lower()}s", key)) or f"{kind} {key} is not there"
            raise CannotRender(why, Actor.USER, Ref("", kind, key.namespace, key.name))
        return source

    def _selector(self, entry: Spec) -> LabelSelector:
        said = entry.get("machineLabelSelector")
        try:
            return selectors.EVERYTHING if said is None else selectors.from_structure(said)
        except selectors.SelectorError as error:
            raise self.refused(f"a machineLabelSelector can not be used: {error}") from None


@dataclass(frozen=True)
class Host:
    """One machine whose plan is made."""

    ground: Ground
    machine: Machine
    join: Join

    @cached_property
    def is_server(self) -> bool:
        return self.machine.is_etcd or self.machine.is_control_plane

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.machine.plan_annotations


def mapping(value: Any) -> Spec:
    """What should be an object; anything else is an empty one, since a missing and an empty object mean the same."""
    return value if isinstance(value, Mapping) else {}


def entries(value: Any) -> tuple[Spec, ...]:
    """The objects of what should be a list."""
    return tuple(entry for entry in value if isinstance(entry, Mapping)) if isinstance(value, list | tuple) else ()


def strings(value: Any) -> list[str]:
    """An argument that may be given once or often, as a list of words."""
    if value is None or value == "":
        return []
    if isinstance(value, list | tuple):
        return [word for member in value for word in strings(member)]
    if isinstance(value, bool):
        return ["true" if value else "false"]
    return [str(value)]
