"""The context of a plan: the cluster for hosts of one layout, one host of it, and the labels and taints of that host.

Every module here takes a :class:`HostContext` or its :class:`ClusterContext`. The latter is made once for all hosts with the
same layout, so that their shared parts are computed once in a pass over hundreds of machines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from remuda.kube import selectors
from remuda.kube.encoding import jsonio
from remuda.kube.objects import Key
from remuda.kube.selectors import LabelSelector
from remuda.kube.waits import Actor, Ref

from ... import well_known
from ...host_layout import Layout
from ...releases.distributions import Directories, Runtime
from ..snapshot import CannotRender, ControlPlane, Join, Machine, Tokens
from .plan_inputs import NamedObject, PlanInputs, Taint

Config = dict[str, Any]
Spec = Mapping[str, Any]


@dataclass(frozen=True)
class ClusterContext:
    """The shared context of all hosts of a cluster with one layout."""

    control_plane: ControlPlane
    facts: PlanInputs
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
        """The registry of system images: the cluster's own, else the global one; empty for the public one."""
        for selector, config in reversed(self.selector_configs):
            if selector.empty and isinstance(config.get("system-default-registry"), str):
                return str(config["system-default-registry"])
        own = self.global_config.get("system-default-registry")
        return own if isinstance(own, str) and own else self.facts.default_registry

    @property
    def inherits_registry(self) -> bool:
        """True if the registry is the global one."""
        return bool(self.facts.default_registry) and self.private_registry == self.facts.default_registry

    def config_file(self, name: str) -> str:
        """The path for the content of an argument that must be a file."""
        return f"{self.directories.distro}/etc/config-files/{name}"

    def manifest(self, name: str) -> str:
        """The path of a manifest that the distribution applies by itself."""
        return f"{self.directories.distro}/server/manifests/rancher/{name}"

    def tls(self, name: str) -> str:
        return f"{self.directories.distro}/server/tls/{name}"

    def secret(self, name: str, namespace: str = "") -> NamedObject:
        """A Secret, by default in the cluster's namespace; raises CannotRender if it does not exist."""
        return self._found(self.facts.secrets, "Secret", name, namespace)

    def config_map(self, name: str) -> NamedObject:
        return self._found(self.facts.config_maps, "ConfigMap", name, "")

    def refused(self, message: str) -> CannotRender:
        """The exception for a spec that can't be followed: only the cluster's owner can change it."""
        return CannotRender(message, Actor.USER, self.control_plane.ref())

    def _found(self, sources: Mapping[Key, NamedObject], kind: str, name: str, namespace: str) -> NamedObject:
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
class HostContext:
    """The machine whose plan is rendered."""

    cluster: ClusterContext
    machine: Machine
    join: Join

    @cached_property
    def is_server(self) -> bool:
        return self.machine.is_etcd or self.machine.is_control_plane

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.machine.plan_annotations


def mapping(value: Any) -> Spec:
    """The value as an object; any other type counts as an empty one, since a missing and an empty object mean the same."""
    return value if isinstance(value, Mapping) else {}


def entries(value: Any) -> tuple[Spec, ...]:
    """The objects in a value that should be a list."""
    return tuple(entry for entry in value if isinstance(entry, Mapping)) if isinstance(value, list | tuple) else ()


def strings(value: Any) -> list[str]:
    """An argument that may have one or several values, as a list of words."""
    if value is None or value == "":
        return []
    if isinstance(value, list | tuple):
        return [word for member in value for word in strings(member)]
    if isinstance(value, bool):
        return ["true" if value else "false"]
    return [str(value)]


# --- labels and taints ----------------------------------------------------------------------------------------------------
#
# Initial labels and taints of a node: labels by which it is found again, and taints that keep pods off special roles.

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


def labels(host: HostContext) -> list[str]:
    machine = host.machine
    found = {key: str(value) for key, value in mapping(_read(machine, well_known.LABELS)).items()}
    found[well_known.NODE_MACHINE] = machine.uid
    found |= {key: machine.plan_labels[key] for key in _LIFECYCLE if machine.plan_labels.get(key)}
    return sorted(f"{key}={value}" for key, value in found.items())


def taints(host: HostContext) -> tuple[Taint, ...]:
    """Its own, and those of its roles unless it is also a worker."""
    machine = host.machine
    found = {_taint(said) for said in entries(_read(machine, well_known.TAINTS))}
    return tuple(sorted(found | _taints_of_roles(host.cluster, machine), key=str))


def taints_of_all(cluster: ClusterContext, machines: Iterable[Machine]) -> tuple[Taint, ...]:
    """The taints that any of these machines has."""
    found: set[Taint] = set()
    for machine in machines:
        try:
            found.update(taints(HostContext(cluster, machine, Join())))
        except CannotRender:
            # That machine gets no plan until its annotation is repaired; the others do not wait for it.
            found |= _taints_of_roles(cluster, machine)
    return tuple(sorted(found, key=str))


def _taints_of_roles(cluster: ClusterContext, machine: Machine) -> set[Taint]:
    found: set[Taint] = set()
    if not machine.is_worker:
        # A k3s server with both roles only gets the second.
        if machine.is_etcd and (cluster.runtime.runs_static_pods or not machine.is_control_plane):
            found.add(_ETCD)
        if machine.is_control_plane:
            found.add(_CONTROL_PLANE)
    return found


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
