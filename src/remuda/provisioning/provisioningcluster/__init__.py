"""The controller of what a cluster with `rkeConfig` is made of (capr.md §2.2).

What there is to be is worked out in :mod:`remuda.provisioning.graph`; `applying` puts it onto the server, back where somebody
changed it, and takes away what is no longer wanted; `configs` reads what pools refer to; `controller` is the reconciler.
"""

from __future__ import annotations

from .controller import ProvisioningClusters

__all__ = ["ProvisioningClusters"]
