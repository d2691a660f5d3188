"""Admission: what may still change or refuse a write after authorization and before validation and the store.

The chain runs every mutating plug-in, then every validating one. In-process plug-ins and webhooks have the same shape.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from ..users import User

Obj = dict[str, Any]

CREATE, UPDATE, DELETE, CONNECT = "CREATE", "UPDATE", "DELETE", "CONNECT"


@dataclass(slots=True)
class Attributes:
    """One write as admission sees it. `obj` may be replaced (not changed in place) by a mutating plug-in.

    `group/version/resource` are those of the request; `obj` and `old` are in that version. For DELETE `obj` is None.
    """

    operation: str
    group: str
    version: str
    resource: str
    kind: str
    namespace: str
    name: str
    user: User
    subresource: str = ""
    obj: Obj | None = None
    old: Obj | None = None
    options: Obj = field(default_factory=dict)
    dry_run: bool = False
    warnings: list[str] = field(default_factory=list)
    # Annotations for the audit log.
    annotations: dict[str, str] = field(default_factory=dict)


class Plugin(Protocol):
    """A plug-in does one or both halves; refusing means raising an ApiError."""

    name: str

    async def admit(self, attributes: Attributes) -> None: ...

    async def validate(self, attributes: Attributes) -> None: ...
