"""What clients and controllers notice when the leading replica or etcd's leader goes away, under a steady load.

A load of its own runs for each event: it is calm first, then something happens, and it goes on for a while after all is well.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from tests.bench import objects
from tests.bench.etcd.replicas import Replicas
from tests.bench.loader import Loader, Retried
from tests.bench.servers import Remuda, ServerError, request
from tests.real.etcd import EtcdCluster

CLIENTS, RATE = 16, 160
NAMESPACE = "bench-steady"
# Before the event, and after everything works again; for how long to wait for that.
CALM, AFTER, LIMIT = 3.0, 3.0, 90.0
POLL = 0.02

KILL, STOP, ETCD = "leader killed (-9)", "leader stopped (TERM)", "etcd's leader killed (-9)"


@dataclass(frozen=True, slots=True)
class Event:
    """Times are in seconds from the signal.

    held:    until another replica holds the Lease; None where it need not change hands.
    moved:   whether it did.
    acted:   until a namespace, made once all that was so, has what the controllers put into it.
    elected: until etcd has another leader.
    ended:   until the process that was told to stop had ended.
    missing: objects whose creation was acknowledged, and that are not there afterwards.
    """

    kind: str
    held: float | None
    moved: bool
    acted: float
    elected: float | None
    ended: float | None
    missing: int
    retried: Retried


class Disruptions:
    """Does one after the other, and puts everything back in between."""

    def __init__(self, replicas: Replicas, etcd: EtcdCluster, loader: Loader) -> None:
        self._replicas = replicas
        self._etcd = etcd
        self._loader = loader
        self._number = 0

    def prepare(self) -> None:
        make_namespace(self._replicas.servers[0], NAMESPACE)

    def kill_leader(self) -> Event:
        leader = self._replicas.leading()
        victim = self._replicas.servers[leader]
        event = self._happen(KILL, victim.kill, avoid=leader)
        victim.start()
        return event

    def stop_leader(self) -> Event:
        leader = self._replicas.leading()
        victim = self._replicas.servers[leader]
        event = self._happen(STOP, victim.terminate, avoid=leader, told=victim)
        victim.start()
        return event

    def kill_etcd_leader(self) -> Event:
        member = self._etcd.wait_leader()
        event = self._happen(ETCD, lambda: self._etcd.kill(member), avoid=self._replicas.leading(), member=member)
        self._etcd.restore()
        return event

    # --- parts ---------------------------------------------------------------------------------------------------------

    def _happen(
        self, kind: str, act: Callable[[], None], *, avoid: int, told: Remuda | None = None, member: int | None = None
    ) -> Event:
        """Watched through another replica than `avoid`. `member` is etcd's that goes away, `told` a server that ends itself."""
        self._number += 1
        prefix = f"event-{self._number}-"
        through = (avoid + 1) % len(self._replicas.servers)
        server = self._replicas.servers[through]
        before = self._replicas.holder(through)
        held = elected = ended = None
        path, body = objects.configmap_path(NAMESPACE), objects.configmap()
        with self._loader.going(path, body=body, clients=CLIENTS, rate=RATE, prefix=prefix) as load:
            time.sleep(CALM)
            load.mark()
            began = time.monotonic()
            act()
            with ThreadPoolExecutor(1) as aside:
                ending = aside.submit(_ended, told, began) if told is not None else None
                if member is None:
                    held = _since(began, lambda: self._replicas.holder(through) not in ("", before))
                else:
                    elected = _since(began, lambda: self._etcd.leader() not in (None, member))
                acted = self._acted(began, server)
                ended = ending.result() if ending is not None else None
            time.sleep(AFTER)
            retried = load.stop()
        moved = self._replicas.holder(through) not in ("", before)
        return Event(kind, held, moved, acted, elected, ended, _missing(server, path, prefix, retried), retried)

    def _acted(self, began: float, server: Remuda) -> float:
        """The namespace is new, so what is in it was put there by whoever leads now."""
        name = f"bench-acted-{self._number}"
        make_namespace(server, name)
        root = f"{objects.configmap_path(name)}/kube-root-ca.crt"
        return _since(began, lambda: _get(server, root)[0] == 200)


def make_namespace(server: Remuda, name: str) -> None:
    """Also while the server can't: it is asked again until it can."""
    _since(time.monotonic(), lambda: _ask(server, "POST", "/api/v1/namespaces", objects.namespace(name))[0] in (201, 409))


def _ended(server: Remuda, began: float) -> float:
    server.wait()
    return time.monotonic() - began


def _since(began: float, true: Callable[[], bool]) -> float:
    """Ask again and again; the seconds from `began` until it is true."""
    while not true():
        if time.monotonic() > began + LIMIT:
            raise ServerError(f"not everything works again after {LIMIT:.0f} s")
        time.sleep(POLL)
    return time.monotonic() - began


def _missing(server: Remuda, path: str, prefix: str, retried: Retried) -> int:
    """How many of the acknowledged objects are not there."""
    there: set[str] = set()
    following = ""
    while True:
        status, page = _get(server, f"{path}?{urlencode({'limit': 500, 'continue': following})}")
        if status != 200:
            raise ServerError(f"{path}: {status} {page}")
        there |= {item["metadata"]["name"] for item in page["items"]}
        following = page["metadata"].get("continue", "")
        if not following:
            break
    wanted = {f"{prefix}{number:06}" for number in range(retried.created) if number not in retried.unsure}
    return len(wanted - there)


def _get(server: Remuda, path: str) -> tuple[int, Any]:
    return _ask(server, "GET", path)


def _ask(server: Remuda, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """A status of 0 when there is no answer."""
    try:
        return request(server, method, path, body)
    except (OSError, http.client.HTTPException) as error:
        return 0, str(error)
