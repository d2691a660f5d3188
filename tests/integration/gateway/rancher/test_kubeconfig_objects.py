"""Kubeconfigs as Rancher's pages ask for them: for several clusters, and as an action of one."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from remuda.access.users.tokens import Presented
from remuda.api.management_cattle_io import TOKENS
from tests.integration.gateway.rancher.test_steve import EVERYTHING, cluster, user
from tests.integration.gateway.running_gateway import Standing, standing

Obj = dict[str, Any]
PATH = "/v1/ext.cattle.io.kubeconfigs"
ONE = "c-m-aaaaaaaa"


async def config(place: Standing, token: Presented, **spec: Any) -> Obj:
    answer = await place.get(PATH, token, "POST", json={"spec": spec})
    body = await answer.json()
    assert (answer.status, body["type"]) == (201, "ext.cattle.io.kubeconfig"), body
    found: Obj = yaml.safe_load(body["status"]["value"])
    return found


def servers(found: Obj) -> list[str]:
    return [each["cluster"]["server"].rpartition("/")[2] for each in found["clusters"]]


async def test_a_page_gets_one_for_the_clusters_that_it_names() -> None:
    async with standing() as place:
        for name in (ONE, "c-m-bbbbbbbb"):
            await cluster(place, name)
        admin = await user(place, "u-admin", EVERYTHING)
        assert servers(await config(place, admin, clusters=[ONE], includeDefaultEntry=False)) == [ONE]
        assert servers(await config(place, admin, clusters=["*"])) == [ONE, "c-m-bbbbbbbb"]
        assert len(servers(await config(place, admin, clusters=["*"], includeDefaultEntry=True))) == 3
        schemas = {each["id"]: each for each in (await (await place.get("/v1/schemas", admin)).json())["data"]}
        assert schemas["ext.cattle.io.kubeconfig"]["collectionMethods"] == ["POST"]


async def test_its_token_is_valid_as_long_as_was_asked() -> None:
    async with standing() as place:
        await cluster(place, ONE)
        admin = await user(place, "u-admin", EVERYTHING)
        found = await config(place, admin, clusters=[ONE], ttl=60)
        token = await place.client.get(TOKENS, found["users"][0]["user"]["token"].partition(":")[0])
        assert (token["ttl"], token["clusterName"], token["userId"]) == (60_000, ONE, "u-admin")


@pytest.mark.parametrize(
    "body", [{}, {"spec": {}}, {"spec": {"clusters": []}}, {"spec": {"clusters": [1]}}, {"spec": {"clusters": ["*"], "ttl": -1}}]
)
async def test_a_bad_request_is_refused(body: Obj) -> None:
    async with standing() as place:
        admin = await user(place, "u-admin", EVERYTHING)
        assert (await place.get(PATH, admin, "POST", json=body)).status == 422


async def test_clusters_of_others_are_not_named() -> None:
    async with standing() as place:
        await cluster(place, ONE)
        tenant = await user(place, "u-tenant")
        for name in (ONE, "c-m-zzzzzzzz"):
            assert (await place.get(PATH, tenant, "POST", json={"spec": {"clusters": [name]}})).status == 404
        action = f"/v1/management.cattle.io.clusters/{ONE}?action=generateKubeconfig"
        assert (await place.get(action, tenant, "POST")).status == 404


async def test_a_cluster_offers_it_as_an_action() -> None:
    async with standing() as place:
        await cluster(place, ONE)
        admin = await user(place, "u-admin", EVERYTHING)
        path = f"/v1/management.cattle.io.clusters/{ONE}"
        action = (await (await place.get(path, admin)).json())["actions"]["generateKubeconfig"]
        assert action.endswith(f"{path}?action=generateKubeconfig")
        answer = await place.get(f"{path}?action=generateKubeconfig", admin, "POST")
        assert servers(yaml.safe_load((await answer.json())["config"])) == [ONE]
        assert (await place.get(f"{path}?action=explode", admin, "POST")).status == 404
