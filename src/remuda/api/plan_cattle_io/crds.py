"""The kinds of this group: names, how each is served, and the columns of `kubectl get`."""

from __future__ import annotations

from typing import Annotated, Required, TypedDict

from ..cattle import CLUSTER_INDEXED
from ..crd import Column, Kind, Version
from ..kubernetes import Condition
from ..schema import Doc, ListMap, Object
from . import GROUP, VERSION

# --- beacon ---------------------------------------------------------------------------------------------------------------
#
# Beacon: who may send plans to a cluster's machines at the moment. A lock, and where machines ask for their plans.


class BeaconSpec(TypedDict, total=False):
    """There is nothing to say."""


class BeaconStatus(TypedDict, total=False):
    """The holder of the beacon."""

    active: Required[Annotated[bool, Doc("A holder sends plans: machines should read them.")]]
    conditions: Annotated[list[Condition], Doc("The state of this object, aspect by aspect."), ListMap("type")]
    delegates: Annotated[list[str], Doc("The delegates of the owner, one for the other; the last of them acts now.")]
    owner: Annotated[str, Doc("The holder, such as planner; empty: none.")]
    registrationEndpoint: Annotated[str, Doc("The URL at which a machine asks for its plan.")]


class Beacon(Object, total=False):
    """Says whether a cluster's machines may expect plans, and from whom; one for each cluster, with its name."""

    spec: BeaconSpec
    status: BeaconStatus


# --- crds -----------------------------------------------------------------------------------------------------------------

BEACON = Kind(
    GROUP,
    "Beacon",
    (
        Version(
            VERSION,
            Beacon,
            (
                Column("Active", ".status.active", "string", "Whether plans are sent"),
                Column(
                    "Registration Endpoint",
                    ".status.registrationEndpoint",
                    "string",
                    "The address from which machines get their plans",
                ),
            ),
            storage=True,
        ),
    ),
    categories=("planning",),
    labels=CLUSTER_INDEXED,
)

KINDS = (BEACON,)
