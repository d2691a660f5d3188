"""Pools whose machine configs have a private key: sealed from the start, and moved from what an older version stored."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remuda.app.rehearsal import provisioning as provisioned
from remuda.kube.admission_attributes import Attributes
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.objects import dig, name_of
from remuda.lab.sim import machine_jobs
from remuda.lab.sim.machine_jobs import config
from remuda.lab.sim.provisioning_world import WORKSPACE, ProvisioningWorld
from remuda.machines.machineprovision.well_known import JOBS
from remuda.machines.secretfields.admission import Sealing
from remuda.machines.secretfields.machinesecrets import UNUSED_SECONDS
from remuda.machines.secretfields.markers import is_marker
from remuda.machines.secretfields.vault import TYPE

from .provisioned import DEMO, FROM, delete, ready
from .test_pools import SERVERS, WORKERS, of_pools, while_rolling

Obj = dict[str, Any]
KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nbm90IGEga2V5IGF0IGFsbA==\n-----END OPENSSH PRIVATE KEY-----\n"


class Version:
    """Whether the server seals yet."""

    seals = True


@pytest.fixture
def version(monkeypatch: pytest.MonkeyPatch) -> Version:
    made, sealed = Version(), Sealing.sealed

    async def as_of_then(self: Sealing, attributes: Attributes) -> Obj | None:
        return await sealed(self, attributes) if made.seals else None

    monkeypatch.setattr(Sealing, "sealed", as_of_then)
    return made


async def built(world: ProvisioningWorld) -> None:
    for name, size in (("small", "s"), ("big", "l")):
        await world.client.create(machine_jobs.CONFIGS, config(name, WORKSPACE, size=size, sshKey=KEY), WORKSPACE)
    await world.want(DEMO, FROM, machinePools=[SERVERS, WORKERS])
    await ready(world)


async def stored(world: ProvisioningWorld) -> dict[str, list[Obj]]:
    kinds = (machine_jobs.CONFIGS, machine_jobs.TEMPLATES, machine_jobs.MACHINES)
    return {each.resource: (await world.client.list(each, WORKSPACE))["items"] for each in kinds}


def shown(found: dict[str, list[Obj]]) -> set[str]:
    """What all of them show as the key."""
    return {
        str(dig(obj, *path, "sshKey"))
        for objects, path in zip(found.values(), ((), ("spec", "template", "spec"), ("spec",)), strict=True)
        for obj in objects
    }


async def secrets(world: ProvisioningWorld) -> list[Obj]:
    found: list[Obj] = (await world.client.list(SECRETS, WORKSPACE, fields=f"type={TYPE}"))["items"]
    return found


async def test_machines_are_made_from_a_sealed_key_and_it_goes_with_the_last_of_them() -> None:
    async with provisioned(pools=True) as world:
        await built(world)
        (marker,) = shown(await stored(world))
        assert is_marker(marker) and len(await secrets(world)) == 1
        told = json.dumps([await stored(world), await world.client.list(JOBS, WORKSPACE)])
        assert "PRIVATE KEY" not in told
        await world.settle(2 * UNUSED_SECONDS + 600)
        assert len(await secrets(world)) == 1, "it is in use"
        await delete(world)
        await world.settle(3 * UNUSED_SECONDS)
        assert await secrets(world) == []


async def test_moving_what_an_older_version_stored_replaces_no_machine(version: Version) -> None:
    async with provisioned(pools=True) as world:
        version.seals = False
        await built(world)
        assert shown(await stored(world)) == {KEY}
        before, machines = await stored(world), await of_pools(world)
        assert world.jobs is not None
        made = list(world.jobs.made)
        # The new version starts.
        await world.kill()
        version.seals = True
        world.begin()
        await world.settle(60)
        after = await stored(world)
        (marker,) = shown(after)
        assert is_marker(marker) and len(await secrets(world)) == 1 and "PRIVATE KEY" not in json.dumps(after)
        names = {kind: sorted(map(name_of, objects)) for kind, objects in before.items()}
        assert {kind: sorted(map(name_of, objects)) for kind, objects in after.items()} == names, "no other template either"
        assert await of_pools(world) == machines and world.jobs.made == made and world.jobs.removed == []
        # Nor when the controllers start once more, nor when the user writes the same YAML again.
        await world.kill()
        world.begin()
        await world.settle(30)
        again = config("big", WORKSPACE, size="l", sshKey=KEY)
        version_before = (await world.client.get(machine_jobs.CONFIGS, "big", WORKSPACE))["metadata"]["resourceVersion"]
        written = await world.client.patch(machine_jobs.CONFIGS, "big", again, WORKSPACE)
        assert written["metadata"]["resourceVersion"] == version_before
        await world.settle(60)
        assert await of_pools(world) == machines and world.jobs.made == made
        # A PUT without the server's own annotation does not make it forget.
        found = await world.client.get(machine_jobs.CONFIGS, "big", WORKSPACE)
        await world.client.update(machine_jobs.CONFIGS, {**found, "metadata": {**found["metadata"], "annotations": {}}})
        await world.settle(60)
        assert await of_pools(world) == machines and world.jobs.made == made
        # Another value is another machine, as ever.
        await world.client.patch(machine_jobs.CONFIGS, "big", {"sshKey": KEY.replace("bm90", "b3Ro")}, WORKSPACE)
        await while_rolling(world, machines["workers"])
        assert (await of_pools(world))["servers"] == machines["servers"]


async def test_a_write_of_the_user_before_the_move_replaces_no_machine(version: Version) -> None:
    async with provisioned(pools=True) as world:
        version.seals = False
        await built(world)
        machines = await of_pools(world)
        await world.kill()
        version.seals = True
        await world.client.patch(machine_jobs.CONFIGS, "big", {"sshKey": KEY, "metadata": {"labels": {"a": "b"}}}, WORKSPACE)
        world.begin()
        await world.settle(90)
        assert await of_pools(world) == machines
        (marker,) = shown(await stored(world))
        assert is_marker(marker)
