"""The stored objects as the API server's own parts (authorizer, admission, token checks) see them.

They read the watch cache in-process, synchronously, and subscribe to every change. Objects are shared: read-only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

Obj = dict[str, Any]

# Called with (new, old): old is None for an object that appeared, new is None for one that is gone.
Listener = Callable[[Obj | None, Obj | None], None]


class ObjectSource(Protocol):
    def get(self, group: str, resource: str, namespace: str, name: str) -> Obj | None:
        """The newest object, in its storage version, or None."""

    def list(self, group: str, resource: str, namespace: str = "") -> Iterable[Obj]:
        """All of them, or those of one namespace; empty for a resource that is not served."""

    def subscribe(self, group: str, resource: str, listener: Listener) -> None:
        """Call `listener(obj, None)` for the existing objects, then for every change, in order, on the event loop."""
