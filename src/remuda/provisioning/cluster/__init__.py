"""The mirror of clusters.provisioning.cattle.io and clusters.management.cattle.io (capr.md §2.1).

Two reconcilers, one for each kind: :class:`WantedClusters` and :class:`ManagementMirror`. What follows from what is pure, in
`mirror`, `states` and `identity`; `kubeconfig` gives controllers a way into a cluster, `removal` takes all of it away again.
"""

from __future__ import annotations

from .controller import WantedClusters
from .kubeconfig import Kubeconfigs, Unsettled
from .managed import ManagementMirror

__all__ = ["Kubeconfigs", "ManagementMirror", "Unsettled", "WantedClusters"]
