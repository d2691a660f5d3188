"""The group provisioning.cattle.io: the Clusters that users ask for.

Names of its kinds are in :mod:`.names`, which is read first; the types (:mod:`.v1`) are read only when definitions are generated.
"""

from .names import API_VERSION, CLUSTERS, GROUP, VERSION

__all__ = ["API_VERSION", "CLUSTERS", "GROUP", "VERSION"]
