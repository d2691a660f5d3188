"""Machine configs that nobody uses go in the night."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from remuda.api import provisioning_cattle_io as provisioning
from remuda.api.management_cattle_io import API_VERSION, FLEET_WORKSPACES
from remuda.kube.builtin_resources import CRDS, NAMESPACES
from remuda.kube.clock import parse_rfc3339, rfc3339
from remuda.kube.objects import name_of
from remuda.lab.sim import machine_jobs
from remuda.machines.machineconfigcleanup import MachineConfigCleanup, is_left_behind, next_night
from remuda.runtime import Reconciler
from tests.unit.access.management_api import Parts, world

Obj = dict[str, Any]
FLEET = "fleet-default"


@pytest.mark.parametrize(
    ("now", "then"),
    [
        ("2026-03-01T00:00:00Z", "2026-03-01T00:05:00Z"),
        ("2026-03-01T00:05:00Z", "2026-03-02T00:05:00Z"),
        ("2026-03-01T13:00:00Z", "2026-03-02T00:05:00Z"),
    ],
)
def test_the_next_night_is_five_past_twelve(now: str, then: str) -> None:
    assert rfc3339(next_night(parse_rfc3339(now))) == then


def test_who_is_left_behind() -> None:
    born = "2026-03-01T00:00:00Z"
    config = {"metadata": {"name": "nc", "namespace": FLEET, "creationTimestamp": born}}
    now = parse_rfc3339(born)
    assert not is_left_behind(config, set(), now + 3600), "young"
    assert is_left_behind(config, set(), now + 3601)
    assert not is_left_behind(config, {(FLEET, "nc")}, now + 3601), "a pool names it"
    owned = {"metadata": {**config["metadata"], "ownerReferences": [{"kind": "Cluster", "name": "demo"}]}}
    assert not is_left_behind(owned, set(), now + 3601)


def controllers(parts: Parts) -> Iterable[Reconciler]:
    # Days are short here: to wait for one costs more than it shows.
    yield MachineConfigCleanup(parts.manager, lambda now: now + 3700)


async def test_when_it_is_time_they_go() -> None:
    async with world(controllers, begin=False) as made:
        for crd in machine_jobs.crds("size"):
            await made.create(CRDS, crd)
        await made.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}})
        await made.create(FLEET_WORKSPACES, {"apiVersion": API_VERSION, "kind": "FleetWorkspace", "metadata": {"name": FLEET}})
        await made.settle(2)
        pool = machine_jobs.pool("cp", "ecw", config="used")
        spec = {"kubernetesVersion": "v1.34.1+rke2r1", "rkeConfig": {"machinePools": [pool]}}
        wanted = {"apiVersion": provisioning.API_VERSION, "kind": "Cluster", "metadata": {"name": "demo", "namespace": FLEET}}
        await made.create(provisioning.CLUSTERS, {**wanted, "spec": spec})
        for name in ("left", "used"):
            await made.create(machine_jobs.CONFIGS, machine_jobs.config(name, FLEET, size="s"))
        await made.create(machine_jobs.CONFIGS, machine_jobs.config("not-in-a-workspace", "elsewhere", size="s"))
        made.begin()
        await made.settle(5)
        assert await names(made) == ["left", "not-in-a-workspace", "used"]
        await made.clock.advance(3600)
        # Too young to be left behind.
        await made.create(machine_jobs.CONFIGS, machine_jobs.config("fresh", FLEET, size="s"))
        await made.clock.advance(120)
        assert await names(made) == ["fresh", "not-in-a-workspace", "used"]
        await made.clock.advance(3800)
        assert await names(made) == ["not-in-a-workspace", "used"]


async def names(made: Any) -> list[str]:
    return sorted(map(name_of, (await made.client.list(machine_jobs.CONFIGS))["items"]))
