"""Node drivers through the door, with real tokens: what a server that just started offers, and what users can't make it run."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .fronted import fronted
from .harness import CLUSTERS, Gateway, Person, kubectl, until

Obj = dict[str, Any]
DRIVERS = "/apis/management.cattle.io/v3/nodedrivers"
SCHEMAS = "/apis/management.cattle.io/v3/dynamicschemas"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CONFIGS = "/apis/rke-machine-config.cattle.io/v1/namespaces/fleet-default"
MACHINES = "/apis/rke-machine.cattle.io/v1/namespaces/fleet-default"
SECRETS = "/api/v1/namespaces/cattle-global-data/secrets"
JSON_PATCH = {"Content-Type": "application/merge-patch+json"}


BOTH = (
    pytest.param("embedded", marks=pytest.mark.story),
    pytest.param("kubernetes", marks=[pytest.mark.real, pytest.mark.timeout(600)]),
)


@pytest.fixture(scope="module", params=BOTH)
def gateway(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """With everything: who makes machines of pools needs Cluster API."""
    directory = tmp_path_factory.mktemp(request.param)
    opened = Gateway(directory / "gateway", "--controllers=*") if request.param == "embedded" else fronted(directory)
    with opened as started:
        if request.param == "embedded":
            started.announced()
        else:
            until(lambda: _knows_who_holds_what(started))
        yield started
        assert started.alive, started.told()
        assert started.tracebacks() == [], started.told()[-8000:]


def _knows_who_holds_what(gateway: Gateway) -> bool:
    """Before that its rules let nobody be given anything."""
    said = {"metadata": {"name": "any"}, "globalRoleName": "user", "userName": "u-any"}
    body = json.dumps({"apiVersion": "management.cattle.io/v3", "kind": "GlobalRoleBinding", **said}).encode()
    path = "/apis/management.cattle.io/v3/globalrolebindings?dryRun=All"
    return gateway.endpoint.request("POST", path, body, {"Content-Type": "application/json"}).status == 201


@pytest.fixture(scope="module")
def admin(gateway: Gateway) -> Person:
    return gateway.administrator()


@pytest.fixture(scope="module")
def ann(gateway: Gateway) -> Person:
    person = gateway.user("ann")
    until(lambda: person.request("GET", f"{SCHEMAS}/azureconfig").status == 200)
    return person


@pytest.fixture(scope="module")
def reader(gateway: Gateway) -> Person:
    person = gateway.user("reader", "read-only")
    until(lambda: person.request("GET", DRIVERS).status == 200)
    return person


def driver(name: str, **spec: Any) -> Obj:
    said = {"displayName": name, "active": True, "url": "https://example.com/d", "checksum": "0" * 64, **spec}
    return {"apiVersion": "management.cattle.io/v3", "kind": "NodeDriver", "metadata": {"name": name}, "spec": said}


def config(kind: str, name: str, **fields: Any) -> Obj:
    metadata = {"name": name, "namespace": "fleet-default"}
    return {"apiVersion": "rke-machine-config.cattle.io/v1", "kind": kind, "metadata": metadata, **fields}


def test_a_server_that_just_started_offers_machines(ann: Person, tmp_path: Path) -> None:
    kubeconfig = ann.kubeconfig(tmp_path)

    def explained() -> bool:
        return "FIELDS:" in kubectl(kubeconfig, "explain", "amazonec2config", check=False)

    until(explained)
    said = kubectl(kubeconfig, "explain", "amazonec2config.instanceType")
    assert "AWS instance type" in said
    made = ann.request("POST", f"{CONFIGS}/amazonec2configs", config("Amazonec2Config", "of-ann", region="eu-west-1"))
    assert (made.status, made.json["region"], made.json["instanceType"]) == (201, "eu-west-1", "t2.micro")


def test_kinds_come_a_moment_after_a_driver_is_activated_and_go_again(admin: Person) -> None:
    def served() -> int:
        return admin.request("GET", f"{CONFIGS}/softlayerconfigs").status

    until(lambda: admin.request("GET", f"{DRIVERS}/softlayer").status == 200)
    assert served() == 404
    assert admin.request("PATCH", f"{DRIVERS}/softlayer", {"spec": {"active": True}}, **JSON_PATCH).status == 200
    until(lambda: served() == 200)
    assert admin.request("PATCH", f"{DRIVERS}/softlayer", {"spec": {"active": False}}, **JSON_PATCH).status == 200
    until(lambda: served() == 404)


def test_users_can_t_bring_a_program_onto_the_server(gateway: Gateway, ann: Person, reader: Person) -> None:
    for person in (ann, reader, gateway.user("base", "user-base"), gateway.nobody()):
        for method, path, body in (
            ("POST", DRIVERS, driver("evil")),
            ("PATCH", f"{DRIVERS}/linode", {"spec": {"active": True, "url": "https://example.com/evil"}}),
            ("PATCH", f"{DRIVERS}/local", {"spec": {"active": True}}),
            ("PATCH", f"{SCHEMAS}/azureconfig", {"spec": {"resourceFields": {"evil": {"type": "string"}}}}),
            ("POST", CRDS, {}),
            ("POST", f"{MACHINES}/azuremachines", {}),
            ("POST", f"{MACHINES}/localmachinetemplates", {}),
            ("POST", "/apis/batch/v1/namespaces/fleet-default/jobs", {}),
            ("POST", "/api/v1/namespaces/fleet-default/pods", {}),
        ):
            headers = JSON_PATCH if method == "PATCH" else {}
            assert person.request(method, path, body, **headers).status in (401, 403), (method, path)


def test_what_is_downloaded_needs_a_checksum(admin: Person) -> None:
    refused = admin.request("POST", DRIVERS, driver("theirs", checksum=""))
    assert refused.status == 422 and "spec.checksum" in refused.json["message"]


def test_users_can_t_have_hosts_beside_the_server(gateway: Gateway, ann: Person) -> None:
    # The kinds of one driver come after those of another.
    gateway.there(f"{CONFIGS}/localconfigs")
    refused = ann.request("POST", f"{CONFIGS}/localconfigs", config("LocalConfig", "evil"))
    assert refused.status == 403 and "the verb use on nodedrivers local" in refused.json["message"]
    pool = {"name": "w", "workerRole": True, "machineConfigRef": {"kind": "LocalConfig", "name": "evil"}}
    spec = {"kubernetesVersion": "v1.34.1+remuda1", "rkeConfig": {"machinePools": [pool]}}
    metadata = {"name": "evil", "namespace": "fleet-default"}
    cluster = {"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "metadata": metadata, "spec": spec}
    refused = ann.request("POST", CLUSTERS, cluster)
    assert refused.status in (403, 422) and "the verb use on nodedrivers local" in refused.json["message"]


def credential(name: str, **fields: str) -> Obj:
    data = {f"azurecredentialConfig-{field}": value for field, value in fields.items()}
    metadata = {"name": name, "namespace": "cattle-global-data"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data}


def test_a_credential_is_its_maker_s(gateway: Gateway, ann: Person, reader: Person) -> None:
    # By which it is known what belongs to one.
    gateway.there(f"{SCHEMAS}/azurecredentialconfig")
    fields = {"clientId": "c", "subscriptionId": "s", "environment": "AzurePublicCloud"}
    # The rules hear of it a moment later, and of what people may do, too.
    until(lambda: ann.request("POST", f"{SECRETS}?dryRun=All", credential("cc-ann", **fields)).status == 422)
    refused = ann.request("POST", SECRETS, credential("cc-ann", **fields))
    assert refused.status == 422 and "azurecredentialConfig-clientSecret" in refused.json["message"]
    assert ann.request("POST", SECRETS, credential("cc-ann", clientSecret="x", **fields)).status == 201
    until(lambda: ann.request("GET", f"{SECRETS}/cc-ann").status == 200)
    found = ann.request("GET", f"{SECRETS}/cc-ann").json["data"]
    assert base64.b64decode(found["azurecredentialConfig-clientSecret"]) == b"x"
    for person in (reader, gateway.user("bob")):
        assert person.request("GET", f"{SECRETS}/cc-ann").status == 403
    assert ann.request("GET", SECRETS).status == 403, "what else is there is nobody's to see"
    token = {**credential("cc-other"), "type": "kubernetes.io/service-account-token"}
    token["metadata"]["annotations"] = {"kubernetes.io/service-account.name": "default"}
    assert ann.request("POST", SECRETS, token).status == 403


def test_a_key_in_a_config_is_sealed_however_kubectl_writes_it(
    ann: Person, admin: Person, reader: Person, tmp_path: Path
) -> None:
    key = "-----BEGIN OPENSSH PRIVATE KEY-----\nbm90IGEga2V5\n-----END OPENSSH PRIVATE KEY-----\n"
    # Users may not read what does not exist yet, as `kubectl apply` does first.
    mine, file = admin.kubeconfig(tmp_path), tmp_path / "config.json"
    until(lambda: ann.request("GET", f"{SCHEMAS}/digitaloceanconfig").status == 200)
    until(lambda: "a marker" in " ".join(kubectl(mine, "explain", "digitaloceanconfig.sshKeyContents", check=False).split()))

    def shown() -> Obj:
        made: Obj = admin.request("GET", f"{CONFIGS}/digitaloceanconfigs/keyed").json
        assert "PRIVATE KEY" not in json.dumps(made) and made["sshKeyContents"].startswith("remuda.dev/sealed:")
        return made

    def version() -> tuple[str, str]:
        made = shown()
        return made["sshKeyContents"], made["metadata"]["resourceVersion"]

    file.write_text(json.dumps(config("DigitaloceanConfig", "keyed", sshKeyContents=key, size="s-1vcpu-2gb")))
    kubectl(mine, "apply", "--dry-run=server", "-f", str(file))
    assert (
        admin.request("GET", "/api/v1/namespaces/fleet-default/secrets?fieldSelector=type=remuda.dev/sealed").json["items"] == []
    )
    kubectl(mine, "apply", "-f", str(file))
    first = version()
    kubectl(mine, "apply", "-f", str(file))
    assert version() == first, "the same YAML again is no change"
    kubectl(mine, "apply", "--server-side", "--force-conflicts", "-f", str(file))
    sided = version()
    kubectl(mine, "apply", "--server-side", "-f", str(file))
    assert version() == sided and sided[0] == first[0]
    kubectl(mine, "replace", "-f", str(file))
    assert version()[0] == first[0]
    # Whoever reads the config does not read the Secret, and can't have the value by its marker.
    secret = f"/api/v1/namespaces/fleet-default/secrets/sealed-{first[0].rpartition(':')[2]}"
    assert base64.b64decode(admin.request("GET", secret).json["data"]["value"]).decode() == key
    for person in (ann, reader):
        assert person.request("GET", secret).status == 403
    copied = ann.request("POST", f"{CONFIGS}/digitaloceanconfigs", config("DigitaloceanConfig", "copy", sshKeyContents=first[0]))
    assert copied.status == 422 and "sshKeyContents" in copied.json["message"]
    # Another value is another marker.
    file.write_text(json.dumps(config("DigitaloceanConfig", "keyed", sshKeyContents=key.replace("bm90", "b3Ro"))))
    kubectl(mine, "apply", "-f", str(file))
    assert version()[0] != first[0]
