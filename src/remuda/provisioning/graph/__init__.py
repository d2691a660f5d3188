"""The objects that a cluster with `rkeConfig` consists of.

Pure: `rendering` (:func:`graph_of`, the whole graph), `cluster_objects`, `machine_pools`, `podsecurity`, `cluster_status`.
`provisioningcluster` is the controller; `apply` writes and prunes, `referenced_objects` reads what pools refer to.
Not here: names and labels outside the graph (`provisioning.well_known`).
Read :mod:`.rendering`, then :mod:`.cluster_objects`.
"""

from __future__ import annotations

from .generated import Generated, Unrenderable
from .rendering import graph_of

__all__ = ["Generated", "Unrenderable", "graph_of"]
