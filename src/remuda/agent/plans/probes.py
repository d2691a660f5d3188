"""Probes: health checks of the software that the plan installed (docs/reference/agent.md#probes).

All run at once, each with its own deadline; counters stop at their thresholds, so that a host that stays healthy (or unhealthy)
writes nothing. A probe without a timeout gets one: the original would wait for ever, and block the whole agent.
"""

from __future__ import annotations

import json
import os
import ssl
import threading
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit

from ..clock import Clock
from ..http_client import Trust, WebError, connect, request, target_of
from .plan import HttpGet, Probe

_MOST_REDIRECTS = 10
_NO_TIMEOUT = 60.0
#: The longest time to wait for a probe, even if the plan says more; also, waits on locks have a maximum.
_LONGEST = 24 * 3600.0
_HEADERS = {"User-Agent": "kube-probe/.", "Accept": "*/*", "Connection": "close"}


class ProbeStatus(NamedTuple):
    healthy: bool = False
    successes: int = 0
    failures: int = 0

    def json(self) -> dict[str, Any]:
        known = {"healthy": self.healthy, "successCount": self.successes, "failureCount": self.failures}
        return {name: value for name, value in known.items() if value}


def after(status: ProbeStatus, probe: Probe, success: bool) -> ProbeStatus:
    """The state after one more answer."""
    if success:
        successes = min(status.successes + 1, max(probe.success_threshold, status.successes))
        return ProbeStatus(status.healthy or successes >= probe.success_threshold, successes, 0)
    failures = min(status.failures + 1, max(probe.failure_threshold, status.failures))
    return ProbeStatus(status.healthy and failures < probe.failure_threshold, 0, failures)


def decode(data: bytes) -> dict[str, ProbeStatus]:
    try:
        value = json.loads(data) if data else {}
    except (ValueError, RecursionError):
        return {}
    if not isinstance(value, dict):
        return {}
    return {name: status(item) for name, item in value.items() if isinstance(item, dict)}


def status(item: dict[str, Any]) -> ProbeStatus:
    counts = [item.get(name) for name in ("successCount", "failureCount")]
    successes, failures = (count if isinstance(count, int) else 0 for count in counts)
    return ProbeStatus(bool(item.get("healthy")), successes, failures)


def encode(statuses: dict[str, ProbeStatus]) -> bytes:
    return json.dumps({name: statuses[name].json() for name in sorted(statuses)}, separators=(",", ":")).encode()


class Prober:
    """Runs probes; keeps TLS contexts, since reading the system's roots every five seconds would be most of the agent's work."""

    def __init__(self, clock: Clock, log: Callable[[str], None] = lambda line: None) -> None:
        self._clock = clock
        self._log = log
        self._contexts: dict[tuple[Any, ...], ssl.SSLContext] = {}
        self._lock = threading.Lock()

    def ask_all(
        self, probes: dict[str, Probe], before: dict[str, ProbeStatus], delay: bool, stop: threading.Event
    ) -> dict[str, ProbeStatus]:
        """The states after asking each probe once; ``delay`` when the one-time instructions have just run."""
        answers: dict[str, bool] = {}

        def ask(name: str, probe: Probe) -> None:
            if delay and probe.initial_delay > 0:
                self._clock.wait(stop, min(probe.initial_delay, _LONGEST))
            answers[name] = self.ask(probe)

        threads = [threading.Thread(target=ask, args=item, daemon=True) for item in probes.items()]
        for thread in threads:
            thread.start()
        for thread, probe in zip(threads, probes.values()):
            # Each step of a request has the timeout; a peer that drips could still take many of them.
            wait = 2 * (probe.timeout or _NO_TIMEOUT) + 5 + (probe.initial_delay if delay else 0)
            thread.join(min(wait, _LONGEST))
        return {name: after(before.get(name, ProbeStatus()), probe, answers.get(name, False)) for name, probe in probes.items()}

    def ask(self, probe: Probe) -> bool:
        """True if one request succeeds."""
        try:
            url = urlsplit(probe.http_get.url)
            host = url.hostname
            for _ in range(_MOST_REDIRECTS):
                status, location = self._get(url, probe)
                if status in (301, 302, 303, 307, 308) and location:
                    url = urlsplit(urljoin(url.geturl(), location))
                    if url.hostname != host:
                        return False
                    continue
                return 200 <= status < 300
        except (WebError, ValueError, OverflowError, OSError) as reason:
            self._log(f"probe {probe.name or probe.http_get.url}: {reason}")
        return False

    def _get(self, url: SplitResult, probe: Probe) -> tuple[int, str]:
        get = probe.http_get
        if url.scheme != "https":
            return self._ask(url, probe, None)
        try:
            return self._ask(url, probe, self._context(get, roots=not get.ca_cert))
        except WebError as reason:
            if not reason.untrusted or not get.ca_cert:
                raise
        # A CA that is named is added to the system's. Those take megabytes, and probes seldom need them.
        return self._ask(url, probe, self._context(get, roots=True))

    def _ask(self, url: SplitResult, probe: Probe, context: ssl.SSLContext | None) -> tuple[int, str]:
        connection = connect(url, context, probe.timeout or _NO_TIMEOUT, env={})
        try:
            answer = request(connection, "GET", target_of(url), _HEADERS)
            return answer.status, answer.getheader("Location") or ""
        finally:
            connection.close()

    def _context(self, get: HttpGet, roots: bool) -> ssl.SSLContext:
        files = (get.ca_cert, get.client_cert, get.client_key)
        key = (get.insecure, roots, *((name, _mtime(name)) for name in files))
        with self._lock:
            context = self._contexts.get(key)
            if context is None:
                if len(self._contexts) > 32:
                    self._contexts.clear()
                context = Trust("", get.ca_cert, roots, get.insecure, get.client_cert, get.client_key).context()
                self._contexts[key] = context
        return context


def _mtime(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns if path else 0
    except OSError:
        return -1
