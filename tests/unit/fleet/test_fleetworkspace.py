"""Workspaces are namespaces: those that are always there, those that somebody makes, and those that were there before."""

from __future__ import annotations

from collections.abc import Iterable

from remuda.api.management_cattle_io import API_VERSION, FLEET_WORKSPACES
from remuda.fleet.fleetworkspace import FleetWorkspaces, standing
from remuda.kube.builtin_resources import NAMESPACES
from remuda.runtime import Reconciler
from tests.unit.access.management_api import Obj, Parts, world


def everything(parts: Parts) -> Iterable[Reconciler]:
    yield FleetWorkspaces(parts.manager)
    yield standing(parts.manager, parts.server)


def workspace(name: str, **metadata: object) -> Obj:
    return {"apiVersion": API_VERSION, "kind": "FleetWorkspace", "metadata": {"name": name, **metadata}}


async def test_the_ones_that_clusters_need_are_always_there() -> None:
    async with world(everything) as made:
        for name in ("fleet-local", "fleet-default"):
            assert await made.find(NAMESPACES, name) is not None
            await made.delete(FLEET_WORKSPACES, name)
            await made.settle(60)
            assert await made.find(FLEET_WORKSPACES, name) is not None
            assert await made.find(NAMESPACES, name) is not None


async def test_the_default_one_is_what_the_setting_says() -> None:
    async with world(everything) as made:
        await made.setting("fleet-default-workspace-name", "ranch")
        await made.settle()
        assert await made.find(NAMESPACES, "ranch") is not None


async def test_a_workspace_has_a_namespace_for_as_long_as_it_is_there() -> None:
    async with world(everything) as made:
        await made.create(
            FLEET_WORKSPACES, workspace("team", labels={"of": "team"}, annotations={"field.cattle.io/creatorId": "u-1"})
        )
        await made.settle()
        found = (await made.get(NAMESPACES, "team"))["metadata"]
        assert found["labels"]["of"] == "team"
        assert found["annotations"]["objectset.rio.cattle.io/owner-name"] == "team"
        assert "field.cattle.io/creatorId" not in found["annotations"]
        await made.delete(NAMESPACES, "team")
        await made.settle(60)
        assert (await made.get(NAMESPACES, "team"))["metadata"]["uid"] != found["uid"]
        await made.delete(FLEET_WORKSPACES, "team")
        await made.settle(60)
        assert await made.find(NAMESPACES, "team") is None


async def test_a_namespace_that_was_there_before_stays() -> None:
    async with world(everything) as made:
        before = await made.get(NAMESPACES, "kube-system")
        await made.create(FLEET_WORKSPACES, workspace("kube-system"))
        await made.settle()
        await made.delete(FLEET_WORKSPACES, "kube-system")
        await made.settle(60)
        assert (await made.get(NAMESPACES, "kube-system"))["metadata"]["uid"] == before["metadata"]["uid"]


async def test_a_workspace_managed_elsewhere_gets_no_namespace() -> None:
    async with world(everything) as made:
        await made.create(FLEET_WORKSPACES, workspace("theirs", annotations={"provisioning.cattle.io/managed": "false"}))
        await made.settle()
        assert await made.find(NAMESPACES, "theirs") is None
