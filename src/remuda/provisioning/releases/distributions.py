"""The distributions that a plan can install, and in what they differ (capr.md §0.2, design §6).

k3s and RKE2 are Rancher's; `remuda` is our own small one and keeps the k3s contract, only its names are its own. Which one it
is follows from the version alone. What a version understands is :mod:`.catalog`; where a host has it is :mod:`..host_layout`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from ..host_layout import PLAIN, Layout


@dataclass(frozen=True, slots=True)
class Runtime:
    """A distribution. The name is also its command's, and in upper case the prefix of its variables."""

    name: str
    server_unit: str
    agent_unit: str
    supervisor_port: int
    # The network that it is given when the user names none; empty leaves it to the distribution.
    default_cni: str = ""
    # Whether a first server must be told that it is one.
    says_cluster_init: bool = False
    # Whether the control plane runs in pods, which see only what is mounted, and which the kubelet of every role starts.
    runs_static_pods: bool = False

    @property
    def env_prefix(self) -> str:
        return self.name.upper()

    @property
    def data_directory(self) -> str:
        return f"/var/lib/rancher/{self.name}"

    @property
    def config_directory(self) -> str:
        return f"/etc/rancher/{self.name}"

    @property
    def removal_annotation(self) -> str:
        """On a Node: asks the distribution to take its etcd member out."""
        return f"etcd.{self.name}.cattle.io/remove"

    @property
    def removed_annotation(self) -> str:
        """On a Node: not empty once its etcd member is out."""
        return f"etcd.{self.name}.cattle.io/removed-node-name"

    def unit(self, server: bool) -> str:
        return self.server_unit if server else self.agent_unit

    def kubeconfig(self, layout: Layout = PLAIN) -> str:
        return layout.path(f"{self.config_directory}/{self.name}.yaml")

    def join_url(self, address: str) -> str:
        """Where others join a server of that address."""
        try:
            is_six = ipaddress.ip_address(address).version == 6
        except ValueError:
            is_six = False
        return f"https://[{address}]:{self.supervisor_port}" if is_six else f"https://{address}:{self.supervisor_port}"


K3S = Runtime("k3s", "k3s", "k3s-agent", 6443, says_cluster_init=True)
RKE2 = Runtime("rke2", "rke2-server", "rke2-agent", 9345, default_cni="calico", runs_static_pods=True)
REMUDA = Runtime("remuda", "remuda-server", "remuda-node", 9345, says_cluster_init=True)
ALL = (K3S, RKE2, REMUDA)


def of_version(version: str) -> Runtime:
    """The distribution of a version: it is in the name; what names none is RKE2."""
    return next((runtime for runtime in (K3S, REMUDA) if runtime.name in version), RKE2)


@dataclass(frozen=True, slots=True)
class Directories:
    """Where a host keeps the distribution, the traces of operations, and the agent; the layout's root is already before them."""

    distro: str
    provisioning: str
    system_agent: str
    # Whether the distribution would look elsewhere if it were not told.
    distro_is_moved: bool = False

    @classmethod
    def of(cls, runtime: Runtime, chosen: Mapping[str, Any] | None = None, layout: Layout = PLAIN) -> Self:
        """`chosen` is `dataDirectories` of the cluster's spec."""
        said = chosen or {}
        distro = layout.path(said.get("k8sDistro") or runtime.data_directory)
        return cls(
            distro,
            layout.path(said.get("provisioning") or "/var/lib/rancher/capr"),
            layout.path(said.get("systemAgent") or "/var/lib/rancher/agent"),
            distro_is_moved=distro != runtime.data_directory,
        )

    def kubectl(self, runtime: Runtime, layout: Layout = PLAIN) -> str:
        return f"{self.distro}/bin/kubectl" if runtime.runs_static_pods else layout.path("/usr/local/bin/kubectl")
