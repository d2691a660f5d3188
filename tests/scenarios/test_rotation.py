"""Certificates and encryption keys of whole clusters are rotated: in turns, with trouble in the middle, and long after they have
expired."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.access.rancher_conditions import condition_of
from remuda.app.rehearsal import provisioning as provisioned
from remuda.kube.objects import dig
from remuda.lab.sim.hosts import SimulatedHost
from remuda.lab.sim.provisioning_world import ProvisioningWorld

from .provisioned import DEMO, build, change, message, ready

Obj = dict[str, Any]

SHAPES = {
    "one for all": ["ecw"],
    "servers and workers": ["ec", "ec", "ec", "w", "w"],
    "split": ["e", "c", "e", "w", "e"],
}
K3S, OLD = "v1.34.1+k3s1", "v1.29.4+k3s1"
SECRETS_ENCRYPTED = {"machineGlobalConfig": {"secrets-encryption": True}}


async def until_rotated(world: ProvisioningWorld, field: str, generation: int, seconds: float = 3600.0) -> None:
    async def done() -> bool:
        status = (await world.control_plane(DEMO)).get("status") or {}
        if field == "rotateCertificates":
            return bool(status.get("certificateRotationGeneration") == generation)
        ended = status.get("rotateEncryptionKeysPhase") in ("Done", "Failed")
        return ended and bool(dig(status, field, "generation") == generation)

    await world.until(f"{field} {generation} has ended", done, seconds)


async def request(world: ProvisioningWorld, field: str, generation: int) -> None:
    await change(world, rkeConfig={field: {"generation": generation}})


async def said(world: ProvisioningWorld, kind: str) -> tuple[str, str]:
    found = condition_of(await world.control_plane(DEMO), kind)
    assert found is not None
    return str(found["status"]), str(found.get("message") or "")


@pytest.mark.parametrize("roles", SHAPES.values(), ids=SHAPES.keys())
async def test_certificates_are_rotated_in_turns(roles: list[str]) -> None:
    async with provisioned() as world:
        hosts = await build(world, roles)
        cluster = world.distribution(DEMO)
        started = len(cluster.starts)
        await request(world, "rotateCertificates", 1)
        await until_rotated(world, "rotateCertificates", 1)
        await ready(world)
        restarted = [name for name, _ in cluster.starts[started:]]
        turns = [_turn(roles[int(name[1:])]) for name in restarted]
        assert turns == sorted(turns), "etcd alone, with the control plane, control planes, workers"
        assert sorted(restarted) == sorted(host.name for host in hosts), "each once"
        assert cluster.rotated == [name for name, turn in zip(restarted, turns, strict=True) if turn < 3]
        assert cluster.violations == [] and max(cluster.most_down.values()) == 1
        assert await said(world, "CertificatesRotated") == ("True", f"generation 1: {len(hosts)} machines")


def _turn(roles: str) -> int:
    return (1 if "c" in roles else 0) if "e" in roles else 2 if "c" in roles else 3


async def test_expired_certificates_of_a_cluster_that_was_switched_off_are_rotated() -> None:
    """No API, no etcd, no passing probe: only the agents answer."""
    async with provisioned() as world:
        await build(world, ["e", "ec", "ec", "c", "w"])
        cluster = world.distribution(DEMO)
        cluster.expire()
        await world.settle(120)
        assert not cluster.answers and not await world.is_ready(DEMO)
        await request(world, "rotateCertificates", 1)
        await until_rotated(world, "rotateCertificates", 1)
        await ready(world)
        assert cluster.answers and sorted(cluster.rotated) == ["h0", "h1", "h2", "h3"] and cluster.violations == []


async def test_agents_and_a_host_that_die_in_the_middle_are_survived() -> None:
    async with provisioned() as world:
        hosts = {host.name: host for host in await build(world, ["ec", "ec", "ec", "w"])}
        cluster = world.distribution(DEMO)
        await request(world, "rotateCertificates", 1)

        async def begun(servers: int) -> bool:
            return len(cluster.rotated) == servers

        await world.until("the first has rotated", lambda: begun(1), 600)
        await _killed_for_a_while(world, hosts[cluster.rotated[0]])
        await world.until("the second has rotated", lambda: begun(2), 900)
        second = hosts[cluster.rotated[1]]
        await world.hosts.power_off(second)
        await world.settle(120)
        assert len(cluster.rotated) == 2, "etcd would lose its majority"
        world.hosts.power_on(second)
        await until_rotated(world, "rotateCertificates", 1)
        await ready(world)
        assert sorted(set(cluster.rotated)) == ["h0", "h1", "h2"] and cluster.violations == []


async def _killed_for_a_while(world: ProvisioningWorld, host: SimulatedHost) -> None:
    await world.hosts.kill(host)
    await world.settle(30)
    world.hosts.revive(host)


async def keys(world: ProvisioningWorld, version: str, roles: list[str]) -> None:
    await world.want(DEMO, version, **SECRETS_ENCRYPTED)
    for number, role in enumerate(roles):
        await world.host(DEMO, f"h{number}", role, runtime="k3s")
    await ready(world)


@pytest.mark.parametrize(("version", "restarts"), [(K3S, 1), (OLD, 3)], ids=["one step", "staged"])
async def test_keys_are_rotated_twice(version: str, restarts: int) -> None:
    async with provisioned() as world:
        await keys(world, version, ["ec", "ec", "ec", "w"])
        cluster = world.distribution(DEMO)
        for generation in (1, 2):
            started, newest = len(cluster.starts), cluster.keys.newest
            await request(world, "rotateEncryptionKeys", generation)
            await until_rotated(world, "rotateEncryptionKeys", generation)
            await ready(world)
            assert (await said(world, "EncryptionKeysRotated"))[0] == "True"
            restarted = [name for name, _ in cluster.starts[started:]]
            assert restarted == restarted[:3] * restarts and sorted(restarted[:3]) == ["h0", "h1", "h2"]
            assert cluster.keys.agree(cluster.servers()) and cluster.keys.newest > newest
        assert cluster.violations == [] and cluster.most_down["etcd"] == 1


async def test_servers_with_different_keys_are_not_rotated() -> None:
    async with provisioned() as world:
        await keys(world, K3S, ["ec", "ec", "w"])
        cluster = world.distribution(DEMO)
        cluster.keys.used["h1"] = 7
        await request(world, "rotateEncryptionKeys", 1)
        await until_rotated(world, "rotateEncryptionKeys", 1)
        status, text = await said(world, "EncryptionKeysRotated")
        assert status == "False" and "hash does not match between servers" in text and "restore a snapshot" in text
        await ready(world)


async def test_operations_queue_and_the_waits_say_for_what() -> None:
    async with provisioned() as world:
        await build(world, ["ec", "ec", "ec", "w"])
        await change(world, rkeConfig={"rotateCertificates": {"generation": 1}, "rotateEncryptionKeys": {"generation": 1}})
        await world.until("the rotation says so", lambda: _says(world, "rotating certificates on h"), 300)
        await until_rotated(world, "rotateCertificates", 1)
        await until_rotated(world, "rotateEncryptionKeys", 1)
        await ready(world)
        assert (await said(world, "EncryptionKeysRotated"))[0] == "True"
        assert world.distribution(DEMO).violations == []


async def _says(world: ProvisioningWorld, text: str) -> bool:
    return (await message(world)).startswith(text.removesuffix("h"))
