"""Both servers once per test process, and a fresh namespace on both for each test. The real one is a recording, unless
`REMUDA_TRUTH` says otherwise (:mod:`.recording`).

`REMUDA_TEST_STORE=etcd` (`make test-etcd`) runs Remuda on an etcd whose members die: the answers must be the same.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import yaml

from tests.real import need, pki
from tests.real.cluster import RealCluster
from tests.real.etcd import EtcdCluster

from .harness import OURS, REAL, SIDES, WEATHER, Endpoint, Pair, RemudaProcess, Truth, backing
from .kubectl import Kubectl, write_config
from .recording import MODE, RECORD, RECORDED, SHELF, Tape, current, of_fixture

_passed = pytest.StashKey[bool]()
# Files of which some tests were left out.
_partly: set[Path] = set()


def pytest_deselected(items: list[pytest.Item]) -> None:
    _partly.update(item.path for item in items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        # A difference that is known and kept is as good a reason to look at the tape.
        item.stash[_passed] = report.passed or hasattr(report, "wasxfail")
    if report.failed:
        report.sections += [
            ("what befell etcd, the newest last", "\n".join(chaos.log[:1] + chaos.log[1:][-30:])) for chaos in WEATHER
        ]
    return report


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    if fixturedef.scope == "function":
        return (yield)
    with of_fixture(fixturedef, request):
        return (yield)


@pytest.fixture(autouse=True)
def tape(request: pytest.FixtureRequest) -> Iterator[Tape]:
    """What the real server says to this test."""
    module, name = request.node.path.stem, request.node.nodeid.partition("::")[2]
    yield SHELF.begin(module, name)
    if problem := SHELF.end(module, name, passed=request.node.stash.get(_passed, False)):
        pytest.fail(problem, pytrace=False)


@pytest.fixture(scope="module", autouse=True)
def shelf(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keeps what was recorded of a module, and forgets the tests that it no longer has."""
    yield
    if MODE == RECORD:
        path = request.node.path
        chosen = path in _partly or any("::" in each for each in request.config.args)
        there = {item.nodeid.partition("::")[2] for item in request.session.items if item.path == path}
        SHELF.write(path.stem, None if chosen else there)


class RecordedCluster:
    """In the place of a real cluster: what tests read of it besides answers. Its keys open nothing."""

    def __init__(self, directory: Path) -> None:
        authority = pki.Authority(directory, "recorded-ca")
        self.url = "https://127.0.0.1:6443"
        self.data_dir, self.ca_pem = directory, authority.pair.cert
        self.service_account_key = directory / "ca.key"
        self.kubeconfig = directory / "kubeconfig"
        config = {"clusters": [{"cluster": {"server": self.url}}], "users": [{"user": {}}]}
        self.kubeconfig.write_text(yaml.safe_dump(config))

    @property
    def kubectl_path(self) -> Path:
        return need.programs("kubernetes")["kubectl"]


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster | RecordedCluster]:
    if MODE == RECORDED:
        yield RecordedCluster(tmp_path_factory.mktemp("recorded"))
        return
    need.programs("kubernetes", "etcd")
    with RealCluster(controllers=True, fsync=False, apiserver_args=["--allow-privileged"]) as cluster:
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
def endpoints(real: RealCluster | RecordedCluster, remuda: RemudaProcess) -> dict[str, Endpoint]:
    theirs = None
    if isinstance(real, RealCluster):
        theirs = Endpoint(real.url, Path(real.ca_pem), Path(real.admin_cert), Path(real.admin_key))
    end = time.monotonic() + 120
    while not all(_has_its_roles(each) for each in (remuda.endpoint, theirs) if each is not None):
        assert time.monotonic() < end, "the roles for users are not filled"
        time.sleep(0.05)
    return {OURS: remuda.endpoint, REAL: Truth(theirs)}


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
    pair = Pair(endpoints, ns=current().new_name())
    pair.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": pair.ns}})
    for made in ("serviceaccounts/default", "configmaps/kube-root-ca.crt"):
        pair.eventually(f"/api/v1/namespaces/{pair.ns}/{made}", lambda answer: answer.status == 200, compare=False)
    return pair


@pytest.fixture(scope="session")
def kubectl_homes(
    real: RealCluster | RecordedCluster, remuda: RemudaProcess, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    homes = {side: Path(tmp_path_factory.mktemp("homes")) / side for side in SIDES}
    write_config(homes[OURS], remuda.kubeconfig)
    write_config(homes[REAL], Path(real.kubeconfig))
    return homes


@pytest.fixture
def kubectl(pair: Pair, real: RealCluster | RecordedCluster, kubectl_homes: dict[str, Path], tmp_path: Path) -> Kubectl:
    """kubectl on both servers, in the namespace of `pair`."""
    return Kubectl(Path(real.kubectl_path), kubectl_homes, pair.ns, tmp_path)
