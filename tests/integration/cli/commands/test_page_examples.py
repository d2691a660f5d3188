"""Every command of the pages about clusters' state is run, and prints what its page shows."""

from __future__ import annotations

from pathlib import Path

from remuda.lab.sim.provisioning_world import ProvisioningWorld
from remuda.lab.sim.saved_snapshots import SavedSnapshot
from tests.scenarios.provisioned import DEMO, FROM, change, ready
from tests.scenarios.test_restoring import add_map
from tests.scenarios.test_restoring_from_buckets import S3, add_credential

from .page_examples import Reader, examples
from .served_world import served


async def with_archive(world: ProvisioningWorld, kept: dict[str, SavedSnapshot]) -> None:
    """A bucket with the files of `n1`, and the credential for it in the cluster's settings."""
    await add_credential(world)
    for file, saved in kept.items():
        world.hosts.buckets.of("archive").upload("2026", file, saved, node="n1", cluster_id="", now=world.clock.time())
    await change(world, rkeConfig={"etcd": {"s3": S3}})
    await ready(world)


async def test_the_page_about_snapshots(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        world = found.world
        await world.want(DEMO, FROM)
        for number, roles in enumerate(("ec", "ec", "ec", "w"), 1):
            await world.host(DEMO, f"n{number}", roles)
        await ready(world)
        reader = Reader(found)
        kept: dict[str, SavedSnapshot] = {}
        for at, example in enumerate(examples("snapshots.md")):
            kept |= world.distribution(DEMO).snapshots.get("n1", {})
            if example.command.startswith("snapshot import"):
                await with_archive(world, kept)
            if at == 2:
                for name in ("one", "two"):
                    await add_map(world, name)
            await reader.does(example)
