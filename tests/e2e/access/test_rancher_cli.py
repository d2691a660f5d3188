"""What Rancher's CLI asks of a server, command by command, and that each of its writes is there in the Kubernetes API.

The program itself can't be built from public modules: this is its conversation, with names of its own each time.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.e2e.serving import eventually

from .harness import MANAGED, MANAGEMENT, Gateway, Person
from .rancher_client import RancherClient, Refused
from .test_registering import fronted, served

Obj = dict[str, Any]
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(
    scope="module",
    params=[pytest.param(served, marks=pytest.mark.story), pytest.param(fronted, marks=pytest.mark.real)],
    ids=["embedded", "kubernetes"],
)
def gateway(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with request.param(tmp_path_factory.mktemp("cli")) as started:
        started.announced()
        yield started
        assert started.tracebacks() == [], started.told()[-8000:]


class Cli:
    """A logged-in CLI: of its context it makes four clients for every command."""

    def __init__(self, person: Person, project: str) -> None:
        cluster = project.partition(":")[0]
        self.management = RancherClient(person, "/v3")
        self.cluster = RancherClient(person, f"/v3/clusters/{cluster}")
        self.project = RancherClient(person, f"/v3/projects/{project}")
        self.steve = RancherClient(person, "/v1")


def login(person: Person) -> str:
    """`rancher login`: the project of the context; "" without any."""
    found = RancherClient(person, "/v3").list("project")
    default = [each for each in found if each["name"] == "Default"]
    return str((default or found or [{"id": ""}])[0]["id"])


@pytest.fixture(scope="module")
def cli(gateway: Gateway) -> Cli:
    admin = gateway.administrator()
    eventually(lambda: bool(login(admin)), why="the cluster local has no projects")
    return Cli(admin, login(admin))


def stored(gateway: Gateway, path: str) -> Obj:
    answer = gateway.endpoint.request("GET", path)
    assert answer.status == 200, (path, answer.body)
    return dict(answer.json)


def random_name(prefix: str) -> str:
    return f"{prefix}-{secrets.token_hex(4)}"


def test_login_of_a_user_without_a_cluster_finds_no_project(gateway: Gateway) -> None:
    person = gateway.user(random_name("newcomer"))
    assert login(person) == ""
    client = RancherClient(person, "/v3")
    assert client.list("cluster") == [] and client.list("node") == []
    with pytest.raises(Refused):
        client.create("nodeDriver", {"name": random_name("driver"), "url": "https://example.com/x"})


def test_login_chooses_the_default_project(gateway: Gateway, cli: Cli) -> None:
    cluster, _, name = login(gateway.administrator()).partition(":")
    project = stored(gateway, f"{MANAGEMENT}/namespaces/{cluster}/projects/{name}")
    assert (project["spec"]["displayName"], project["spec"]["clusterName"]) == ("Default", cluster)
    assert {each["name"] for each in cli.management.list("project", clusterId=cluster)} >= {"Default", "System"}
    assert (cli.cluster.types, cli.project.types) == ({}, {})


def test_clusters_are_made_listed_inspected_and_deleted(gateway: Gateway, cli: Cli) -> None:
    name = random_name("herd")
    made = cli.management.create("cluster", {"type": "cluster", "name": name, "description": "by the CLI"})
    path = f"{MANAGED}/{made['id']}"
    assert stored(gateway, path)["spec"] | {"displayName": name, "description": "by the CLI"} == stored(gateway, path)["spec"]
    # `clusters ls`, and a name where an id is asked for.
    assert name in {each["name"] for each in cli.management.list("cluster")}
    (found,) = cli.management.list("cluster", name=name, removed_null="1", limit="-1")
    assert found["id"] == made["id"] and found["state"] and found["transitioning"] in ("yes", "no", "error")
    # `inspect`, and `wait`, which asks until nothing is under way.
    assert cli.management.get("cluster", made["id"])["links"]["self"] == found["links"]["self"]

    # `clusters import`, `clusters add-node`.
    def commands() -> list[Obj]:
        return [each for each in cli.management.list("clusterRegistrationToken", clusterId=made["id"]) if each.get("command")]

    eventually(lambda: bool(commands()), why="there is no registration command")
    assert gateway.url in commands()[0]["command"] and commands()[0]["manifestUrl"].startswith(gateway.url)
    assert {each["clusterId"] for each in cli.management.list("clusterRegistrationToken")} >= {made["id"]}
    cli.management.delete(found)
    eventually(lambda: cli.management.is_gone("cluster", made["id"]))
    assert gateway.endpoint.request("GET", path).status == 404


def test_a_kubeconfig_is_for_the_cluster(gateway: Gateway, cli: Cli) -> None:
    (local,) = cli.management.list("cluster", name="local")
    config = yaml.safe_load(cli.management.act(local, "generateKubeconfig")["config"])
    assert config["clusters"][0]["cluster"]["server"] == f"{gateway.url}/k8s/clusters/local"
    person = Person(gateway, config["users"][0]["user"]["token"])
    assert person.request("GET", "/k8s/clusters/local/version").status == 200


def test_nodes_are_those_of_the_context(gateway: Gateway, cli: Cli) -> None:
    cluster = cli.management.create("cluster", {"name": random_name("herd")})
    eventually(lambda: gateway.endpoint.request("GET", f"/api/v1/namespaces/{cluster['id']}").status == 200)
    host = random_name("host")
    node = {"kind": "Node", "metadata": {"name": random_name("machine")}, "spec": {"requestedHostname": host, "worker": True}}
    status = {"nodeName": host, "internalNodeStatus": {"addresses": [{"type": "InternalIP", "address": "10.1.2.3"}]}}
    made = gateway.made(f"{MANAGEMENT}/namespaces/{cluster['id']}/nodes", {**node, "status": status})
    (found,) = cli.management.list("node", clusterId=cluster["id"])
    assert found["id"] == f"{cluster['id']}:{made['metadata']['name']}"
    assert (found["nodeName"], found["hostname"], found["ipAddress"], found["worker"]) == (host, host, "10.1.2.3", True)
    assert cli.management.list("node", clusterId="local", nodeName=host) == []
    # `machines ls` asks the other API.
    assert isinstance(cli.steve.list("cluster.x-k8s.io.machine"), list)
    cli.management.delete(cluster)


def test_settings_are_set(gateway: Gateway, cli: Cli) -> None:
    (setting,) = [each for each in cli.management.list("setting") if each["name"] == "ui-pl"]
    value = random_name("label")
    changed = cli.management.update(setting, {"value": value})
    assert (changed["value"], changed["customized"]) == (value, True)
    assert stored(gateway, f"{MANAGEMENT}/settings/ui-pl")["value"] == value
    cli.management.update(setting, {"value": ""})


def test_tokens_are_made_listed_and_removed(gateway: Gateway, cli: Cli) -> None:
    made = cli.management.create("token", {"description": random_name("token"), "ttl": 600_000})
    path = f"{MANAGEMENT}/tokens/{made['id']}"
    assert stored(gateway, path)["description"] == made["description"]
    assert made["token"].partition(":")[2] not in json.dumps(stored(gateway, path)), "only its hash is stored"
    assert made["id"] in {each["id"] for each in cli.management.list("token")}
    cli.management.delete(made)
    assert gateway.endpoint.request("GET", path).status == 404
    # `token`, the credential plugin of kubectl, looks for a provider first.
    providers = gateway.nobody().request("GET", "/v3-public/authProviders").json["data"]
    assert {each["id"] for each in providers} == {"local"}


def test_members_of_a_cluster_are_bound_by_their_names(gateway: Gateway, cli: Cli) -> None:
    cluster = cli.management.create("cluster", {"name": random_name("herd")})
    eventually(lambda: gateway.endpoint.request("GET", f"/api/v1/namespaces/{cluster['id']}").status == 200)
    person = gateway.user(random_name("member"))
    (principal,) = cli.management._answer(
        "POST", f"{gateway.url}/v3/principals?action=search", {"name": person.name, "principalType": "user"}
    )["data"]
    body = {"clusterId": cluster["id"], "roleTemplateId": "cluster-owner", "userPrincipalId": principal["id"]}
    made = cli.management.create("clusterRoleTemplateBinding", body)
    path = f"{MANAGEMENT}/namespaces/{cluster['id']}/clusterroletemplatebindings/{made['id'].partition(':')[2]}"
    assert stored(gateway, path)["roleTemplateName"] == "cluster-owner"
    # The member logs in, and has the cluster and its projects, and nothing else.
    eventually(lambda: len(RancherClient(person, "/v3").list("cluster")) == 1)
    eventually(lambda: login(person).partition(":")[0] == cluster["id"], why="the member sees no project")
    Cli(person, login(person))
    cli.management.delete(made)
    eventually(lambda: RancherClient(person, "/v3").list("cluster") == [])
    cli.management.delete(cluster)
