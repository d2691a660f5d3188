"""The providers that Remuda is, as clusterctl names them: Cluster API's core, and our own three."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from remuda import __version__
from remuda.api.clusterctl_cluster_x_k8s_io import API_VERSION
from remuda.capi.well_known import UPSTREAM_VERSION

Obj = dict[str, Any]

# How clusterctl finds objects: those that it manages, the parts of one provider, and its inventory.
CLUSTERCTL: Final = "clusterctl.cluster.x-k8s.io"
PROVIDER: Final = "cluster.x-k8s.io/provider"
INVENTORY: Final = {"clusterctl.cluster.x-k8s.io/core": "inventory"}


class ProviderType(StrEnum):
    """The values of a Provider's `type`."""

    CORE = "CoreProvider"
    BOOTSTRAP = "BootstrapProvider"
    CONTROL_PLANE = "ControlPlaneProvider"
    INFRASTRUCTURE = "InfrastructureProvider"


_PREFIXES = {
    ProviderType.CORE: "",
    ProviderType.BOOTSTRAP: "bootstrap-",
    ProviderType.CONTROL_PLANE: "control-plane-",
    ProviderType.INFRASTRUCTURE: "infrastructure-",
}


@dataclass(frozen=True, slots=True)
class ClusterctlProvider:
    """One entry of the inventory; `version` has a leading v."""

    name: str
    type: ProviderType
    version: str

    @property
    def label(self) -> str:
        """The value of the label `cluster.x-k8s.io/provider`, which is also the name of its directory in a repository."""
        return f"{_PREFIXES[self.type]}{self.name}"

    def entry(self, namespace: str) -> Obj:
        """Its object in the inventory."""
        return {
            "apiVersion": API_VERSION,
            "kind": "Provider",
            "metadata": {
                "name": self.label,
                "namespace": namespace,
                "labels": {**INVENTORY, CLUSTERCTL: "", PROVIDER: self.label},
            },
            "providerName": self.name,
            "type": self.type.value,
            "version": self.version,
        }


# Under upstream's name and version: clusterctl asks for the core by this name, and compares the contracts of others with it.
CORE: Final = ClusterctlProvider("cluster-api", ProviderType.CORE, UPSTREAM_VERSION)
OURS: Final = tuple(
    ClusterctlProvider("remuda", kind, f"v{__version__}")
    for kind in (ProviderType.BOOTSTRAP, ProviderType.CONTROL_PLANE, ProviderType.INFRASTRUCTURE)
)
