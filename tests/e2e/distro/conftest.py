from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .machines import Machines


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    with Machines(tmp_path) as found:
        yield found
