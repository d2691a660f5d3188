"""Admission: changes or refusals of a write after authorization and before validation and the store.

The chain runs every mutating plug-in, then every validating one. In-process plug-ins and webhooks have the same shape.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from .authorization.users import User
from .errors import ApiError, forbidden

Obj = dict[str, Any]

# In place of a resource: all resources of a group, now or later.
EVERY = "*"
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
    # Filled by the mutating webhooks when the chain has to run a second time; no other code uses it.
    reinvocation: Reinvocation | None = None

    @property
    def display_name(self) -> str:
        """The name for errors: before a name is generated, its prefix."""
        metadata = (self.obj or {}).get("metadata") or {}
        return self.name or metadata.get("name") or metadata.get("generateName") or "Unknown"

    def forbidden(self, why: str) -> ApiError:
        return forbidden(self.group, self.resource, self.display_name, why)


@dataclass(slots=True)
class Reinvocation:
    """State of the mutating webhooks, kept between the chain's first and second run for one request."""

    second_round: bool = False
    wanted: bool = False
    output: Obj | None = None
    # Webhooks with reinvocationPolicy IfNeeded that ran since the last change, and those that must run again.
    invoked: set[str] = field(default_factory=set)
    again: set[str] = field(default_factory=set)

    def require(self) -> None:
        self.again |= self.invoked
        self.invoked = set()


class Plugin(Protocol):
    """A plug-in does one or both halves; refusing means raising an ApiError."""

    name: str

    async def admit(self, attributes: Attributes) -> None: ...

    async def validate(self, attributes: Attributes) -> None: ...
