"""The objects that a cluster with `rkeConfig` consists of.

Pure: `cluster_objects` (with `graph_of`, the whole graph), `machine_pools`, `podsecurity`, `cluster_status`.
`provisioningcluster` is the controller; `apply` writes and prunes, `referenced_objects` reads what pools refer to.
Not here: names and labels outside the graph (`provisioning.well_known`).
Read :mod:`.cluster_objects`, then :mod:`.machine_pools`.
"""

from __future__ import annotations

from .cluster_objects import graph_of
from .generated import Generated, Unrenderable

__all__ = ["Generated", "Unrenderable", "graph_of"]
