"""Rancher's API `/v1` on a running gateway: reading and writing with the permissions of the caller."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.access.users.tokens import Presented
from remuda.api.management_cattle_io import CLUSTERS
from remuda.kube.builtin_resources import NAMESPACES, SECRETS
from remuda.kube.objects import GroupVersionResource
from tests.integration.gateway.running_gateway import Standing, standing
from tests.waiting import until

Obj = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
EVERYTHING = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
EVERY_ROOT = ("/v1", "/k8s/clusters/local/v1")


async def bind(place: Standing, user: str, *rules: Obj, namespace: str = "") -> None:
    kind = "Role" if namespace else "ClusterRole"
    meta = {"name": f"{user}-test"}
    role = {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": meta, "rules": list(rules)}
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": f"{kind}Binding",
        "metadata": meta,
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": meta["name"]},
        "subjects": [{"kind": "User", "name": user}],
    }
    await place.client.create(GroupVersionResource(RBAC, "v1", f"{kind.lower()}s"), role, namespace)
    await place.client.create(GroupVersionResource(RBAC, "v1", f"{kind.lower()}bindings"), binding, namespace)


async def user(place: Standing, name: str, *rules: Obj, namespace: str = "") -> Presented:
    """A user with these permissions, logged in."""
    await place.user(name)
    if rules:
        await bind(place, name, *rules, namespace=namespace)
    token = await place.token(name)

    async def is_known() -> bool:
        return (await place.get("/v1", token)).status == 200

    await until(is_known)
    return token


async def cluster(place: Standing, name: str, **spec: Any) -> Obj:
    manifest = {"apiVersion": "management.cattle.io/v3", "kind": "Cluster", "metadata": {"name": name}}
    return await place.client.create(CLUSTERS, {**manifest, "spec": {"displayName": name, **spec}})


async def namespace(place: Standing, name: str) -> None:
    await place.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


async def secret(place: Standing, namespace: str, name: str) -> None:
    await place.client.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}, namespace)


async def ids(place: Standing, path: str, token: Presented) -> list[str]:
    answer = await place.get(path, token)
    assert answer.status == 200, await answer.text()
    return [each["id"] for each in (await answer.json())["data"]]


async def _is_there(place: Standing, path: str, token: Presented) -> bool:
    return (await place.get(path, token)).status == 200


async def test_an_administrator_lists_filters_sorts_and_pages() -> None:
    async with standing() as place:
        admin = await user(place, "u-admin", EVERYTHING)
        for name in ("c-m-aaaaaaaa", "c-m-bbbbbbbb", "c-m-cccccccc"):
            await cluster(place, name, description="last" if name.endswith("c") else "")
        for root in EVERY_ROOT:
            query = "page=1&pagesize=2&sort=-spec.description,-spec.displayName&filter=id~c-m-"
            path = f"{root}/management.cattle.io.clusters?{query}"
            answer = await place.get(path, admin)
            body = await answer.json()
            assert [each["id"] for each in body["data"]] == ["c-m-cccccccc", "c-m-bbbbbbbb"]
            assert (body["type"], body["resourceType"]) == ("collection", "management.cattle.io.cluster")
            assert (body["count"], body["pages"], int(body["revision"]) > 0) == (3, 2, True)
            assert answer.headers["X-API-Cattle-Auth"] == "true"
            assert answer.headers["X-API-Schemas"].endswith(f"{root}/schemas")
            assert body["data"][0]["links"]["self"].endswith(f"{root}/management.cattle.io.clusters/c-m-cccccccc")


async def test_the_revision_of_a_list_is_at_least_the_wanted_one() -> None:
    async with standing() as place:
        admin = await user(place, "u-admin", EVERYTHING)
        made = await cluster(place, "c-m-aaaaaaaa")
        revision = made["metadata"]["resourceVersion"]
        assert (await place.get(f"/v1/management.cattle.io.clusters?revision={revision}", admin)).status == 200
        late = await place.get("/v1/management.cattle.io.clusters?revision=999999999", admin)
        assert (late.status, (await late.json())["code"]) == (400, "UnknownRevision")


async def test_a_long_list_can_be_read_in_pieces() -> None:
    async with standing() as place:
        admin = await user(place, "u-admin", EVERYTHING)
        for name in ("a", "b", "c"):
            await secret(place, "default", name)
        first = await (await place.get("/v1/secrets/default?limit=2", admin)).json()
        assert ([each["id"] for each in first["data"]], first["count"]) == (["default/a", "default/b"], 3)
        rest = await ids(place, f"/v1/secrets/default?limit=2&continue={first['continue']}", admin)
        assert rest == ["default/c"]


async def test_schemas_are_the_callers_permissions() -> None:
    async with standing() as place:
        admin = await user(place, "u-admin", EVERYTHING)
        reader = await user(place, "u-reader", {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["secrets"]})
        everything = {each["id"]: each for each in (await (await place.get("/v1/schemas", admin)).json())["data"]}
        assert {"secret", "event", "count", "schema", "management.cattle.io.setting"} <= set(everything)
        assert "POST" in everything["management.cattle.io.cluster"]["collectionMethods"]
        assert [column["name"] for column in everything["event"]["attributes"]["columns"]] == [
            "Last Seen",
            "Type",
            "Reason",
            "Object",
            "Subobject",
            "Source",
            "Message",
            "First Seen",
            "Count",
            "Name",
        ]
        few = {each["id"]: each for each in (await (await place.get("/v1/schemas", reader)).json())["data"]}
        assert few["secret"]["collectionMethods"] == ["GET"] and "management.cattle.io.cluster" not in few
        one = await place.get("/v1/schemas/management.cattle.io.cluster", reader)
        none = await place.get("/v1/schemas/management.cattle.io.nonsense", reader)
        assert (one.status, none.status) == (404, 404)


async def test_a_tenant_sees_by_name_only_what_the_roles_name() -> None:
    async with standing() as place:
        rule = {"apiGroups": ["management.cattle.io"], "resources": ["clusters"], "resourceNames": ["c-m-bbbbbbbb"]}
        tenant = await user(place, "u-tenant", {"verbs": ["get", "list", "watch"], **rule})
        for name in ("c-m-aaaaaaaa", "c-m-bbbbbbbb"):
            await cluster(place, name)
        path = "/v1/management.cattle.io.clusters"
        assert await ids(place, path, tenant) == ["c-m-bbbbbbbb"]
        body = await (await place.get(f"{path}?filter=id~c-m&pagesize=10&page=1", tenant)).json()
        assert body["count"] == 1
        assert (await place.get(f"{path}/c-m-bbbbbbbb", tenant)).status == 200
        other, absent = [await place.get(f"{path}/c-m-{each}", tenant) for each in ("aaaaaaaa", "zzzzzzzz")]
        assert other.status == absent.status >= 400
        counted = (await (await place.get("/v1/counts", tenant)).json())["data"][0]["counts"]
        assert counted == {"management.cattle.io.cluster": {"summary": {"count": 1}, "namespaces": {}}}


async def test_a_list_across_namespaces_has_those_that_the_caller_may_list() -> None:
    async with standing() as place:
        for name in ("one", "two"):
            await namespace(place, name)
            await secret(place, name, "s")
        rule = {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["secrets"]}
        tenant = await user(place, "u-tenant", rule, namespace="one")
        stranger = await user(place, "u-stranger")
        assert await ids(place, "/v1/secrets", tenant) == ["one/s"]
        assert await ids(place, "/v1/secrets/one", tenant) == ["one/s"]
        assert (await place.get("/v1/secrets/two", tenant)).status == 403
        assert (await place.get("/v1/secrets/two/s", tenant)).status == 403
        assert (await place.get("/v1/secrets", stranger)).status == 403


async def test_lists_can_be_of_namespaces_and_projects() -> None:
    async with standing() as place:
        admin = await user(place, "u-admin", EVERYTHING)
        for name, project in (("one", "p-1"), ("two", "p-2"), ("three", "")):
            labels = {"labels": {"field.cattle.io/projectId": project}} if project else {}
            await place.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **labels}})
            await secret(place, name, "s")
        path = "/v1/secrets?filter=metadata.name=s&"
        assert await ids(place, f"{path}projectsornamespaces=p-1,three", admin) == ["one/s", "three/s"]
        assert await ids(place, f"{path}projectsornamespaces!=p-1", admin) == ["three/s", "two/s"]


async def test_an_object_is_created_changed_and_deleted() -> None:
    async with standing() as place:
        admin = await user(place, "u-admin", EVERYTHING)
        body = {"type": "secret", "_type": "Opaque", "metadata": {"name": "s", "namespace": "default"}, "stringData": {"a": "b"}}
        created = await place.get("/v1/secrets", admin, "POST", json=body)
        shown = await created.json()
        assert (created.status, shown["id"], shown["_type"]) == (201, "default/s", "Opaque")
        changed = {**shown, "metadata": {**shown["metadata"], "labels": {"x": "y"}}}
        path = "/v1/secrets/default/s"
        updated = await place.get(path, admin, "PUT", json=changed)
        assert (updated.status, (await updated.json())["metadata"]["labels"]) == (200, {"x": "y"})
        stale = await place.get(path, admin, "PUT", json={**changed, "data": {}})
        conflict = await stale.json()
        assert (stale.status, conflict["code"], conflict["current"]["metadata"]["labels"]) == (409, "Conflict", {"x": "y"})
        patched = await place.get(path, admin, "PATCH", json={"metadata": {"labels": {"x": "z"}}})
        assert (await patched.json())["metadata"]["labels"] == {"x": "z"}
        stored = await place.client.get(SECRETS, "s", "default")
        assert stored["type"] == "Opaque" and not {"state", "fields", "relationships"} & set(stored["metadata"])
        assert (await place.get(path, admin, "DELETE")).status == 204
        assert (await place.get(path, admin)).status == 404


async def test_an_update_without_a_change_writes_nothing() -> None:
    async with standing() as place:
        admin = await user(place, "u-admin", EVERYTHING)
        await cluster(place, "c-m-aaaaaaaa")
        path = "/v1/management.cattle.io.clusters/c-m-aaaaaaaa"
        shown = await (await place.get(path, admin)).json()
        written = await (await place.get(path, admin, "PUT", json=shown)).json()
        assert written["metadata"]["resourceVersion"] == shown["metadata"]["resourceVersion"]


async def test_yaml_is_read_and_written() -> None:
    async with standing() as place:
        admin = await user(place, "u-admin", EVERYTHING)
        text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\n  namespace: default\ndata:\n  a: b\n"
        answer = await place.get("/v1/configmaps", admin, "POST", data=text, headers={"Content-Type": "application/yaml"})
        assert answer.status == 201
        shown = await place.get("/v1/configmaps/default/c", admin, headers={"Accept": "application/yaml"})
        assert shown.headers["Content-Type"].startswith("application/yaml")
        assert "kind: ConfigMap" in await shown.text() and "links" not in await shown.text()


async def test_writes_take_the_callers_permissions_and_pass_admission() -> None:
    async with standing() as place:
        rule = {"verbs": ["get", "list"], "apiGroups": ["management.cattle.io"], "resources": ["settings"]}
        reader = await user(place, "u-reader", rule)
        admin = await user(place, "u-admin", EVERYTHING)
        path = "/v1/management.cattle.io.settings/server-url"
        await until(lambda: _is_there(place, path, reader))
        shown = await (await place.get(path, reader)).json()
        assert set(shown["links"]) == {"self", "view"}
        for method in ("PUT", "PATCH", "DELETE"):
            assert (await place.get(path, reader, method, json={**shown, "value": "https://x.example"})).status == 403, method
        refused = await place.get(path, admin, "PUT", json={**shown, "value": "no address"})
        assert refused.status in (400, 403, 422) and (await refused.json())["type"] == "error"


async def test_refusals_are_in_the_form_that_clients_read() -> None:
    async with standing() as place:
        admin = await user(place, "u-admin", EVERYTHING)
        cases = {
            "/v1/nonsense": 404,
            "/v1/secrets/default/none": 404,
            "/v1/secrets?filter=a%5Eb": 400,
            "/v1/management.cattle.io.settings/a/b": 404,
        }
        for path, status in cases.items():
            answer = await place.get(path, admin)
            body = await answer.json()
            assert (answer.status, body["type"], body["status"]) == (status, "error", status), path
            assert body["code"] and body["message"], path
        none = await place.get("/v1/schemas")
        assert (none.status, none.headers["X-API-Cattle-Auth"]) == (401, "false")


@pytest.mark.parametrize("root", EVERY_ROOT)
async def test_a_sessions_cookie_counts_and_writes_need_the_proof_of_our_page(root: str) -> None:
    async with standing() as place:
        admin = await user(place, "u-admin", EVERYTHING)
        cookie = {"Cookie": f"R_SESS={admin.text}"}
        assert (await place.get(f"{root}/schemas", headers=cookie)).status == 200
        body = {"metadata": {"name": "s", "namespace": "default"}}
        foreign = await place.get(
            f"{root}/secrets", method="POST", json=body, headers={**cookie, "Origin": "https://evil.example"}
        )
        bare = await place.get(f"{root}/secrets", method="POST", json=body, headers=cookie)
        assert (foreign.status, bare.status) == (403, 403)
        deeper = await place.get(f"{root}/a/b/c/d", method="OPTIONS", headers=cookie)
        assert deeper.status == 404
        assert (await place.get("/k8s/clusters/local/api/v1/secrets", headers=cookie)).status == 401
        assert (await place.get("/k8s/clusters/other/v1/secrets", headers=cookie)).status == 401


async def test_callers_learn_who_they_are_and_keep_their_own_preferences() -> None:
    async with standing() as place:
        await place.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cattle-system"}})
        ann, bob = await user(place, "u-ann"), await user(place, "u-bob")
        said = await place.get("/v1/ext.cattle.io.selfuser", ann, "POST", json={})
        assert (said.status, (await said.json())["status"]) == (201, {"userID": "u-ann"})
        own = await (await place.get("/v1/management.cattle.io.user/u-ann", ann)).json()
        assert (own["id"], own["username"], set(own["metadata"]) & {"annotations", "managedFields"}) == ("u-ann", "u-ann", set())
        assert (await place.get("/v1/management.cattle.io.user/u-bob", ann)).status == 403
        path = "/v1/userpreferences/u-ann"
        empty = await (await place.get("/v1/userpreferences", ann)).json()
        assert [(each["id"], each["data"]) for each in empty["data"]] == [("u-ann", {})]
        written = await place.get(path, ann, "PUT", json={"id": "u-ann", "data": {"theme": "ui-dark", "a b": "c"}})
        assert written.status == 200
        assert (await (await place.get(path, ann)).json())["data"] == {"theme": "ui-dark", "a b": "c"}
        assert (await place.get(path, bob)).status == 404
        assert (await place.get(path, bob, "PUT", json={"data": {}})).status == 404
        wrong = await place.get(path, ann, "PUT", json={"data": {"theme": 1}})
        assert (wrong.status, (await wrong.json())["message"]) == (422, "data must be a map of texts")


async def test_who_must_change_the_password_learns_who_they_are_and_nothing_else() -> None:
    async with standing() as place:
        await place.user("u-new", mustChangePassword=True)
        token = await place.token("u-new")

        async def is_known() -> bool:
            return (await place.get("/v1/ext.cattle.io.selfuser", token, "POST", json={})).status == 201

        await until(is_known)
        own = await place.get("/v1/management.cattle.io.user/u-new", token)
        assert (own.status, (await own.json())["mustChangePassword"]) == (200, True)
        for path in ("/v1/management.cattle.io.user/u-ann", "/v1/schemas", "/v1/counts", "/v1/userpreferences"):
            assert (await place.get(path, token)).status in (403, 404), path


async def test_a_machine_is_shown_like_any_other_object() -> None:
    async with standing() as place:
        admin = await user(place, "u-admin", EVERYTHING)
        answer = await place.get("/v1/cluster.x-k8s.io.machines/fleet-default/none", admin)
        assert (answer.status, (await answer.json())["type"]) == (404, "error")
