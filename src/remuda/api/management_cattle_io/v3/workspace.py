"""FleetWorkspace: a namespace that clusters are in. All there is to say about one is its metadata."""

from __future__ import annotations

from typing import Annotated, TypedDict

from ...schema import Doc, Object


class FleetWorkspaceStatus(TypedDict, total=False):
    """Nothing yet."""


class FleetWorkspace(Object, total=False):
    """A namespace that clusters are in, with the same name."""

    status: Annotated[FleetWorkspaceStatus, Doc("Nothing yet.")]
