"""What an older cluster left is not taken for that of a newer one of the same name, which may be somebody else's."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from tests.unit.access.management_api import World, world

from .mirrored_clusters import FLEET, demo, everything, others

Obj = dict[str, Any]
CREATOR = "field.cattle.io/creatorId"
RKE: Obj = {"kubernetesVersion": "v1.34.1+rke2r1", "rkeConfig": {}}


def by(creator: str) -> Obj:
    return {CREATOR: creator} if creator else {}


async def orphaned(made: World, creator: str) -> str:
    """The id of a management Cluster whose clusters.provisioning.cattle.io was removed by force."""
    await made.wanted("demo", annotations=by(creator))
    await made.settle(3)
    name: str = (await demo(made))["status"]["clusterName"]
    await made.client.patch(provisioning.CLUSTERS, "demo", {"metadata": {"finalizers": None}}, FLEET)
    await made.client.delete(provisioning.CLUSTERS, "demo", FLEET)
    await made.settle(3)
    assert await made.find(provisioning.CLUSTERS, "demo", FLEET) is None
    assert await made.find(management.CLUSTERS, name) is not None
    return name


@pytest.mark.parametrize("spec", [{}, RKE], ids=["imported", "made"])
@pytest.mark.parametrize("before", ["u-alice", ""], ids=["of somebody", "of nobody"])
async def test_a_foreign_cluster_of_that_name_is_another(before: str, spec: Obj) -> None:
    async with world(everything) as made:
        left = await orphaned(made, before)
        await made.wanted("demo", annotations=by("u-mallory"), **spec)
        await made.settle(3)
        name = (await demo(made))["status"]["clusterName"]
        assert name != left
        kept = await made.get(management.CLUSTERS, left)
        assert kept["metadata"]["annotations"].get(CREATOR, "") == before
        # Nor does it go with the other one.
        await made.client.delete(provisioning.CLUSTERS, "demo", FLEET)
        await made.settle(30)
        assert [each["metadata"]["name"] for each in await others(made)] == [left]


@pytest.mark.parametrize("creator", ["u-alice", ""])
async def test_who_made_it_gets_it_back(creator: str) -> None:
    async with world(everything) as made:
        left = await orphaned(made, creator)
        await made.wanted("demo", annotations=by(creator))
        await made.settle(3)
        assert (await demo(made))["status"]["clusterName"] == left
        assert len(await others(made)) == 1
