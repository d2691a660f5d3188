"""Machine pools of `local` machines, with everything real: Jobs as processes, hosts, agents, etcd, tunnels. No root needed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from remuda.hosts.hosts import Hosts
from tests.e2e.access.fronted import Fronted, fronted
from tests.e2e.access.harness import Gateway
from tests.e2e.provisioning.conftest import DEMO, PATIENCE, WORKSPACE, Ranch, _ranch, served, with_upstreams_core
from tests.e2e.serving import eventually

pytestmark = [pytest.mark.real, pytest.mark.hosts, pytest.mark.timeout(2400)]

FROM = "v1.34.1+remuda1"
_CONFIGS = f"/apis/rke-machine-config.cattle.io/v1/namespaces/{WORKSPACE}/localconfigs"
BackEnd = Callable[[Path, dict[str, str]], AbstractContextManager[Gateway]]
_MACHINES = f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{WORKSPACE}/machines"


def pool(name: str, quantity: int, *roles: str, **fields: Any) -> dict[str, Any]:
    named = {"etcd": "etcdRole", "controlplane": "controlPlaneRole", "worker": "workerRole"}
    config = {"kind": "LocalConfig", "name": f"{DEMO}-{name}"}
    return {"name": name, "quantity": quantity, "machineConfigRef": config, **{named[role]: True for role in roles}, **fields}


class Pools:
    """What a user of pools does."""

    def __init__(self, ranch: Ranch) -> None:
        self.ranch = ranch
        self.hosts = Hosts(ranch.gateway.directory / "hosts")

    def config(self, name: str) -> None:
        made = {"apiVersion": "rke-machine-config.cattle.io/v1", "kind": "LocalConfig", "metadata": {"name": f"{DEMO}-{name}"}}
        eventually(lambda: self.ranch.ask("GET", _CONFIGS).status == 200, PATIENCE)
        eventually(lambda: self.ranch.ask("GET", f"/api/v1/namespaces/{WORKSPACE}").status == 200, PATIENCE)
        answer = self.ranch.gateway.posted(_CONFIGS, made)
        assert answer.status == 201, answer.body

    def machines(self) -> list[str]:
        return sorted(each["metadata"]["name"] for each in self.ranch.get(_MACHINES)["items"])

    def running(self) -> list[str]:
        return sorted(host.name for host in self.hosts.all() if host.running)

    def nodes(self) -> list[str]:
        return sorted(self.ranch.nodes())

    def told(self) -> str:
        jobs = self.ranch.get(f"/apis/batch/v1/namespaces/{WORKSPACE}/jobs")["items"]
        return json.dumps([each.get("status") for each in jobs]) + self.ranch.says() + self.ranch.gateway.told()[-6000:]


def on_kubernetes(directory: Path, environ: dict[str, str]) -> AbstractContextManager[Fronted]:
    """Where a real Job controller runs, too, which leaves these to the gateway."""
    return fronted(directory, environ, "--job-runner=local")


@contextmanager
def own_pools(directory: Path) -> Iterator[Pools]:
    """On our own API alone."""
    with _pools(served, directory) as made:
        yield made


@contextmanager
def _pools(back_end: BackEnd, directory: Path) -> Iterator[Pools]:
    with _ranch(back_end, directory) as ranch:
        made = Pools(ranch)
        try:
            yield made
        finally:
            for host in made.hosts.all():
                made.hosts.remove(host.name)


# On the embedded API the demo (tests/e2e/demo) and pools of containers go the same way.
@pytest.fixture(
    params=[
        pytest.param(served, marks=pytest.mark.variant),
        pytest.param(on_kubernetes, marks=pytest.mark.variant),
        with_upstreams_core,
    ],
    ids=["embedded", "kubernetes", "upstream's core"],
)
def pools(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pools]:
    with _pools(request.param, tmp_path) as made:
        yield made


def test_pools_become_a_cluster_grow_and_go(pools: Pools) -> None:
    ranch = pools.ranch
    for name in ("servers", "workers"):
        pools.config(name)
    ranch.want(FROM, machinePools=[pool("servers", 1, "etcd", "controlplane"), pool("workers", 1, "worker")])
    try:
        eventually(lambda: len(pools.running()) == 2, PATIENCE)
        eventually(lambda: len(pools.nodes()) == 2, PATIENCE)
    except AssertionError:
        raise AssertionError(pools.told()) from None
    ranch.until_ready()
    _shells(pools)
    # The server may die; what it has made goes on.
    before = {host.name: host.pid for host in pools.hosts.all()}
    ranch.gateway.kill()
    ranch.gateway.start()
    assert {host.name: host.pid for host in pools.hosts.all()} == before
    healthy = {"unhealthyNodeTimeout": "30s", "maxUnhealthy": "100%"}
    ranch.change(
        rkeConfig={"machinePools": [pool("servers", 1, "etcd", "controlplane"), pool("workers", 2, "worker", **healthy)]}
    )
    eventually(lambda: len(pools.nodes()) == 3, PATIENCE, pools.told())
    assert set(before) < set(pools.running())
    ranch.until_ready()
    # A power cut: another one comes in its place, and nothing of it is left.
    lost = next(name for name in before if "workers" in name)
    pools.hosts.kill(lost)
    eventually(lambda: lost not in {host.name for host in pools.hosts.all()}, PATIENCE, pools.told())
    eventually(lambda: len(pools.nodes()) == 3 and lost not in pools.nodes(), PATIENCE, pools.told())
    ranch.delete()
    eventually(lambda: pools.hosts.all() == [], PATIENCE)
    eventually(lambda: pools.machines() == [], PATIENCE)


def _shells(pools: Pools) -> None:
    """Several words are a program with its arguments, one word is a script."""
    ranch, machine = pools.ranch, pools.machines()[0]
    asked = ("ssh", machine, "--kubeconfig", str(ranch.kubeconfig()), "--data-dir", str(ranch.gateway.directory), "--")
    assert ranch.command(*asked, "echo", "a | b") == "a | b\n"
    assert ranch.command(*asked, "echo a | tr a b; exit 0") == "b\n"
    assert Path(ranch.command(*asked, "pwd").strip()).is_relative_to(ranch.gateway.directory)
