"""The embedded API server takes the definitions of Rancher's kinds, loses nothing of good objects, and refuses bad ones."""

from __future__ import annotations

import ssl
from typing import Any

import aiohttp

from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Server
from remuda.kube.builtin_resources import CRDS
from remuda.kube.conditions import conditions_of
from remuda.kube.objects import GroupVersionResource
from tests.unit.api.rancher_objects import (
    BINDING_STATUS,
    DEMO,
    FLEET,
    GROUPS,
    ID,
    KINDS,
    PROVISIONING_STATUS,
    ROLE_STATUS,
    Obj,
    apply_good,
    obj,
)
from tests.unit.api.rancher_refusals import check_refused

TABLE = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
NULL = "<no value>"  # how a JSONPath of Kubernetes prints null


async def test_every_definition_is_established_and_structural(server: Server) -> None:
    client = InProcessClient(server)
    ours = [crd for crd in (await client.list(CRDS))["items"] if crd["spec"]["group"] in GROUPS]
    assert len(ours) == len(KINDS)
    for crd in ours:
        told = {each["type"]: each["status"] for each in conditions_of(crd)}
        assert told == {"NamesAccepted": "True", "Established": "True"}, crd["metadata"]["name"]


async def test_good_objects_are_applied_and_nothing_of_them_is_lost(server: Server) -> None:
    await apply_good(InProcessClient(server))


async def test_bad_objects_are_refused_and_the_field_is_named(server: Server) -> None:
    await check_refused(InProcessClient(server))


async def test_a_machine_pool_runs_linux_unless_it_says_otherwise(server: Server) -> None:
    pool = {"name": "a", "machineConfigRef": None}
    spec = {
        "rkeConfig": {"machinePools": [pool, {**pool, "name": "b", "machineOS": None}, {**pool, "name": "c", "machineOS": ""}]}
    }
    made = await InProcessClient(server).create(provisioning.CLUSTERS, obj(provisioning.CLUSTERS, "x", FLEET, spec=spec))
    assert [each["machineOS"] for each in made["spec"]["rkeConfig"]["machinePools"]] == ["linux", None, ""]


async def test_pools_are_applied_by_several_owners(server: Server) -> None:
    client = InProcessClient(server)
    for manager, name in (("one", "a"), ("two", "b")):
        spec = {"rkeConfig": {"machinePools": [{"name": name, "machineConfigRef": {"kind": "PodConfig", "name": name}}]}}
        await client.apply(provisioning.CLUSTERS, obj(provisioning.CLUSTERS, "x", FLEET, spec=spec), field_manager=manager)
    found = await client.get(provisioning.CLUSTERS, "x", FLEET)
    assert [pool["name"] for pool in found["spec"]["rkeConfig"]["machinePools"]] == ["a", "b"]


async def test_a_status_is_apart_where_rancher_has_it_apart(server: Server) -> None:
    client = InProcessClient(server)
    apart: list[tuple[GroupVersionResource, Obj, Obj]] = [
        (provisioning.CLUSTERS, obj(provisioning.CLUSTERS, "demo", FLEET, spec=DEMO), PROVISIONING_STATUS),
        (management.GLOBAL_ROLES, obj(management.GLOBAL_ROLES, "r"), ROLE_STATUS),
        (management.GLOBAL_ROLE_BINDINGS, obj(management.GLOBAL_ROLE_BINDINGS, "b", globalRoleName="r"), BINDING_STATUS),
        (
            management.CLUSTER_ROLE_TEMPLATE_BINDINGS,
            obj(management.CLUSTER_ROLE_TEMPLATE_BINDINGS, "b", ID, clusterName=ID, roleTemplateName="r"),
            BINDING_STATUS,
        ),
    ]
    for resource, made, status in apart:
        created = await client.create(resource, {**made, "status": status})
        assert "status" not in created, resource.resource
        updated = await client.update(resource, {**created, "status": status}, subresource="status")
        assert updated["status"] == status


async def table(server: Server, path: str) -> tuple[list[tuple[str, str]], list[list[Any]]]:
    """The columns, by name and type, and the cells: what `kubectl get` prints."""
    assert server.pki is not None
    context = ssl.create_default_context(cafile=str(server.pki.ca_certificate))
    context.load_cert_chain(server.pki.admin_certificate, server.pki.admin_key)
    async with aiohttp.ClientSession() as session, session.get(server.url + path, headers=TABLE, ssl=context) as answer:
        found = await answer.json()
    columns = [(column["name"], column["type"]) for column in found["columnDefinitions"]]
    return columns, [row["cells"] for row in found["rows"]]


async def test_kubectl_get_shows_rancher_s_columns(server: Server) -> None:
    client = InProcessClient(server)
    await apply_good(client)
    demo = await client.get(provisioning.CLUSTERS, "demo", FLEET)
    await client.update(provisioning.CLUSTERS, {**demo, "status": PROVISIONING_STATUS}, subresource="status")
    role = await client.get(management.GLOBAL_ROLES, "autoscaler")
    await client.update(management.GLOBAL_ROLES, {**role, "status": ROLE_STATUS}, subresource="status")
    name, old, age = ("Name", "string"), ("Age", "date"), ("AGE", "date")

    columns, rows = await table(server, f"/apis/provisioning.cattle.io/v1/namespaces/{FLEET}/clusters")
    texts = [(each, "string") for each in ("Version", "Cluster Name", "Kubeconfig", "Ready")]
    assert columns == [name, *texts[:2], old, *texts[2:]]
    cells = {row[0]: [*row[1:3], *row[4:]] for row in rows}
    assert cells["demo"] == ["v1.34.1+rke2r1", "c-m-bcdfg245", "demo-kubeconfig", "true"]
    assert cells["imported"] == [NULL, None, None, None]

    for plural in ("clusters", "users", "tokens", "nodes", "clusterregistrationtokens", "roletemplates", "fleetworkspaces"):
        columns, rows = await table(server, f"/apis/management.cattle.io/v3/{plural}")
        assert (columns, len(rows) > 0) == ([name, old], True), plural

    for plural in ("globalroles", "globalrolebindings", "clusterroletemplatebindings"):
        columns, rows = await table(server, f"/apis/management.cattle.io/v3/{plural}")
        assert columns == [name, ("STATUS", "string"), age], plural
        assert rows[0][1] == ("Complete" if plural == "globalroles" else None)

    columns, rows = await table(server, "/apis/management.cattle.io/v3/settings")
    assert (columns, rows) == ([name, ("Value", "string")], [["cacerts", NULL], ["server-url", "https://s"]])
    columns, rows = await table(server, "/apis/management.cattle.io/v3/features")
    assert columns == [name, ("Custom Value", "string"), ("Default", "string"), ("Description", "string")]
    assert rows == [["rke2", NULL, "true", "Enable RKE2"]]
