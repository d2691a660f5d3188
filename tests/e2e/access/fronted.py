"""`remuda gateway` before a real kube-apiserver, with `remuda controllers` beside it: the other back end, for the same tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from tests.api.harness import Answer, Endpoint
from tests.e2e.serving import eventually
from tests.e2e.test_controllers_command import Replica
from tests.real import need
from tests.real.cluster import RealCluster, free_ports

from .harness import MANAGEMENT, Gateway

MACHINES = "/apis/cluster.x-k8s.io/v1beta2/machines"

# Nobody listens there, so no host fetches its installer from anywhere.
FROM_NOWHERE = {"REMUDA_SYSTEM_DEFAULT_REGISTRY": "127.0.0.1:1"}


class Behind(Protocol):
    """A control plane, and the way to it as its administrator."""

    kubeconfig: Path
    url: str
    ca_pem: Path
    admin_cert: Path
    admin_key: Path


class Fronted(Gateway):
    def __init__(self, real: Behind, directory: Path, environ: dict[str, str], *options: str, host: str = "127.0.0.1") -> None:
        super().__init__(directory, *options, host=host, environ=environ)
        self.real = real
        self.webhooks, self.health = free_ports(2)

    def command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "remuda", "gateway", "--kubeconfig", str(self.real.kubeconfig)),
            *("--listen", f"{self.host}:{self.port}", "--data-dir", str(self.directory)),
            *("--webhook-host", self.host, "--webhook-port", str(self.webhooks)),
            *("--webhook-url", f"https://{self.host}:{self.webhooks}"),
            *("--health-probe-bind-address", f"127.0.0.1:{self.health}"),
            *self.options,
        ]

    def ready(self) -> bool:
        try:
            return self.ca.exists() and self.nobody().request("GET", "/ping").status == 200
        except OSError:
            return False

    @property
    def endpoint(self) -> Endpoint:
        """The API itself as its administrator; what is the gateway's own, as one of its users."""
        return _Both(self)


class _Both(Endpoint):
    def __init__(self, gateway: Fronted) -> None:
        real = gateway.real
        super().__init__(real.url, real.ca_pem, real.admin_cert, real.admin_key)
        self._gateway = gateway

    def request(self, method: str, path: str, *arguments: Any, **options: Any) -> Answer:
        if path.startswith("/v3/"):
            return self._gateway.administrator().request(method, path)
        return super().request(method, path, *arguments, **options)


@contextmanager
def fronted(directory: Path, environ: dict[str, str] = FROM_NOWHERE, *options: str) -> Iterator[Fronted]:
    need.programs("kubernetes", "etcd")
    with RealCluster(controllers=True, fsync=False) as real:
        core = Replica(real.kubeconfig, directory, "controllers")
        gateway = Fronted(real, directory / "gateway", environ, *options)
        try:
            eventually(lambda: real.request("GET", MACHINES)[0] == 200, 240, core.log.read_text()[-4000:])
            gateway.start()
            eventually(lambda: real.request("GET", f"{MANAGEMENT}/globalroles/admin")[0] == 200, 240)
            yield gateway
        finally:
            gateway.end()
            core.process.kill()
            core.process.wait(30)
