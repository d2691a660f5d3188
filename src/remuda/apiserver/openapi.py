"""OpenAPI v3 documents."""

from __future__ import annotations

from typing import Any

from .discovery import Discovery
from .resources import Registry

Obj = dict[str, Any]


class OpenApi:
    def __init__(self, registry: Registry, discovery: Discovery) -> None:
        self._d = discovery

    def index(self) -> Obj:
        return {"paths": {}}

    def document(self, name: str) -> tuple[bytes, str] | None:
        return None
