"""What the kinds of this group are called, for controllers; their types are in the modules beside this one."""

from __future__ import annotations

from typing import Final

from remuda.kube.objects import GroupVersionResource

GROUP: Final = "plan.cattle.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

BEACONS: Final = GroupVersionResource(GROUP, VERSION, "beacons")
