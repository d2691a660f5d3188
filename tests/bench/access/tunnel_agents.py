"""Hundreds of agents of one server, and the server killed under them: what each costs it, and when all of them are back.

The agents are real ones (:class:`remuda.tunnel.clusteragent.connections.Attachment`: two tunnels each, over TLS) in one
process, each for a management cluster of its own; the API behind all of them is one `remuda serve`. Run as a program this
module is that process: `python -m tests.bench.access.tunnel_agents KUBECONFIG URL CHECKSUM TOKENS` prints how many stand, when
that changes.
"""

from __future__ import annotations

import asyncio
import json
import queue
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

import uvloop

from remuda.cli.programs.event_loop import raise_file_limit
from remuda.client.https import HttpsClient
from remuda.client.kubeconfig import load, select
from remuda.kube.clock import SYSTEM_CLOCK, Rng
from remuda.tunnel.clusteragent.connections import Attachment, ConnectionContext
from remuda.tunnel.clusteragent.own_cluster import OwnCluster
from remuda.tunnel.clusteragent.server_trust import Trust
from remuda.tunnel.clusteragent.settings import Settings, checked
from tests.bench import processes
from tests.bench.servers import ServerError
from tests.e2e.access.harness import MANAGED, Cluster, Embedded, Gateway

MIB = 1 << 20
LIMIT = 300.0

Found = dict[str, float]


def measure(scratch: Path, count: int) -> Found:
    with Gateway(scratch / "gateway") as gateway, Embedded(scratch / "downstream") as downstream:
        gateway.announced()
        tokens = scratch / "tokens"
        tokens.touch(mode=0o600)
        tokens.write_text(json.dumps([cluster.token() for cluster in made(gateway, count)]))

        def agents() -> Agents:
            return Agents(downstream.kubeconfig, gateway.url, gateway.ca_checksum(), tokens)

        with agents() as first:
            found = {"agents_first": first.until(count), "agents_connected": _until_connected(gateway, count)}
        # What a first contact makes the server write is no cost of a connection: it begins anew, and knows them all.
        gateway.kill()
        gateway.start()
        time.sleep(15)
        before = processes.resident_mib((gateway.pid,))
        with agents() as again:
            again.until(count)
            _until_connected(gateway, count)
            # What connecting needed for a moment goes back to the system within a minute.
            time.sleep(75)
            after = processes.resident_mib((gateway.pid,))
            used = processes.cpu_seconds((gateway.pid,))
            time.sleep(20)
            used = processes.cpu_seconds((gateway.pid,)) - used
            gateway.kill()
            gateway.start()
            found["agents_back"] = again.until(count)
        found["agent_kilobytes"] = (after - before) * MIB / count / 1000
        found["agent_cpu_percent"] = used * 5
        return found


def made(gateway: Gateway, count: int) -> list[Cluster]:
    """Clusters that agents may connect to, with their tokens."""

    def one(number: int) -> Cluster:
        name = f"c-{number:05d}"
        gateway.made(MANAGED, {"kind": "Cluster", "metadata": {"name": name}, "spec": {"displayName": f"bench-{number}"}})
        return Cluster(gateway, f"bench-{number}", name)

    with ThreadPoolExecutor(8) as pool:
        clusters = list(pool.map(one, range(count)))
    end = time.monotonic() + LIMIT
    for cluster in clusters:
        while not cluster.token():
            if time.monotonic() > end:
                raise ServerError(f"{cluster.id} has got no token:\n{gateway.told()[-2000:]}")
            time.sleep(0.2)
    return clusters


def _until_connected(gateway: Gateway, count: int) -> float:
    """How long until the server says of every cluster that it is connected."""
    began = time.monotonic()
    while True:
        items = gateway.endpoint.request("GET", MANAGED).json["items"]
        conditions = [each.get("status", {}).get("conditions", ()) for each in items if each["metadata"]["name"] != "local"]
        connected = sum(any(c["type"] == "Connected" and c["status"] == "True" for c in found) for found in conditions)
        if connected >= count:
            return time.monotonic() - began
        if time.monotonic() - began > LIMIT:
            raise ServerError(f"{connected} of {count} clusters are connected:\n{gateway.told()[-2000:]}")
        time.sleep(0.5)


class Agents:
    """The process with all agents."""

    def __init__(self, kubeconfig: Path, url: str, checksum: str, tokens: Path) -> None:
        command = [sys.executable, "-m", "tests.bench.access.tunnel_agents", str(kubeconfig), url, checksum, str(tokens)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self._said: queue.Queue[int | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.put(int(line))
        self._said.put(None)

    def until(self, count: int) -> float:
        """Seconds until so many stand; what was so before the call does not count."""
        while not self._said.empty():
            self._said.get()
        began = time.monotonic()
        while True:
            try:
                standing = self._said.get(timeout=LIMIT)
            except queue.Empty:
                raise ServerError(f"fewer than {count} agents stand after {LIMIT:.0f} s") from None
            if standing is None:
                raise ServerError("the agents have ended")
            if standing >= count:
                return time.monotonic() - began

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()


class Shared(OwnCluster):
    """The API behind all agents: each would write the same Secret there."""

    async def announce(self, settings: Settings, trust: Trust) -> None:
        return None


async def run(kubeconfig: Path, url: str, checksum: str, tokens: list[str]) -> None:
    target = select(load([kubeconfig]), "")
    client = HttpsClient(target, SYSTEM_CLOCK)
    own = Shared(client, target, SYSTEM_CLOCK, prepared=False)
    introduction = await own.introduction()
    around = ConnectionContext(SYSTEM_CLOCK, Rng(), proxy="")
    attachments = [Attachment(checked(url, token, checksum, strict=True), introduction, own, around) for token in tokens]
    async with asyncio.TaskGroup() as group:
        for attachment in attachments:
            group.create_task(attachment.run())
        told = -1
        while True:
            standing = sum(attachment.stands_since is not None for attachment in attachments)
            if standing != told:
                print(standing, flush=True)
                told = standing
            await asyncio.sleep(0.1)


def main(arguments: list[str]) -> None:
    raise_file_limit()
    kubeconfig, url, checksum, tokens = arguments
    uvloop.run(run(Path(kubeconfig), url, checksum, json.loads(Path(tokens).read_text())))


if __name__ == "__main__":
    main(sys.argv[1:])
