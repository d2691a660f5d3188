"""Every scenario, on the embedded API in virtual time, and once more with a core that dies in the middle of it."""

from __future__ import annotations

import pytest

from remuda.app.rehearsal import embedded

from .ending import differences, ending
from .mortal import lives
from .playbill import SCENARIOS
from .soaking import SOAK, dice

# Long enough for everything that is begun to be done, and for what is looked at now and then to be looked at.
REST = 120.0


async def played(name: str, *deaths: int, pause: float = 0.0) -> tuple[dict[str, list[str]], int]:
    """A scenario with a core that dies after so many writes, and again after so many more; what it leaves, and all writes."""
    async with (
        embedded(seed=7, pods=True) as world,
        lives(world, lambda life: deaths[life] if life < len(deaths) else None, pause) as found,
    ):
        await SCENARIOS[name](world)
        await world.settle(REST)
        return await ending(world), found.written


@pytest.mark.soak
@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_scenario_ends_the_same_whoever_dies_in_the_middle(name: str) -> None:
    plain, writes = await played(name)
    assert writes > 10
    choices = dice(name)
    once = [[death] for death in range(1, writes)] if SOAK else [[choices.randrange(1, writes)]]
    again_and_again = [[choices.randrange(5, 40) for _ in range(choices.randrange(2, 8))] for _ in range(10 if SOAK else 0)]
    for deaths in once + again_and_again:
        pause = choices.choice((0.0, 0.0, 3.0, 40.0))
        found, _ = await played(name, *deaths, pause=pause)
        wrong = differences(plain, found)
        assert not wrong, f"lives of {deaths} of {writes} writes, {pause} s between them:\n{wrong}"
