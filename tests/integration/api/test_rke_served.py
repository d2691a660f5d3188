"""The embedded API server takes the definitions of the providers' kinds, loses nothing of good objects, and refuses bad ones."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remuda import api
from remuda.api import rke_cattle_io as rke
from remuda.api.crd_installation import established, install
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.app.embedded import running
from remuda.kube.builtin_resources import CRDS
from remuda.kube.clock import SYSTEM_CLOCK
from remuda.kube.conditions import conditions_of
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, name_of
from tests.unit.api.rancher_objects import content
from tests.unit.api.rke_objects import BAD, BAD_STATUS, FLEET, GOOD, GROUPS

from .test_rancher_served import table

_NAMESPACES = GroupVersionResource("", "v1", "namespaces")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with running(Config(tmp_path / "data", port=0)) as made:
        client = InProcessClient(made)
        await established(client, SYSTEM_CLOCK, await install(client, SYSTEM_CLOCK, api.crds(GROUPS)))
        await client.create(_NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": FLEET}})
        yield made


async def apply_good(client: InProcessClient) -> None:
    for resource, wanted, status in GOOD:
        await client.apply(resource, wanted, field_manager="test")
        found = await client.get(resource, name_of(wanted), FLEET)
        assert content(found) == content(wanted), resource.resource
        if status is not None:
            after = await client.update(resource, {**found, "status": status}, subresource="status")
            assert content(after) == {**content(wanted), "status": status}, resource.resource


async def test_good_objects_are_taken_and_nothing_of_them_is_lost(server: Server) -> None:
    client = InProcessClient(server)
    for crd in (await client.list(CRDS))["items"]:
        told = {each["type"]: each["status"] for each in conditions_of(crd)}
        assert told == {"NamesAccepted": "True", "Established": "True"}, crd["metadata"]["name"]
    await apply_good(client)


async def test_bad_objects_are_refused_and_the_field_is_named(server: Server) -> None:
    client = InProcessClient(server)
    for resource, wanted, field, why in BAD:
        with pytest.raises(ApiError) as refusal:
            await client.create(resource, wanted)
        causes = {(cause["field"], cause["message"]) for cause in (refusal.value.details or {})["causes"]}
        assert (field, why) in causes, f"{resource.resource}: {refusal.value.message}"


async def test_bad_statuses_are_refused_and_the_field_is_named(server: Server) -> None:
    client = InProcessClient(server)
    await apply_good(client)
    for resource, name, status, field in BAD_STATUS:
        found = await client.get(resource, name, FLEET)
        with pytest.raises(ApiError) as refusal:
            await client.update(resource, {**found, "status": status}, subresource="status")
        causes = {cause["field"] for cause in (refusal.value.details or {})["causes"]}
        assert field in causes, f"{resource.resource}: {refusal.value.message}"


async def test_conditions_of_a_control_plane_are_applied_by_several_owners(server: Server) -> None:
    client = InProcessClient(server)
    await apply_good(client)
    for manager, condition in (("one", "Reconciled"), ("two", "SystemUpgradeControllerReady")):
        status = {"observedGeneration": 3, "conditions": [{"type": condition, "status": "True"}]}
        patch = {"apiVersion": rke.API_VERSION, "kind": "RKEControlPlane", "metadata": {"name": "demo", "namespace": FLEET}}
        await client.apply(rke.RKE_CONTROL_PLANES, {**patch, "status": status}, field_manager=manager, subresource="status")
    found = await client.get(rke.RKE_CONTROL_PLANES, "demo", FLEET)
    assert [each["type"] for each in conditions_of(found)] == ["Ready", "Stable", "Reconciled", "SystemUpgradeControllerReady"]


async def test_kubectl_get_shows_rancher_s_columns(server: Server) -> None:
    await apply_good(InProcessClient(server))
    name, age = ("Name", "string"), ("Age", "date")
    columns, rows = await table(server, f"/apis/rke.cattle.io/v1/namespaces/{FLEET}/rkecontrolplanes")
    middle = [("Cluster", "string"), ("Initialized", "string"), ("API Server Available", "boolean")]
    assert columns == [name, *middle, age, ("Version", "string")]
    assert [*rows[0][:4], rows[0][5]] == ["demo", "demo", "true", True, "v1.34.1+rke2r1"]

    for plural in ("rkeclusters", "rkebootstraps", "rkebootstraptemplates", "custommachines"):
        columns, rows = await table(server, f"/apis/rke.cattle.io/v1/{plural}")
        assert (columns, len(rows)) == ([name, age], 1), plural

    columns, rows = await table(server, "/apis/rke.cattle.io/v1/etcdsnapshots")
    assert [column for column, _ in columns] == ["Name", "Cluster", "Storage", "Machine", "Size", "Created", "Missing"]
    assert len(rows) == 1

    columns, rows = await table(server, "/apis/plan.cattle.io/v1alpha1/beacons")
    assert columns == [name, ("Active", "string"), ("Registration Endpoint", "string")]
    assert rows == [["demo", "true", "https://s/v3/connect/agent"]]
