"""One gateway and one imported cluster for a whole file of tests: starting them costs more than most tests take."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.images import Layout, images_directory
from remuda.images.debian import DebianError
from remuda.images.layout import cache_directory
from remuda.images.recipe import REPOSITORY, WheelError, build
from tests.real import need

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


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A directory with the agent's image, as `make images` makes it: made once, also when several workers need it."""
    if shutil.which("apt-get") is None:
        need.absent("images are built from Debian's packages")
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if hasattr(request.config, "workerinput") else base
    directory = images_directory({"REMUDA_IMAGES": str(shared / "images")})
    with (shared / "images.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "images.made").exists():
            _make_images(directory)
            (shared / "images.made").touch()
    return directory


def _make_images(directory: Path) -> None:
    try:
        built = build(cache_directory(os.environ) / "downloads")
    except (DebianError, WheelError) as error:
        need.absent(str(error))
    Layout(directory / REPOSITORY).write(built.image, ("latest",))
    assert sum(packed for _, _, packed in built.summary) < 30_000_000
