"""Rancher's API `/v3` on a running gateway: reading and writing with the permissions of the caller."""

from __future__ import annotations

import base64
from typing import Any

from remuda.access.users.tokens import Presented
from remuda.api.management_cattle_io import CLUSTERS, DYNAMIC_SCHEMAS, NODE_DRIVERS, PROJECTS
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.errors import ApiError
from tests.integration.gateway.rancher.test_steve import EVERYTHING, bind, cluster, ids, namespace, user
from tests.integration.gateway.running_gateway import Standing, standing
from tests.waiting import until

Obj = dict[str, Any]

MANAGEMENT = "management.cattle.io"
GLOBAL = "cattle-global-data"


async def answer(place: Standing, token: Presented, method: str, path: str, body: Obj | None = None, status: int = 200) -> Obj:
    got = await place.get(path, token, method, **({"json": body} if body is not None else {}))
    found: Obj = await got.json()
    assert got.status == status, (method, path, got.status, found)
    return found


def rule(verbs: str, group: str, *resources: str, names: tuple[str, ...] = ()) -> Obj:
    made: Obj = {"verbs": verbs.split(), "apiGroups": [group], "resources": list(resources)}
    return {**made, "resourceNames": list(names)} if names else made


async def project(place: Standing, cluster: str, name: str) -> None:
    meta = {"name": name, "namespace": cluster}
    made = {"apiVersion": f"{MANAGEMENT}/v3", "kind": "Project", "metadata": meta, "spec": {"displayName": name.upper()}}
    await place.client.create(PROJECTS, made, cluster)


async def driver(place: Standing, name: str, *, active: bool) -> None:
    made = {"apiVersion": f"{MANAGEMENT}/v3", "kind": "NodeDriver", "metadata": {"name": name}}
    await place.client.create(NODE_DRIVERS, {**made, "spec": {"displayName": name, "active": active, "url": "local://"}})


async def credential_schema(place: Standing, name: str) -> None:
    fields = {"accessKey": {"type": "string"}, "secretKey": {"type": "password"}}
    embedded = {f"{name}credentialConfig": {"type": f"{name}credentialconfig"}}
    for schema, said in ((f"{name}credentialconfig", fields), ("credentialconfig", embedded)):
        made = {"apiVersion": f"{MANAGEMENT}/v3", "kind": "DynamicSchema", "metadata": {"name": schema}}
        await place.client.create(DYNAMIC_SCHEMAS, {**made, "spec": {"resourceFields": said}})


# --- the root and the schemas ---------------------------------------------------------------------------------------------


async def test_the_root_leads_to_the_schemas_by_basic_and_by_bearer() -> None:
    async with standing() as place:
        token = await user(place, "u-admin", EVERYTHING)
        basic = {"Authorization": "Basic " + base64.b64encode(token.text.encode()).decode()}
        for got in (await place.get("/v3", token), await place.get("/v3", headers=basic)):
            assert (got.status, got.headers["X-API-Schemas"]) == (200, f"{place.url.replace('http:', 'https:')}/v3/schemas")
        found = {each["id"]: each for each in (await answer(place, token, "GET", "/v3/schemas"))["data"]}
        wanted = "principal cluster clusterRegistrationToken cloudCredential nodeDriver node token user setting project feature"
        assert set(wanted.split()) <= set(found)
        for schema in found.values():
            assert schema["links"]["self"].endswith(f"/v3/schemas/{schema['id']}")
        assert found["cluster"]["links"]["collection"].startswith("https://")
        assert "POST" in found["cluster"]["collectionMethods"]
        assert await answer(place, token, "GET", "/v3/schemas/NODEDRIVER") == found["nodeDriver"]


async def test_clusters_and_projects_are_roots_too() -> None:
    async with standing() as place:
        admin = await user(place, "u-admin", EVERYTHING)
        await cluster(place, "c-m-aaaaaaaa")
        await namespace(place, "c-m-aaaaaaaa")
        await project(place, "c-m-aaaaaaaa", "p-abcde")
        for path in ("/v3/clusters/c-m-aaaaaaaa", "/v3/projects/c-m-aaaaaaaa:p-abcde"):
            got = await place.get(path, admin)
            assert (got.status, got.headers["X-API-Schemas"].endswith(f"{path}/schemas")) == (200, True)
            assert (await answer(place, admin, "GET", f"{path}/schemas"))["data"] == []


async def test_schemas_are_the_callers_permissions() -> None:
    async with standing() as place:
        nobody = await user(place, "u-nobody")
        found = {each["id"]: each for each in (await answer(place, nobody, "GET", "/v3/schemas"))["data"]}
        assert found["project"]["collectionMethods"] == ["GET"]
        assert (found["cloudCredential"]["collectionMethods"], found["user"]["collectionMethods"]) == (["GET"], ["GET"])
        assert (found["token"]["collectionMethods"], found["token"]["resourceMethods"]) == (["GET", "POST"], ["GET", "DELETE"])


# --- objects --------------------------------------------------------------------------------------------------------------


async def test_a_cluster_in_its_flat_form() -> None:
    async with standing() as place:
        admin = await user(place, "u-admin", EVERYTHING)
        await cluster(place, "c-m-aaaaaaaa", displayName="demo", description="of a test")
        status = {"driver": "k3s", "provider": "k3s", "nodeCount": 3, "conditions": [{"type": "Ready", "status": "True"}]}
        await place.client.patch(CLUSTERS, "c-m-aaaaaaaa", {"status": status})
        found = await answer(place, admin, "GET", "/v3/clusters/c-m-aaaaaaaa")
        said = {name: found[name] for name in ("id", "type", "name", "description", "driver", "provider", "nodeCount", "state")}
        assert said == {
            "id": "c-m-aaaaaaaa",
            "type": "cluster",
            "name": "demo",
            "description": "of a test",
            "driver": "k3s",
            "provider": "k3s",
            "nodeCount": 3,
            "state": "active",
        }
        assert found["transitioning"] == "no"
        assert found["actions"]["generateKubeconfig"].endswith("/v3/clusters/c-m-aaaaaaaa?action=generateKubeconfig")
        assert set(found["links"]) == {"self", "update", "remove"}


async def test_writes_change_the_object_that_is_behind() -> None:
    async with standing() as place:
        admin = await user(place, "u-admin", EVERYTHING)
        made = await answer(place, admin, "POST", "/v3/clusters", {"name": "imported", "labels": {"a": "b"}}, 201)
        stored = await place.client.get(CLUSTERS, made["id"])
        assert (stored["spec"]["displayName"], stored["metadata"]["labels"]["a"]) == ("imported", "b")
        path = f"/v3/clusters/{made['id']}"
        # A client sends back what it has read, with a change.
        changed = await answer(place, admin, "PUT", path, {**made, "description": "more", "state": "error"})
        assert (changed["description"], changed["name"]) == ("more", "imported")
        assert (await place.client.get(CLUSTERS, made["id"]))["spec"]["description"] == "more"
        assert (await answer(place, admin, "PUT", path, {"description": None})).get("description") is None
        await answer(place, admin, "DELETE", path)
        assert (await place.get(path, admin)).status == 404


async def test_a_driver_is_switched_by_its_actions() -> None:
    async with standing() as place:
        admin = await user(place, "u-admin", EVERYTHING)
        await driver(place, "somecloud", active=False)
        path = "/v3/nodedrivers/somecloud"
        found = await answer(place, admin, "GET", path)
        assert (found["state"], list(found["actions"]), found["name"]) == ("inactive", ["activate"], "somecloud")
        found = await answer(place, admin, "POST", f"{path}?action=activate")
        assert (found["state"], list(found["actions"])) == ("active", ["deactivate"])
        assert (await place.client.get(NODE_DRIVERS, "somecloud"))["spec"]["active"] is True
        assert (await place.get(f"{path}?action=explode", admin, "POST")).status == 400
        reader = await user(place, "u-reader", rule("get list", MANAGEMENT, "nodedrivers"))
        assert (await answer(place, reader, "GET", path))["actions"] == {}
        assert (await place.get(f"{path}?action=deactivate", reader, "POST")).status == 403


async def test_lists_are_filtered_sorted_and_paged() -> None:
    async with standing() as place:
        admin = await user(place, "u-admin", EVERYTHING)
        for name in ("c-m-aaaaaaaa", "c-m-bbbbbbbb", "c-m-cccccccc"):
            await cluster(place, name, displayName=f"herd-{name[-1]}")
        page = await answer(place, admin, "GET", "/v3/clusters?sort=name&order=desc&limit=2")
        assert [each["name"] for each in page["data"]] == ["herd-c", "herd-b"]
        assert (page["pagination"]["total"], page["pagination"]["partial"]) == (3, True)
        rest = page["pagination"]["next"].partition("/v3/")[2]
        assert [each["name"] for each in (await answer(place, admin, "GET", f"/v3/{rest}"))["data"]] == ["herd-a"]
        assert await ids(place, "/v3/clusters?name=herd-b&removed_null=1&limit=-1&all=true", admin) == ["c-m-bbbbbbbb"]
        assert await ids(place, "/v3/clusters?name_ne=herd-b", admin) == ["c-m-aaaaaaaa", "c-m-cccccccc"]


async def test_a_feature_says_that_nothing_is_set() -> None:
    async with standing() as place:
        admin = await user(place, "u-admin", EVERYTHING)
        path = "/v3/features/multi-cluster-management"

        async def is_made() -> bool:
            return (await place.get(path, admin)).status == 200

        await until(is_made)
        feature = await answer(place, admin, "GET", path)
        assert (feature["value"], feature["lockedValue"], feature["default"]) == (None, None, True)


# --- permissions ----------------------------------------------------------------------------------------------------------


async def test_a_tenant_sees_their_own_objects_only() -> None:
    async with standing() as place:
        for name in ("c-m-aaaaaaaa", "c-m-bbbbbbbb"):
            await cluster(place, name)
            await namespace(place, name)
            await project(place, name, "p-abcde")
        tenant = await user(place, "u-tenant", rule("get list", MANAGEMENT, "clusters", names=("c-m-aaaaaaaa",)))
        await bind(place, "u-tenant", rule("get list", MANAGEMENT, "projects"), namespace="c-m-aaaaaaaa")
        assert await ids(place, "/v3/clusters", tenant) == ["c-m-aaaaaaaa"]
        assert await ids(place, "/v3/projects", tenant) == ["c-m-aaaaaaaa:p-abcde"]
        assert await ids(place, "/v3/projects?clusterId=c-m-bbbbbbbb", tenant) == []
        assert await ids(place, "/v3/nodes", tenant) == []
        for path in ("clusters/c-m-bbbbbbbb", "clusters/c-m-zzzzzzzz", "projects/c-m-bbbbbbbb:p-abcde"):
            assert (await place.get(f"/v3/{path}", tenant)).status == 403
        for method, path in (("PUT", "clusters/c-m-aaaaaaaa"), ("DELETE", "clusters/c-m-aaaaaaaa"), ("POST", "clusters")):
            assert (await place.get(f"/v3/{path}", tenant, method, json={"name": "x"})).status == 403, (method, path)
        assert set((await answer(place, tenant, "GET", "/v3/clusters/c-m-aaaaaaaa"))["links"]) == {"self"}


async def test_registration_tokens_are_listed_of_all_clusters_that_the_caller_may_join() -> None:
    async with standing() as place:
        admin, nobody = await user(place, "u-admin", EVERYTHING), await user(place, "u-nobody")
        assert (await place.get("/v3/clusterregistrationtokens", admin)).status == 200
        assert await ids(place, "/v3/clusterregistrationtokens", nobody) == []


async def test_users_are_found_by_those_who_may_list_them() -> None:
    async with standing() as place:
        admin = await user(place, "u-admin", EVERYTHING)
        tenant = await user(place, "u-tenant")
        found = (await answer(place, tenant, "GET", "/v3/principals"))["data"]
        assert [(each["id"], each["me"]) for each in found] == [("local://u-tenant", True)]
        search = "/v3/principals?action=search"
        assert (await answer(place, tenant, "POST", search, {"name": "u-a"}))["data"] == []
        found = (await answer(place, admin, "POST", search, {"name": "U-t", "principalType": "user"}))["data"]
        assert [(each["loginName"], each["me"]) for each in found] == [("u-tenant", False)]


# --- cloud credentials ----------------------------------------------------------------------------------------------------


async def test_a_secret_of_a_credential_never_comes_back() -> None:
    async with standing() as place:
        admin = await user(place, "u-admin", EVERYTHING)
        await namespace(place, GLOBAL)
        await credential_schema(place, "somecloud")
        config = {"accessKey": "key-1", "secretKey": "hidden-1"}
        made = await answer(
            place, admin, "POST", "/v3/cloudcredentials", {"name": "mine", "somecloudcredentialConfig": config}, 201
        )
        path = f"/v3/cloudcredentials/{made['id']}"
        assert made["id"].startswith(f"{GLOBAL}:cc-")
        for found in (made, await answer(place, admin, "GET", path)):
            assert (found["name"], found["state"]) == ("mine", "active")
            assert found["somecloudcredentialConfig"] == {"accessKey": "key-1"}
        name = made["id"].partition(":")[2]
        # What a client reads it sends back; the secret is not in it, and stays.
        await answer(place, admin, "PUT", path, {**made, "description": "more"})
        stored = (await place.client.get(SECRETS, name, GLOBAL))["data"]
        assert base64.b64decode(stored["somecloudcredentialConfig-secretKey"]) == b"hidden-1"
        await answer(place, admin, "PUT", path, {"somecloudcredentialConfig": {"secretKey": "hidden-2"}})
        stored = (await place.client.get(SECRETS, name, GLOBAL))["data"]
        assert base64.b64decode(stored["somecloudcredentialConfig-secretKey"]) == b"hidden-2"
        await answer(place, admin, "PUT", path, {"othercredentialConfig": {"x": "y"}}, 422)
        await answer(place, admin, "DELETE", path)
        try:
            await place.client.get(SECRETS, name, GLOBAL)
        except ApiError as error:
            assert error.is_not_found
        else:
            raise AssertionError("the Secret is still there")


async def test_other_secrets_are_no_credentials() -> None:
    async with standing() as place:
        admin = await user(place, "u-admin", EVERYTHING)
        await namespace(place, GLOBAL)
        for name in ("cc-other", "kubeconfig"):
            secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": {"token": "c2VjcmV0"}}
            await place.client.create(SECRETS, secret, GLOBAL)
        assert await ids(place, "/v3/cloudcredentials", admin) == []
        for name in (f"{GLOBAL}:cc-other", f"{GLOBAL}:kubeconfig", "default:cc-x", "cc-other"):
            for method in ("GET", "PUT", "DELETE"):
                body = {"json": {}} if method == "PUT" else {}
                assert (await place.get(f"/v3/cloudcredentials/{name}", admin, method, **body)).status == 404, (method, name)


async def test_the_creator_of_a_credential_lists_it_by_the_right_to_read_it() -> None:
    async with standing() as place:
        await namespace(place, GLOBAL)
        data = {"somecloudcredentialConfig-secretKey": "c2VjcmV0"}
        for name in ("cc-mine", "cc-other"):
            await place.client.create(
                SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}, GLOBAL
            )
        tenant = await user(place, "u-tenant")
        await bind(place, "u-tenant", rule("get update delete", "", "secrets", names=("cc-mine",)), namespace=GLOBAL)
        assert await ids(place, "/v3/cloudcredentials", tenant) == [f"{GLOBAL}:cc-mine"]
        assert (await place.get(f"/v3/cloudcredentials/{GLOBAL}:cc-other", tenant)).status == 403
        assert "secretKey" not in await (await place.get("/v3/cloudcredentials", tenant)).text()
