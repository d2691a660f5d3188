"""A Machine and a MachineSet that stand alone, made in any order with what their providers need, end up the same."""

from __future__ import annotations

import itertools

import pytest

from remuda.app.rehearsal import embedded

from .births import MACHINE_PIECES, SET_PIECES, a_machine_alone, a_set_alone
from .ending import differences, ending
from .soaking import SOAK, dice

pytestmark = pytest.mark.soak
ALONE = {"machine": (a_machine_alone, MACHINE_PIECES), "set": (a_set_alone, SET_PIECES)}


async def _made(what: str, order: tuple[str, ...], pause: float) -> dict[str, list[str]]:
    scenario, _ = ALONE[what]
    async with embedded(seed=3) as world:
        await scenario(world, order, pause)
        await world.settle(60)
        return await ending(world)


@pytest.mark.parametrize("what", ALONE)
async def test_the_order_does_not_matter(what: str) -> None:
    pieces = ALONE[what][1]
    plain = await _made(what, pieces, 0.0)
    choices = dice(what)
    orders = list(itertools.permutations(pieces))
    chosen = [*choices.sample(orders, 500 if SOAK else 5), tuple(reversed(pieces))]
    for order in chosen:
        pause = choices.choice((0.0, 0.5, 15.0))
        wrong = differences(plain, await _made(what, order, pause))
        assert not wrong, f"{', '.join(order)}, {pause} s in between:\n{wrong}"
