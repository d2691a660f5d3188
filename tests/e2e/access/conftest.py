"""One gateway and one imported cluster for a whole file of tests: starting them costs more than most tests take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .harness import Embedded, Gateway, Imported


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("access")


@pytest.fixture(scope="module")
def gateway(place: Path) -> Iterator[Gateway]:
    with Gateway(place / "gateway") as started:
        started.announced()
        yield started
        assert started.alive, started.told()
        assert started.tracebacks() == [], started.told()[-8000:]


@pytest.fixture(scope="module")
def downstream(place: Path) -> Iterator[Embedded]:
    with Embedded(place / "downstream") as started:
        yield started


@pytest.fixture(scope="module")
def imported(gateway: Gateway, downstream: Embedded) -> Iterator[Imported]:
    with gateway.imported(downstream) as connected:
        yield connected
