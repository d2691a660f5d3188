"""The system agent while nothing happens: its memory and CPU as it came up, and after a plan with a large image."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from remuda.agent.install import build
from tests.integration.agent.builders import server, shell
from tests.integration.agent.fakeapi import KUBECONFIG, FakeApi
from tests.integration.agent.images.test_images import FakeRegistry, host_of, layer
from tests.unit.certificates import certificate

_LAYER = 64 << 20
_TICK = os.sysconf("SC_CLK_TCK")


def measured(scratch: Path, idle_seconds: float) -> dict[str, float]:
    """MiB before any plan and after one; CPU while idle with five probes, in parts of a thousand of a core."""
    place = scratch / "agent"
    place.mkdir()
    cert, key = certificate(place, "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    api = FakeApi()
    api.silence = 480.0
    registry = _registry()
    with api.serving(context) as url, server(registry) as images, server(lambda *_: (200, {}, b"ok"), context) as probed:
        program = _start(place, url, cert)
        try:
            until(lambda: any("secrets" in path for _, path, _ in api.asked), 60)
            time.sleep(2)
            found = {"agent_new": memory(program.pid)}
            api.set(plan=_plan(f"{host_of(images)}/a/b:v1", probed, cert), plan_state=b"pending")
            until(lambda: '"healthy":true' in api.text("probe-statuses"), 120)
            time.sleep(12)
            used, began = cpu(program.pid), time.monotonic()
            time.sleep(idle_seconds)
            found["agent_cpu"] = (cpu(program.pid) - used) / (time.monotonic() - began) * 1000
            found["agent_after"] = memory(program.pid)
            return found
        finally:
            program.terminate()
            program.wait(30)


def _registry() -> FakeRegistry:
    """Its image has a layer that is about as large as an installer's."""
    registry = FakeRegistry()
    large = os.urandom(1 << 20).hex() * (_LAYER >> 21)
    layers = [
        gzip.compress(layer(("f", "run.sh", ("#!/bin/sh\nseq 1 2000\n", 0o755))), 1),
        gzip.compress(layer(*(("f", f"lib/{number}", large[number << 16 :: 64]) for number in range(32))), 1),
    ]
    listed = [{"mediaType": "x", "digest": registry.blob(one), "size": len(one)} for one in layers]
    manifest = json.dumps({"schemaVersion": 2, "layers": listed}).encode()
    registry.manifests["v1"] = ("application/vnd.oci.image.manifest.v1+json", manifest)
    return registry


def _plan(image: str, probed: str, ca: Path) -> bytes:
    probes = {
        f"p{number}": {"timeoutSeconds": 5, "successThreshold": 1, "failureThreshold": 5, "httpGet": get}
        for number, get in enumerate([{"url": f"{probed}/healthz", "caCert": str(ca)}] * 5)
    }
    steps = [{"name": "install", "image": image, "saveOutput": True}, shell("seq 1 1000")]
    periodic = [{**shell("date", "often"), "periodSeconds": 600}]
    return json.dumps({"instructions": steps, "periodicInstructions": periodic, "probes": probes}).encode()


def _start(place: Path, url: str, ca: Path) -> subprocess.Popen[bytes]:
    archive = place / "remuda-agent.pyz"
    archive.write_bytes(build())
    trusted = "".join(f"    {line}\n" for line in [f"certificate-authority: {ca}"])
    connection = {"kubeConfig": KUBECONFIG.format(url=url, ca=trusted), "namespace": "ns", "secretName": "plan"}
    config = {
        "workDirectory": f"{place}/var/work",
        "appliedPlanDirectory": f"{place}/var/applied",
        "interlockDirectory": f"{place}/var/interlock",
        "imagesDirectory": f"{place}/var/images",
        "agentRegistriesFile": f"{place}/registries.yaml",
        "remoteEnabled": True,
        "connectionInfoFile": f"{place}/connection.json",
        "root": str(place),
    }
    for name, content in (("connection", connection), ("config", config)):
        path = place / f"{name}.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps(content))
    environ = {
        "PATH": os.environ["PATH"],
        "CATTLE_AGENT_CONFIG": f"{place}/config.json",
        "CATTLE_AGENT_STRICT_VERIFY": "true",
    }
    with (place / "agent.log").open("wb") as log:
        return subprocess.Popen([_python(), "-I", "-S", str(archive), "sentinel"], stdout=log, stderr=log, env=environ)


def _python() -> str:
    """The one that a host has, where there is one: a virtual environment's may be another."""
    return shutil.which("python3", path="/usr/bin:/bin") or sys.executable


def memory(pid: int) -> float:
    """Resident MiB, with what is shared with other processes."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Rss:")) / 1024


def cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def until(true: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise TimeoutError("the agent did not come so far")
        time.sleep(0.05)
