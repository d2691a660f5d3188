"""Rolling updates in every corner of surge and unavailable: never too few available, never too many, always to the end.

That is checked at every write, with machines that come and go at times of their own.
"""

from __future__ import annotations

import itertools

import pytest

from remuda.app.rehearsal import embedded
from remuda.lab.sim.delays_and_faults import Weather

from .mortal import lives
from .rollouts import Amount, roll
from .soaking import SOAK, dice

pytestmark = pytest.mark.soak

REPLICAS = (1, 2, 3, 5)
AMOUNTS: tuple[Amount, ...] = (0, 1, 2, 10, "25%", "50%", "100%")
WEATHERS = (
    Weather(),
    Weather(machine=(1, 20), join=(1, 10), removal=(0, 30)),
    Weather(machine=(5, 40), join=(0, 2), removal=(0, 2), bootstrap=(0, 10), failing=0.3),
)
CORNERS = [
    (replicas, surge, unavailable)
    for replicas, surge, unavailable in itertools.product(REPLICAS, AMOUNTS, AMOUNTS)
    if (surge, unavailable) != (0, 0)  # which admission refuses
]
# The corners where nothing but one machine may move, and those where everything may.
ALWAYS: list[tuple[int, Amount, Amount]] = [(1, 1, 0), (1, 0, 1), (3, 0, "25%"), (5, "100%", "100%")]


def chosen() -> list[tuple[int, Amount, Amount]]:
    return CORNERS if SOAK else ALWAYS + dice("corners").sample(CORNERS, 6)


@pytest.mark.parametrize("corner", chosen(), ids=str)
async def test_the_bounds_hold_at_every_write(corner: tuple[int, Amount, Amount]) -> None:
    choices = dice(str(corner))
    for _ in range(3 if SOAK else 1):
        weather, seed = choices.choice(WEATHERS), choices.randrange(1000)
        min_ready = choices.choice((0, 0, 7))
        interrupted = choices.choice((None, 0.0, 10.0))
        print(f"{weather}, seed {seed}, min_ready {min_ready}, interrupted after {interrupted}")
        async with embedded(seed=seed, weather=weather) as world:
            await roll(world, "corner", *corner, min_ready=min_ready, interrupted_after=interrupted)


@pytest.mark.parametrize("corner", CORNERS[::5] if SOAK else ALWAYS[2:], ids=str)
async def test_the_bounds_hold_although_the_core_dies_again_and_again(corner: tuple[int, Amount, Amount]) -> None:
    choices = dice(f"dying {corner}")
    weather, seed = choices.choice(WEATHERS), choices.randrange(1000)
    deaths = [choices.randrange(5, 60) for _ in range(12)]
    print(f"{weather}, seed {seed}, lives of {deaths} writes")
    async with (
        embedded(seed=seed, weather=weather) as world,
        lives(world, lambda life: deaths[life] if life < len(deaths) else None),
    ):
        await roll(world, "corner", *corner)
