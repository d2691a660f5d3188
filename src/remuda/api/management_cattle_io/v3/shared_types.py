"""What several kinds of this group have inside them, where Rancher's definitions keep fields that they do not describe."""

from __future__ import annotations

from typing import Annotated, Any, Required, TypedDict

from ...cattle import Condition, Text
from ...scheduling import Quantity
from ...schema import Doc, Preserve, rules

Resources = dict[str, Quantity] | None
Strings = dict[str, str] | None
# A whole type of Kubernetes, or of a provider, that is only passed on here.
Opaque = Annotated[dict[str, Any] | None, Preserve()]


@rules(Preserve())
class OpenCondition(Condition, total=False):
    """One aspect of an object's state, as Rancher writes it."""


@rules(Preserve())
class EnvVar(TypedDict, total=False):
    """An environment variable."""

    name: Required[Annotated[str, Doc("Its name.")]]
    value: Annotated[Text, Doc("Its value.")]
    valueFrom: Annotated[Opaque, Doc("Where its value comes from, if it is not said here.")]
