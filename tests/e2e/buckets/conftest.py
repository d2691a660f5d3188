from __future__ import annotations

from collections.abc import Iterator

import pytest

from .services import Service, versity


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with versity(tmp_path_factory.mktemp("versity")) as found:
        yield found
