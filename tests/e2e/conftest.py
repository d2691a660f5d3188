"""`remuda serve` processes for the end-to-end tests: each on a directory of its own, each stopped whatever happens."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .serving import Served

SOAK = os.environ.get("REMUDA_SOAK") == "1"


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Start servers; those still alive at the end are killed."""
    started: list[Served] = []

    def start(name: str = "data", **changes: object) -> Served:
        served = Served(tmp_path / name, **changes)  # type: ignore[arg-type]
        started.append(served)
        served.start()
        return served

    yield start
    for served in started:
        served.end()


@pytest.fixture
def served(serve: Callable[..., Served]) -> Iterator[Served]:
    """One running server, which at the end must be alive, stop clean, and have nothing to be ashamed of in its log."""
    started = serve()
    yield started
    assert started.alive, started.told()
    assert started.stop() == 0, started.told()
    assert started.tracebacks() == [], started.told()


@pytest.fixture
def seed() -> int:
    found = int(os.environ.get("REMUDA_SEED", random.SystemRandom().randrange(10**9)))
    print(f"seed {found} (REMUDA_SEED={found} repeats the choices)")
    return found
