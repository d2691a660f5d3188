"""Machines per minute with the driver amazonec2, on Amazon's double (moto): a real server, and a real process for each Job.

moto runs on the same cores and answers one request after the other, so it is part of what is waited for.
"""

from __future__ import annotations

import base64
import os
import time
from pathlib import Path
from typing import Any

from tests.e2e.access.harness import Gateway
from tests.e2e.clouds.amazon import REGION, moto
from tests.e2e.serving import eventually, send

FLEET = "fleet-default"
_CONFIGS = f"/apis/rke-machine-config.cattle.io/v1/namespaces/{FLEET}/amazonec2configs"
_MACHINES = f"/apis/rke-machine.cattle.io/v1/namespaces/{FLEET}/amazonec2machines"
_CLUSTERS = f"/apis/provisioning.cattle.io/v1/namespaces/{FLEET}/clusters"
_CREDENTIAL = "amazon"
_PATIENCE = 1800.0
_TICKS = os.sysconf("SC_CLK_TCK")


def measured(scratch: Path, machines: int) -> dict[str, float]:
    place = scratch / "amazon"
    place.mkdir()
    with moto(place) as address, _server(place, address) as server:
        return _measured(server, address, machines)


def _server(place: Path, address: str) -> Gateway:
    """It asks Amazon whether a credential is good when that is written: the double, too."""
    return Gateway(place / "server", "--controllers=*", environ={"AWS_ENDPOINT_URL_EC2": address})


def _measured(server: Gateway, address: str, machines: int) -> dict[str, float]:
    _prepare(server, address)
    making = _timed(server, lambda: _declare(server, machines), lambda: _ready(server) == machines)
    removing = _timed(server, lambda: _sent(server, "DELETE", f"{_CLUSTERS}/demo"), lambda: _ready(server) == -1)
    (made, cpu), (gone, _) = making, removing
    return {"made": machines / made * 60, "removed": machines / gone * 60, "made_cpu": cpu / machines}


def _prepare(server: Gateway, address: str) -> None:
    eventually(lambda: server.endpoint.request("GET", _CONFIGS).status == 200, _PATIENCE)
    eventually(lambda: server.endpoint.request("GET", "/api/v1/namespaces/cattle-global-data").status == 200, _PATIENCE)
    fields = {"accessKey": "AKIATEST", "secretKey": "test", "defaultRegion": REGION}
    data = {f"amazonec2credentialConfig-{name}": base64.b64encode(text.encode()).decode() for name, text in fields.items()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": _CREDENTIAL}, "data": data}
    _sent(server, "POST", "/api/v1/namespaces/cattle-global-data/secrets", secret)
    config = {"apiVersion": "rke-machine-config.cattle.io/v1", "kind": "Amazonec2Config", "metadata": {"name": "small"}}
    _sent(server, "POST", _CONFIGS, {**config, "region": REGION, "endpoint": address, "insecureTransport": True})


def _declare(server: Gateway, machines: int) -> None:
    reference = {"kind": "Amazonec2Config", "name": "small"}
    pool = {"name": "all", "quantity": machines, "etcdRole": True, "machineConfigRef": reference}
    credential = {"cloudCredentialSecretName": f"cattle-global-data:{_CREDENTIAL}"}
    spec = {"kubernetesVersion": "v1.34.1+remuda1", **credential, "rkeConfig": {"machinePools": [pool]}}
    body = {"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "metadata": {"name": "demo"}, "spec": spec}
    _sent(server, "POST", _CLUSTERS, body)


def _timed(server: Gateway, begin: Any, ended: Any) -> tuple[float, float]:
    """Seconds, and processor time of the server and its Jobs."""
    began, cpu = time.monotonic(), _cpu(server.pid)
    begin()
    eventually(ended, _PATIENCE)
    return time.monotonic() - began, _cpu(server.pid) - cpu


def _cpu(pid: int) -> float:
    """With that of children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / _TICKS


def _ready(server: Gateway) -> int:
    """How many machines are made; -1 when there is none at all."""
    items = server.endpoint.request("GET", _MACHINES).json["items"]
    time.sleep(0.2)
    return sum(_is_ready(each) for each in items) if items else -1


def _is_ready(machine: dict[str, Any]) -> bool:
    conditions = (machine.get("status") or {}).get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _sent(server: Gateway, method: str, path: str, body: Any = None) -> None:
    answer = send(server.endpoint, method, path, body)
    if answer.status not in (200, 201, 202):
        raise RuntimeError(f"{method} {path}: {answer.status} {answer.body!r}")
