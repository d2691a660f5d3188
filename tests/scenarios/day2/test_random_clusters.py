"""Random clusters, operations and faults: never two init nodes, never old data beside new, never a lost token, one operation at a
time, and always an end or a wait that names who must act. Two thousand under `make soak`."""

from __future__ import annotations

import pytest

from ..soaking import SEED, SOAK, dice
from .stories import tell

STORIES = 2000 if SOAK else 8


@pytest.mark.soak
@pytest.mark.timeout(0 if SOAK else 300)
@pytest.mark.parametrize("number", range(STORIES))
async def test_every_operation_ends_or_says_for_what_it_waits(number: int) -> None:
    again = f"REMUDA_SEED={SEED} REMUDA_SOAK=1 pytest '{__file__}' -k '[{number}]'"
    await tell(number, dice(f"day 2, {number}"), again)
