"""The group plan.cattle.io: Beacons, which say who may send plans to a cluster's machines.

Names of its kinds are in :mod:`.names`, which is read first; the types (:mod:`.v1alpha1`) are read only when definitions are
generated.
"""

from .names import API_VERSION, BEACONS, GROUP, VERSION

__all__ = ["API_VERSION", "BEACONS", "GROUP", "VERSION"]
