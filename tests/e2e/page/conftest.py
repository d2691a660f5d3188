"""A browser for each test, and a server with everything for each file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser

from tests.e2e.access.harness import Gateway

from .browser import browsing, chromium


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    chromium()
    place: Path = tmp_path_factory.mktemp("page")
    with Gateway(place / "gateway", "--controllers=*") as started:
        yield started
        assert started.alive, started.told()
        assert started.tracebacks() == [], started.told()[-8000:]


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with browsing() as started:
        yield started
