"""What a request costs on its way through the proxy: beside the same request on a direct connection, in the same run.

Four processes on loopback: an upstream with TLS that costs next to nothing (:mod:`.proxy_side`), an agent, a gateway with TLS and
this client. A request through the proxy is encrypted twice where a direct one is once: to the gateway, and from there through the
tunnel to the upstream; the tunnel's websocket is plain here. Requests of both kinds take turns, so that whatever else the machine
does happens to both.
"""

from __future__ import annotations

import http.client
import selectors
import socket
import ssl
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench import processes
from tests.bench.access.proxy_side import CLUSTER, TOKEN, trusting
from tests.bench.access.tunnel import MIB, Found, Process, line, started
from tests.bench.servers import ServerError

_SIDE = [sys.executable, "-m", "tests.bench.access.proxy_side"]
_AGENT = [sys.executable, "-m", "tests.bench.access.tunnel_side"]


@dataclass
class Place:
    context: ssl.SSLContext
    direct: int
    proxied: int
    # A gateway that reaches the cluster through the first one.
    other: int
    gateway: Process
    agent: Process

    def open(self, direct: bool, other: bool = False) -> Asker:
        return Asker(self, direct, other)

    def cpu(self) -> float:
        return processes.cpu_seconds((self.gateway.pid, self.agent.pid))


class Asker:
    """One connection that is kept."""

    def __init__(self, place: Place, direct: bool, other: bool = False) -> None:
        port = place.other if other else place.direct if direct else place.proxied
        self._prefix = "" if direct else f"/k8s/clusters/{CLUSTER}"
        self._connection = http.client.HTTPSConnection("127.0.0.1", port, context=place.context, timeout=300)
        self._headers = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json"}
        self._connection.connect()
        self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def begin(self, path: str, method: str = "GET") -> http.client.HTTPResponse:
        self._connection.request(method, self._prefix + path, headers=self._headers)
        answer = self._connection.getresponse()
        if answer.status != 200:
            raise ServerError(f"{path} was answered with {answer.status}: {answer.read(300)!r}")
        return answer

    def get(self, path: str, method: str = "GET") -> bytes:
        return self.begin(path, method).read()

    @property
    def socket(self) -> socket.socket:
        found = self._connection.sock
        assert found is not None
        return found

    def close(self) -> None:
        self._connection.close()


@contextmanager
def place(scratch: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        context = trusting(scratch)
        direct = line(stack.enter_context(started(*_SIDE, "upstream", str(scratch))))
        another = stack.enter_context(started(*_SIDE, "gateway", str(scratch), direct))
        line(another)
        other = line(another)
        gateway = stack.enter_context(started(*_SIDE, "gateway", str(scratch), direct, other))
        plain, proxied = line(gateway), line(gateway)
        agent = stack.enter_context(started(*_AGENT, "client", f"ws://127.0.0.1:{plain}/connect", CLUSTER))
        line(agent)
        yield Place(context, int(direct), int(proxied), int(other), gateway, agent)


def measured(scratch: Path, quick: bool) -> tuple[Found, Found]:
    """Everything, through the proxy and, where that means anything, directly."""
    proxied: Found = {}
    straight: Found = {}
    with place(scratch) as where:
        for found in (
            latency(where, 500 if quick else 3000),
            hop(where, 500 if quick else 3000, (128 if quick else 1024) * MIB),
            bulk(where, (128 if quick else 1024) * MIB),
            slow_reader(where, 1024 * MIB, 3.0 if quick else 10.0),
            watches(where, 100 if quick else 1000),
        ):
            straight |= {key.removeprefix("direct_"): value for key, value in found.items() if key.startswith("direct_")}
            proxied |= {key.removeprefix("proxied_"): value for key, value in found.items() if not key.startswith("direct_")}
    return proxied, straight


def latency(where: Place, count: int) -> Found:
    """Milliseconds of a small GET, both ways in turns, and CPU of gateway and agent for one through them."""
    direct, proxied = where.open(True), where.open(False)
    for _ in range(50):
        direct.get("/small")
        proxied.get("/small")
    taken: dict[bool, list[float]] = {True: [], False: []}
    before = where.cpu()
    for _ in range(count):
        for asker, way in ((direct, True), (proxied, False)):
            began = time.perf_counter()
            asker.get("/small")
            taken[way].append(time.perf_counter() - began)
    cpu = where.cpu() - before
    direct.close()
    proxied.close()
    straight, through = (statistics.median(taken[way]) * 1000 for way in (True, False))
    return {
        "direct_p50_ms": straight,
        "proxied_p50_ms": through,
        "added_ms": through - straight,
        "direct_p99_ms": statistics.quantiles(taken[True], n=100)[98] * 1000,
        "proxied_p99_ms": statistics.quantiles(taken[False], n=100)[98] * 1000,
        "request_us": cpu / count * 1e6,
    }


def hop(where: Place, count: int, size: int) -> Found:
    """A small GET and a large answer through a gateway whose agent is at another one, in turns with one at which it is."""
    here, there = where.open(False), where.open(False, other=True)
    taken: dict[str, list[float]] = {"here": [], "there": []}
    for number in range(count + 50):
        for name, asker in (("here", here), ("there", there)):
            began = time.perf_counter()
            asker.get("/small")
            if number >= 50:
                taken[name].append(time.perf_counter() - began)
    rates: dict[str, float] = {}
    for name, asker in (("here", here), ("there", there)):
        began, read = time.perf_counter(), 0
        answer, buffer = asker.begin(f"/bulk?{size}"), bytearray(256 * 1024)
        while got := answer.readinto(buffer):
            read += got
        if read != size:
            raise ServerError(f"{read} of {size} bytes came")
        rates[name] = size / (time.perf_counter() - began) / 1e6
        asker.close()
    p50 = {name: statistics.median(found) * 1000 for name, found in taken.items()}
    return {"hop_p50_ms": p50["there"], "hop_added_ms": p50["there"] - p50["here"], "hop_share": rates["there"] / rates["here"]}


def bulk(where: Place, size: int) -> Found:
    """MB/s of one large answer, both ways."""
    found: Found = {}
    for name, way in (("direct_rate", True), ("proxied_rate", False)):
        asker = where.open(way)
        before, began = where.cpu(), time.perf_counter()
        answer, read = asker.begin(f"/bulk?{size}"), 0
        buffer = bytearray(256 * 1024)
        while count := answer.readinto(buffer):
            read += count
        if read != size:
            raise ServerError(f"{read} of {size} bytes came")
        found[name] = size / (time.perf_counter() - began) / 1e6
        found["proxied_cpu"] = (where.cpu() - before) * 1024 * MIB / size
        asker.close()
    return found


def slow_reader(where: Place, size: int, seconds: float = 6.0) -> Found:
    """How much memory gateway and agent gain while somebody reads a large answer slowly, and what others wait meanwhile."""
    before = [processes.resident_mib((pid,)) for pid in (where.gateway.pid, where.agent.pid)]
    slow, other = where.open(False), where.open(False)
    answer = slow.begin(f"/bulk?{size}")
    end, waits = time.monotonic() + seconds, []
    most = list(before)
    while time.monotonic() < end:
        answer.read(64 * 1024)
        began = time.perf_counter()
        other.get("/small")
        waits.append(time.perf_counter() - began)
        now = [processes.resident_mib((pid,)) for pid in (where.gateway.pid, where.agent.pid)]
        most = [max(pair) for pair in zip(most, now, strict=True)]
        time.sleep(0.02)
    slow.close()
    other.close()
    return {
        "slow_gateway_mib": most[0] - before[0],
        "slow_agent_mib": most[1] - before[1],
        "slow_other_ms": statistics.median(waits) * 1000,
    }


def watches(where: Place, count: int) -> Found:
    """So many watches through one tunnel: seconds until all are open, until all have heard of one event, and what they hold."""
    before = processes.resident_mib((where.gateway.pid,))
    ringing = where.open(False)
    began = time.perf_counter()
    opened: list[Asker] = []
    with selectors.DefaultSelector() as selector:
        for _ in range(count):
            asker = where.open(False)
            asker.begin("/watch")
            asker.socket.setblocking(False)
            selector.register(asker.socket, selectors.EVENT_READ)
            opened.append(asker)
        took = time.perf_counter() - began
        memory = processes.resident_mib((where.gateway.pid,)) - before
        began = time.perf_counter()
        ringing.get("/ring", "POST")
        missing = count
        while missing:
            for key, _ in selector.select(timeout=60):
                found = key.fileobj
                assert isinstance(found, ssl.SSLSocket)
                try:
                    if found.recv(65536):
                        missing -= 1
                        selector.unregister(found)
                except ssl.SSLWantReadError:
                    continue
            if time.perf_counter() - began > 120:
                raise ServerError(f"{missing} of {count} watches heard nothing")
        heard = time.perf_counter() - began
    for asker in [*opened, ringing]:
        asker.close()
    return {"watches_open_s": took, "watches_heard_s": heard, "watch_kib": memory * 1024 / count}
