"""The group plan.cattle.io: Beacons, which name the host that sends plans to a cluster's machines.

Names of its kinds are here; :mod:`.crds`, which has the types, is imported only when definitions are generated.
Not here: plans themselves, which are Secrets (`provisioning/plans`). Read :mod:`.crds` first.
"""

from __future__ import annotations

from typing import Final

from remuda.kube.objects import GroupVersionResource

__all__ = ["API_VERSION", "BEACONS", "GROUP", "VERSION"]


# --- names ----------------------------------------------------------------------------------------------------------------
#
# What the kinds of this group are called, for controllers; their types are in the modules beside this one.

GROUP: Final = "plan.cattle.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

BEACONS: Final = GroupVersionResource(GROUP, VERSION, "beacons")
