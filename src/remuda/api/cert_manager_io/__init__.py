"""The group cert-manager.io: Issuers and Certificates, for programs that expect cert-manager on their API.

The kinds belong to cert-manager: its own definitions, where they are installed, are left alone. Names are here; :mod:`.crds` has
the types, with the fields that Remuda reads; others are kept.
Not here: the controllers (`certmanager`). Read :mod:`.crds` first.
"""

from __future__ import annotations

from typing import Final

from remuda.kube.objects import GroupVersionResource

__all__ = ["API_VERSION", "CERTIFICATES", "CLUSTER_ISSUERS", "GROUP", "ISSUERS", "VERSION"]

GROUP: Final = "cert-manager.io"
VERSION: Final = "v1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

ISSUERS: Final = GroupVersionResource(GROUP, VERSION, "issuers")
CLUSTER_ISSUERS: Final = GroupVersionResource(GROUP, VERSION, "clusterissuers")
CERTIFICATES: Final = GroupVersionResource(GROUP, VERSION, "certificates")
