"""What Rancher's Terraform provider asks of a server, resource by resource, and that each write is there in the Kubernetes API.

The provider can't be built from public modules: this is its conversation, with names of its own each time. It reads an object
again until a condition is True, and gives up at one that has been False for two minutes.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from tests.e2e.serving import eventually

from .harness import CLUSTERS, MANAGED, MANAGEMENT, Gateway
from .rancher_client import RancherClient, Refused
from .test_rancher_cli import random_name, stored
from .test_registering import fronted, served

Obj = dict[str, Any]
pytestmark = pytest.mark.timeout(600)
CLUSTER = "provisioning.cattle.io.cluster"
CREDENTIALS = "/api/v1/namespaces/cattle-global-data/secrets"


@pytest.fixture(
    scope="module",
    params=[pytest.param(served, marks=pytest.mark.story), pytest.param(fronted, marks=pytest.mark.real)],
    ids=["embedded", "kubernetes"],
)
def gateway(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with request.param(tmp_path_factory.mktemp("terraform")) as started:
        started.announced()
        yield started
        assert started.tracebacks() == [], started.told()[-8000:]


class Provider:
    """A configured provider: it has made sure of the server, and of its version."""

    def __init__(self, gateway: Gateway) -> None:
        assert gateway.nobody().request("GET", "/ping").raw == b"pong"
        person = gateway.administrator()
        self.gateway = gateway
        self.norman = RancherClient(person, "/v3")
        assert self.norman.get("setting", "k8s-version")["name"] == "k8s-version"
        version = self.norman.get("setting", "server-version")["value"]
        assert tuple(map(int, version.removeprefix("v").split(".")[:2])) >= (2, 6), version
        # All objects of the second version of its resources.
        self.steve = RancherClient(person, "/k8s/clusters/local/v1")

    def change(self, type_: str, identity: str, change: Callable[[Obj], None]) -> None:
        """Read it and write it with a change, again after a conflict."""

        def is_written() -> bool:
            found = self.steve.get(type_, identity)
            change(found)
            try:
                self.steve.update(found, found)
            except Refused as error:
                assert error.status == 409, error
                return False
            return True

        eventually(is_written, 60, f"{identity} can't be written")

    def until(self, type_: str, identity: str, condition: str) -> Obj:
        """The object, once the condition is True. It is an error if it was ever False."""
        found: list[Obj] = []

        def is_true() -> bool:
            found.append(self.steve.get(type_, identity))
            said = {each["type"]: each for each in found[-1].get("status", {}).get("conditions") or ()}
            for each in said.values():
                assert each["lastUpdateTime"], each
            state = said.get(condition, {}).get("status")
            assert state != "False", said[condition]
            return bool(state == "True")

        eventually(is_true, 180, f"{identity} is not {condition}")
        return found[-1]


@pytest.fixture(scope="module")
def provider(gateway: Gateway) -> Provider:
    gateway.there(f"{MANAGEMENT}/settings/server-version")
    gateway.there(CLUSTERS)
    return Provider(gateway)


def test_a_cluster_is_created_updated_and_deleted(gateway: Gateway, provider: Provider) -> None:
    name = random_name("herd")
    spec = {"kubernetesVersion": "v1.34.1+k3s1", "rkeConfig": {}}
    body = {"type": CLUSTER, "metadata": {"name": name, "namespace": "fleet-default"}, "spec": spec}
    made = provider.steve.create(CLUSTER, body)
    identity = f"fleet-default/{name}"
    assert made["id"] == identity
    path = f"{CLUSTERS}/{name}"
    assert stored(gateway, path)["spec"]["kubernetesVersion"] == "v1.34.1+k3s1"
    found = provider.until(CLUSTER, identity, "Created")
    managed = found["status"]["clusterName"]
    # The cluster of the older API, and its registration.
    cluster = provider.norman.get("cluster", managed)
    assert (cluster["id"], cluster["name"]) == (managed, name)
    token = f"{managed}:default-token"
    eventually(lambda: bool(provider.norman.get("clusterRegistrationToken", token)["command"]))
    assert provider.norman.get("clusterRegistrationToken", token)["nodeCommand"]
    config = yaml.safe_load(provider.norman.act(cluster, "generateKubeconfig")["config"])
    assert config["clusters"][0]["cluster"]["server"].endswith(f"/k8s/clusters/{managed}")
    # An update with an old version is refused; then it is read again.
    stale = {**found, "metadata": {**found["metadata"], "resourceVersion": "1"}}
    with pytest.raises(Refused) as caught:
        provider.steve.update(found, stale)
    assert caught.value.status == 409
    provider.change(CLUSTER, identity, lambda obj: obj["spec"].update(agentEnvVars=[{"name": "HERD", "value": name}]))
    assert stored(gateway, path)["spec"]["agentEnvVars"][0]["value"] == name
    provider.steve.delete(provider.steve.get(CLUSTER, identity))
    eventually(lambda: provider.steve.is_gone(CLUSTER, identity), 180)
    eventually(lambda: provider.norman.is_gone("cluster", managed), 180)
    assert gateway.endpoint.request("GET", f"{MANAGED}/{managed}").status == 404


def test_a_cluster_is_synchronised_with_its_projects(provider: Provider) -> None:
    body = {"type": CLUSTER, "metadata": {"name": random_name("herd"), "namespace": "fleet-default"}, "spec": {"rkeConfig": {}}}
    body["spec"] = {"kubernetesVersion": "v1.34.1+k3s1", "rkeConfig": {}}
    made = provider.steve.create(CLUSTER, body)
    managed = provider.until(CLUSTER, made["id"], "Created")["status"]["clusterName"]

    def labels() -> set[str]:
        return {label for project in provider.norman.list("project", clusterId=managed) for label in project["labels"]}

    wanted = {"authz.management.cattle.io/default-project", "authz.management.cattle.io/system-project"}
    eventually(lambda: wanted <= labels(), why="the cluster has no projects")
    assert provider.norman.list("node", clusterId=managed) == []
    assert {each["type"] for each in provider.norman.get("cluster", managed)["conditions"]}
    provider.steve.delete(provider.steve.get(CLUSTER, made["id"]))
    eventually(lambda: provider.steve.is_gone(CLUSTER, made["id"]), 180)


def test_a_cloud_credential_is_made_for_a_driver_that_is_activated(gateway: Gateway, provider: Provider) -> None:
    eventually(lambda: bool(provider.norman.list("nodeDriver", name="exoscale")), why="there is no driver")
    driver = provider.norman.get("nodeDriver", "exoscale")
    if driver["state"] != "active":
        provider.norman.act(driver, "activate")
    eventually(lambda: provider.norman.get("nodeDriver", "exoscale")["state"] == "active")
    assert stored(gateway, f"{MANAGEMENT}/nodedrivers/exoscale")["spec"]["active"] is True
    schema = f"{MANAGEMENT}/dynamicschemas/exoscalecredentialconfig"
    eventually(lambda: gateway.endpoint.request("GET", schema).status == 200, why="the driver has no fields for credentials")
    key, secret = secrets.token_hex(8), secrets.token_hex(16)
    fields = {"apiKey": key, "apiSecretKey": secret}
    body = {"name": random_name("credential"), "exoscalecredentialConfig": fields, "labels": {"made-by": "terraform"}}
    made = provider.norman.create("cloudCredential", body)
    assert made["id"].startswith("cattle-global-data:cc-") and made["state"] == "active"
    path = f"{CREDENTIALS}/{made['id'].partition(':')[2]}"
    data = stored(gateway, path)["data"]
    assert base64.b64decode(data["exoscalecredentialConfig-apiSecretKey"]).decode() == secret
    for answer in (made, provider.norman.get("cloudCredential", made["id"]), provider.norman.list("cloudCredential")):
        assert secret not in json.dumps(answer)
    changed = provider.norman.update(made, {**body, "description": "changed"})
    assert changed["description"] == "changed"
    provider.norman.delete(changed)
    assert provider.norman.is_gone("cloudCredential", made["id"])
    assert gateway.endpoint.request("GET", path).status == 404


def test_a_machine_config_is_made_changed_and_deleted(gateway: Gateway, provider: Provider) -> None:
    type_ = "rke-machine-config.cattle.io.localconfig"
    driver = provider.norman.get("nodeDriver", "local")
    if driver["state"] != "active":
        provider.norman.act(driver, "activate")
    person = gateway.administrator()
    eventually(lambda: type_ in RancherClient(person, "/k8s/clusters/local/v1").types, 120, "the driver's kinds are not served")
    steve = RancherClient(person, "/k8s/clusters/local/v1")
    made = steve.create(type_, {"type": type_, "metadata": {"generateName": "nc-", "namespace": "fleet-default"}})
    path = f"/apis/rke-machine-config.cattle.io/v1/namespaces/fleet-default/localconfigs/{made['id'].partition('/')[2]}"
    assert made["id"].startswith("fleet-default/nc-") and stored(gateway, path)
    found = steve.get(type_, made["id"])
    found["metadata"]["labels"] = {"made-by": "terraform"}
    steve.update(found, found)
    assert stored(gateway, path)["metadata"]["labels"] == {"made-by": "terraform"}
    steve.delete(steve.get(type_, made["id"]))
    assert steve.is_gone(type_, made["id"])


def test_a_token_says_whether_it_is_valid(gateway: Gateway, provider: Provider) -> None:
    made = provider.norman.create("token", {"description": random_name("token"), "ttl": 3_600_000})
    found = provider.norman.get("token", made["id"])
    assert (found["enabled"], found["expired"], found["ttl"], "token" in found) == (True, False, made["ttl"], False)
    assert stored(gateway, f"{MANAGEMENT}/tokens/{made['id']}")["userId"] == found["userId"]
    provider.norman.delete(found)
    assert provider.norman.is_gone("token", made["id"])
