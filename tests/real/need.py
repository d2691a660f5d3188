"""What a test of the real tier says first: which real programs it needs.

Where one can't be had the test is skipped with the reason, unless `REMUDA_REQUIRE_REAL=1` asks for the whole tier: then
it fails.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

from tests.real import build


def programs(*names: str) -> dict[str, Path]:
    """Paths of the programs of these targets (`kubernetes`, `etcd`, `capi`), built when missing."""
    found: dict[str, Path] = {}
    try:
        for name in names:
            found |= build.programs(name)
    except build.BuildError as error:
        absent(str(error))
    return found


def go() -> None:
    """The Go toolchain itself."""
    if shutil.which("go") is None:
        absent("no `go` is on PATH")


def absent(reason: str) -> NoReturn:
    """Skip, or fail where everything is required."""
    if os.environ.get("REMUDA_REQUIRE_REAL") == "1":
        pytest.fail(f"required here, but: {reason}", pytrace=False)
    pytest.skip(reason)
