"""What the API server's own parts (authorizer, admission, token checks) see of the stored objects.

They read the watch cache in-process, synchronously, and are told of every change. Objects are shared: read-only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

Obj = dict[str, Any]

# Called with (new, old): old is None for an object that appeared, new is None for one that went.
Listener = Callable[[Obj | None, Obj | None], None]


class ObjectSource(Protocol):
    def get(self, group: str, resource: str, namespace: str, name: str) -> Obj | None:
        """The newest object, in its storage version, or None."""

    def list(self, group: str, resource: str, namespace: str = "") -> Iterable[Obj]:
        """All of them, or those of one namespace; empty for a resource that is not served."""

    def subscribe(self, group: str, resource: str, listener: Listener) -> None:
        """Call `listener(obj, None)` for what is there now, then for every change, in order, on the event loop."""
