"""The kinds of this group: names, how each is served, and the columns of `kubectl get`."""

from __future__ import annotations

from typing import Annotated

from ..cattle import Text
from ..crd import Column, Kind, Version, age_column
from ..schema import Doc, Object, Preserve, Time, rules
from . import GROUP, VERSION

# --- auth -----------------------------------------------------------------------------------------------------------------
#
# ClusterAuthToken and ClusterUserAttribute: who a token lets in, in the words of the cluster that is asked directly.


@rules(Preserve())
class ClusterAuthToken(Object, total=False):
    """A token that is good for this cluster; its name is the first half of what is shown."""

    enabled: Annotated[bool | None, Doc("It is good.")]
    expiresAt: Annotated[Text, Doc("When its time is over, in RFC 3339; empty: never.")]
    hash: Annotated[Text, Doc("The hash of the second half of what is shown.")]
    lastUsedAt: Annotated[Time | None, Doc("When it was last shown here.")]
    userName: Annotated[Text, Doc("The user's id, which is the name of a ClusterUserAttribute.")]


@rules(Preserve())
class ClusterUserAttribute(Object, total=False):
    """A user of this cluster; the name is the user's id."""

    enabled: Annotated[bool | None, Doc("The user is let in.")]
    groups: Annotated[list[str] | None, Doc("The groups that the user is in.")]
    lastRefresh: Annotated[Text, Doc("When the groups were last asked for.")]
    needsRefresh: Annotated[bool | None, Doc("The groups should be asked for again.")]


# --- crds -----------------------------------------------------------------------------------------------------------------


def _kind(type_: type, *columns: Column) -> Kind:
    return Kind(GROUP, type_.__name__, (Version(VERSION, type_, (*columns, age_column()), storage=True, status=False),))


KINDS = (
    _kind(
        ClusterAuthToken,
        Column("User", ".userName", "string", "The user's id"),
        Column("Expires", ".expiresAt", "string", "When its time is over"),
    ),
    _kind(ClusterUserAttribute, Column("Enabled", ".enabled", "boolean", "Whether the user is let in")),
)
