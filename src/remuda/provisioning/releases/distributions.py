"""The distributions that a plan can install, and their differences (docs/reference/node-plan.md#distributions).

k3s and RKE2 are Rancher's; `remuda` is our own small one and keeps the k3s contract, only with its own names. The version alone
determines the distribution. :mod:`.catalog` has a version's arguments, :mod:`..host_layout` the paths on a host.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from ..host_layout import PLAIN, Layout

# The setting with release data that replaces ours.
RELEASES_SETTING = "rke-metadata-config"


@dataclass(frozen=True, slots=True)
class Runtime:
    """A distribution. Its name is also its command, and in upper case the prefix of its variables."""

    name: str
    server_unit: str
    agent_unit: str
    supervisor_port: int
    # Its network if the user names none; empty leaves the choice to the distribution.
    default_cni: str = ""
    # True if the first server needs the argument `cluster-init`.
    says_cluster_init: bool = False
    # True if the control plane runs in pods, which see only mounted files, and which the kubelet of every role starts.
    runs_static_pods: bool = False
    # True if Secrets are encrypted at rest without the argument `secrets-encryption`.
    encrypts_secrets: bool = False
    # True if running servers adopt new encryption keys, so that a rotation needs no restart.
    adopts_keys: bool = False

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
        """On a Node: requests the removal of its etcd member from the distribution."""
        return f"etcd.{self.name}.cattle.io/remove"

    @property
    def removed_annotation(self) -> str:
        """On a Node: not empty once its etcd member is removed."""
        return f"etcd.{self.name}.cattle.io/removed-node-name"

    def unit(self, server: bool) -> str:
        return self.server_unit if server else self.agent_unit

    def kubeconfig(self, layout: Layout = PLAIN) -> str:
        return layout.path(f"{self.config_directory}/{self.name}.yaml")

    def join_url(self, address: str) -> str:
        """The URL by which others join a server of that address."""
        try:
            is_six = ipaddress.ip_address(address).version == 6
        except ValueError:
            is_six = False
        return f"https://[{address}]:{self.supervisor_port}" if is_six else f"https://{address}:{self.supervisor_port}"


K3S = Runtime("k3s", "k3s", "k3s-agent", 6443, says_cluster_init=True)
RKE2 = Runtime("rke2", "rke2-server", "rke2-agent", 9345, default_cni="calico", runs_static_pods=True, encrypts_secrets=True)
REMUDA = Runtime("remuda", "remuda-server", "remuda-node", 9345, says_cluster_init=True, encrypts_secrets=True, adopts_keys=True)
ALL = (K3S, RKE2, REMUDA)


def of_version(version: str) -> Runtime:
    """The distribution of a version: its name is in the version; without one it is RKE2."""
    return next((runtime for runtime in (K3S, REMUDA) if runtime.name in version), RKE2)


@dataclass(frozen=True, slots=True)
class Directories:
    """The directories of the distribution and of records of operations on a host, with the layout's root."""

    distro: str
    provisioning: str
    # True if the distribution's directory is not its default.
    distro_is_moved: bool = False

    @classmethod
    def of(cls, runtime: Runtime, chosen: Mapping[str, Any] | None = None, layout: Layout = PLAIN) -> Self:
        """`chosen` is `dataDirectories` of the cluster's spec."""
        said = chosen or {}
        distro = layout.path(said.get("k8sDistro") or runtime.data_directory)
        return cls(
            distro,
            layout.path(said.get("provisioning") or "/var/lib/rancher/capr"),
            distro_is_moved=distro != runtime.data_directory,
        )

    def command(self, runtime: Runtime) -> str:
        """The distribution's own program. Ours is its launcher in the distribution's directory, which knows where the host is."""
        return f"{self.distro}/bin/{runtime.name}" if runtime is REMUDA else runtime.name

    def option(self, runtime: Runtime) -> tuple[str, ...]:
        """The option of commands that do not read the configuration: k3s and RKE2 read it for `server`, `agent` and
        `etcd-snapshot` alone."""
        return ("--data-dir", self.distro) if self.distro_is_moved and runtime is not REMUDA else ()

    def kubectl(self, runtime: Runtime, layout: Layout = PLAIN) -> str:
        return f"{self.distro}/bin/kubectl" if runtime.runs_static_pods else layout.path("/usr/local/bin/kubectl")
