"""Clusters: their infrastructure and control plane handed over by contract, summed up, and taken down in order.

:mod:`.controller` is the way in; what it decides is in :mod:`.status`, :mod:`.replicas` and :mod:`.deletion`.
"""

from .controller import Clusters

__all__ = ["Clusters"]
