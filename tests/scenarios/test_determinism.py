"""The same seed gives the same run, write for write and byte for byte, in any process; another seed gives another one."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from .journal import life
from .soaking import SOAK

ROOT = Path(__file__).parents[2]


async def _elsewhere(seed: int, hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.scenarios.journal",
        str(seed),
        cwd=ROOT,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    told, _ = await process.communicate()
    assert process.returncode == 0
    return told.decode().strip()


@pytest.mark.soak
# Five whole lives, two of them in other processes at the same time.
@pytest.mark.timeout(0 if SOAK else 1200)
@pytest.mark.parametrize("seed", range(5, 30) if SOAK else (5,))
async def test_a_seed_is_a_run_and_another_seed_another_one(seed: int) -> None:
    elsewhere = asyncio.gather(_elsewhere(seed, "1"), _elsewhere(seed, "4711"))
    journal, values = await life(seed)
    assert len(journal) > 500
    assert await life(seed) == (journal, values)
    assert set(await elsewhere) == {values}
    other, other_values = await life(seed + 1)
    assert other_values != values
    assert [key for _, key, _ in other] != [key for _, key, _ in journal]
