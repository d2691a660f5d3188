"""The objects that a cluster with `rkeConfig` is made of, as they follow from it (capr.md §3). Pure.

:func:`graph_of` is the whole; :mod:`.cluster` has the parts that every cluster has, :mod:`.pools` those of its machine pools,
:mod:`.names` what all of them are called, :mod:`.states` what the cluster says of them in turn.
:mod:`remuda.provisioning.provisioningcluster` puts them onto the server.
"""

from __future__ import annotations

from .pieces import Generated, Unrenderable
from .rendering import graph_of

__all__ = ["Generated", "Unrenderable", "graph_of"]
