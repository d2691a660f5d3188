"""A server that starts again finds all as it left it, and writes nothing."""

from __future__ import annotations

from typing import Any

from remuda.api import management_cattle_io as management
from remuda.client.interface import Client, Send, WrappedClient
from tests.unit.access.management_api import World, world

from .mirrored_clusters import managed
from .test_kubeconfig import connected
from .test_owner_leaves import member, with_roles


class Counted(WrappedClient):
    """Counts what is written."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.writes = 0

    async def _call(self, send: Send, *, write: bool) -> Any:
        self.writes += write
        return await send()


async def again(made: World) -> Counted:
    """Another life of the controllers."""
    counted: list[Counted] = []
    await made.end()
    made.lives.clear()
    made.begin(lambda client: counted.append(Counted(client)) or counted[0])
    await made.settle(60)
    return counted[0]


async def test_clusters_that_are_as_they_should_be_cost_no_write() -> None:
    async with world(with_roles) as made:
        cluster = await connected(made)
        await member(made, cluster, "u-alice")
        await made.settle(60)
        assert (await again(made)).writes == 0


async def test_what_was_changed_in_the_meantime_is_put_right() -> None:
    async with world(with_roles) as made:
        await connected(made)
        await made.settle(60)
        await made.end()
        name = (await managed(made))["metadata"]["name"]
        await made.patch(management.CLUSTERS, name, {"spec": {"displayName": "other"}})
        assert (await again(made)).writes > 0
        assert (await managed(made))["spec"]["displayName"] == "demo"
