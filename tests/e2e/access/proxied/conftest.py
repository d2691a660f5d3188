"""Two imported clusters, an embedded one and a real one, and kubectl at the same gateway as the same person for both.

What is compared is what kubectl says; whatever the proxy did to one of the two, or to both in another way than the API would, is
a difference. Objects are laid out and looked at behind the proxy's back (`pair`), as in `tests/api`. `make test` takes a sample
of the scripts, `make soak` runs all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.api.conftest import endpoints, etcd, kubectl, pair, real, remuda
from tests.api.harness import OURS, REAL, RemudaProcess
from tests.api.kubectl import write_config
from tests.e2e.access.harness import Gateway
from tests.real.cluster import RealCluster

# These show names that each of the clusters has of its own, and would here be of the same one.
_OWN_NAMES = ("test_cluster_info", "test_looking[get clusterrolebindings]", "test_looking[get clusterroles]")
_SAMPLE = 1 if os.environ.get("REMUDA_SOAK") == "1" else 24

__all__ = ["endpoints", "etcd", "kubectl", "pair", "real", "remuda"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = [item for item in items if item.path.parent == Path(__file__).parent]
    wanted = [item for item in here if item.name not in _OWN_NAMES][::_SAMPLE]
    unwanted = set(here) - set(wanted)
    for item in wanted:
        item.add_marker(pytest.mark.soak)
        item.add_marker(pytest.mark.timeout(300))
    items[:] = [item for item in items if item not in unwanted]


@dataclass
class There:
    """A cluster as an agent knows it."""

    name: str
    directory: Path
    kubeconfig: Path
    prefix: list[str] = field(default_factory=list)


@pytest.fixture(scope="session")
def kubectl_homes(
    real: RealCluster, remuda: RemudaProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Path]]:
    place = tmp_path_factory.mktemp("proxied")
    homes = {side: place / "homes" / side for side in (OURS, REAL)}
    with ExitStack() as stack:
        gateway = stack.enter_context(Gateway(place / "gateway"))
        gateway.announced()
        person = gateway.administrator()
        for side, name, kubeconfig in ((OURS, "embedded", remuda.kubeconfig), (REAL, "real", Path(real.kubeconfig))):
            imported = stack.enter_context(gateway.imported(There(name, place / name, kubeconfig)))
            imported.lets_in(person)
            write_config(homes[side], person.kubeconfig(place, imported.id))
        yield homes
        assert gateway.tracebacks() == [], gateway.told()[-8000:]
