"""Progress of the host, sent to the server line by line for users who watch (``POST /v3/connect/progress``).

Delivery is best effort: lines wait in a short ring, are sent in batches by a separate thread, and are dropped when the server is
slow, away, or does not support them. They are not stored anywhere and the plan's Secret is not written for them.
"""

from __future__ import annotations

import collections
import threading

from .clock import Clock
from .errors import ApiError
from .plan_secret import KubeApi

_RING = 200
_LONGEST = 1000
_BATCH_PAUSE = 0.5
_AWAY_PAUSE = 60.0
_DEAF_PAUSE = 3600.0
_HIDDEN = "***"


class Progress:
    """The ring, and the thread that empties it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ring: collections.deque[str] = collections.deque(maxlen=_RING)
        self._some = threading.Event()
        self._secrets: tuple[str, ...] = ()
        self._on = False

    def say(self, line: str) -> None:
        """Hand over one line; never waits."""
        if not self._on:
            return
        for secret in self._secrets:
            line = line.replace(secret, _HIDDEN)
        self._ring.append(line[:_LONGEST])
        self._some.set()

    def start(self, api: KubeApi, stop: threading.Event) -> None:
        """Begin to send; the token that opens the plan is never a line."""
        self._on = True
        self._secrets = (api.token,) if api.token else ()
        threading.Thread(target=self._run, args=(api, stop), name="progress", daemon=True).start()

    def _run(self, api: KubeApi, stop: threading.Event) -> None:
        while not stop.is_set():
            self._some.wait()
            self._clock.wait(stop, _BATCH_PAUSE)
            self._clock.wait(stop, self.send(api))

    def send(self, api: KubeApi) -> float:
        """Send the collected lines; the seconds to wait afterwards."""
        self._some.clear()
        lines = []
        while self._ring:
            lines.append(self._ring.popleft())
        if not lines:
            return 0.0
        try:
            api.call("POST", "/v3/connect/progress", {"lines": lines}, timeout=10.0)
        except ApiError as reason:
            return _DEAF_PAUSE if reason.status in (404, 405) else _AWAY_PAUSE
        return 0.0
