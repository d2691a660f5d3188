"""Our definitions of Cluster API's kinds beside the real things: Cluster API's own, and a real kube-apiserver."""

from __future__ import annotations

import asyncio

import pytest

from remuda import api
from remuda.client.https import HttpsClient
from remuda.kube.conditions import conditions_of
from remuda.kube.objects import GroupVersionResource
from tests.real import need
from tests.real.cluster import RealCluster
from tests.real.goldens.crds import make
from tests.real.taking_up import taken_up
from tests.unit.api.cluster_x_k8s_io.objects import GOOD, check_words, obj

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

CRDS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")


def test_what_is_checked_in_is_what_the_pinned_cluster_api_says() -> None:
    need.go()
    assert make.TARGET.read_text() == make.text(make.upstream())


async def test_a_real_api_server_serves_them_and_says_the_same_words() -> None:
    need.programs("kubernetes", "etcd")
    with RealCluster(fsync=False) as cluster:
        async with HttpsClient.from_kubeconfig(cluster.kubeconfig) as client:
            for crd in api.crds():
                await client.apply(CRDS, crd, field_manager="test")
            await _established(client)
            for resource, spec in GOOD:
                assert (await client.create(resource, obj(resource, spec), "default"))["spec"] == spec
            await check_words(client)


async def _established(client: HttpsClient) -> None:
    """Wait until every definition is; none may complain."""
    wanted = {"NamesAccepted": "True", "Established": "True"}
    async with asyncio.timeout(180):
        while True:
            items = (await client.list(CRDS))["items"]
            told = [{each["type"]: each["status"] for each in conditions_of(crd)} for crd in items]
            if all(each == wanted for each in told):
                return await taken_up(client, items)
            await asyncio.sleep(0.1)
