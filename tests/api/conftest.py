"""Both servers once per test process, and a fresh namespace on both for each test.

`REMUDA_TEST_STORE=etcd` (`make test-etcd`) runs Remuda on an etcd whose members die: the answers must be the same.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.real import need
from tests.real.cluster import RealCluster
from tests.real.etcd import EtcdCluster

from .harness import OURS, REAL, SIDES, WEATHER, Endpoint, Pair, RemudaProcess, backing
from .kubectl import Kubectl, write_config

_numbers = itertools.count(1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        report.sections += [
            ("what befell etcd, the newest last", "\n".join(chaos.log[:1] + chaos.log[1:][-30:])) for chaos in WEATHER
        ]
    return report


@pytest.fixture(scope="session")
def real() -> Iterator[RealCluster]:
    need.programs("kubernetes", "etcd")
    with RealCluster(controllers=True, fsync=False) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def etcd() -> Iterator[EtcdCluster | None]:
    with backing() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def remuda(tmp_path_factory: pytest.TempPathFactory, etcd: EtcdCluster | None) -> Iterator[RemudaProcess]:
    process = RemudaProcess(Path(tmp_path_factory.mktemp("remuda")), etcd=etcd)
    process.start()
    try:
        yield process
    finally:
        process.stop()


@pytest.fixture(scope="session")
def endpoints(real: RealCluster, remuda: RemudaProcess) -> dict[str, Endpoint]:
    theirs = Endpoint(real.url, Path(real.ca_pem), Path(real.admin_cert), Path(real.admin_key))
    found = {OURS: remuda.endpoint, REAL: theirs}
    end = time.monotonic() + 120
    while not all(_has_its_roles(each) for each in found.values()):
        assert time.monotonic() < end, "the roles for users are not filled"
        time.sleep(0.05)
    return found


def _has_its_roles(endpoint: Endpoint) -> bool:
    """Whether a controller has put the roles for users together: each has what the next smaller one has."""
    where = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    admin, edit, view = (endpoint.request("GET", f"{where}/{name}").json.get("rules") or [] for name in ("admin", "edit", "view"))
    return bool(view) and all(rule in edit for rule in view) and all(rule in admin for rule in edit)


@pytest.fixture
def pair(endpoints: dict[str, Endpoint], request: pytest.FixtureRequest) -> Pair:
    return new_pair(endpoints)


def new_pair(endpoints: dict[str, Endpoint]) -> Pair:
    """A pair with a namespace of its own that exists on both servers, with all that the controllers put into one."""
    pair = Pair(endpoints, ns=f"t{next(_numbers)}-{os.getpid()}")
    pair.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": pair.ns}})
    for made in ("serviceaccounts/default", "configmaps/kube-root-ca.crt"):
        pair.eventually(f"/api/v1/namespaces/{pair.ns}/{made}", lambda answer: answer.status == 200, compare=False)
    return pair


@pytest.fixture(scope="session")
def kubectl_homes(real: RealCluster, remuda: RemudaProcess, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    homes = {side: Path(tmp_path_factory.mktemp("homes")) / side for side in SIDES}
    write_config(homes[OURS], remuda.kubeconfig)
    write_config(homes[REAL], real.kubeconfig)
    return homes


@pytest.fixture
def kubectl(pair: Pair, real: RealCluster, kubectl_homes: dict[str, Path], tmp_path: Path) -> Kubectl:
    """kubectl on both servers, in the namespace of `pair`."""
    return Kubectl(Path(real.kubectl_path), kubectl_homes, pair.ns, tmp_path)
