"""Connections to workload clusters: made, probed, remade and dropped automatically (the port is :mod:`..workload_clusters`).

Not here: connections through agents' tunnels (`gateway/proxy`). Read :mod:`.cache`, then :mod:`.accessor`.
"""

from .accessor import CacheOptions
from .cache import ClusterCache, HttpsConnector

__all__ = ["CacheOptions", "ClusterCache", "HttpsConnector"]
