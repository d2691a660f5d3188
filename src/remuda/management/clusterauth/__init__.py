"""The authorised cluster endpoint: tokens that a cluster checks by itself, so that it can be used while this server is away.

:mod:`.desired` says what a cluster has to know for that, :mod:`.controller` keeps it there, and `remuda kube-api-auth`
(:mod:`remuda.clusteragent.reviewing`) answers the cluster's API server from it.
"""

from .controller import NAME, ClusterAuth

__all__ = ["NAME", "ClusterAuth"]
