"""`remuda upgrade-check` as a user runs it: with the server, and on a backup of it without any server."""

from __future__ import annotations

import json
from pathlib import Path

from remuda import __version__
from remuda.apiserver.server import Config, Server
from remuda.apiserver.storage import key_layout
from remuda.apiserver.storage.store import Put
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.objects import name_of
from remuda.lab.sim.provisioning_world import WORKSPACE, ProvisioningWorld
from remuda.provisioning.well_known import ACCEPT_RENDERING, PLAN_TYPE, RENDERED_BY
from tests.scenarios.provisioned import DEMO, build

from .served_world import served

_PASSPHRASE = "correct horse battery staple"


async def backed_up(world: ProvisioningWorld, data_dir: Path) -> None:
    """The state of a world as that of a server on disk."""
    server = await Server.open(Config(data_dir=data_dir))
    try:
        for each in (await world.server.store.range(key_layout.ROOT)).items:
            await server.store.write([Put(each.key, each.value)])
    finally:
        await server.close()


async def test_the_version_that_rendered_the_plans_touches_no_machine(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        await build(found.world, ["ec", "w"])
        done = await found.run("upgrade-check")
        assert done.code == 0 and f"version {__version__} does nothing to the machines of 1 clusters" in done.out, done


async def test_a_backup_shows_what_another_version_would_touch(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        world = found.world
        await build(world, ["ec", "w"])
        # As if another program had rendered the plan of one machine: one file of it differs.
        for secret in (await world.client.list(SECRETS, WORKSPACE))["items"]:
            if secret.get("type") == PLAN_TYPE:
                note = {"metadata": {"annotations": {RENDERED_BY: "0.0.9"}}}
                await world.client.patch(SECRETS, name_of(secret), note, WORKSPACE)
        await backed_up(world, tmp_path / "old")
        found.shell.environ["REMUDA_PASSPHRASE"] = _PASSPHRASE
        taken = await found.run(f"backup {tmp_path / 'state.backup'} --data-dir {tmp_path / 'old'}")
        assert taken.code == 0, taken.err
        done = await found.run(f"upgrade-check --backup {tmp_path / 'state.backup'} -o json")
        assert done.code == 0, done
        assert json.loads(done.out) == {"version": __version__, "clusters": [f"{WORKSPACE}/{DEMO}"], "machines": []}
        wrong = await found.run(f"upgrade-check --backup {tmp_path / 'state.backup'} --passphrase-file {tmp_path / 'none'}")
        assert wrong.code == 2 and "can't be read" in wrong.err, wrong
        assert ACCEPT_RENDERING not in done.out
