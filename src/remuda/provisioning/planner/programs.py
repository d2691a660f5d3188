"""The agent as the planner sees it: one file for hosts. :mod:`.managesystemagent` says which of them get it."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field

from ..plans.plan import File


@dataclass(frozen=True, slots=True)
class AgentProgram:
    """The agent that the server would have its hosts run; `content` is base64. `at_once` hosts of a cluster get it at a time."""

    checksum: str
    content: str = field(repr=False)
    at_once: int = 5

    @classmethod
    def of(cls, archive: bytes) -> AgentProgram:
        return cls(hashlib.sha256(archive).hexdigest(), base64.b64encode(archive).decode())

    def file(self, directory: str) -> File:
        path = f"{directory}/{self.checksum}.pyz"
        return File(self.content, path, "0755", dynamic=True, minor=True)
