"""One request to the API in the form of the verbs, over HTTP or in process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from remuda.kube.authorization.users import SYSTEM, User

from ..registry.resources import Version
from ..watch.filtered_list import Sight

Obj = dict[str, Any]

STRICT, WARN, IGNORE = "Strict", "Warn", "Ignore"


@dataclass(slots=True)
class Call:
    """`version` is the resource, in the version of the caller."""

    version: Version
    verb: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    user: User = SYSTEM
    manager: str = ""
    # Set when the caller gave a field manager itself; `manager` may also come from its User-Agent.
    field_manager: str = ""
    dry_run: bool = False
    # Empty when the caller gave none: then it warns.
    field_validation: str = ""
    force: bool | None = None
    warnings: list[str] = field(default_factory=list)
    # The body as it came over the wire, for messages that quote it.
    sent: bytes = b""
    # In-process callers are the server itself and are not authorized again.
    trusted: bool = False
    # For a list or watch of which the caller may see a part.
    only: Sight | None = None

    def options(self, kind: str) -> Obj:
        """The options object for admission webhooks."""
        found: Obj = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
        if self.dry_run:
            found["dryRun"] = ["All"]
        if self.field_manager:
            found["fieldManager"] = self.field_manager
        if kind != "DeleteOptions" and self.field_validation:
            found["fieldValidation"] = self.field_validation
        return found


@dataclass(slots=True)
class DeleteOptions:
    grace_seconds: int | None = None
    propagation: str = ""
    orphan_dependents: bool | None = None
    uid: str = ""
    resource_version: str = ""

    def to_object(self, dry_run: bool) -> Obj:
        found: Obj = {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}
        if self.grace_seconds is not None:
            found["gracePeriodSeconds"] = self.grace_seconds
        if self.propagation:
            found["propagationPolicy"] = self.propagation
        if self.orphan_dependents is not None:
            found["orphanDependents"] = self.orphan_dependents
        preconditions = {}
        if self.uid:
            preconditions["uid"] = self.uid
        if self.resource_version:
            preconditions["resourceVersion"] = self.resource_version
        if preconditions:
            found["preconditions"] = preconditions
        if dry_run:
            found["dryRun"] = ["All"]
        return found


@dataclass(slots=True)
class ListOptions:
    labels: str = ""
    fields: str = ""
    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    resource_version_match: str = ""
    watch: bool = False
    bookmarks: bool = False
    send_initial_events: bool | None = None
    timeout_seconds: int = 0
