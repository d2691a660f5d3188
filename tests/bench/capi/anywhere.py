"""One load on a real Kubernetes (etcd with fsync on), for upstream's core manager or for `remuda controllers`.

Core, API server, etcd and controller manager are a process each, and the simulated providers another, so the kernel says what
each of them cost. What was written and what conflicted is what kube-apiserver counted, whoever asked.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.api.harness import Endpoint
from tests.bench.capi.load import LIMIT, Load
from tests.bench.processes import cpu_seconds, peak_mib
from tests.bench.servers import REPOSITORY, ServerError, die_with_parent
from tests.e2e import upstream_capi
from tests.real.cluster import RealCluster
from tests.real.ports import free_ports

Found = dict[str, Any]
CORES = ("upstream", "remuda")
PROVIDERS = "providers"
SETTLE = 15.0

_REQUEST = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_WRITES = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE"})
# Nobody's work: leader election, and questions that look like writes.
_ASIDE = frozenset({"leases", "subjectaccessreviews", "tokenreviews"})


def measure(core: str, load: Load, scratch: Path, idle: float) -> Found:
    """What it takes until all Machines run, and what it takes at rest."""
    scratch.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        real = stack.enter_context(RealCluster(controllers=True, fsync=True, directory=scratch / "kubernetes"))
        pid = stack.enter_context(_upstream(real, scratch) if core == "upstream" else _remuda(real, scratch))
        providers = stack.enter_context(_providers(real, scratch))
        # kube-apiserver is busy with new definitions for a while, whoever made them.
        time.sleep(SETTLE)
        meter = Meter(real, {**real.pids, core: pid, PROVIDERS: providers.pid})
        found = {**_asked(providers, load), **meter.read()}
        if idle:
            time.sleep(SETTLE)
            meter = Meter(real, meter.pids)
            time.sleep(idle)
            found["idle"] = meter.read()
        return found


class Meter:
    """CPU seconds of each process, and what the API server counted, since it was made."""

    def __init__(self, real: RealCluster, pids: dict[str, int]) -> None:
        self.pids = pids
        self._real = real
        self._started = time.monotonic()
        self._counts = _counted(real)
        self._cpu = {name: cpu_seconds([pid]) for name, pid in pids.items()}

    def read(self) -> Found:
        cpu = {name: cpu_seconds([pid]) - self._cpu[name] for name, pid in self.pids.items()}
        counts = _counted(self._real)
        return {
            "seconds": time.monotonic() - self._started,
            "cpu": cpu,
            "memory": {name: peak_mib(pid) for name, pid in self.pids.items()},
            **{name: counts[name] - self._counts[name] for name in counts},
        }


def _counted(real: RealCluster) -> dict[str, float]:
    status, text = real.request("GET", "/metrics")
    if status != 200:
        raise ServerError(f"kube-apiserver's metrics: {status}")
    found = {"requests": 0.0, "writes": 0.0, "conflicts": 0.0}
    for line in text.splitlines():
        matched = _REQUEST.match(line)
        if matched is None:
            continue
        labels, count = dict(_LABEL.findall(matched[1])), float(matched[2])
        if labels["resource"] in _ASIDE or labels["verb"] == "WATCH":
            continue
        found["requests"] += count
        if labels["verb"] in _WRITES and labels["code"].startswith("2"):
            found["writes"] += count
        if labels["verb"] in _WRITES - {"POST"} and labels["code"] == "409":
            found["conflicts"] += count
    return found


def _asked(providers: subprocess.Popen[str], load: Load) -> Found:
    assert providers.stdin is not None
    assert providers.stdout is not None
    providers.stdin.write(json.dumps(asdict(load)) + "\n")
    providers.stdin.flush()
    answer = providers.stdout.readline()
    if not answer:
        raise ServerError(f"the simulated providers ended; waited for at most {LIMIT:.0f} s")
    found: Found = json.loads(answer)
    return found


@contextlib.contextmanager
def _providers(real: RealCluster, scratch: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.bench.capi.providers", str(real.kubeconfig), str(scratch / "workload-pki")]
    with (scratch / "providers.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            preexec_fn=die_with_parent,
        )
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise ServerError(f"the simulated providers did not start:\n{(scratch / 'providers.log').read_text()[-3000:]}")
        yield process
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def _upstream(real: RealCluster, scratch: Path) -> Iterator[int]:
    endpoint = Endpoint(real.url, Path(real.ca_pem), Path(real.admin_cert), Path(real.admin_key))
    flag = "--feature-gates=MachineTaintPropagation=true"
    upstream = upstream_capi.Manager("upstream", endpoint, Path(real.kubeconfig), scratch, flag)
    try:
        upstream.start()
        assert upstream.process is not None
        yield upstream.process.pid
    finally:
        upstream.stop()


@contextlib.contextmanager
def _remuda(real: RealCluster, scratch: Path) -> Iterator[int]:
    webhooks, health = free_ports(2)
    command = [
        *(sys.executable, "-m", "remuda", "controllers", "--kubeconfig", str(real.kubeconfig)),
        *("--webhook-host", "127.0.0.1", "--webhook-port", str(webhooks), "--webhook-url", f"https://127.0.0.1:{webhooks}"),
        *("--metrics-bind-address", "0", "--health-probe-bind-address", f"127.0.0.1:{health}"),
    ]
    path = scratch / "remuda.log"
    with path.open("wb") as log:
        process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent,
        )
    try:
        _until_works(real, process, path)
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _until_works(real: RealCluster, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until Machines are served, and get their defaults."""
    ref = {"apiGroup": "bench.io", "kind": "Thing", "name": "probe"}
    probe = {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Machine",
        "metadata": {"name": "probe"},
        "spec": {"clusterName": "probe", "bootstrap": {"configRef": ref}, "infrastructureRef": ref},
    }
    end = time.monotonic() + 60
    while True:
        status, answer = real.request("POST", "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/machines?dryRun=All", probe)
        if status == 201 and "deletion" in answer["spec"]:
            return
        if process.poll() is not None or time.monotonic() > end:
            raise ServerError(f"remuda controllers did not begin to work ({status} {answer}):\n{log.read_text()[-3000:]}")
        time.sleep(0.2)
