from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from remuda.apiserver.keys.pki import Pki
from remuda.apiserver.server import Server
from remuda.kube.clock import SYSTEM_CLOCK, Entropy

from .gate import Gate, cluster


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki.ensure(tmp_path_factory.mktemp("pki"), ["127.0.0.1"], SYSTEM_CLOCK, Entropy())


@pytest.fixture(scope="session")
def other_pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki.ensure(tmp_path_factory.mktemp("other"), ["127.0.0.1"], SYSTEM_CLOCK, Entropy())


@pytest.fixture
async def gate(pki: Pki) -> AsyncIterator[Gate]:
    made = Gate(pki)
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with cluster() as found:
        yield found
