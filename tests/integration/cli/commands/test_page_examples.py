"""Every command of the pages about clusters' state is run, and prints what its page shows."""

from __future__ import annotations

from pathlib import Path

from tests.scenarios.provisioned import DEMO, FROM, ready
from tests.scenarios.test_restoring import add_map

from .page_examples import Reader, examples
from .served_world import served


async def test_the_page_about_snapshots(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        world = found.world
        await world.want(DEMO, FROM)
        for number, roles in enumerate(("ec", "ec", "ec", "w"), 1):
            await world.host(DEMO, f"n{number}", roles)
        await ready(world)
        reader = Reader(found)
        for at, example in enumerate(examples("snapshots.md")):
            if at == 2:
                for name in ("one", "two"):
                    await add_map(world, name)
            await reader.does(example)
