"""What the kinds of this group are called, for controllers; their types are in the modules beside this one."""

from __future__ import annotations

from typing import Final

from remuda.kube.objects import GroupVersionResource

GROUP: Final = "rke.cattle.io"
VERSION: Final = "v1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

CUSTOM_MACHINES: Final = GroupVersionResource(GROUP, VERSION, "custommachines")
ETCD_SNAPSHOTS: Final = GroupVersionResource(GROUP, VERSION, "etcdsnapshots")
RKE_BOOTSTRAPS: Final = GroupVersionResource(GROUP, VERSION, "rkebootstraps")
RKE_BOOTSTRAP_TEMPLATES: Final = GroupVersionResource(GROUP, VERSION, "rkebootstraptemplates")
RKE_CLUSTERS: Final = GroupVersionResource(GROUP, VERSION, "rkeclusters")
RKE_CONTROL_PLANES: Final = GroupVersionResource(GROUP, VERSION, "rkecontrolplanes")
