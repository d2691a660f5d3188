"""The CA in the connection's file follows the one that the server hands out: it may be replaced while hosts live on.

A new CA is accepted only over a connection that the present CA verifies, and only where there is such a CA: an agent that trusts
the system's roots, or that verifies nothing, has nothing to follow. The file keeps everything else as it is. A host that was away
while the CA was replaced follows in the same way: the server's certificate then comes with one of the new CA that the old CA has
signed.

The server says in an annotation of the plan's Secret which CA it hands out now, so hosts fetch it at once; otherwise
periodically.
"""

from __future__ import annotations

import base64
import hashlib
import os
import stat
import threading

from . import log
from .clock import Clock
from .errors import AgentError
from .key_fingerprints import fingerprints
from .paths import read_or_none, write_atomically
from .plan_secret import KubeApi, Secret

_EVERY, _AGAIN = 300.0, 30.0
_LARGEST = 1 << 18
#: The checksum of the CA that the server hands out.
CA_CHECKSUM = "remuda.dev/ca-checksum"


class CaFollower:
    """`path` is the connection's file."""

    def __init__(self, api: KubeApi, path: str, clock: Clock, stop: threading.Event) -> None:
        self._api = api
        self._path = path
        self._clock = clock
        self._stop = stop
        self._wake = threading.Event()
        self._hint = ""

    def start(self) -> None:
        threading.Thread(target=self._run, name="trust", daemon=True).start()

    def notice(self, secret: Secret) -> None:
        """A version of the plan's Secret: look soon if it says that there is another CA. Once for each that it says."""
        marks = secret.get("metadata", {}).get("annotations") or {}
        hint = str(marks.get(CA_CHECKSUM) or "")
        if hint and hint != self._hint:
            self._hint = hint
            if self._api.ca and hint != checksum_of(self._api.ca):
                self._wake.set()

    def trusted(self) -> list[str]:
        """The CAs that this host trusts, by the fingerprints of their keys; none if it has no CA to follow."""
        return fingerprints(self._api.ca)

    def _run(self) -> None:
        while not self._stop.is_set():
            pause = _EVERY
            try:
                self.refresh()
            except (AgentError, OSError) as reason:
                log.debug(f"the server's CA can't be checked: {reason}")
                pause = _AGAIN
            self._clock.wait(self._wake, pause)
            self._wake.clear()

    def refresh(self) -> bool:
        """True when it has begun to trust another CA."""
        known = self._api.ca
        if not known:
            return False
        told = self._api.call("GET", "/v3/settings/cacerts").get("value")
        if not isinstance(told, str) or "BEGIN CERTIFICATE" not in told or len(told) > _LARGEST or told.strip() == known.strip():
            return False
        self._api.believe(told)
        # A CA that can't be kept for the next agent on this host is not trusted by this one either.
        try:
            written = self._replace(known, told)
        except OSError:
            self._api.believe(known)
            raise
        if not written:
            self._api.believe(known)
            return False
        log.info("the server has another CA now, which this host trusts from now on")
        return True

    def _replace(self, known: str, told: str) -> bool:
        content = read_or_none(self._path)
        before = base64.b64encode(known.encode())
        if content is None or content.count(before) != 1:
            return False
        mode = stat.S_IMODE(os.stat(self._path).st_mode)
        write_atomically(self._path, content.replace(before, base64.b64encode(told.encode())), mode)
        return True


def checksum_of(ca: str) -> str:
    """The checksum as the server computes it: of the bundle with one end of line."""
    return hashlib.sha256(f"{ca.rstrip()}\n".encode()).hexdigest()
