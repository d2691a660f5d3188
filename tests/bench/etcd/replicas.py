"""Three `remuda serve` on one etcd, as one server to the bench: clients are spread over them.

What happens to them is :mod:`tests.bench.etcd.disruptions`.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import time
from pathlib import Path
from types import TracebackType

from tests.bench.servers import Remuda, ServerError, member_pids, request
from tests.real.etcd import EtcdCluster
from tests.real.ports import free_ports

LEASE_PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/remuda-controllers"
_LEADS = re.compile(r'^leader_election_master_status\{name="remuda-controllers"\} 1(\.0)?$', re.MULTILINE)


class Replicas:
    """Ports stay the same over new starts, so that clients find a server again."""

    name = "replicas"

    def __init__(self, directory: Path, etcd: EtcdCluster, count: int = 3) -> None:
        self._etcd = etcd
        shared = directory / "shared"
        self.servers = [
            Remuda(directory / f"r{index}", f"replica {index}", etcd=etcd, shared=shared, port=port)
            for index, port in enumerate(free_ports(count))
        ]
        first = self.servers[0]
        # Keys are shared: what one server signed, all accept.
        self.ca, self.certificate, self.key = first.ca, first.certificate, first.key
        self.url = ""

    @property
    def pids(self) -> list[int]:
        own = [pid for server in self.servers for pid in server.pids if pid not in server.etcd_pids]
        return [*own, *self.etcd_pids]

    @property
    def etcd_pids(self) -> list[int]:
        return member_pids(self._etcd)

    def __enter__(self) -> Replicas:
        try:
            for server in self.servers:
                server.compile()
                server.start()
        except BaseException:
            self._end()
            raise
        self.url = ",".join(server.url for server in self.servers)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()

    def _end(self) -> None:
        for server in self.servers:
            server.kill()

    def leading(self, seconds: float = 60) -> int:
        """The index of the one that says that it leads, as soon as there is one."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for index, server in enumerate(self.servers):
                with contextlib.suppress(OSError, http.client.HTTPException):
                    if _LEADS.search(str(request(server, "GET", "/metrics")[1])):
                        return index
            time.sleep(0.05)
        raise ServerError(f"no replica leads after {seconds:.0f} s")

    def holder(self, through: int) -> str:
        """Who holds the Lease, as this server knows it; empty when nobody does, or when it can't tell."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            status, lease = request(self.servers[through], "GET", LEASE_PATH)
            if status == 200:
                return str(lease["spec"].get("holderIdentity") or "")
        return ""
