"""Tenants with kubectl and imagination: what they write of their own is put back or refused, and lists show nothing of others."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from .harness import CLUSTERS, MANAGED, Gateway, Person, until

pytestmark = pytest.mark.story

Obj = dict[str, Any]
MERGE, APPLY, JSON = "application/merge-patch+json", "application/apply-patch+yaml", "application/json-patch+json"
CREATOR, MARK = "field.cattle.io/creatorId", "objectset.rio.cattle.io/owner-name"
STANDS_FOR, WORKSPACE = "provisioning.cattle.io/management-cluster-name", "provisioning.cattle.io/fleet-workspace-name"


@dataclass(frozen=True)
class Tenant:
    person: Person
    user: str
    name: str
    id: str

    def wants(self, name: str, annotations: Obj | None = None, **more: Any) -> int:
        made = {"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "spec": {}, **more}
        made["metadata"] = {"name": name, "annotations": annotations or {}}
        return self.person.request("POST", CLUSTERS, made).status

    def patch(self, path: str, body: Any, kind: str = MERGE) -> int:
        return self.person.request("PATCH", path, body, Content_Type=kind).status


def tenant(gateway: Gateway, called: str) -> Tenant:
    person = gateway.user(called)
    name = f"{called}-cluster"
    made = {"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "metadata": {"name": name}, "spec": {}}

    def makes() -> bool:
        return person.request("POST", CLUSTERS, made).status in (201, 409)

    # What a role gives comes a moment after the role.
    until(makes, log=gateway)

    def known_as() -> str:
        answer = person.request("GET", f"{CLUSTERS}/{name}")
        return str(answer.json.get("status", {}).get("clusterName", "")) if answer.status == 200 else ""

    until(known_as, log=gateway)
    identity = known_as()
    until(lambda: person.request("GET", f"{MANAGED}/{identity}").status == 200, log=gateway)
    # What they may do in its namespace comes apart from that.
    for kind in ("clusterroletemplatebindings", "clusterregistrationtokens"):
        path = f"/apis/management.cattle.io/v3/namespaces/{identity}/{kind}"
        until(lambda path=path: person.request("GET", path).status == 200, log=gateway)  # type: ignore[misc]
    return Tenant(person, gateway.user_id(person), name, identity)


@pytest.fixture(scope="module")
def eve(gateway: Gateway) -> Tenant:
    return tenant(gateway, "eve")


@pytest.fixture(scope="module")
def dave(gateway: Gateway) -> Tenant:
    return tenant(gateway, "dave")


def test_what_controllers_say_is_not_a_tenants_to_say(gateway: Gateway, eve: Tenant, dave: Tenant) -> None:
    own, wanted = f"{MANAGED}/{eve.id}", f"{CLUSTERS}/{eve.name}"
    said = {"apiEndpoint": "https://169.254.169.254:443", "caCert": "eA==", "serviceAccountTokenSecret": "x"}
    whole = {"apiVersion": "management.cattle.io/v3", "kind": "Cluster", "metadata": {"name": eve.id}, "status": said}
    assert eve.patch(own, {"status": said}) == 200
    assert eve.patch(f"{own}?fieldManager=x&force=true", whole, APPLY) == 200
    assert eve.patch(own, [{"op": "add", "path": "/status/apiEndpoint", "value": said["apiEndpoint"]}], JSON) == 200
    assert eve.patch(wanted, {"status": {"clusterName": dave.id}}) == 200
    assert eve.wants("with-status", status={"clusterName": dave.id}) == 201
    for path, body in ((own, {"status": said}), (wanted, {"status": {"clusterName": dave.id}})):
        assert eve.patch(f"{path}/status", body) == 403
    found = gateway.endpoint.request("GET", own).json
    assert not {*said} & {*(found.get("status") or {})}
    assert gateway.endpoint.request("GET", wanted).json["status"]["clusterName"] == eve.id
    other = gateway.endpoint.request("GET", f"{CLUSTERS}/with-status").json
    assert (other.get("status") or {}).get("clusterName") != dave.id


FORGED: list[tuple[str, Callable[[Tenant, Tenant], int]]] = [
    ("another creator", lambda eve, dave: eve.wants("f1", {CREATOR: dave.user})),
    ("another's management cluster", lambda eve, dave: eve.wants("f2", {STANDS_FOR: dave.id})),
    ("one that nobody has yet", lambda eve, dave: eve.wants("f3", {STANDS_FOR: "c-m-bcdfg245"})),
    ("another workspace", lambda eve, dave: eve.wants("f4", {WORKSPACE: "fleet-local"})),
    ("marks of controllers", lambda eve, dave: eve.wants("f5", {MARK: dave.name})),
    ("the server's own name", lambda eve, dave: eve.wants("local")),
    ("another creator later", lambda eve, dave: eve.patch(f"{CLUSTERS}/{eve.name}", _annotated({CREATOR: dave.user}))),
    ("another's marks later", lambda eve, dave: eve.patch(f"{MANAGED}/{eve.id}", _annotated({MARK: dave.name}))),
    ("being internal", lambda eve, dave: eve.patch(f"{MANAGED}/{eve.id}", {"spec": {"internal": True}})),
    (
        "the server's workspace",
        lambda eve, dave: eve.patch(f"{MANAGED}/{eve.id}", {"spec": {"fleetWorkspaceName": "fleet-local"}}),
    ),
]


def _annotated(annotations: Obj) -> Obj:
    return {"metadata": {"annotations": annotations}}


@pytest.mark.parametrize("forge", [each for _, each in FORGED], ids=[name for name, _ in FORGED])
def test_requests_to_become_another_user_are_refused(eve: Tenant, dave: Tenant, forge: Callable[[Tenant, Tenant], int]) -> None:
    assert forge(eve, dave) == 422


@pytest.mark.parametrize("name", ["kube-system", "cattle-system", "local", "fleet-default", "{dave}", "c-" + "x" * 80])
def test_a_management_cluster_takes_no_existing_namespace(eve: Tenant, dave: Tenant, name: str) -> None:
    metadata = {"name": name.format(dave=dave.id)}
    for body in ({"metadata": metadata}, {"metadata": {"generateName": "kube-"}}):
        made = {"apiVersion": "management.cattle.io/v3", "kind": "Cluster", "spec": {}, **body}
        assert eve.person.request("POST", MANAGED, made).status in (409, 422)


def test_tokens_and_members_are_of_ones_own_cluster(gateway: Gateway, eve: Tenant, dave: Tenant) -> None:
    def bind(where: str, cluster: str, **whom: str) -> int:
        made = {"apiVersion": "management.cattle.io/v3", "kind": "ClusterRoleTemplateBinding", "metadata": {"generateName": "x-"}}
        path = f"/apis/management.cattle.io/v3/namespaces/{where}/clusterroletemplatebindings"
        made |= {"clusterName": cluster, "roleTemplateName": "cluster-owner", **whom}
        return eve.person.request("POST", path, made).status

    assert bind(dave.id, dave.id, userName=eve.user) == 403
    assert bind(eve.id, dave.id, userName=eve.user) == 422
    assert bind(eve.id, "local", userName=eve.user) == 422
    for nobody in ({"userName": "system:anonymous"}, {"groupName": "system:unauthenticated"}):
        assert bind(eve.id, eve.id, **nobody) == 422
    tokens = f"/apis/management.cattle.io/v3/namespaces/{eve.id}/clusterregistrationtokens"
    token = {"apiVersion": "management.cattle.io/v3", "kind": "ClusterRegistrationToken"}
    made = {**token, "metadata": {"name": "of-another"}, "spec": {"clusterName": dave.id}}
    assert eve.person.request("POST", tokens, made).status == 422
    # A token that somebody chose could be another cluster's.
    chosen = {**token, "metadata": {"name": "chosen"}, "status": {"token": "z" * 54}}
    assert eve.person.request("POST", tokens, chosen).status == 201
    secret = f"/api/v1/namespaces/{eve.id}/secrets/crt-token-chosen"
    until(lambda: gateway.endpoint.request("GET", secret).json.get("data", {}).get("token"), log=gateway)
    assert base64.b64decode(gateway.endpoint.request("GET", secret).json["data"]["token"]) != b"z" * 54
    assert eve.patch(secret, {"data": {"token": "eA=="}}) == 403


def test_lists_and_watches_show_nothing_of_others(gateway: Gateway, eve: Tenant, dave: Tenant) -> None:
    first = gateway.endpoint.request("GET", f"{CLUSTERS}?limit=1").json["metadata"].get("continue")
    assert first
    for path in (CLUSTERS, MANAGED, "/apis/provisioning.cattle.io/v1/clusters"):
        for query in ("", "?limit=1", "?watch=true&timeoutSeconds=1", "?watch=true&timeoutSeconds=1&resourceVersion=1"):
            for form in ("application/json", "application/json;as=Table;v=v1;g=meta.k8s.io"):
                answer = eve.person.request("GET", path + query, Accept=form)
                assert answer.status == 200
                assert dave.id.encode() not in answer.raw and dave.name.encode() not in answer.raw
    answer = eve.person.request("GET", f"{CLUSTERS}?limit=50&continue={first}")
    assert answer.status == 200 and dave.name.encode() not in answer.raw
    for path in (f"{CLUSTERS}?fieldSelector=metadata.name%3D{dave.name}", f"{MANAGED}?fieldSelector=metadata.name%3D{dave.id}"):
        assert eve.person.request("GET", path).status == 403
    assert eve.person.request("DELETE", CLUSTERS).status == 403


def test_a_foreign_page_does_nothing_with_a_remembered_password(gateway: Gateway, eve: Tenant) -> None:
    basic = f"Basic {base64.b64encode(eve.person.token.encode()).decode()}"
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    nobody = gateway.nobody()
    assert nobody.request("POST", path, review, Authorization=basic).status == 201
    assert nobody.request("POST", path, review, Authorization=basic, Sec_Fetch_Site="cross-site").status == 403
    assert eve.person.request("POST", path, review, Sec_Fetch_Site="cross-site").status == 201
