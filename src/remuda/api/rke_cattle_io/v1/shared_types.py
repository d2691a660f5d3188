"""What the kinds of this group share."""

from __future__ import annotations

from typing import Annotated, TypedDict

from ...cattle import Condition
from ...schema import Doc, ListMap, MinProperties, rules

# A map by type, as elsewhere in these groups: several controllers write conditions of the same object.
Conditions = Annotated[list[Condition], Doc("The state of this object, aspect by aspect."), ListMap("type")]


@rules(MinProperties(1))
class Provisioning(TypedDict, total=False):
    """How far it is, as Cluster API asks of infrastructure."""

    provisioned: Annotated[bool, Doc("The infrastructure is there; never changes back.")]
