"""The CA in the connection's file follows the one that the server hands out: it may be replaced while hosts live on.

Only what comes over a connection that the present CA vouches for is believed, and only where there is such a CA: who trusts the
system's roots, or nobody, has nothing to follow. The file keeps everything else as it is.
"""

from __future__ import annotations

import base64
import os
import stat
import threading

from . import log
from .clock import Clock
from .errors import AgentError
from .kubeapi import KubeApi
from .paths import read_or_none, write_atomically

_EVERY = 300.0
_LARGEST = 1 << 18


class Trusting:
    """`path` is the connection's file."""

    def __init__(self, api: KubeApi, path: str, clock: Clock, stop: threading.Event) -> None:
        self._api = api
        self._path = path
        self._clock = clock
        self._stop = stop

    def start(self) -> None:
        threading.Thread(target=self._run, name="trust", daemon=True).start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.refresh()
            except (AgentError, OSError) as reason:
                log.debug(f"the server's CA can't be looked at: {reason}")
            self._clock.wait(self._stop, _EVERY)

    def refresh(self) -> bool:
        """True when another CA is believed from now on."""
        known = self._api.ca
        if not known:
            return False
        told = self._api.call("GET", "/v3/settings/cacerts").get("value")
        if not isinstance(told, str) or "BEGIN CERTIFICATE" not in told or len(told) > _LARGEST or told.strip() == known.strip():
            return False
        self._api.believe(told)
        # What the next agent on this host could not know is not believed by this one either.
        try:
            written = self._replace(known, told)
        except OSError:
            self._api.believe(known)
            raise
        if not written:
            self._api.believe(known)
            return False
        log.info("the server has another CA now, which this host believes from now on")
        return True

    def _replace(self, known: str, told: str) -> bool:
        content = read_or_none(self._path)
        before = base64.b64encode(known.encode())
        if content is None or content.count(before) != 1:
            return False
        mode = stat.S_IMODE(os.stat(self._path).st_mode)
        write_atomically(self._path, content.replace(before, base64.b64encode(told.encode())), mode)
        return True
