"""What v1beta1 says in its own way in many places: timeouts as durations, counts and conditions of v1beta2 in a corner."""

from __future__ import annotations

from typing import Annotated, TypedDict

from ...kubernetes import Conditions
from ...schema import Doc, Duration, Int64, Items
from ..shared_types import ReadinessGates

Gates = Annotated[ReadinessGates, Items(most=32)]
ObservedGeneration = Annotated[Int64, Doc("The metadata.generation that this status is about.")]


class DeletionTimeouts(TypedDict, total=False):
    """How long each step of a Machine's deletion may take."""

    nodeDeletionTimeout: Annotated[Duration, Doc("How long to try to delete the node; 0: until it is done. Default 10s.")]
    nodeDrainTimeout: Annotated[Duration, Doc("How long draining the node may take; 0, the default: as long as it needs.")]
    nodeVolumeDetachTimeout: Annotated[
        Duration, Doc("How long to wait for volumes to be detached; 0, the default: as long as it needs.")
    ]


class NewConditions(TypedDict, total=False):
    """What v1beta2 says of the status."""

    conditions: Conditions
