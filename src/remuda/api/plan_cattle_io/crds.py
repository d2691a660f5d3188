"""The kinds of this group: names, how each is served, and the columns of `kubectl get`."""

from __future__ import annotations

from ..cattle import CLUSTER_INDEXED
from ..crd import Column, Kind, Version
from .names import GROUP, VERSION
from .v1alpha1 import beacon

BEACON = Kind(
    GROUP,
    "Beacon",
    (
        Version(
            VERSION,
            beacon.Beacon,
            (
                Column("Active", ".status.active", "string", "Whether somebody sends plans"),
                Column("Registration Endpoint", ".status.registrationEndpoint", "string", "Where machines ask for their plans"),
            ),
            storage=True,
        ),
    ),
    categories=("planning",),
    labels=CLUSTER_INDEXED,
)

KINDS = (BEACON,)
