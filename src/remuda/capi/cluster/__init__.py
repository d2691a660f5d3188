"""The Cluster controller: infrastructure and control plane by contract, the status summary, and deletion in order.

Decisions are in :mod:`.status`, those of a deletion in :mod:`.controller`. Not here: connections to the cluster
(`..clustercache`). Read :mod:`.controller` first.
"""

from .controller import Clusters

__all__ = ["Clusters"]
