"""The newest version of the plan's Secret, kept by a thread: list, watch from there, begin again when the watch ends.

Only the newest version matters, so there is no queue: ``wake`` is set and ``newest`` is taken. A server that is away is asked
again and again, with a pause that grows to a minute; nothing is lost, since each new connection begins with a list.
"""

from __future__ import annotations

import threading

from . import log
from .clock import Clock
from .errors import ApiError
from .plan_secret import KubeApi, Secret

_WATCH_SECONDS = 480
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
#: So often in a row the token is refused before the agent gives up, to be started anew with what an installer may have written.
_REFUSALS = 12


class SecretWatch:
    """Follows one Secret."""

    def __init__(self, api: KubeApi, namespace: str, name: str, clock: Clock, stop: threading.Event) -> None:
        self.api = api
        self.namespace = namespace
        self.name = name
        self.clock = clock
        self.stop = stop
        self.wake = threading.Event()
        self.fatal = ""
        self._newest: Secret | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        threading.Thread(target=self._run, name="watch", daemon=True).start()

    def newest(self) -> Secret | None:
        with self._lock:
            return self._newest

    def offer(self, secret: Secret | None) -> None:
        """A version seen: kept unless an event has brought a newer one. Our own writes come in this way too."""
        with self._lock:
            if secret is not None and self._newest is not None and older(secret, self._newest):
                return
            self._newest = secret
        self.wake.set()

    def _run(self) -> None:
        pause, refusals = _FIRST_PAUSE, 0
        while not self.stop.is_set():
            try:
                self._follow()
                pause, refusals = _FIRST_PAUSE, 0
                continue
            except ApiError as reason:
                refusals = refusals + 1 if reason.status == 401 else 0
                if reason.status == 410:
                    pause = _FIRST_PAUSE  # our version is too old for a watch: list again
                else:
                    log.warning(f"can't follow the plan: {reason}; again in {pause:g} s")
                if refusals >= _REFUSALS:
                    self.fatal = f"the server refuses this host's token: {reason}"
                    self.wake.set()
                    return
            except Exception:  # the thread's outermost edge: one odd answer must not end the agent's ears
                log.exception(f"can't follow the plan; again in {pause:g} s")
            self.clock.wait(self.stop, pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _follow(self) -> None:
        secret, version = self.api.list(self.namespace, self.name)
        self.offer(secret)
        while not self.stop.is_set():
            heard = False
            for kind, body in self.api.watch(self.namespace, self.name, version, _WATCH_SECONDS):
                heard = True
                version = str(body.get("metadata", {}).get("resourceVersion") or version)
                if kind in ("ADDED", "MODIFIED"):
                    self.offer(body)
                elif kind == "DELETED":
                    self.offer(None)
            if not heard:
                self.clock.wait(self.stop, _FIRST_PAUSE)  # a server that ends silent watches at once is not asked in a rush
            if not version or version == "0":
                return


def older(one: Secret, other: Secret) -> bool:
    """Whether one version of the same object precedes the other; versions that are no numbers are never older."""
    mine, theirs = one.get("metadata", {}), other.get("metadata", {})
    if mine.get("uid") != theirs.get("uid"):
        return False
    try:
        return int(mine.get("resourceVersion")) < int(theirs.get("resourceVersion"))
    except (TypeError, ValueError):
        return False
