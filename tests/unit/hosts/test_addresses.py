"""Which addresses a host may ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.hosts import HostError
from remuda.hosts.hosts import Hosts


@pytest.mark.parametrize("address", ["10.0.0.1", "0.0.0.0", "::1", "localhost", "127.1", "../../x", "127.0.0.1/8"])
def test_a_host_is_on_this_machine_alone(tmp_path: Path, address: str) -> None:
    with pytest.raises(HostError, match=r"say one of 127\.0\.0\.0/8"):
        Hosts(tmp_path).create("one", address)
    assert [*tmp_path.iterdir()] == []
