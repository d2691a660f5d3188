"""The objects that a cluster with `rkeConfig` consists of.

Pure: `cluster_objects` (:func:`graph_of`), `machine_pools`, `podsecurity`, `cluster_status`.
`provisioningcluster` is the controller; `apply` writes and prunes, `referenced_objects` reads what pools refer to.
Not here: names and labels (`provisioning.well_known`).
Read :mod:`.cluster_objects` first.
"""

from __future__ import annotations

from .generated import Generated, Unrenderable
from .rendering import graph_of

__all__ = ["Generated", "Unrenderable", "graph_of"]
