"""Whatever is deleted at whatever moment: nothing is left of it, and what should run does."""

from __future__ import annotations

import pytest

from remuda.app.rehearsal import embedded
from remuda.lab.sim.delays_and_faults import Weather

from .endings import TOLD, deleted_after
from .soaking import SOAK, dice

pytestmark = pytest.mark.soak
SLOW = Weather(cluster=(1, 5), machine=(1, 20), join=(1, 10), bootstrap=(0, 5), removal=(0, 20))
# About how many writes a cluster with two workers takes until it runs.
WRITES = 130


@pytest.mark.parametrize("whom", TOLD)
async def test_it_may_be_told_to_go_at_any_moment(whom: str) -> None:
    choices = dice(whom)
    for writes in range(1, WRITES) if SOAK else choices.sample(range(1, WRITES), 2):
        for weather in (Weather(), SLOW) if SOAK else (choices.choice((Weather(), SLOW)),):
            seed = choices.randrange(1000)
            print(f"{whom} after {writes} writes, seed {seed}, {weather}")
            async with embedded(seed=seed, weather=weather) as world:
                await deleted_after(world, "cut", whom, writes)
