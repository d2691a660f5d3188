"""The kinds of this group: names, how each is served, and the columns of `kubectl get`."""

from __future__ import annotations

from ..crd import Column, Kind, Version, age_column
from .names import GROUP, VERSION
from .v3 import auth


def _kind(type_: type, *columns: Column) -> Kind:
    return Kind(GROUP, type_.__name__, (Version(VERSION, type_, (*columns, age_column()), storage=True, status=False),))


KINDS = (
    _kind(
        auth.ClusterAuthToken,
        Column("User", ".userName", "string", "The user's id"),
        Column("Expires", ".expiresAt", "string", "When its time is over"),
    ),
    _kind(auth.ClusterUserAttribute, Column("Enabled", ".enabled", "boolean", "Whether the user is let in")),
)
