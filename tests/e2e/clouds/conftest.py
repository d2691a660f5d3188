"""Providers' doubles: one process per module, everything in it made anew by each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .amazon import moto


@pytest.fixture(scope="module")
def moto_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with moto(tmp_path_factory.mktemp("moto")) as address:
        yield address
