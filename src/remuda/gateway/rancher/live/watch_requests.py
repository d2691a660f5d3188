"""The messages of `/v1/subscribe`: which watch a client starts or stops, and what it is told. Pure.

A watch is named by its type, namespace, id, selector and mode; there is one of each name on a connection. In the mode
`resource.changes` the client is told only that something changed, at most once in `debounceMs`, and lists again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from remuda.kube.clock import Clock, Timer
from remuda.kube.encoding import jsonio
from remuda.kube.errors import bad_request

Obj = dict[str, Any]

CHANGES: Final = "resource.changes"
START, STOP, ERROR = "resource.start", "resource.stop", "resource.error"
EVENTS: Final = {"ADDED": "resource.create", "MODIFIED": "resource.change", "DELETED": "resource.remove"}
# Clients look for these words in errors: they list again, or give up.
TOO_OLD, NOT_ALLOWED, NO_SCHEMA = "too old", "watch not allowed", "failed to find schema"
_LONGEST: Final = 4096
_SHORTEST_PAUSE, _LONGEST_PAUSE, _USUAL_PAUSE = 0.1, 60.0, 1.0
# A watch without a revision begins with the present objects.
_NO_REVISION: Final = ("", "0", "-1")


class WatchName(NamedTuple):
    """The identity of a watch, as its client wrote it."""

    resource_type: str
    namespace: str = ""
    id: str = ""
    selector: str = ""
    mode: str = ""

    def message(self, name: str, **more: Any) -> Obj:
        """A message about this watch."""
        said = {"namespace": self.namespace, "id": self.id, "selector": self.selector, "mode": self.mode}
        return {"name": name, "resourceType": self.resource_type, **{key: value for key, value in said.items() if value}, **more}


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """`revision` "" is for all present objects and then their changes; `pause` is in seconds."""

    name: WatchName
    revision: str = ""
    stop: bool = False
    pause: float = _USUAL_PAUSE

    @property
    def only_notices(self) -> bool:
        return self.name.mode == CHANGES

    def place(self, namespaced: bool) -> tuple[str, str]:
        """The namespace and the name to watch; a name may come with its namespace, as in ids of objects."""
        if not self.name.id:
            return (self.name.namespace if namespaced else ""), ""
        namespace, _, name = self.name.id.rpartition("/")
        if not namespaced:
            return "", name
        if namespace and self.name.namespace and namespace != self.name.namespace:
            raise bad_request("id: its namespace differs from the field namespace")
        return namespace or self.name.namespace, name


def parse(text: str) -> WatchRequest:
    """What a client says. Raises ApiError (400) that names the field."""
    try:
        said = jsonio.loads(text)
    except jsonio.JsonError:
        raise bad_request("the message is not JSON") from None
    if not isinstance(said, dict):
        raise bad_request("the message must be an object")
    name = WatchName(*(_text(said, key) for key in ("resourceType", "namespace", "id", "selector", "mode")))
    if not name.resource_type:
        raise bad_request("resourceType: must be the name of a type")
    if name.mode not in ("", CHANGES):
        raise bad_request(f"mode: must be {CHANGES}, or absent for the objects themselves")
    revision = _text(said, "resourceVersion")
    if revision in _NO_REVISION:
        revision = ""
    elif not (revision.isascii() and revision.isdigit() and len(revision) <= 19):
        raise bad_request("resourceVersion: must be a number")
    return WatchRequest(name, revision, said.get("stop") is True, _pause(said))


def _text(said: Obj, key: str) -> str:
    value = said.get(key)
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > _LONGEST:
        raise bad_request(f"{key}: must be a text of at most {_LONGEST} characters")
    return value


def _pause(said: Obj) -> float:
    value = said.get("debounceMs")
    if value is None:
        return _USUAL_PAUSE
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise bad_request("debounceMs: must be a number of milliseconds")
    return min(max(value / 1000, _SHORTEST_PAUSE), _LONGEST_PAUSE)


def ping(version: str) -> Obj:
    return {"name": "ping", "data": {"version": version}}


@dataclass(slots=True)
class Notices:
    """Reports changes by `tell`: the first one at once, those within the next `pause` seconds together at its end."""

    clock: Clock
    pause: float
    tell: Callable[[str], object]
    _revision: str = ""
    _timer: Timer | None = field(default=None)

    def note(self, revision: str) -> None:
        self._revision = revision
        if self._timer is None:
            self._send()

    def _send(self) -> None:
        revision, self._revision = self._revision, ""
        self._timer = self.clock.call_later(self.pause, self._paused)
        self.tell(revision)

    def _paused(self) -> None:
        self._timer = None
        if self._revision:
            self._send()

    def cancel(self) -> None:
        self._revision = ""
        if self._timer is not None:
            self._timer.cancel()
