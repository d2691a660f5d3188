"""Connections to workload clusters: made, probed, remade and dropped by themselves. Behind the port :mod:`..workloads`."""

from .cache import ClusterCache
from .https import HttpsConnector
from .link import CacheOptions

__all__ = ["CacheOptions", "ClusterCache", "HttpsConnector"]
