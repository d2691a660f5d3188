"""Who may do what, through the door with real tokens: two tenants on one server, and people inside a cluster behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .harness import CLUSTERS, MANAGED, Gateway, Imported, Person, kubectl, until

pytestmark = pytest.mark.story

Obj = dict[str, Any]

BINDINGS = "/apis/management.cattle.io/v3/namespaces/{}/clusterroletemplatebindings"
GLOBAL_BINDINGS = "/apis/management.cattle.io/v3/globalrolebindings"


@dataclass(frozen=True)
class Tenant:
    """Somebody who has made a cluster: its name in the workspace, and its id."""

    person: Person
    user: str
    name: str
    id: str


def wanted(name: str) -> Obj:
    metadata = {"name": name, "namespace": "fleet-default"}
    return {"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "metadata": metadata, "spec": {}}


def made(gateway: Gateway, name: str) -> Tenant:
    person = gateway.user(name)
    until(lambda: person.request("POST", CLUSTERS, wanted(f"of-{name}")).status in (201, 409))
    until(lambda: names(person, CLUSTERS) == [f"of-{name}"])
    until(lambda: len(names(person, MANAGED)) == 1 and names(person, MANAGED)[0].startswith("c-"))
    identity = names(person, MANAGED)[0]
    # What they may do in its namespace comes apart from that.
    until(lambda: person.request("GET", BINDINGS.format(identity)).status == 200)
    return Tenant(person, gateway.user_id(person), f"of-{name}", identity)


def names(person: Person, path: str) -> list[str]:
    answer = person.request("GET", path)
    return [each["metadata"]["name"] for each in answer.json["items"]] if answer.status == 200 else [str(answer.status)]


def binding(cluster: str, template: str, user: str) -> Obj:
    made = {"apiVersion": "management.cattle.io/v3", "kind": "ClusterRoleTemplateBinding"}
    metadata = {"generateName": "crtb-", "namespace": cluster}
    return {**made, "metadata": metadata, "clusterName": cluster, "roleTemplateName": template, "userName": user}


@pytest.fixture(scope="module")
def ann(gateway: Gateway) -> Iterator[Tenant]:
    yield made(gateway, "ann")


@pytest.fixture(scope="module")
def bob(gateway: Gateway) -> Iterator[Tenant]:
    yield made(gateway, "bob")


def test_a_tenant_gets_nothing_of_another(gateway: Gateway, ann: Tenant, bob: Tenant) -> None:
    token = "/api/v1/namespaces/{}/secrets/crt-token-default-token"
    until(lambda: ann.person.request("GET", token.format(ann.id)).status == 200)
    for path in (
        f"{CLUSTERS}/{bob.name}",
        f"{MANAGED}/{bob.id}",
        token.format(bob.id),
        f"/apis/management.cattle.io/v3/namespaces/{bob.id}/clusterregistrationtokens",
        BINDINGS.format(bob.id),
        "/api/v1/namespaces/fleet-default/secrets",
        "/api/v1/namespaces/cattle-global-data/secrets",
        "/api/v1/secrets",
        "/apis/management.cattle.io/v3/tokens",
        "/apis/management.cattle.io/v3/users",
        "/apis/management.cattle.io/v3/namespaces/fleet-default/clusters",
        "/apis/provisioning.cattle.io/v1/namespaces/fleet-local/clusters",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    ):
        assert ann.person.request("GET", path).status in (403, 404), path
    assert ann.person.request("DELETE", f"{CLUSTERS}/{bob.name}").status == 403
    assert ann.person.request("DELETE", CLUSTERS).status == 403
    assert names(ann.person, CLUSTERS) == [ann.name]
    assert names(ann.person, "/apis/provisioning.cattle.io/v1/clusters") == [ann.name]
    assert names(ann.person, MANAGED) == [ann.id]
    assert names(gateway.nobody(), MANAGED) == ["401"]
    assert {ann.id, bob.id} <= set(names(gateway.administrator(), MANAGED))


def test_users_can_not_raise_their_own_permissions(gateway: Gateway, ann: Tenant, bob: Tenant) -> None:
    patch = {"Content_Type": "application/merge-patch+json"}
    grab = {"apiVersion": "management.cattle.io/v3", "kind": "GlobalRoleBinding", "metadata": {"generateName": "grb-"}}
    assert ann.person.request("POST", GLOBAL_BINDINGS, {**grab, "globalRoleName": "admin", "userName": ann.user}).status == 403
    assert ann.person.request("POST", BINDINGS.format(bob.id), binding(bob.id, "cluster-owner", ann.user)).status == 403
    forged = wanted("forged")
    forged["metadata"]["annotations"] = {"field.cattle.io/creatorId": bob.user}
    assert ann.person.request("POST", CLUSTERS, forged).status == 422
    stolen = wanted("stolen")
    stolen["metadata"]["annotations"] = {"provisioning.cattle.io/management-cluster-name": bob.id}
    assert ann.person.request("POST", CLUSTERS, stolen).status == 422
    body = {"status": {"apiEndpoint": "https://192.0.2.66", "serviceAccountTokenSecret": "another"}}
    after = ann.person.request("PATCH", f"{MANAGED}/{ann.id}", body, **patch)
    assert after.status == 200, after.body
    status = after.json.get("status") or {}
    assert status.get("apiEndpoint") != "https://192.0.2.66"
    assert status.get("serviceAccountTokenSecret") != "another"
    assert ann.person.request("PATCH", f"{MANAGED}/{ann.id}", {"spec": {"internal": True}}, **patch).status == 422


def test_kubectl_lists_what_is_theirs(ann: Tenant, bob: Tenant, place: Path) -> None:
    config = ann.person.kubeconfig(place)
    for arguments in (
        ("get", "clusters.provisioning", "-n", "fleet-default", "-o", "name"),
        ("get", "clusters.provisioning", "-A"),
        ("get", "clusters.management"),
    ):
        shown = kubectl(config, *arguments)
        assert ann.name in shown or ann.id in shown
        assert bob.name not in shown
        assert bob.id not in shown
    assert "Forbidden" in kubectl(config, "get", "secrets", "-n", "fleet-default", check=False)
    assert kubectl(config, "auth", "can-i", "delete", f"clusters.management.cattle.io/{bob.id}", check=False).startswith("no\n")


def test_a_user_applies_a_new_cluster(gateway: Gateway, bob: Tenant, place: Path) -> None:
    person = gateway.user("applying")
    config = person.kubeconfig(place)
    manifest = place / "applied.json"
    manifest.write_text(json.dumps(wanted("applied")))
    until(lambda: names(person, CLUSTERS) == [])
    assert "created" in kubectl(config, "apply", "-f", str(manifest))
    until(lambda: person.request("GET", f"{CLUSTERS}/applied").status == 200)
    assert "unchanged" in kubectl(config, "apply", "-f", str(manifest))
    manifest.write_text(json.dumps({**wanted("applied"), "spec": {"localClusterAuthEndpoint": {"enabled": False}}}))
    assert "configured" in kubectl(config, "apply", "-f", str(manifest))
    # A name that another user has is not told by the read, and not taken by the creation.
    answers = [person.request("GET", f"{CLUSTERS}/{name}") for name in (bob.name, "absent")]
    assert [answer.status for answer in answers] == [404, 404]
    assert json.dumps(answers[0].json).replace(bob.name, "absent") == json.dumps(answers[1].json)
    manifest.write_text(json.dumps(wanted(bob.name)))
    assert "AlreadyExists" in kubectl(config, "apply", "-f", str(manifest), check=False)


def test_a_watch_shows_what_becomes_theirs(gateway: Gateway, ann: Tenant, bob: Tenant) -> None:
    with ann.person.stream(f"{CLUSTERS}?watch=true") as events:
        first = json.loads(events.readline())
        assert (first["type"], first["object"]["metadata"]["name"]) == ("ADDED", ann.name)
        answer = bob.person.request("POST", BINDINGS.format(bob.id), binding(bob.id, "cluster-member", ann.user))
        assert answer.status == 201, answer.body
        seen: dict[str, str] = {}
        while seen.get("name") != bob.name:
            event = json.loads(events.readline())
            seen = {"type": event["type"], "name": event["object"]["metadata"]["name"]}
        assert seen["type"] == "ADDED"
        # A member sees, and does not write.
        until(lambda: ann.person.request("GET", f"{MANAGED}/{bob.id}").status == 200)
        assert ann.person.request("DELETE", f"{MANAGED}/{bob.id}").status == 403
        assert ann.person.request("POST", BINDINGS.format(bob.id), binding(bob.id, "cluster-owner", ann.user)).status == 403
        gone = bob.person.request("DELETE", f"{BINDINGS.format(bob.id)}/{answer.json['metadata']['name']}")
        assert gone.status == 200
        while (event := json.loads(events.readline()))["type"] != "DELETED":
            pass
        assert event["object"]["metadata"]["name"] == bob.name
    assert names(ann.person, CLUSTERS) == [ann.name]


def test_each_user_has_their_role_inside_a_cluster(gateway: Gateway, imported: Imported) -> None:
    outsider, member, reader = gateway.user("outsider"), gateway.user("member"), gateway.user("reader")
    gateway.bind(imported.id, member, "cluster-member")
    gateway.bind(imported.id, reader, "cluster-readonly")
    nodes, pods, secrets = (imported.path(f"/api/v1/{each}") for each in ("nodes", "pods", "secrets"))
    until(lambda: member.request("GET", nodes).status == 200)
    until(lambda: reader.request("GET", pods).status == 200)
    assert member.request("GET", secrets).status == 403
    assert reader.request("GET", secrets).status == 403
    assert reader.request("DELETE", imported.path("/api/v1/nodes/x")).status == 403
    assert outsider.request("GET", nodes).status in (401, 403, 404)
    imported.lets_in(gateway.administrator())
    # What is taken away is gone inside, too.
    listed = gateway.administrator().request("GET", BINDINGS.format(imported.id)).json["items"]
    mine = next(each["metadata"]["name"] for each in listed if each.get("userName") == gateway.user_id(member))
    assert gateway.administrator().request("DELETE", f"{BINDINGS.format(imported.id)}/{mine}").status == 200
    until(lambda: member.request("GET", nodes).status in (401, 403, 404))
