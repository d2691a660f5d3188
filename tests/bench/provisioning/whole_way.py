"""From `kubectl apply` to Ready on hosts of this machine: the agent, the installer's image, etcd, tunnels, all of it real."""

from __future__ import annotations

import time
from pathlib import Path

from remuda.hosts import processes
from remuda.hosts.environment import MARK
from remuda.hosts.hosts import Hosts
from tests.e2e.access.harness import Gateway
from tests.e2e.provisioning.conftest import Ranch
from tests.real import need

from .agent import memory

_AGENT = b"rancher-system-agent\0sentinel"


def measured(scratch: Path, hosts: int) -> dict[str, float]:
    """Seconds until it is ready; MiB that an idle agent holds."""
    place = scratch / f"hosts-{hosts}"
    place.mkdir()
    environ = {"REMUDA_ETCD_BINARY": str(need.programs("etcd")["etcd"]), "REMUDA_IMAGES": str(scratch / "images")}
    with Gateway(place / "server", "--controllers=*", environ=environ) as gateway:
        gateway.announced()
        ranch = Ranch(gateway, place)
        try:
            began = time.monotonic()
            ranch.want("v1.34.1+remuda1")
            for number in range(hosts):
                ranch.host(f"h{number}", *(("etcd", "controlplane", "worker") if number < 3 else ("worker",)))
            ranch.until_ready(900)
            took = time.monotonic() - began
            return {f"ready_{hosts}": took, f"agent_{hosts}": max(_agents(place / "hosts" / "hosts"))}
        finally:
            ranch.close()


def _agents(directory: Path) -> list[float]:
    found = []
    for host in Hosts(directory).all():
        for pid in processes.marked(MARK, host.record.id):
            try:
                if _AGENT in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(memory(pid))
            except OSError:
                continue
    return found
