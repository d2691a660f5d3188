"""States in which no host has come, on one server: the cause, the party that ends it, and what its commands bring about."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from remuda.hosts.hosts import Host, Hosts
from remuda.provisioning.well_known import ASKED_AT, PLAN_UPDATED
from tests.api.hooks import HookServer, allow, refusing
from tests.e2e.access.fronted import fronted
from tests.e2e.access.harness import CLUSTERS, Agent, Cluster, Embedded, Gateway
from tests.e2e.clouds.ocean import TOKEN, Ocean, refused
from tests.e2e.clouds.rig import Fault
from tests.e2e.serving import eventually
from tests.real import need
from tests.real.pki import Authority

from .explainer import Explainer

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

Obj = dict[str, Any]
WORKSPACE, VERSION = "fleet-default", "v1.34.1+remuda1"
AGENT = "rancher-system-agent"
CREDENTIAL = "digitaloceancredentialConfig-accessToken"


@pytest.fixture(scope="module")
def ocean() -> Iterator[Ocean]:
    with Ocean().beside() as opened:
        yield opened


def served(directory: Path, environ: dict[str, str]) -> Gateway:
    return Gateway(directory / "server", "--controllers=*", environ=environ)


def fronting(directory: Path, environ: dict[str, str]) -> AbstractContextManager[Gateway]:
    return fronted(directory, environ, "--job-runner=local")


@pytest.fixture(
    scope="module", params=[served, pytest.param(fronting, marks=pytest.mark.variant)], ids=["embedded", "kubernetes"]
)
def gateway(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, ocean: Ocean) -> Iterator[Gateway]:
    environ = {"DIGITALOCEAN_API_URL": ocean.way.url, "REMUDA_OUTBOUND_POLICY": "allow:127.0.0.0/8"}
    environ["REMUDA_ETCD_BINARY"] = str(need.programs("etcd")["etcd"])
    environ["CATTLE_WHITELIST_ENVVARS"] = "HTTP_PROXY,HTTPS_PROXY,NO_PROXY,DIGITALOCEAN_API_URL"
    with request.param(tmp_path_factory.mktemp("explaining"), environ) as started:
        started.announced()
        started.there(f"/api/v1/namespaces/{WORKSPACE}")
        started.there(CLUSTERS)
        yield started
        assert started.tracebacks() == [], started.told()[-8000:]


@pytest.fixture(scope="module")
def hosts(gateway: Gateway) -> Iterator[Hosts]:
    """Those of the driver local; none outlives the tests."""
    found = Hosts(gateway.directory / "hosts")
    yield found
    for each in found.all():
        found.remove(each.name)


@pytest.fixture(scope="module")
def user(gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Explainer:
    return Explainer(gateway, tmp_path_factory.mktemp("user"))


def cluster(name: str, *pools: Obj, version: str = VERSION, imported: bool = False, **spec: Any) -> Obj:
    body: Obj = {} if imported else {"kubernetesVersion": version, "rkeConfig": {"machinePools": list(pools), **spec}}
    meta = {"name": name, "namespace": WORKSPACE}
    return {"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "metadata": meta, "spec": body}


def pool(name: str = "all", kind: str = "LocalConfig", config: str = "any", quantity: int = 0, **fields: Any) -> Obj:
    """Without machines, unless a test asks for them."""
    roles = {"etcdRole": True, "controlPlaneRole": True, "workerRole": True}
    return {"name": name, "quantity": quantity, "machineConfigRef": {"kind": kind, "name": config}, **roles, **fields}


def local_config(name: str) -> Obj:
    meta = {"name": name, "namespace": WORKSPACE}
    return {"apiVersion": "rke-machine-config.cattle.io/v1", "kind": "LocalConfig", "metadata": meta}


def is_code(*codes: str) -> Any:
    return lambda each: each.code in codes


def goes_on(user: Explainer, cluster: str, what: str) -> None:
    """The state before is over: hosts are the next thing that the cluster waits for, and all."""
    user.until(
        cluster,
        lambda cause: cause.code == "Roles" and cause.kind == "RKEControlPlane",
        what,
        actor="user",
        advice="Register hosts: run the output of the command on each host",
    )


@pytest.mark.story
def test_a_paused_cluster_goes_on_by_the_command(user: Explainer) -> None:
    user.apply(cluster("paused"))
    goes_on(user, "paused", "it begins")
    user.run("""kubectl -n fleet-default patch clusters.cluster.x-k8s.io paused --type merge -p '{"spec":{"paused":true}}'""")
    # Others may say first that it is.
    found = user.until("paused", says("spec.paused is set to true"), "it is paused", actor="user", advice="Remove the pause")
    assert (found.code, found.kind) == ("Paused", "Cluster")
    user.does(found)
    goes_on(user, "paused", "it goes on")


def test_a_webhook_that_is_down_is_named_and_goes_by_the_command(user: Explainer) -> None:
    """A wait of earlier must not stand: the cluster was paused before."""
    user.apply(cluster("hooked"))
    goes_on(user, "hooked", "it begins")
    pause = "kubectl -n fleet-default patch clusters.cluster.x-k8s.io hooked --type merge -p "
    user.run(f"""{pause} '{{"spec":{{"paused":true}}}}'""")
    user.until("hooked", is_code("Paused"), "it is paused", actor="user", advice="Remove the pause")
    user.apply(webhook("policies", "rkecontrolplanes", "rkecontrolplanes/status"))
    user.run(f"""{pause} '{{"spec":{{"paused":false}}}}'""")
    found = user.until(
        "hooked", is_code("Failed"), "the webhook does not answer", actor="user", advice="Start the service of the webhook"
    )
    assert 'failed calling webhook "v.policies.example.com"' in found.message
    assert found.on == "ValidatingWebhookConfiguration policies"
    assert not any(each.code == "Paused" for each in user.causes("hooked"))
    assert found.commands == ("kubectl delete validatingwebhookconfiguration policies",)
    user.does(found)
    goes_on(user, "hooked", "it goes on")
    user.gone("hooked", is_code("Failed"))


def test_a_webhook_that_denies_is_named_and_not_to_be_deleted(user: Explainer, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "hook-ca")
    pair = authority.serving("hook", ("127.0.0.1",))
    server = HookServer(pair.cert, pair.key)
    server.answers["/policy"] = refusing(message="no label team", code=403)
    try:
        made = webhook("teams", "rkecontrolplanes")
        bundle = base64.b64encode(authority.pair.cert.read_bytes()).decode()
        made["webhooks"][0]["clientConfig"] = {"url": f"https://127.0.0.1:{server.port}/policy", "caBundle": bundle}
        user.apply(made)
        user.apply(cluster("denied"))
        found = user.until(
            "denied", lambda each: "no label team" in each.message, "the webhook says no", actor="user", advice="Change what"
        )
        assert found.on == "ValidatingWebhookConfiguration teams" and not found.commands
        assert "kubectl get validatingwebhookconfiguration teams -o yaml" in found.advice
        server.answers["/policy"] = allow
        # It would be tried again by itself, later each time.
        user.run("kubectl -n fleet-default annotate clusters.provisioning.cattle.io denied try=again")
        goes_on(user, "denied", "the policy has been changed")
    finally:
        user.run("kubectl delete validatingwebhookconfiguration teams --ignore-not-found")
        server.close()


def webhook(name: str, *resources: str) -> Obj:
    rule = {"apiGroups": ["rke.cattle.io"], "apiVersions": ["*"], "operations": ["*"], "resources": list(resources)}
    hook = {
        "name": f"v.{name}.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 2,
    }
    api = "admissionregistration.k8s.io/v1"
    return {"apiVersion": api, "kind": "ValidatingWebhookConfiguration", "metadata": {"name": name}, "webhooks": [hook]}


def test_a_role_that_no_pool_has_is_named_with_the_command_for_a_host(user: Explainer) -> None:
    said = user.apply(local_config("rolesconfig"), cluster("roles", pool(config="rolesconfig", etcdRole=False)))
    assert "Warning: spec.rkeConfig.machinePools: the machine pools lack roles (missing: etcd)" in said
    found = user.until("roles", is_code("Roles"), "a role is missing", actor="user", advice="Register hosts")
    assert found.kind == "Cluster" and "(missing: etcd): set etcdRole: true" in found.message
    (command,) = user.does(found)
    assert command.rstrip().endswith("--etcd") and "sh -s - --server" in command


def test_a_driver_that_is_not_active_is_activated_by_the_command(user: Explainer) -> None:
    user.apply(cluster("asleep", pool(kind="ContainerConfig")))
    found = user.until(
        "asleep", is_code("Reference"), "its driver is not active", actor="user", advice="Activate the node driver"
    )
    assert "activate the node driver container" in found.message
    assert found.on == "NodeDriver container"
    user.does(found)
    found = user.until(
        "asleep",
        lambda each: "there is no ContainerConfig" in each.message,
        "the driver can be used",
        actor="user",
        advice="Create",
    )
    assert found.code == "Reference" and not found.commands


def test_a_driver_that_does_not_exist_is_not_to_be_activated(user: Explainer) -> None:
    said = user.apply(cluster("nowhere", pool(kind="NowhereConfig")))
    assert "there is no node driver nowhere" in said
    found = user.until(
        "nowhere", is_code("Reference"), "there is no such driver", actor="user", advice="Create the object that is referred to"
    )
    assert "there is no node driver nowhere" in found.message and not found.commands


def test_a_machine_config_that_is_missing_is_named(user: Explainer) -> None:
    user.apply(cluster("bare", pool(config="bareconfig")))
    found = user.until(
        "bare",
        is_code("Reference"),
        "its machine config is missing",
        actor="user",
        advice="Create the object that is referred to",
    )
    assert "there is no LocalConfig fleet-default/bareconfig" in found.message
    user.apply(local_config("bareconfig"))
    user.gone("bare", is_code("Reference"))


def test_a_machine_config_of_another_cluster_is_refused(user: Explainer) -> None:
    user.apply(local_config("shared"), cluster("first", pool(config="shared")))
    goes_on(user, "first", "it has the config")
    said = user.apply(cluster("second", pool(config="shared")))
    assert "spec.rkeConfig.machinePools[0].machineConfigRef.name" in said
    assert "this LocalConfig belongs to the cluster first: make one for each cluster" in said


def test_a_pool_that_lacks_one_thing_after_the_other_becomes_ready(user: Explainer, hosts: Hosts) -> None:
    """A credential, a machine config, and at last a role: each is named, and made."""
    made = cluster("poor", pool(config="poorconfig", quantity=1, etcdRole=False))
    made["spec"]["cloudCredentialSecretName"] = "cattle-global-data:cc-poor"
    user.apply(made)
    found = user.until("poor", is_code("Reference"), "its credential is missing", actor="user", advice="Create the object")
    assert "cc-poor" in found.message and found.on == "Secret cc-poor"
    user.run("kubectl -n cattle-global-data create secret generic cc-poor")
    config = says("there is no LocalConfig fleet-default/poorconfig")
    user.until("poor", config, "its machine config is missing", actor="user", advice="Create the object that is referred to")
    user.apply(local_config("poorconfig"))
    found = user.until("poor", is_code("Roles"), "a role is missing", actor="user", advice="Register hosts")
    assert "(missing: etcd): set etcdRole: true" in found.message
    role = [{"op": "replace", "path": "/spec/rkeConfig/machinePools/0/etcdRole", "value": True}]
    user.run(f"kubectl -n fleet-default patch clusters.provisioning.cattle.io poor --type json -p '{json.dumps(role)}'")
    user.run("kubectl -n fleet-default wait clusters.provisioning.cattle.io poor --for=condition=Ready --timeout=500s")
    user.gone("poor", lambda each: True)
    assert len(hosts.all()) == 1
    user.run("kubectl -n fleet-default delete clusters.provisioning.cattle.io poor --timeout=170s")


def test_what_a_cluster_was_lent_is_accepted_again_by_the_command(user: Explainer, hosts: Hosts) -> None:
    """Its author may read the Secret no more, the Secret is another, and a paused pool: each command is needed for the next."""
    user.run("kubectl create clusterrolebinding lender --clusterrole=cluster-admin --user=lender")
    user.run("kubectl -n cattle-global-data create secret generic cc-lent")
    made = cluster("lent", pool(config="lentconfig"))
    made["spec"]["cloudCredentialSecretName"] = "cattle-global-data:cc-lent"
    user.apply(local_config("lentconfig"), made, as_user="lender")
    goes_on(user, "lent", "it begins")

    user.run("kubectl delete clusterrolebinding lender")
    found = user.until(
        "lent", says("may not read it any more"), "its author is no reader", actor="user", advice="If the cluster may"
    )
    assert found.code == "Reference" and "lender, who named " in found.message
    user.does(found)
    goes_on(user, "lent", "it was accepted")

    secret = "kubectl -n cattle-global-data {} secret generic cc-lent"
    user.run(f"{secret.format('delete').replace(' generic', '')} && {secret.format('create')} --from-literal=new=one")
    found = user.until("lent", says("but a new one of its name"), "the Secret is new", actor="user", advice="If the cluster may")
    assert found.code == "Reference" and found.on == "Secret cc-lent"
    user.does(found)
    goes_on(user, "lent", "the new one was accepted")

    deployments = "kubectl -n fleet-default {} machinedeployments.cluster.x-k8s.io -l cluster.x-k8s.io/cluster-name=lent"
    user.run(f"{deployments.format('annotate')} cluster.x-k8s.io/paused=true")
    wanted = [{"op": "replace", "path": "/spec/rkeConfig/machinePools/0/quantity", "value": 1}]
    user.run(f"kubectl -n fleet-default patch clusters.provisioning.cattle.io lent --type json -p '{json.dumps(wanted)}'")
    found = user.until("lent", is_code("Paused"), "its pool is paused", actor="user", advice="Remove the pause")
    assert found.kind == "MachineDeployment"
    user.does(found)
    user.run("kubectl -n fleet-default wait clusters.provisioning.cattle.io lent --for=condition=Ready --timeout=500s")
    user.gone("lent", lambda each: True)
    (host,) = hosts.all()
    _restarts_a_silent_agent(user, "lent", host)
    user.run("kubectl -n fleet-default delete clusters.provisioning.cattle.io lent --timeout=170s")


def _restarts_a_silent_agent(user: Explainer, cluster: str, host: Host) -> None:
    """On a machine that can be entered the command does it."""
    assert host.systemctl("stop", AGENT, seconds=60)[0] == 0
    (secret,) = user.run(f"kubectl -n {WORKSPACE} get secrets -o name | grep '/{cluster}-.*-machine-plan$'").split()
    long_ago = " ".join(f"{name}=2026-01-01T00:00:00Z" for name in (PLAN_UPDATED, ASKED_AT))

    def is_told() -> bool:
        user.run(f"kubectl -n {WORKSPACE} annotate --overwrite {secret} {long_ago}")
        return any(each.code == "Silent" for each in user.causes(cluster))

    eventually(is_told, 120, "the agent is silent", every=1.0)
    found = user.until(cluster, is_code("Silent"), "its agent is stopped", actor="user", advice="Start the host if it is off")
    user.does(found)
    assert host.systemctl("is-active", AGENT, seconds=60)[1].strip() == "active"
    user.gone(cluster, lambda each: True)


def test_what_a_provider_refuses_is_told_in_its_words_and_by_the_party_that_can_mend_it(user: Explainer, ocean: Ocean) -> None:
    """A wrong credential, a quota, and a machine that it does not let go."""

    def credential(token: str) -> Obj:
        meta = {"name": "ocean", "namespace": "cattle-global-data"}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {CREDENTIAL: token}}

    meta = {"name": "ocean", "namespace": WORKSPACE}
    config = {"apiVersion": "rke-machine-config.cattle.io/v1", "kind": "DigitaloceanConfig", "metadata": meta}
    made = cluster("ocean", pool(kind="DigitaloceanConfig", config="ocean", quantity=1))
    made["spec"]["cloudCredentialSecretName"] = "cattle-global-data:ocean"
    ocean.limit = 0
    user.apply(credential("wrong"), config, made)
    found = user.until("ocean", says("AuthFailed"), "the token is wrong", actor="user", advice="Correct the cloud credential")
    assert found.kind == "DigitaloceanMachine" and "Unable to authenticate you" in found.message
    user.apply(credential(TOKEN))
    found = user.until("ocean", says("QuotaExceeded"), "there is no room", actor="user", advice="Request a higher quota")
    assert "will exceed your droplet limit" in found.message
    ocean.limit = 10
    machines = "kubectl -n fleet-default get digitaloceanmachines.rke-machine.cattle.io -o name"
    eventually(lambda: bool(ocean.droplets), 240, "the machine is made", every=1.0)

    ocean.way.faults.append(
        Fault("DELETE /v2/droplets/ID", lambda: refused(403, "forbidden", "You are not allowed to do that"), times=-1)
    )
    user.run("kubectl -n fleet-default delete clusters.provisioning.cattle.io ocean --wait=false")
    found = user.until("ocean", says("PermissionDenied"), "it may not go", actor="user", advice="the command skips its removal")
    assert found.kind == "DigitaloceanMachine" and "You are not allowed to do that" in found.message
    user.does(found)
    eventually(lambda: not user.run(machines), 120, "the machine is let go", every=1.0)
    assert ocean.droplets


def says(words: str) -> Any:
    return lambda each: words in each.message


def test_an_import_that_never_connected_is_connected_by_the_command(user: Explainer, gateway: Gateway, tmp_path: Path) -> None:
    user.apply(cluster("afar", imported=True))
    found = user.until(
        "afar", is_code("ClusterAgent"), "it never connected", actor="user", advice="Run the output of the command where kubectl"
    )
    assert (found.kind, found.message) == ("Cluster", "its agent has never connected")
    text = user.run("remuda explain afar")
    assert "action: you" in text and "\n  $ remuda cluster registration-command afar -n fleet-default\n" in text
    (command,) = user.does(found)
    assert command.rstrip().endswith("| kubectl apply -f -")
    with Embedded(tmp_path) as other:
        user.run(f"KUBECONFIG={other.kubeconfig} sh -ec {shlex.quote(command)}")
        agent = "/apis/apps/v1/namespaces/cattle-system/deployments/cattle-cluster-agent"
        assert other.endpoint().request("GET", agent).status == 200
        identifier = gateway.endpoint.request("GET", f"{CLUSTERS}/afar").json["status"]["clusterName"]
        # It has no nodes: what its pod would run is a process here.
        with Agent(Cluster(gateway, "afar", identifier), other):
            user.gone("afar", lambda each: True)
            assert user.explained("afar")["state"] == "active"
    user.run("kubectl -n fleet-default delete clusters.provisioning.cattle.io afar --wait=false")


def test_a_template_of_a_kind_that_is_not_there_is_the_cause(user: Explainer) -> None:
    """As when the CRDs of a provider are not installed."""
    foreign = {"apiVersion": "infrastructure.example.com/v1", "kind": "ForeignMachineTemplate", "name": "x"}
    user.apply(cluster("foreign", {**pool(quantity=1), "machineConfigRef": foreign}))
    found = user.until(
        "foreign", lambda each: "ForeignMachineTemplate" in each.message, "the kind is not there", actor="user", advice="Create"
    )
    assert found.code == "Reference"
    assert found.kind in ("MachineDeployment", "MachineSet", "Cluster"), found


def test_a_quota_that_allows_no_machine_is_told_in_the_words_of_the_api(user: Explainer) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "tight", "namespace": WORKSPACE},
        "spec": {"hard": {"count/machines.cluster.x-k8s.io": "0"}},
    }
    user.apply(quota, local_config("quotaconfig"))
    user.run("kubectl -n fleet-default wait --for=jsonpath='{.status.hard}' resourcequota/tight --timeout=60s")
    user.apply(cluster("tight", pool(config="quotaconfig", quantity=1)))
    try:
        found = user.until("tight", is_code("Refused"), "the quota is used up", actor="user", advice="why the API refuses it")
        assert found.kind == "MachineSet" and "exceeded quota: tight" in found.message
    finally:
        user.run("kubectl -n fleet-default delete clusters.provisioning.cattle.io tight --wait=true")
        user.run("kubectl -n fleet-default delete resourcequota tight")


def test_what_has_no_effect_is_a_note(user: Explainer) -> None:
    said = user.apply(cluster("noted", additionalManifest="a: ["))
    assert "Warning: spec.rkeConfig.additionalManifest can't be applied: it is no YAML" in said
    found = user.until_noted("noted", is_code("WithoutEffect"), "the manifest is broken", advice="Nothing waits for it")
    assert "additionalManifest can't be applied" in found.message
    # It is no reason why the cluster does not continue.
    goes_on(user, "noted", "it goes on")
    assert user.explained("noted")["toDo"][-1].startswith("noted: Nothing waits for it.")


def test_a_version_that_does_not_exist_is_warned_of_with_those_that_do(user: Explainer) -> None:
    said = user.apply(cluster("future", version="v1.99.0+remuda1"))
    assert "v1.99.0+remuda1 is not a known version" in said and VERSION in said
    listed = json.loads(user.run("remuda versions -o json"))
    assert VERSION in listed["remuda"] and listed == json.loads(user.run("remuda versions --client -o json"))


def test_a_bad_name_of_a_pool_is_refused_by_field(user: Explainer) -> None:
    said = user.apply(local_config("badconfig"), cluster("bad", pool(name="not/a name", config="badconfig")))
    assert "spec.rkeConfig.machinePools[0].name" in said
