"""The group clusterctl.cluster.x-k8s.io: Providers, clusterctl's inventory of the programs on a management cluster.

The kind belongs to clusterctl, which installs its definition where it is missing. Names are here; :mod:`.crds` has the type.
Not here: the objects that Remuda keeps (`clusterctl/inventory`). Read :mod:`.crds` first.
"""

from __future__ import annotations

from typing import Final

from remuda.kube.objects import GroupVersionResource

__all__ = ["API_VERSION", "GROUP", "PROVIDERS", "VERSION"]

GROUP: Final = "clusterctl.cluster.x-k8s.io"
VERSION: Final = "v1alpha3"
API_VERSION: Final = f"{GROUP}/{VERSION}"

PROVIDERS: Final = GroupVersionResource(GROUP, VERSION, "providers")
